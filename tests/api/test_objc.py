"""The PyObjC view: a script written for PyObjC runs, and every selector of the API list is there."""

from __future__ import annotations

import copy
import pickle
import subprocess
import sys

import numpy as np
import pytest
import torch

import mlc_torch
import mlc_torch.objc as MLCompute
from mlc_torch.coverage.api import api, constants
from mlc_torch.objc import objc_object, unwrap, wrap
from mlc_torch.objc.members import object_members
from mlc_torch.spelling import static_prop

# A program as PyObjC users write it: four points, one dense layer, plain gradient descent.
SCRIPT = """
import numpy as np
import MLCompute
from MLCompute import MLCDataTypeFloat32, MLCTensor, MLCTensorData

def tensor_data(array):
    return MLCTensorData.dataWithBytesNoCopy_length_(array, array.nbytes)

weights_memory = np.zeros(2, np.float32)
descriptor = MLCompute.MLCTensorDescriptor.descriptorWithShape_dataType_([1, 2, 1, 1], MLCDataTypeFloat32)
weights = MLCTensor.tensorWithDescriptor_data_(descriptor, tensor_data(weights_memory))
source = MLCTensor.tensorWithShape_([4, 2])
label = MLCTensor.tensorWithShape_([4, 1])
source.setLabel_("x")
assert source.label() == "x" and source.descriptor().shape() == [4, 2]

channels = MLCompute.MLCConvolutionDescriptor \\
    .descriptorWithKernelWidth_kernelHeight_inputFeatureChannelCount_outputFeatureChannelCount_(1, 1, 2, 1)
dense = MLCompute.MLCFullyConnectedLayer.layerWithWeights_biases_descriptor_(weights, None, channels)
graph = MLCompute.MLCGraph.alloc().init()
result = graph.nodeWithLayer_source_(dense, source)
assert result.descriptor().shape() == [4, 1]
assert graph.layers() == [dense] and graph.sourceTensorsForLayer_(dense) == [source]

loss = MLCompute.MLCLossLayer.layerWithDescriptor_(
    MLCompute.MLCLossDescriptor.descriptorWithType_reductionType_(
        MLCompute.MLCLossTypeMeanSquaredError, MLCompute.MLCReductionTypeMean))
settings = MLCompute.MLCOptimizerDescriptor.descriptorWithLearningRate_gradientRescale_regularizationType_regularizationScale_(
    0.1, 1.0, MLCompute.MLCRegularizationTypeNone, 0.0)
optimizer = MLCompute.MLCSGDOptimizer.optimizerWithDescriptor_(settings)
training = MLCompute.MLCTrainingGraph.graphWithGraphObjects_lossLayer_optimizer_([graph], loss, optimizer)
assert training.optimizer() == optimizer
assert training.addInputs_lossLabels_({"x": source}, {"y": label})
assert training.compileWithOptions_device_(MLCompute.MLCGraphCompilationOptionsNone, MLCompute.MLCDevice.cpuDevice())

x = np.array([[0, 0], [0, 1], [1, 0], [1, 1]], np.float32)
y = (x @ np.array([[2], [-1]], np.float32)).astype(np.float32)
losses = []

def handler(result, error, seconds):
    assert error is None
    losses.append(float(np.frombuffer(result.data(), np.float32)[0]))
    assert result.descriptor().shape() == [1]

for _ in range(200):
    assert training.executeWithInputsData_lossLabelsData_lossLabelWeightsData_batchSize_options_completionHandler_(
        {"x": tensor_data(x)}, {"y": tensor_data(y)}, None, 4, MLCompute.MLCExecutionOptionsSynchronous, handler)
training.synchronizeUpdates()
assert losses[-1] < 1e-3 < losses[0]
assert np.allclose(weights_memory, [2, -1], atol=0.1), weights_memory
optimizer.setLearningRate_(0.5)
assert optimizer.learningRate() == 0.5
print("trained", len(losses))
"""


def test_a_pyobjc_script_runs():
    code = f"import mlc_torch.objc; mlc_torch.objc.install()\n{SCRIPT}"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert found.returncode == 0, found.stderr
    assert found.stdout == "trained 200\n"


@pytest.fixture
def tensor():
    return MLCompute.MLCTensor.tensorWithShape_dataType_([2, 3], MLCompute.MLCDataTypeFloat32)


# Names


@pytest.mark.parametrize("name", constants())
def test_constants_are_plain_numbers(name):
    assert type(getattr(MLCompute, name)) is int
    assert getattr(MLCompute, name) == constants()[name]


def test_constants_that_swift_does_not_have():
    assert MLCompute.MLCDataTypeInvalid == 0 == MLCompute.MLCRandomInitializerTypeInvalid
    assert MLCompute.MLCExecutionOptionsNone == 0 == MLCompute.MLCGraphCompilationOptionsNone
    assert MLCompute.MLCTensor.tensorWithShape_dataType_([1], MLCompute.MLCDataTypeInvalid) is None


@pytest.mark.parametrize("name", api()["functions"])
def test_functions(name):
    kind = name.removesuffix("DebugDescription")
    for constant, case in api()["enums"][kind].items():
        assert getattr(MLCompute, name)(getattr(MLCompute, constant)), case
    assert getattr(MLCompute, name)(9999) is None


@pytest.mark.parametrize("name", api()["classes"])
def test_every_selector_answers(name):
    cls = getattr(MLCompute, name)
    listed = api()["classes"][name]
    for member in listed["swift"]:
        of_class = member["kind"] == "init" or member.get("static")
        for selector in member.get("objc", []):
            spelt = selector.replace(":", "_")
            assert spelt == "init" or spelt in (dir(cls) if of_class else object_members(unwrap(cls)))
            if of_class and spelt != "init":
                assert callable(getattr(cls, spelt))
    for member in listed["objc_only"]:
        spelt = member["selector"].replace(":", "_")
        assert spelt in (object_members(unwrap(cls)) if member["instance"] else dir(cls))


def test_swifts_spelling_is_not_there(tensor):
    graph = MLCompute.MLCGraph.graph()
    with pytest.raises(AttributeError, match=r"node is Swift's spelling.*nodeWithLayer_source"):
        graph.node  # noqa: B018
    with pytest.raises(AttributeError, match="MLCTensor has no selector 'tensorID_'"):
        tensor.tensorID_  # noqa: B018
    with pytest.raises(AttributeError):
        tensor.tensorWithShape_  # noqa: B018


def test_what_does_not_exist_names_what_is_close(tensor):
    with pytest.raises(AttributeError, match="; closest: setLabel_$"):
        tensor.setLable_("x")
    with pytest.raises(AttributeError, match="; closest: MLCTensorDescriptor$"):
        MLCompute.MLCTensorDescripter  # noqa: B018
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        MLCompute.nonsense  # noqa: B018
    with pytest.raises(AttributeError, match=r"setLabel_\(...\)"):
        tensor.label = "x"
    with pytest.raises(AttributeError, match="^MLCTensor has no property 'lable' in the PyObjC view; closest: label$"):
        tensor.lable = "x"
    with pytest.raises(AttributeError, match="^MLCTensor has no property 'foo' in the PyObjC view$"):
        tensor.foo = 1
    with pytest.raises(AttributeError, match=r"^MLCTensor.descriptor is read-only$"):
        tensor.descriptor = 1
    device = MLCompute.MLCDevice.cpuDevice()
    with pytest.raises(AttributeError, match=r"^MLCDevice.feeds_own_share is no property of PyObjC's; .*objc.unwrap"):
        device.feeds_own_share = True
    with pytest.raises(AttributeError, match="alloc"):
        MLCompute.MLCTensor.alloc().initWithShape_([1])


@pytest.mark.parametrize(
    ("type_", "says"),
    [
        ("float32", "argument 'dataType' expects MLCDataTypeFloat32, got 'float32' (str)"),
        ("MLCDataTypeFloat16", "expects MLCDataTypeFloat16, got"),
        (np.int32, "expects MLCDataTypeInt32, got"),
        ("complex", "expects a number (MLCDataTypeInvalid, MLCDataTypeFloat32, MLCDataTypeFloat16, "),
    ],
)
def test_a_constant_is_called_as_scripts_call_it(type_, says):
    with pytest.raises(TypeError) as error:
        MLCompute.MLCTensor.tensorWithShape_dataType_([2], type_)
    assert str(error.value).startswith("MLCTensor.tensorWithShape_dataType_: argument 'dataType' expects ")
    assert says in str(error.value)


def test_a_wrong_argument_beside_constants_is_told_as_before():
    with pytest.raises(TypeError, match="argument 'shape' expects"):
        MLCompute.MLCTensor.tensorWithShape_dataType_("2", MLCompute.MLCDataTypeFloat32)


@pytest.mark.parametrize("start", ["descriptor", "convolutionTransposeDescriptor", "depthwiseConvolutionDescriptor"])
def test_the_first_argument_of_a_selector_is_told_without_the_words_before_it(start):
    members = [n for n in dir(MLCompute.MLCConvolutionDescriptor) if n.startswith(f"{start}WithKernelSizes_")]
    assert len(members) == 2
    for name in members:
        with pytest.raises(TypeError, match="argument 'kernelSizes' expects"):
            getattr(MLCompute.MLCConvolutionDescriptor, name)(*[3] * name.count("_"))


def test_selectors_are_called_and_take_arguments_in_order(tensor):
    with pytest.raises(AttributeError, match=r"^descriptor is a selector, .* 'shape'; .*: descriptor\(\)\.shape$"):
        tensor.descriptor.shape  # noqa: B018
    assert not hasattr(tensor.descriptor, "_nothing")
    shape = tensor.descriptor().shape
    for read, lack, call in (
        (list, "elements", ""),
        (len, "length", ""),
        (lambda s: 2 in s, "elements", ""),
        (lambda s: s[0], "elements", r"\[0\]"),
    ):
        with pytest.raises(TypeError, match=rf"^shape is a selector, which has no {lack}; .*: shape\(\){call}$"):
            read(shape)
    assert shape  # as a function is
    with pytest.raises(
        TypeError, match=r"^shape is a selector, which tensorWithShape_ cannot take for its shape; .*: shape\(\)$"
    ):
        MLCompute.MLCTensor.tensorWithShape_(shape)
    with pytest.raises(
        TypeError, match=r"^MLCTensor\(…, dataType=\) does not exist\. There is:\n  MLCTensor\(descriptor=\)"
    ):
        MLCompute.MLCTensor([2], dataType=1)
    with pytest.raises(TypeError, match=r"no argument by its name \(shape\): tensorWithShape_\(shape\)$"):
        MLCompute.MLCTensor.tensorWithShape_(shape=[2])


def test_dir_lists_selectors_and_ours(tensor):
    assert {"descriptor", "setLabel_", "copy", "bindAndWriteData_toDevice_", "numpy"} <= set(dir(tensor))
    assert {"alloc", "new", "tensorWithShape_", "from_torch"} <= set(dir(MLCompute.MLCTensor))
    assert "tensorWithShape_" not in dir(tensor) and "numpy" not in dir(MLCompute.MLCTensor)
    assert {"MLCTensor", "MLCDataTypeFloat32", "MLCLossTypeDebugDescription", "install"} <= set(dir(MLCompute))
    assert not any(name.startswith("_") for name in dir(tensor))


def test_star_import():
    names: dict = {}
    exec("from mlc_torch.objc import *", names)
    assert names["MLCTensor"] is MLCompute.MLCTensor and names["MLCDataTypeInt8"] == 8 and "wrap" not in names
    assert names["MLCDataType"].__supertype__ is int  # only a name, for annotations


# Objects


def test_properties_are_called(tensor):
    assert tensor.descriptor().stride() == [12, 4]
    assert tensor.descriptor().dataType() == 1 and type(tensor.descriptor().dataType()) is int
    assert tensor.data() is None and tensor.hasValidNumerics() is True
    assert MLCompute.MLCTensorDescriptor.maxTensorDimensions() == 4
    assert MLCompute.MLCDevice.cpuDevice().type() == MLCompute.MLCDeviceTypeCPU


def test_payloads_read_back_as_raw_values():
    made = MLCompute.MLCPoolingDescriptor.averagePoolingDescriptorWithKernelSizes_strides_paddingPolicy_paddingSizes_countIncludesPadding_(  # noqa: E501
        [2, 3], [1, 2], MLCompute.MLCPaddingPolicyUsePaddingSize, [1, 0], True
    )
    assert made.poolingType() == MLCompute.MLCPoolingTypeAverage and type(made.poolingType()) is int
    assert made.paddingPolicy() == MLCompute.MLCPaddingPolicyUsePaddingSize
    assert (made.paddingSizeInY(), made.paddingSizeInX(), made.countIncludesPadding()) == (1, 0, True)
    with pytest.raises(AttributeError, match="kernelSizes is Swift's spelling"):
        made.kernelSizes  # noqa: B018


@pytest.mark.parametrize("name", api()["classes"])
def test_new_and_alloc_init(name):
    cls = getattr(MLCompute, name)
    no_plain_init = {"MLCInferenceGraph", "MLCTrainingGraph"}
    if name in no_plain_init:
        with pytest.raises(TypeError, match="not made by a plain init"):
            cls.new()
        return
    for made in (cls.new(), cls.alloc().init()):
        assert isinstance(made, cls)
        if name.endswith("Layer"):
            continue  # has a label and nothing else, which is all that was measured
        assert made.description()
        for p in unwrap(cls).__properties__.values():
            if p.objc and not isinstance(p, static_prop):
                getattr(made, p.selectors[0])()
    if name.endswith("Layer") and "layer" not in dir(cls):
        assert cls.new().label() is None  # measured


def test_plain_inits_with_values():
    assert MLCompute.MLCDevice.new().type() == 0
    assert MLCompute.MLCGraph.new().layers() == []
    assert MLCompute.MLCConvolutionDescriptor.new().kernelWidth() == 1
    assert MLCompute.MLCPoolingDescriptor.new().poolingType() == 0
    plain = MLCompute.MLCMatMulDescriptor
    assert (plain.new().alpha(), plain.alloc().init().alpha(), plain.descriptor().alpha()) == (0, 0, 1)
    assert MLCompute.MLCTensorData.new().length() == 0


def test_copies_and_equality(tensor):
    made = tensor.copy()
    assert made != tensor and made.descriptor() == tensor.descriptor()
    assert len({tensor.descriptor(), made.descriptor()}) == 1
    assert tensor == wrap(unwrap(tensor)) == unwrap(tensor)
    assert tensor.isEqual_(tensor) and not tensor.isEqual_(made) and isinstance(tensor.hash(), int)
    assert copy.copy(tensor.descriptor()) == tensor.descriptor() == copy.deepcopy(tensor.descriptor())
    assert pickle.loads(pickle.dumps(tensor.descriptor())) == tensor.descriptor()
    assert copy.copy(MLCompute.MLCTensor) is MLCompute.MLCTensor
    assert tensor != 3 and tensor is not None


def test_classes(tensor):
    assert isinstance(tensor, MLCompute.MLCTensor) and not isinstance(tensor, MLCompute.MLCDevice)
    assert issubclass(MLCompute.MLCTrainingGraph, MLCompute.MLCGraph)
    assert tensor.isKindOfClass_(MLCompute.MLCTensor)
    assert tensor.respondsToSelector_("setLabel:") and not tensor.respondsToSelector_("setLabels:")
    assert repr(MLCompute.MLCTensor) == "<objc MLCTensor>" and "objc" in repr(tensor)
    assert wrap(int) is int


def test_members_of_ours_stay_as_python_spells_them():
    tensor = MLCompute.MLCTensor.tensorWithShape_fillWithData_dataType_([2], 3, MLCompute.MLCDataTypeFloat32)
    assert tensor.numpy().tolist() == [3, 3]
    assert tensor.torch.tolist() == [3, 3]
    assert isinstance(MLCompute.MLCTensor.from_torch(torch.zeros(2), label="x"), objc_object)
    assert isinstance(MLCompute.MLCActivationLayer.reluLayer().module, torch.nn.ReLU)


def test_wrong_arguments(tensor):
    with pytest.raises(TypeError, match="takes 2 arguments, got 1"):
        MLCompute.MLCTensor.tensorWithShape_dataType_([1])
    with pytest.raises(TypeError):
        tensor.label(3)
    with pytest.raises(TypeError, match="expected String"):
        tensor.setLabel_(3)


def test_refusals_work_as_everywhere():
    assert MLCompute.MLCTensor.tensorWithShape_([0]) is None
    assert "at least 1" in str(mlc_torch.last_refusal())
    with mlc_torch.strict(), pytest.raises(mlc_torch.MLCRefusal):
        MLCompute.MLCTensor.tensorWithShape_([0])


# In and out


def test_containers_go_in_and_out(tensor):
    inside = unwrap(tensor)
    assert unwrap({"a": [tensor, (tensor, 3)]}) == {"a": [inside, (inside, 3)]}
    again = wrap({"a": [inside, (inside, 3)]})
    assert isinstance(again["a"][0], objc_object) and type(again["a"][1]) is tuple and again["a"][1][1] == 3
    pair = unwrap(mlc_torch.spelling.YX(1, 2))
    assert pair.x == 2
    array = np.zeros(3)
    assert unwrap(array) is array and wrap(array) is array
    module = torch.nn.ReLU()
    assert unwrap(module) is module


def test_handlers_get_views_and_errors_in_words(tensor):
    seen = []

    def handler(result, error, seconds):
        seen.append((result, error, seconds))
        return result

    called = unwrap(handler)
    assert called(unwrap(tensor), None, 0.5) is unwrap(tensor)
    called(None, mlc_torch.MLCRefusal("because", "MLCGraph.node"), 0.0)
    assert isinstance(seen[0][0], objc_object) and seen[0][0] == tensor and seen[0][1:] == (None, 0.5)
    error = seen[1][1]
    assert error.localizedDescription() == str(error) == "MLCGraph.node: because"
    with pytest.raises(AttributeError):
        error.nonsense()
    assert unwrap(len)([1, 2]) == 2


def test_deallocators_are_called_with_the_buffer():
    import gc

    calls, buffer = [], bytearray(8)
    made = MLCompute.MLCTensorData.dataWithBytesNoCopy_length_deallocator_(buffer, 8, lambda b, n: calls.append((b, n)))
    del made
    gc.collect()
    assert calls == [(buffer, 8)] and calls[0][0] is buffer
