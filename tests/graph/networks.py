"""Six networks, each twice: as an ML Compute program, and as a formula that plain PyTorch differentiates."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from mlc_torch import (
    MLCActivationLayer,
    MLCArithmeticLayer,
    MLCArithmeticOperation,
    MLCBatchNormalizationLayer,
    MLCConvolutionLayer,
    MLCDevice,
    MLCFullyConnectedLayer,
    MLCGraph,
    MLCLossType,
    MLCLSTMDescriptor,
    MLCLSTMLayer,
    MLCMultiheadAttentionDescriptor,
    MLCMultiheadAttentionLayer,
    MLCTensor,
    MLCTrainingGraph,
)
from tests.graph import formulas
from tests.graph.programs import Program, conv, cpu, dense, loss, placeholder, tensor, values

Tensors = Sequence[torch.Tensor]
EPSILON = 1e-3


@dataclass(frozen=True)
class Network:
    """``make`` gives a program and its parameters; ``formula`` gives the loss from the same parameters and data."""

    name: str
    make: Callable[[Any, MLCDevice], tuple[Program, list[MLCTensor]]]
    views: Sequence[tuple[int, ...]]
    """The shapes in which the formula reads the parameters."""
    formula: Callable[[Tensors, dict[str, torch.Tensor]], torch.Tensor]
    step_by_step: bool = False
    """Compared step by step from the same state: statistics of a batch amplify rounding."""


def one_hot(rows: int, classes: int) -> np.ndarray:
    return np.eye(classes, dtype=np.float32)[np.random.default_rng(rows).integers(0, classes, rows)]


def add() -> MLCArithmeticLayer:
    return MLCArithmeticLayer(operation=MLCArithmeticOperation.add)


def finished(graph, optimizer, device, inputs, labels, given, scored, result) -> Program:
    training = MLCTrainingGraph(graphObjects=[graph], lossLayer=scored, optimizer=optimizer)
    assert training.addInputs(inputs, lossLabels=labels)
    return Program(training, graph, inputs, labels, given, graph.layers, result, device)


# Multi-layer perceptron


def make_mlp(optimizer, device):
    graph, x, t = MLCGraph(), placeholder(8, 6, 1, 1), placeholder(8, 4)
    layers = [dense(6, 10), dense(10, 4, seed=3)]
    h = graph.node(MLCActivationLayer.relu, source=graph.node(layers[0], source=x))
    y = graph.node(layers[1], source=h)
    given = {"x": values(8, 6, 1, 1), "t": one_hot(8, 4)}
    scored = loss(MLCLossType.softmaxCrossEntropy)
    program = finished(graph, optimizer, device, {"x": x}, {"t": t}, given, scored, y)
    return program, [p for layer in layers for p in (layer.weights, layer.biases)]


def mlp(p, given):
    h = torch.relu(formulas.dense(given["x"].flatten(1), p[0], p[1]))
    return formulas.softmax_cross_entropy(formulas.dense(h, p[2], p[3]), given["t"])


# Convolution with batch norm


def make_conv(optimizer, device):
    graph, x, t = MLCGraph(), placeholder(4, 2, 4, 4), placeholder(4, 3)
    layer = MLCConvolutionLayer(
        weights=tensor(values(1, 6, 3, 3) * 0.5), biases=tensor(values(1, 3, 1, 1)), descriptor=conv(2, 3)
    )
    gamma, beta = (tensor(np.full((1, 3, 1, 1), v, np.float32)) for v in (1.0, 0.1))
    mean, variance = (tensor(np.full((1, 3, 1, 1), v, np.float32)) for v in (0.0, 1.0))
    norm = MLCBatchNormalizationLayer(
        featureChannelCount=3, mean=mean, variance=variance, beta=beta, gamma=gamma, varianceEpsilon=EPSILON
    )
    head = dense(48, 3, seed=5)
    h = graph.node(norm, source=graph.node(layer, source=x))
    h = graph.node(MLCActivationLayer.relu, source=h)
    y = graph.node(head, source=graph.reshape(shape=[4, 48], source=h))
    given = {"x": values(4, 2, 4, 4), "t": values(4, 3)}
    program = finished(graph, optimizer, device, {"x": x}, {"t": t}, given, loss(), y)
    return program, [layer.weights, layer.biases, gamma, beta, head.weights, head.biases]


def convolution(p, given):
    h = formulas.batch_norm(formulas.conv(given["x"], p[0], p[1]), p[2], p[3], EPSILON)
    return formulas.squared_error(formulas.dense(torch.relu(h).flatten(1), p[4], p[5]), given["t"])


# Residual, with one tensor in two layers


def make_residual(optimizer, device):
    graph, x, t = MLCGraph(), placeholder(5, 4), placeholder(5, 4)
    first = dense(4, 4)
    second = MLCFullyConnectedLayer(
        weights=first.weights, biases=tensor(values(1, 4, 1, 1, seed=9)), descriptor=first.descriptor
    )
    h = graph.node(MLCActivationLayer.tanh, source=graph.node(first, source=x))
    h = graph.node(add(), sources=[h, x])
    y = graph.node(add(), sources=[graph.node(second, source=h), h])
    given = {"x": values(5, 4), "t": values(5, 4, seed=2)}
    program = finished(graph, optimizer, device, {"x": x}, {"t": t}, given, loss(), y)
    return program, [first.weights, first.biases, second.biases]


def residual(p, given):
    h = torch.tanh(formulas.dense(given["x"], p[0], p[1])) + given["x"]
    return formulas.squared_error(formulas.dense(h, p[0], p[2]) + h, given["t"])


# LSTM


def make_lstm(optimizer, device):
    graph, x, t = MLCGraph(), placeholder(3, 5, 4), placeholder(3, 5, 2)
    gates = [
        [tensor(values(3, 4, seed=i) * 0.5) for i in range(4)],
        [tensor(values(3, 3, seed=i) * 0.5) for i in range(4)],
    ]
    gates.append([tensor(values(3, seed=i) * 0.5) for i in range(4)])
    layer = MLCLSTMLayer(
        descriptor=MLCLSTMDescriptor(inputSize=4, hiddenSize=3, layerCount=1),
        inputWeights=gates[0],
        hiddenWeights=gates[1],
        biases=gates[2],
    )
    head = dense(3, 2, seed=5)
    y = graph.node(head, source=graph.node(layer, source=x))
    given = {"x": values(3, 5, 4), "t": values(3, 5, 2)}
    program = finished(graph, optimizer, device, {"x": x}, {"t": t}, given, loss(), y)
    return program, [*gates[0], *gates[1], *gates[2], head.weights, head.biases]


def lstm(p, given):
    h = formulas.lstm(given["x"], p[:4], p[4:8], p[8:12])
    return formulas.squared_error(formulas.dense(h, p[12], p[13]), given["t"])


# Attention


def make_attention(optimizer, device):
    graph, x, t = MLCGraph(), placeholder(2, 5, 4), placeholder(2, 5, 4)
    shapes = [(1, 2, 2, 4)] * 3 + [(1, 1, 4, 4)]
    weights = [tensor(values(*shape, seed=i) * 0.5) for i, shape in enumerate(shapes)]
    biases = [tensor(values(4, seed=i)) for i in range(4)]
    descriptor = MLCMultiheadAttentionDescriptor(modelDimension=4, headCount=2)
    layer = MLCMultiheadAttentionLayer(descriptor=descriptor, weights=weights, biases=biases, attentionBiases=None)
    y = graph.node(add(), sources=[graph.node(layer, sources=[x, x, x]), x])
    given = {"x": values(2, 5, 4), "t": values(2, 5, 4, seed=1)}
    program = finished(graph, optimizer, device, {"x": x}, {"t": t}, given, loss(), y)
    return program, [*weights, *biases]


def attention(p, given):
    x = given["x"]
    return formulas.squared_error(formulas.attention(x, x, x, p[:4], p[4:], 2) + x, given["t"])


# Two losses


def make_two_losses(optimizer, device):
    graph, x, t, u = MLCGraph(), placeholder(6, 4), placeholder(6, 2), placeholder(6, 3)
    trunk, left, right = dense(4, 5), dense(5, 3, seed=4), dense(5, 2, seed=6)
    h = graph.node(MLCActivationLayer.tanh, source=graph.node(trunk, source=x))
    sideways = graph.node(left, source=h)
    graph.node(loss(MLCLossType.softmaxCrossEntropy), sources=[sideways], lossLabels=[u])
    y = graph.node(right, source=h)
    given = {"x": values(6, 4), "t": values(6, 2), "u": one_hot(6, 3)}
    program = finished(graph, optimizer, device, {"x": x}, {"t": t, "u": u}, given, loss(), y)
    return program, [p for layer in (trunk, left, right) for p in (layer.weights, layer.biases)]


def two_losses(p, given):
    h = torch.tanh(formulas.dense(given["x"], p[0], p[1]))
    first = formulas.softmax_cross_entropy(formulas.dense(h, p[2], p[3]), given["u"])
    return first + formulas.squared_error(formulas.dense(h, p[4], p[5]), given["t"])


NETWORKS = [
    Network("multi-layer perceptron", make_mlp, [(10, 6), (10,), (4, 10), (4,)], mlp),
    Network(
        "convolution with batch norm",
        make_conv,
        [(3, 2, 3, 3), (3,), (3,), (3,), (3, 48), (3,)],
        convolution,
        step_by_step=True,
    ),
    Network("residual with a shared tensor", make_residual, [(4, 4), (4,), (4,)], residual),
    Network("LSTM", make_lstm, [*[(3, 4)] * 4, *[(3, 3)] * 4, *[(3,)] * 4, (2, 3), (2,)], lstm),
    Network("attention", make_attention, [*[(4, 4)] * 4, *[(4,)] * 4], attention),
    Network("two losses", make_two_losses, [(5, 4), (5,), (3, 5), (3,), (2, 5), (2,)], two_losses),
]


def made(network: Network, optimizer: Any, device: MLCDevice | None = None) -> tuple[Program, list[MLCTensor]]:
    return network.make(optimizer, device or cpu())
