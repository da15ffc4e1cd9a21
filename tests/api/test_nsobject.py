"""What every class has from NSObject in Swift's spelling, and what nil means to a selector."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import mlc_torch
import mlc_torch.objc as MLCompute
from mlc_torch import (
    MLCActivationLayer,
    MLCDataType,
    MLCDevice,
    MLCDeviceType,
    MLCGraph,
    MLCInferenceGraph,
    MLCLayer,
    MLCTensor,
    MLCTensorDescriptor,
    MLCTrainingGraph,
)
from mlc_torch.coverage.api import api
from mlc_torch.objc import unwrap
from mlc_torch.objc.nsobject import bare
from mlc_torch.spelling import CLASSES

# Of NSObject


@pytest.mark.parametrize("name", sorted(set(api()["classes"]) - {"MLCInferenceGraph", "MLCTrainingGraph"}))
def test_every_class_describes_and_compares_itself(name):
    made = bare(CLASSES[name])
    assert isinstance(made.description, str) and name in made.description
    assert made.debugDescription == repr(made)
    assert made.isEqual(made) is True and made.isEqual(None) is False
    assert isinstance(made.hash, int) and made.hash == made.hash
    with pytest.raises(AttributeError):
        made.description = "other"


def test_graphs_describe_themselves():
    graph = MLCGraph()
    for made in (
        MLCInferenceGraph(graphObjects=[graph]),
        MLCTrainingGraph(graphObjects=[graph], lossLayer=None, optimizer=None),
    ):
        assert type(made).__name__ in made.debugDescription and made.isEqual(made) and made.hash == hash(made)


def test_descriptors_are_equal_by_their_values():
    one, same, other = (MLCTensorDescriptor(shape=[n], dataType=MLCDataType.float32) for n in (2, 2, 3))
    assert one.isEqual(same) and one.hash == same.hash and not one.isEqual(other)
    assert one.debugDescription == "MLCTensorDescriptor([2], float32)"


def test_tensors_are_equal_only_to_themselves():
    one, other = MLCTensor(shape=[2]), MLCTensor(shape=[2])
    assert one.isEqual(one) and not one.isEqual(other)


@pytest.mark.parametrize(
    "other",
    [np.ones((2, 2)), np.zeros(2, [("a", int)]), np.float32(1), torch.ones(2), "text"],
    ids=lambda o: type(o).__name__,
)
def test_nothing_is_equal_to_an_array(other):
    tensor = MLCTensor(shape=[2])
    assert tensor.isEqual(other) is False and tensor.descriptor.isEqual(other) is False
    assert MLCompute.wrap(tensor).isEqual_(other) is False


def test_an_object_is_equal_to_itself_in_the_other_spelling():
    tensor = MLCTensor(shape=[2])
    assert tensor.isEqual(MLCompute.wrap(tensor)) is True
    assert tensor.isEqual(MLCompute.wrap(MLCTensor(shape=[2]))) is False


# nil, as it was measured on inference graphs


@pytest.fixture(params=["the library's classes", "the view"])
def inference(request):
    graph = MLCGraph()
    x = MLCTensor(shape=[2])
    graph.node(MLCActivationLayer.relu, source=x)
    made = MLCompute.MLCInferenceGraph.graphWithGraphObjects_([graph])
    return unwrap(made) if request.param == "the library's classes" else made


def test_a_nil_device_means_the_one_of_the_last_compile(inference):
    assert inference.compileWithOptions_device_(0, None) is False
    assert "the device is nil" in str(mlc_torch.last_refusal())
    assert inference.compileWithOptions_device_inputTensors_inputTensorsData_(0, None, None, None) is False
    assert inference.compileWithOptions_device_(0, MLCDevice.cpu()) is True
    assert inference.compileWithOptions_device_(0, None) is True
    assert inference.compileWithOptions_device_inputTensors_inputTensorsData_(0, None, None, None) is True
    assert unwrap(inference).device.type is MLCDeviceType.cpu


def test_nil_inputs_and_outputs_declare_nothing(inference):
    assert inference.addInputs_(None) is True and inference.addOutputs_(None) is True
    assert inference.addInputs_lossLabels_lossLabelWeights_(None, None, None) is True


def test_nil_inputs_cannot_be_bound(inference):
    device = MLCDevice.cpu()
    assert inference.bindAndWriteData_forInputs_toDevice_synchronous_({}, None, device, True) is False
    assert inference.bindAndWriteData_forInputs_toDevice_synchronous_(None, None, device, True) is False
    assert inference.bindAndWriteData_forInputs_toDevice_batchSize_synchronous_({}, None, device, 0, True) is False
    assert "the inputs are nil" in str(mlc_torch.last_refusal())


def test_nothing_supports_a_type_on_no_device():
    assert MLCLayer.supportsDataType_onDevice_(MLCDataType.float32, None) is False


def test_swift_would_not_compile_nil(inference):
    graph = unwrap(inference)
    with pytest.raises(TypeError, match="'device' expects MLCDevice, got None"):
        graph.compile(options=[], device=None)
    with pytest.raises(TypeError, match="'inputs' expects"):
        graph.addInputs(None)
    with pytest.raises(TypeError, match="'outputs' expects"):
        graph.addOutputs(None)
    with pytest.raises(TypeError, match="'on' expects MLCDevice"):
        MLCLayer.supportsDataType(MLCDataType.float32, on=None)


def test_elsewhere_nil_stays_a_mistake(inference):
    graph = unwrap(inference)
    with pytest.raises(TypeError, match="expects MLCLayer, got None"):
        graph.nodeWithLayer_source_(None, MLCTensor(shape=[2]))
