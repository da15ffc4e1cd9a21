"""Divergences that no other test shows: entries of ``docs/divergences.toml`` refer to these."""

from __future__ import annotations

import numpy as np

from mlc_torch import (
    MLCActivationLayer,
    MLCConvolutionDescriptor,
    MLCDataType,
    MLCEmbeddingDescriptor,
    MLCEmbeddingLayer,
    MLCFullyConnectedLayer,
    MLCGraph,
    MLCInferenceGraph,
    MLCTensor,
    MLCTensorData,
    MLCTrainingGraph,
    last_refusal,
)
from tests.graph.programs import array, cpu, data, dense, loss, placeholder, regression, sgd, tensor, values


def trained_over(memory) -> MLCTensor:
    """A weight of 3 outputs and 6 inputs over ``memory``, after three steps of training."""
    weights = MLCTensor(
        shape=[1, 18, 1, 1], data=MLCTensorData(immutableBytesNoCopy=memory, length=72), dataType=MLCDataType.float32
    )
    channels = MLCConvolutionDescriptor(kernelSizes=(1, 1), inputFeatureChannelCount=6, outputFeatureChannelCount=3)
    graph, x, t = MLCGraph(), placeholder(4, 6), placeholder(4, 3)
    graph.node(MLCFullyConnectedLayer(weights=weights, biases=None, descriptor=channels), source=x)
    training = MLCTrainingGraph(graphObjects=[graph], lossLayer=loss(), optimizer=sgd())
    assert training.addInputs({"x": x}, lossLabels={"t": t}) and training.compile(options=[], device=cpu())
    given = {"inputsData": {"x": data(values(4, 6))}, "lossLabelsData": {"t": data(values(4, 3))}}
    for _ in range(3):
        assert training.execute(**given, lossLabelWeightsData=None, batchSize=0)
    return weights


def test_training_leaves_read_only_memory_alone():
    start = values(3, 6).tobytes()
    weights = trained_over(start)
    assert start == values(3, 6).tobytes() and bytes(weights.data) != start


def test_training_writes_into_writable_memory_that_was_given_as_immutable():
    start = values(3, 6)
    weights = trained_over(start)
    assert not np.array_equal(start, values(3, 6)) and bytes(weights.data) == start.tobytes()


def test_a_sequence_tensor_holds_no_data():
    assert MLCTensor(sequenceLength=3, featureChannelCount=2, batchSize=4).data is None


def test_a_graph_leaves_labels_alone():
    graph, x = MLCGraph(), placeholder(2, 3)
    layers = [dense(3, 4), MLCActivationLayer.relu, MLCActivationLayer.relu]
    layers[0].label = "first"
    for layer in layers:
        x = graph.node(layer, source=x)
    assert [layer.label for layer in graph.layers] == ["first", "Activation", "Activation"]


def test_an_embedding_in_the_middle_of_a_graph():
    rows = values(5, 2)
    layer = MLCEmbeddingLayer(
        descriptor=MLCEmbeddingDescriptor(embeddingCount=5, embeddingDimension=2), weights=tensor(rows)
    )
    graph, x = MLCGraph(), placeholder(2, 3, type_=MLCDataType.int32)
    turned = graph.transpose(dimensions=[1, 0], source=x)
    y = graph.node(layer, source=turned)
    inference = MLCInferenceGraph(graphObjects=[graph])
    indices = np.array([[0, 1, 2], [3, 4, 0]], np.int32)
    assert inference.addInputs({"x": x}) and inference.compile(options=[], device=cpu())
    assert inference.execute(inputsData={"x": data(indices)}, batchSize=0)
    np.testing.assert_array_equal(array(y), rows[indices.T])


def test_a_result_has_the_bytes_of_its_shape():
    program = regression()
    assert program.compile() and program.step() > 0
    assert program.result.data.nbytes == 4 * 3 * 4


def test_parameters_without_data_start_at_zero():
    channels = MLCConvolutionDescriptor(kernelSizes=(1, 1), inputFeatureChannelCount=6, outputFeatureChannelCount=3)
    graph, x = MLCGraph(), placeholder(4, 6)
    layer = MLCFullyConnectedLayer(weights=placeholder(1, 18, 1, 1), biases=None, descriptor=channels)
    y = graph.node(layer, source=x)
    inference = MLCInferenceGraph(graphObjects=[graph])
    assert inference.addInputs({"x": x}) and inference.compile(options=[], device=cpu())
    assert inference.execute(inputsData={"x": data(values(4, 6))}, batchSize=0)
    assert not array(y).any()


def test_the_reason_names_member_layer_and_shape():
    assert MLCGraph().node(dense(3, 4), source=placeholder(2, 5)) is None
    why = str(last_refusal())
    assert why.startswith("MLCGraph.node(with:source:)") and "FullyConnected" in why and "[2, 5]" in why
