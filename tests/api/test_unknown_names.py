"""A name that ML Compute does not have is an error where it is written, and the error names what was meant."""

from __future__ import annotations

import copy
import difflib
import pickle
import time
import warnings

import numpy as np
import pytest
import torch

import mlc_torch as mlc
import mlc_torch.objc as objc
from mlc_torch import MLCActivationLayer, MLCDataType, MLCExecutionOptions, MLCTensor
from mlc_torch.spelling.closest import likeness
from tests.graph.programs import sgd

MISSPELT = [
    (lambda: mlc.MLCTensorParameter(tensor=MLCTensor(shape=[2])), "isUpdateable", "isUpdatable"),
    (sgd, "learningrate", "learningRate"),
    (lambda: MLCTensor(shape=[2]), "lable", "label"),
    (lambda: MLCActivationLayer.relu, "isDebugingEnabled", "isDebuggingEnabled"),
    (lambda: mlc.MLCMatMulDescriptor(), "transposeX", "transposesX"),
    (lambda: mlc.MLCGraph(), "summery", "summary"),
]


@pytest.mark.parametrize(("make", "name", "meant"), MISSPELT, ids=[m[1] for m in MISSPELT])
def test_a_near_miss_cannot_be_set(make, name, meant):
    target = make()
    with pytest.raises(AttributeError, match=rf"^{type(target).__name__} has no property '{name}'; closest: {meant}$"):
        setattr(target, name, 1)
    assert not hasattr(target, name)


def test_any_other_name_cannot_be_set_either():
    with pytest.raises(AttributeError, match=r"^MLCTensor has no property 'zzz'; can be set: label$"):
        MLCTensor(shape=[2]).zzz = 1


def test_what_is_there_is_set_as_before():
    layer = MLCActivationLayer.relu
    layer.label, layer.isDebuggingEnabled = "mine", True
    assert (layer.label, layer.isDebuggingEnabled) == ("mine", True)
    with pytest.raises(AttributeError, match=r"^MLCActivationLayer.layerID is read-only$"):
        layer.layerID = 3
    with pytest.raises(AttributeError, match=r"^MLCMatMulDescriptor.alpha is read-only$"):
        mlc.MLCMatMulDescriptor().alpha = 2.0
    graph = mlc.MLCGraph()
    graph.node = "replaced by a test"  # what unittest.mock does
    assert graph.node == "replaced by a test"


def test_copies_and_pickles_are_made_as_before():
    descriptor = mlc.MLCMatMulDescriptor(alpha=3.0, transposesX=True, transposesY=False)
    assert pickle.loads(pickle.dumps(descriptor)) == copy.deepcopy(descriptor) == descriptor


class Mine(MLCActivationLayer):
    """A program's own class."""


class Counting(MLCActivationLayer):
    def __init__(self):
        super().__init__(descriptor=mlc.MLCActivationDescriptor(type=mlc.MLCActivationType.relu))
        self.count = 0


def test_a_program_s_own_class_takes_names_of_its_own():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        layer = Counting()
        layer.count += 1
        layer.colour = "red"
    assert (layer.count, layer.colour) == (1, "red")


def test_a_near_miss_on_a_program_s_own_class_is_set_with_a_warning_at_the_program_s_line():
    layer = Mine(descriptor=mlc.MLCActivationDescriptor(type=mlc.MLCActivationType.relu))
    with pytest.warns(
        UserWarning, match=r"^Mine.lable is set, and is no property of ML Compute; it has label$"
    ) as caught:
        layer.lable = "x"
    assert layer.lable == "x" and caught[0].filename == __file__


@pytest.mark.parametrize(
    ("read", "says"),
    [
        (lambda: MLCDataType.flaot32, "MLCDataType has no case 'flaot32'; closest: float32"),
        (lambda: MLCExecutionOptions.syncronous, "MLCExecutionOptions has no case 'syncronous'; closest: synchronous"),
        (lambda: mlc.MLCDeviceType.zzz, "MLCDeviceType has no case 'zzz'; there is cpu, gpu, any, ane"),
        (lambda: mlc.MLCPaddingPolicy.zzz, "MLCPaddingPolicy has no case 'zzz'; there is same, valid, sized"),
        (lambda: mlc.MLCPaddingPolicy.vallid, "MLCPaddingPolicy has no case 'vallid'; closest: valid"),
        (lambda: mlc.MLCPoolingType.averge, "MLCPoolingType has no case 'averge'; closest: average"),
        (lambda: mlc.MLCTensr, "module 'mlc_torch' has no attribute 'MLCTensr'; closest: MLCTensor"),
        (lambda: mlc.testin, "module 'mlc_torch' has no attribute 'testin'; closest: testing"),
        (lambda: mlc.zzz, "module 'mlc_torch' has no attribute 'zzz'"),
        (
            lambda: objc.MLCDataType.float32,
            "MLCDataType is only a name for int, without 'float32'; the module has MLCDataTypeFloat32",
        ),
        (
            lambda: objc.MLCExecutionOptions.zzz,
            "MLCExecutionOptions is only a name for int, without 'zzz'; the module has MLCExecutionOptionsNone, "
            "MLCExecutionOptionsSkipWritingInputDataToDevice, MLCExecutionOptionsSynchronous, MLCExecutionOptionsProfiling, "
            "MLCExecutionOptionsForwardForInference, MLCExecutionOptionsPerLayerProfiling",
        ),
    ],
)
def test_a_case_that_is_not_there_is_named_with_the_class_and_the_closest(read, says):
    with pytest.raises(AttributeError) as error:
        read()
    assert str(error.value) == says


def test_cases_cannot_be_added_or_given_names():
    with pytest.raises(AttributeError, match=r"MLCDataType has no case 'flaot32' to be set; closest: float32"):
        MLCDataType.flaot32 = 5
    with pytest.raises(AttributeError, match=r"MLCDataType.float32 has no property 'size'"):
        MLCDataType.float32.size = 4
    with pytest.raises(AttributeError, match=r"has no property 'size'"):
        (MLCExecutionOptions.synchronous | MLCExecutionOptions.profiling).size = 4
    assert MLCDataType.float32 == 1 and not hasattr(MLCDataType.float32, "size")


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda: mlc.MLCTensor(shape=[2], dataType="float32"), "expects MLCDataType.float32, got 'float32'"),
        (lambda: mlc.MLCTensor(shape=[2], dataType=np.float32), "expects MLCDataType.float32, got"),
        (lambda: mlc.MLCTensor(shape=[2], dataType=torch.int8), "expects MLCDataType.int8, got torch.int8"),
        (lambda: mlc.MLCTensor(shape=[2], dataType="complex"), "expects MLCDataType (float32, float16, boolean"),
        (lambda: compiled(device="cpu"), "expects MLCDevice (MLCDevice.cpu()), got 'cpu'"),
        (lambda: compiled(device=torch.device("cuda:0")), "expects MLCDevice (MLCDevice.gpu()), got device("),
        (lambda: compiled(device=mlc.MLCDeviceType.cpu), "expects MLCDevice (MLCDevice(type=MLCDeviceType.cpu)), got"),
        (lambda: compiled(device=mlc.MLCDevice), "expects MLCDevice (an object, not the class MLCDevice itself)"),
        (lambda: compiled(options="debugLayer"), "expects MLCGraphCompilationOptions.debugLayers, got"),
        (
            lambda: node(np.zeros((2, 3))),
            "(MLCTensor.from_numpy(array) makes one of an array), got an array of shape [2, 3] and type float64",
        ),
        (
            lambda: added(torch.nn.ReLU()),
            "MLCLayer (mlc_torch.interop.TorchLayer(module) makes one of a torch module), got ReLU()",
        ),
        (
            lambda: trained_by(torch.optim.SGD([torch.zeros(1)], 0.1)),
            "MLCOptimizer (mlc_torch.interop.TorchOptimizer(optimizer) makes one of torch's), got SGD ( Parameter Group 0 ",
        ),
        (
            lambda: added(objc.MLCActivationLayer.reluLayer()),
            "expects MLCLayer (two spellings are mixed: this is one of",
        ),
        (lambda: node(objc.MLCTensor.tensorWithShape_([2])), "unwrap(object) takes it out), got <objc MLCTensor('data"),
        (lambda: node([MLCTensor(shape=[2])]), "expects MLCTensor (one tensor, not a list), got ["),
        (
            lambda: mlc.MLCPaddingPolicy.sized(1, 2),
            "takes its values by their labels: MLCPaddingPolicy.sized(y=1, x=1)",
        ),
        (lambda: mlc.MLCPaddingPolicy.sized(y=1), "takes its values by their labels: MLCPaddingPolicy.sized(y=1, x=1)"),
        (lambda: mlc.MLCPoolingType.average(True), "labels: MLCPoolingType.average(countIncludesPadding=True)"),
    ],
)
def test_what_is_nearly_right_is_told_how_it_is_written(call, says):
    with pytest.raises(TypeError) as error:
        call()
    assert says in str(error.value) and "\n" not in str(error.value)


def compiled(**given):
    graph = mlc.MLCGraph()
    graph.node(MLCActivationLayer.relu, source=MLCTensor(shape=[2]))
    return mlc.MLCInferenceGraph(graphObjects=[graph]).compile(**{"options": [], "device": mlc.MLCDevice()} | given)


def window(policy):
    return mlc.MLCConvolutionDescriptor(
        kernelSizes=(1, 1), inputFeatureChannelCount=1, outputFeatureChannelCount=1, paddingPolicy=policy
    )


def added(layer):
    return mlc.MLCGraph().node(layer, source=MLCTensor(shape=[2]))


def trained_by(optimizer):
    return mlc.MLCTrainingGraph(graphObjects=[mlc.MLCGraph()], lossLayer=None, optimizer=optimizer)


def node(source):
    return mlc.MLCGraph().node(MLCActivationLayer.relu, source=source)


def test_errors_name_the_class_of_the_object_not_the_one_that_declares_the_member():
    for graph in (
        mlc.MLCTrainingGraph(graphObjects=[], lossLayer=None, optimizer=None),
        mlc.MLCInferenceGraph(graphObjects=[]),
    ):
        name = type(graph).__name__
        for member in ("compile", "addInputs", "addOutputs", "execute", "link", "node", "bindAndWriteData"):
            with pytest.raises(TypeError) as error:
                getattr(graph, member)(nonsense=1)
            lines = str(error.value).splitlines()
            assert lines[0].startswith(f"{name}.{member}(nonsense=) does not exist (no label nonsense=; ")
            assert all(line.removeprefix("closest: ").strip().startswith(f"{name}.{member}(") for line in lines[1:])
    for member in ("step", "fit", "evaluate"):
        with pytest.raises(TypeError, match=rf"MLCTrainingGraph\.{member}"):
            getattr(mlc.MLCTrainingGraph(graphObjects=[], lossLayer=None, optimizer=None), member)()


def test_an_error_names_every_label_that_was_written_also_those_with_none():
    graph = mlc.MLCInferenceGraph(graphObjects=[mlc.MLCGraph()])
    with pytest.raises(TypeError) as error:
        graph.execute(inputsData={}, outputsData=None, batchSize=4, completionHandler=None, option=[])
    written = str(error.value).partition("(")[2].partition(")")[0].split(", ")
    assert sorted(written) == ["batchSize=", "completionHandler=", "inputsData=", "option=", "outputsData="]


@pytest.mark.parametrize("name", ["execute", "executeAsync", "link", "node"])
def test_members_say_where_they_come_from(name):
    member = getattr(mlc.MLCInferenceGraph, name)
    assert member.__module__.startswith("mlc_torch.") and member.__name__ == name


LONG = "x" * 100_000


@pytest.mark.parametrize(
    "call",
    [
        lambda: MLCTensor(**{LONG: 1}),
        lambda: setattr(MLCTensor(shape=[2]), LONG, 1),
        lambda: getattr(objc.MLCTensor.tensorWithShape_([2]), LONG),
        lambda: objc.MLCTensor.tensorWithShape_([2]).valueForKey_(LONG),
        lambda: objc.MLCTensor.tensorWithShape_([2]).performSelector_(LONG),
        lambda: getattr(MLCDataType, LONG),
    ],
)
def test_a_name_far_longer_than_any_is_not_compared(call):
    """To compare it with all that are known took 1.4 to 7 s; the bound is for a busy machine."""
    start = time.process_time()
    with pytest.raises((TypeError, AttributeError, KeyError)):
        call()
    assert time.process_time() - start < 0.3


@pytest.mark.parametrize(("one", "other"), [("ab", "abababab"), ("label", "labelOfTheTensors"), ("a", "b"), ("", "")])
def test_names_are_as_alike_as_difflib_says_unless_their_lengths_forbid_it(one, other):
    by_hand = difflib.SequenceMatcher(None, one.lower(), other.lower()).ratio()
    assert likeness(one, other) == (by_hand if max(len(one), len(other)) <= 3 * min(len(one), len(other)) else 0.0)
    assert by_hand < 0.6 or likeness(one, other) == by_hand
