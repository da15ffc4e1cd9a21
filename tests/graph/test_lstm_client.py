"""A sequence labeller as a real program declares it: one value at a time, four dimensions, two LSTMs, three classes."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional as F

from mlc_torch import (
    MLCConvolutionDescriptor,
    MLCDevice,
    MLCFullyConnectedLayer,
    MLCGraph,
    MLCInferenceGraph,
    MLCLossDescriptor,
    MLCLossLayer,
    MLCLossType,
    MLCLSTMDescriptor,
    MLCLSTMLayer,
    MLCOptimizerDescriptor,
    MLCReductionType,
    MLCRegularizationType,
    MLCSGDOptimizer,
    MLCSoftmaxLayer,
    MLCSoftmaxOperation,
    MLCTensor,
    MLCTensorData,
    MLCTrainingGraph,
    MLCTrainingWarning,
    unwrap,
)
from tests.layers.records import tensor

HIDDEN, CLASSES, RATE, STEPS = 6, 3, 0.5, 25


class Twin(nn.Module):
    """The same in plain torch."""

    def __init__(self):
        super().__init__()
        self.first, self.second = nn.LSTM(1, HIDDEN, batch_first=True), nn.LSTM(HIDDEN, HIDDEN, batch_first=True)
        self.dense = nn.Linear(HIDDEN, CLASSES)
        for lstm in (self.first, self.second):
            nn.init.zeros_(lstm.bias_hh_l0.requires_grad_(False))  # ML Compute has one bias for a gate

    def forward(self, x):
        return F.softmax(self.dense(self.second(self.first(x)[0])[0][:, -1]), dim=1)


def _flat(parameter):
    return tensor(np.array(parameter.detach().numpy()), (1, parameter.numel(), 1, 1))


def _lstm(own):
    return unwrap(
        MLCLSTMLayer(
            descriptor=MLCLSTMDescriptor(inputSize=own.input_size, hiddenSize=HIDDEN, layerCount=1),
            inputWeights=[_flat(w) for w in own.weight_ih_l0.chunk(4)],
            hiddenWeights=[_flat(w) for w in own.weight_hh_l0.chunk(4)],
            biases=[_flat(b) for b in own.bias_ih_l0.chunk(4)],
        )
    )


def _data(array):
    return MLCTensorData(bytesNoCopy=array, length=array.nbytes)


def test_one_value_at_a_time_in_four_dimensions_trains_as_in_torch():
    torch.manual_seed(3)
    twin = Twin()
    x, labels = MLCTensor(shape=[1, 1, 1, 1]), MLCTensor(shape=[1, CLASSES])
    layers = [_lstm(twin.first), _lstm(twin.second)]
    size = MLCConvolutionDescriptor(
        kernelSizes=(HIDDEN, CLASSES), inputFeatureChannelCount=HIDDEN, outputFeatureChannelCount=CLASSES
    )
    dense = unwrap(
        MLCFullyConnectedLayer(weights=_flat(twin.dense.weight), biases=_flat(twin.dense.bias), descriptor=size)
    )
    graph = MLCGraph()
    node = x
    for layer in layers:
        node = unwrap(graph.node(layer, source=node))
        assert node.descriptor.shape == [1, HIDDEN, 1, 1]
    node = unwrap(graph.node(dense, source=node))
    softmax = unwrap(graph.node(MLCSoftmaxLayer(operation=MLCSoftmaxOperation.softmax, dimension=1), source=node))
    kind = MLCLossDescriptor(type=MLCLossType.softmaxCrossEntropy, reductionType=MLCReductionType.mean)
    how = MLCOptimizerDescriptor(
        learningRate=RATE,
        gradientRescale=1.0,
        regularizationType=MLCRegularizationType.none,
        regularizationScale=0.0,
    )
    training = MLCTrainingGraph(
        graphObjects=[graph], lossLayer=MLCLossLayer(descriptor=kind), optimizer=MLCSGDOptimizer(descriptor=how)
    )
    training.addInputs({"x": x}, lossLabels={"labels": labels})
    with pytest.warns(MLCTrainingWarning, match="softmax"):
        assert training.compile(options=[], device=MLCDevice())
    optimizer = torch.optim.SGD([p for p in twin.parameters() if p.requires_grad], lr=RATE)
    given = np.random.default_rng(0).uniform(-1, 1, STEPS).astype(np.float32)
    for value in given:
        truth = int(value > -0.3) + int(value > 0.3)
        found = []
        assert training.execute(
            inputsData={"x": _data(np.full(100, value, np.float32))},  # a hundred times as long as is read
            lossLabelsData={"labels": _data(np.eye(CLASSES, dtype=np.float32)[truth])},
            lossLabelWeightsData=None,
            batchSize=1,
            completionHandler=lambda result, error, seconds, found=found: found.append(float(result.numpy()[0])),
        )
        optimizer.zero_grad()
        loss = F.cross_entropy(twin(torch.full((1, 1, 1), float(value))), torch.tensor([truth]))
        loss.backward()
        optimizer.step()
        assert found == pytest.approx([loss.item()], abs=1e-5)
    for layer, own in zip(layers, (twin.first, twin.second), strict=True):
        trained = (layer.inputWeights, layer.hiddenWeights, layer.biases)
        for tensors, parameter in zip(trained, (own.weight_ih_l0, own.weight_hh_l0, own.bias_ih_l0), strict=True):
            together = np.concatenate([t.numpy().ravel() for t in tensors])
            np.testing.assert_allclose(together, parameter.detach().numpy().ravel(), rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(dense.weights.numpy().ravel(), twin.dense.weight.detach().numpy().ravel(), atol=1e-5)

    inference = MLCInferenceGraph(graphObjects=[graph])
    inference.addInputs({"x": x})
    assert inference.compile(options=[], device=MLCDevice())
    assert inference.execute(inputsData={"x": _data(np.full(1, 0.4, np.float32))}, batchSize=1)
    expected = twin(torch.full((1, 1, 1), 0.4)).detach().numpy()
    np.testing.assert_allclose(softmax.numpy().ravel(), expected.ravel(), atol=1e-5)
