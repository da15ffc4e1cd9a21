"""View classes: what NSObject gives them, how they are made, and scripts that derive from them."""

from __future__ import annotations

import copy
import gc
import itertools
import pickle
import re

import numpy as np
import pytest

import mlc_torch
import mlc_torch.objc as MLCompute
from mlc_torch.coverage.api import api
from mlc_torch.objc import objc_class, objc_object, unwrap, wrap
from mlc_torch.objc.members import class_members


@pytest.fixture
def tensor():
    return MLCompute.MLCTensor.tensorWithShape_dataType_([2, 3], MLCompute.MLCDataTypeFloat32)


# What it is


@pytest.mark.parametrize("name", api()["classes"])
def test_the_tree_of_classes_is_the_frameworks(name):
    cls, parent = getattr(MLCompute, name), api()["classes"][name]["superclass"]
    assert isinstance(cls, objc_class) and cls.__name__ == name == cls.className() == cls.description()
    assert cls.superclass() is (getattr(MLCompute, parent) if parent else MLCompute.NSObject)
    assert issubclass(cls, MLCompute.NSObject) and issubclass(cls, objc_object)


def test_classes_answer_for_themselves(tensor):
    assert tensor.class__() is MLCompute.MLCTensor is type(tensor) is MLCompute.MLCTensor.class__()
    assert tensor.className() == "MLCTensor" and tensor.superclass() is MLCompute.NSObject
    assert MLCompute.NSObject.superclass() is None
    assert tensor.isKindOfClass_(MLCompute.MLCTensor) and tensor.isKindOfClass_(MLCompute.NSObject)
    assert not tensor.isKindOfClass_(MLCompute.MLCDevice)
    inference = MLCompute.MLCInferenceGraph
    assert inference.isSubclassOfClass_(MLCompute.MLCGraph) and not MLCompute.MLCGraph.isSubclassOfClass_(inference)
    relu = MLCompute.MLCActivationLayer.reluLayer()
    assert relu.isKindOfClass_(MLCompute.MLCLayer) and not relu.isMemberOfClass_(MLCompute.MLCLayer)
    assert isinstance(unwrap(tensor), MLCompute.MLCTensor) and issubclass(mlc_torch.MLCTensor, MLCompute.MLCTensor)
    assert not isinstance(3, MLCompute.MLCTensor) and not issubclass(int, MLCompute.MLCTensor)


@pytest.mark.parametrize("spelt", ["setLabel:", b"setLabel:", "setLabel_"])
def test_whether_an_object_answers(tensor, spelt):
    assert tensor.respondsToSelector_(spelt) and MLCompute.MLCTensor.instancesRespondToSelector_(spelt)
    assert not tensor.descriptor().respondsToSelector_(spelt)


def test_objects_and_classes_answer_to_different_selectors(tensor):
    assert tensor.respondsToSelector_(tensor.label) and tensor.respondsToSelector_(b"class")
    assert not tensor.respondsToSelector_(b"tensorWithShape:")
    assert MLCompute.MLCTensor.respondsToSelector_(b"tensorWithShape:")
    assert not MLCompute.MLCTensor.respondsToSelector_(b"setLabel:")
    assert MLCompute.MLCTensor.respondsToSelector_(b"className")
    with pytest.raises(TypeError, match="a selector is text or bytes"):
        tensor.respondsToSelector_(3)


def test_selectors_by_name(tensor):
    assert tensor.performSelector_(b"label") == tensor.label() == tensor.performSelector_("label")
    tensor.performSelector_withObject_("setLabel:", "x")
    assert tensor.label() == "x" and tensor.performSelector_(tensor.tensorID) == tensor.tensorID()
    graph = MLCompute.MLCGraph.graph()
    relu = MLCompute.MLCActivationLayer.reluLayer()
    made = graph.performSelector_withObject_withObject_(b"nodeWithLayer:source:", relu, tensor)
    assert made.descriptor() == tensor.descriptor()
    with pytest.raises(AttributeError, match="no selector 'lable'"):
        tensor.performSelector_(b"lable")


def test_what_nsobject_says(tensor):
    assert tensor.self() is tensor is tensor.retain() is tensor.autorelease() and tensor.release() is None
    assert tensor.description() == str(tensor) and tensor.debugDescription() == repr(unwrap(tensor))
    assert tensor.isEqual_(tensor) and not tensor.isEqual_(3) and tensor.hash() == hash(tensor)
    with pytest.raises(TypeError, match="isEqual_ takes 1 arguments, got 0"):
        tensor.isEqual_()


def test_an_object_has_one_view(tensor):
    graph = MLCompute.MLCGraph.graph()
    relu = MLCompute.MLCActivationLayer.reluLayer()
    graph.nodeWithLayer_source_(relu, tensor)
    assert graph.layers()[0] is relu and graph.sourceTensorsForLayer_(relu)[0] is tensor
    assert wrap(unwrap(tensor)) is tensor


def test_views_compare_with_anything(tensor):
    assert tensor != np.zeros(3) and tensor != "x" and tensor is not None and tensor not in ([], [3])
    raw = MLCompute.MLCGraph.alloc()
    assert raw == raw and raw != MLCompute.MLCGraph.alloc()


def test_pickles_name_the_view():
    assert pickle.loads(pickle.dumps(MLCompute.MLCTensor)) is MLCompute.MLCTensor
    made = MLCompute.MLCTensorDescriptor.descriptorWithShape_dataType_([2], 1)
    assert pickle.loads(pickle.dumps(made)) == made and copy.deepcopy(made) == made


# Messages


def test_a_property_of_objective_c_is_not_called_swifts(tensor):
    with pytest.raises(AttributeError) as missing:
        tensor.labels  # noqa: B018
    assert "Swift" not in str(missing.value) and "label" in str(missing.value)
    for name in ("tensorWithShape_", "alloc"):
        with pytest.raises(AttributeError) as missing:
            getattr(tensor, name)
        assert "Swift" not in str(missing.value)
    with pytest.raises(AttributeError, match=r"it is one of the class, MLCTensor.tensorWithShape_"):
        tensor.tensorWithShape_  # noqa: B018
    with pytest.raises(AttributeError, match="node is Swift's spelling"):
        MLCompute.MLCGraph.node  # noqa: B018


# Making


def test_new_gives_a_blank_tensor():
    made = MLCompute.MLCTensor.new()
    assert (made.tensorID(), made.label(), made.descriptor(), made.data()) == (0, None, None, None)
    assert made.device() is None and made.optimizerData() == [] and made.hasValidNumerics() is True
    assert "blank" in made.description() and made.copy().tensorID() == 0
    made.setLabel_("x")
    assert made.label() == "x"


def test_nothing_can_be_computed_with_a_blank_tensor():
    blank, device = MLCompute.MLCTensor.new(), MLCompute.MLCDevice.cpuDevice()
    relu = MLCompute.MLCActivationLayer.reluLayer()
    assert MLCompute.MLCGraph.graph().nodeWithLayer_source_(relu, blank) is None
    assert "made by new() and has no descriptor" in str(mlc_torch.last_refusal())
    held = MLCompute.MLCTensorData.dataWithBytesNoCopy_length_(bytearray(8), 8)
    assert blank.bindAndWriteData_toDevice_(held, device) is False
    assert MLCompute.MLCGraph.graph().bindAndWriteData_forInputs_toDevice_synchronous_(
        {"x": held}, {"x": blank}, device, True
    ) is False  # fmt: skip
    assert blank.tensorByQuantizingToType_scale_bias_(MLCompute.MLCDataTypeInt8, 1.0, 0) is None
    assert MLCompute.MLCFullyConnectedLayer.layerWithWeights_biases_descriptor_(
        blank, None, MLCompute.MLCConvolutionDescriptor.new()
    ) is None  # fmt: skip
    with pytest.raises(ValueError, match="holds no data"):
        blank.numpy()


WITHOUT_ARGUMENTS = {"MLCConcatenationLayer", "MLCSelectionLayer"}
"""Layers that an initializer without arguments makes, whole."""


@pytest.mark.parametrize("name", sorted({n for n in api()["classes"] if n.endswith("Layer")} - WITHOUT_ARGUMENTS))
@pytest.mark.parametrize("count", [1, 2, 3])
def test_no_node_takes_a_layer_without_its_parameters(name, count):
    sources = [MLCompute.MLCTensor.tensorWithShape_([2, 3, 4, 4]) for _ in range(count)]
    graph, layer = MLCompute.MLCGraph.graph(), getattr(MLCompute, name).new()
    assert graph.nodeWithLayer_sources_(layer, sources) is None
    assert "made by new() and has no parameters" in str(mlc_torch.last_refusal())
    assert graph.layers() == []


def test_a_loss_without_its_parameters_is_refused():
    graph, loss = MLCompute.MLCGraph.graph(), MLCompute.MLCLossLayer.new()
    graph.nodeWithLayer_source_(MLCompute.MLCActivationLayer.reluLayer(), MLCompute.MLCTensor.tensorWithShape_([2, 3]))
    training = MLCompute.MLCTrainingGraph.graphWithGraphObjects_lossLayer_optimizer_([graph], loss, None)
    labels = MLCompute.MLCTensor.tensorWithShape_([2, 3])
    assert training is None or not (
        training.addInputs_lossLabels_({}, {"labels": labels})
        and training.compileWithOptions_device_(0, MLCompute.MLCDevice.cpuDevice())
    )
    assert "made by new() and has no parameters" in str(mlc_torch.last_refusal())


def test_a_tensor_needs_a_shape():
    assert MLCompute.MLCTensor.tensorWithDescriptor_(MLCompute.MLCTensorDescriptor.new()) is None
    assert "made by new() and has no shape" in str(mlc_torch.last_refusal())


def test_keywords_choose_a_factory():
    """PyObjC 10.3 and later take the parts of a selector as keywords, in their order."""
    made = MLCompute.MLCTensor(shape=[2, 3], dataType=MLCompute.MLCDataTypeInt8)
    assert made.descriptor().dataType() == 8 and MLCompute.MLCGraph().layers() == []
    assert MLCompute.MLCTensor(shape=[1], fillWithData=4, dataType=1).numpy().tolist() == [4]
    with pytest.raises(TypeError, match=r"MLCTensor\(form=\) does not exist(.|\n)*MLCTensor\(shape=, dataType=\)"):
        MLCompute.MLCTensor(form=[2])
    with pytest.raises(TypeError, match="does not exist"):
        MLCompute.MLCTensor(dataType=1, shape=[2])
    with pytest.raises(TypeError, match=r"^MLCTensor\(…\) does not exist\. There is:"):
        MLCompute.MLCTensor([2])


def test_of_several_factories_with_the_same_words_the_last_is_meant():
    squared = MLCompute.MLCLossLayer(reductionType=MLCompute.MLCReductionTypeMean, weight=1.0)
    assert squared.descriptor().lossType() == MLCompute.MLCLossTypeMeanSquaredError
    plain = MLCompute.MLCConvolutionDescriptor(
        kernelWidth=1, kernelHeight=1, inputFeatureChannelCount=1, outputFeatureChannelCount=1
    )
    assert plain.convolutionType() == MLCompute.MLCConvolutionTypeStandard


def test_an_object_is_not_ready_before_init(tensor):
    raw = MLCompute.MLCGraph.alloc()
    assert repr(raw) == "<objc MLCGraph>"
    with pytest.raises(TypeError, match="allocated, but init"):
        raw.layers()
    with pytest.raises(AttributeError, match=r"alloc\(\) is followed by init\(\).* called on the class$"):
        raw.initWithLayers_([])
    assert raw.init() is raw and raw.layers() == [] and raw.init() is raw


@pytest.mark.parametrize("cls", sorted(api()["classes"]))
def test_an_initializer_that_is_none_is_answered_with_factories_that_there_are(cls):
    """For every factory: what a script might try between alloc and init in its place."""
    view = getattr(MLCompute, cls)
    for factory in (name for name in class_members(unwrap(view)) if "With" in name):
        made = view.alloc()
        tried = "init" + factory[factory.index("With") :]
        if hasattr(type(made), tried):
            continue
        with pytest.raises(AttributeError, match="factories are called on the class") as caught:
            getattr(made, tried)
        named = re.findall(rf"{cls}\.(\w*With\w*)", str(caught.value))
        assert factory in named and all(callable(getattr(view, name)) for name in named)


def test_the_hint_for_an_initializer_of_a_tensor():
    with pytest.raises(AttributeError, match=r"class: MLCTensor\.tensorWithShape_$"):
        MLCompute.MLCTensor.alloc().initWithShape_([2])


# Deriving


class Perceptron(MLCompute.MLCGraph):
    """As a PyObjC programmer writes it."""

    made = 0

    def init(self):
        self = super().init()
        if self is None:
            return None
        self.widths = []
        type(self).made += 1
        return self

    def addDense_to_(self, width, source):
        inputs = source.descriptor().shape()[1]
        self.widths.append(width)
        weights = MLCompute.MLCTensor.tensorWithShape_fillWithData_dataType_([1, inputs * width, 1, 1], 1, 1)
        channels = MLCompute.MLCConvolutionDescriptor.descriptorWithKernelWidth_kernelHeight_inputFeatureChannelCount_outputFeatureChannelCount_(  # noqa: E501
            1, 1, inputs, width
        )
        layer = MLCompute.MLCFullyConnectedLayer.layerWithWeights_biases_descriptor_(weights, None, channels)
        return self.nodeWithLayer_source_(layer, source)

    def description(self):
        return f"perceptron {self.widths}"


def test_a_script_derives_from_a_view_class():
    net = Perceptron.alloc().init()
    x = MLCompute.MLCTensor.tensorWithShape_([2, 3])
    result = net.performSelector_withObject_withObject_(b"addDense:to:", 4, x)
    assert result.descriptor().shape() == [2, 4] and net.widths == [4] and net.layers().count() == 1
    assert net.respondsToSelector_(b"addDense:to:") and not MLCompute.MLCGraph.graph().respondsToSelector_(
        b"addDense:to:"
    )
    assert net.description() == "perceptron [4]" and net.className() == "Perceptron" and Perceptron.made >= 1
    assert net.isKindOfClass_(MLCompute.MLCGraph) and net.superclass() is MLCompute.MLCGraph
    assert isinstance(Perceptron.graph(), Perceptron) and isinstance(unwrap(net), mlc_torch.MLCGraph)

    inference = MLCompute.MLCInferenceGraph.graphWithGraphObjects_([net])
    assert inference.addInputs_({"x": x})
    assert inference.compileWithOptions_device_(0, MLCompute.MLCDevice.cpuDevice())
    ones, seen = np.ones(6, np.float32), []
    held = MLCompute.MLCTensorData.dataWithBytesNoCopy_length_(ones, 24)
    assert inference.executeWithInputsData_batchSize_options_completionHandler_(
        {"x": held}, 2, MLCompute.MLCExecutionOptionsSynchronous, lambda r, e, t: seen.append(r.numpy().tolist())
    )
    assert seen == [[[3] * 4] * 2]


def test_attributes_of_a_scripts_object_outlast_its_view(tensor):
    class Marked(MLCompute.MLCTensor):
        pass

    graph = MLCompute.MLCGraph.graph()
    made = Marked.tensorWithShape_([2])
    made.note = "mine"
    relu = MLCompute.MLCActivationLayer.reluLayer()
    graph.nodeWithLayer_source_(relu, made)
    inner = unwrap(made)
    del made
    gc.collect()
    assert wrap(inner).note == "mine" and isinstance(wrap(inner), Marked)
    with pytest.raises(AttributeError, match="^MLCTensor has no property 'note'"):
        tensor.note = "none"
    del wrap(inner).note
    with pytest.raises(AttributeError):
        wrap(inner).note  # noqa: B018
    with pytest.raises(AttributeError):
        del wrap(inner).note


def test_copies_of_a_scripts_object_have_attributes_of_their_own():
    class Marked(MLCompute.MLCConvolutionDescriptor):
        pass

    made = Marked.new()
    made.notes = 1
    again = made.copy()
    again.notes = 2
    assert (made.notes, again.notes) == (1, 2) and "notes" in dir(made)


def test_attributes_may_be_set_before_init():
    class Early(MLCompute.MLCGraph):
        def init(self):
            self.early = 1
            return super().init()

    assert Early.new().early == 1


def test_plain_objects_of_scripts():
    class Helper(MLCompute.NSObject):
        def double_(self, n):
            return 2 * n

    helper = Helper.alloc().init()
    assert helper.performSelector_withObject_("double:", 4) == 8 and helper.className() == "Helper"


def test_classes_that_a_program_derived_in_swifts_spelling():
    class Named(mlc_torch.MLCTensor):
        pass

    made = wrap(Named(shape=[2]))
    assert made.className() == "Named" and isinstance(made, MLCompute.MLCTensor) and made.descriptor().shape() == [2]


def test_an_argument_that_holds_itself_is_told():
    held, named = [], {}
    held.append(held)
    named["itself"] = (named,)
    for given in (held, named):
        with pytest.raises(TypeError, match="holds itself, or lists that are nested more than 32 deep"):
            MLCompute.MLCTensor.tensorWithShape_(given)


def test_nobody_is_of_the_class_nil_and_what_is_no_class_is_told():
    tensor = MLCompute.MLCTensor.tensorWithShape_([1, 2])
    asked = (tensor.isKindOfClass_, tensor.isMemberOfClass_, MLCompute.MLCTensor.isSubclassOfClass_)
    assert [ask(None) for ask in asked] == [False, False, False]
    for ask, given in itertools.product(asked, ("MLCTensor", 3, tensor, (MLCompute.MLCTensor,))):
        with pytest.raises(TypeError, match=r"MLCTensor\.is\w+OfClass_: argument 'class' expects a class, got "):
            ask(given)
