"""Small graphs that train, for comparing ways of running them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch

from mlc_torch import (
    MLCActivationLayer,
    MLCAdamOptimizer,
    MLCArithmeticLayer,
    MLCArithmeticOperation,
    MLCBatchNormalizationLayer,
    MLCConvolutionDescriptor,
    MLCConvolutionLayer,
    MLCDevice,
    MLCDropoutLayer,
    MLCFullyConnectedLayer,
    MLCGraph,
    MLCGraphCompilationOptions,
    MLCLossDescriptor,
    MLCLossLayer,
    MLCLossType,
    MLCLSTMDescriptor,
    MLCLSTMLayer,
    MLCMultiheadAttentionDescriptor,
    MLCMultiheadAttentionLayer,
    MLCOptimizerDescriptor,
    MLCReductionLayer,
    MLCReductionType,
    MLCRegularizationType,
    MLCSGDOptimizer,
    MLCTensor,
    MLCTensorData,
    MLCTrainingGraph,
    unwrap,
)
from tests.layers.records import tensor, values

BATCH, CLASSES = 6, 4
PLAIN = (MLCGraphCompilationOptions.disableLayerFusion,)
"""The options that make a graph run module by module."""


@dataclass
class Network:
    """A graph from one input to class scores, and every tensor that training changes."""

    graph: MLCGraph
    source: MLCTensor
    result: MLCTensor
    parameters: list[MLCTensor]
    statistics: list[MLCTensor]


class _Builder:
    def __init__(self, *shape: int) -> None:
        self.graph, self.source = MLCGraph(), unwrap(MLCTensor(shape=[BATCH, *shape]))
        self.parameters: list[MLCTensor] = []
        self.statistics: list[MLCTensor] = []

    def weights(self, *shape: int) -> MLCTensor:
        scale = 0.6 / max(shape[-1], 1) ** 0.5
        made = tensor(values(*shape, seed=len(self.parameters) + 1, low=-scale, high=scale))
        self.parameters.append(made)
        return made

    def add(self, layer, *sources) -> MLCTensor:
        return unwrap(self.graph.node(unwrap(layer), sources=list(sources)))

    def dense(self, x, inputs: int, outputs: int) -> MLCTensor:
        d = MLCConvolutionDescriptor(
            kernelSizes=(1, 1), inputFeatureChannelCount=inputs, outputFeatureChannelCount=outputs
        )
        return self.add(
            MLCFullyConnectedLayer(
                weights=self.weights(outputs, inputs), biases=self.weights(1, outputs), descriptor=d
            ),
            x,
        )

    def convolution(self, x, inputs: int, outputs: int, stride: int = 1) -> MLCTensor:
        d = MLCConvolutionDescriptor(
            kernelSizes=(3, 3),
            inputFeatureChannelCount=inputs,
            outputFeatureChannelCount=outputs,
            strides=(stride, stride),
        )
        return self.add(
            MLCConvolutionLayer(
                weights=self.weights(1, inputs * outputs, 3, 3), biases=self.weights(1, outputs, 1, 1), descriptor=d
            ),
            x,
        )

    def batch_norm(self, x, channels: int) -> MLCTensor:
        mean, variance = (
            tensor(np.zeros((1, channels, 1, 1), np.float32)),
            tensor(np.ones((1, channels, 1, 1), np.float32)),
        )
        self.statistics += [mean, variance]
        return self.add(
            MLCBatchNormalizationLayer(
                featureChannelCount=channels,
                mean=mean,
                variance=variance,
                beta=self.weights(1, channels, 1, 1),
                gamma=self.weights(1, channels, 1, 1),
                varianceEpsilon=1e-3,
                momentum=0.9,
            ),
            x,
        )

    def mean(self, x, *dimensions: int) -> MLCTensor:
        return self.add(MLCReductionLayer(reductionType=MLCReductionType.mean, dimensions=list(dimensions)), x)

    def done(self, result: MLCTensor) -> Network:
        return Network(self.graph, self.source, result, self.parameters, self.statistics)


def perceptron() -> Network:
    b = _Builder(12)
    x = b.add(MLCActivationLayer.relu, b.dense(b.source, 12, 10))
    return b.done(b.dense(b.add(MLCActivationLayer.tanh, b.dense(x, 10, 8)), 8, CLASSES))


def convolutional() -> Network:
    b = _Builder(2, 6, 6)
    x = b.add(MLCActivationLayer.relu, b.batch_norm(b.convolution(b.source, 2, 4), 4))
    x = b.add(MLCActivationLayer.relu, b.convolution(x, 4, 6, stride=2))
    return b.done(b.dense(b.mean(x, 2, 3), 6, CLASSES))


def residual() -> Network:
    """One layer used twice: its gradients add."""
    b = _Builder(9)
    x = b.dense(b.source, 9, 9)
    d = MLCConvolutionDescriptor(kernelSizes=(1, 1), inputFeatureChannelCount=9, outputFeatureChannelCount=9)
    shared = MLCFullyConnectedLayer(weights=b.weights(9, 9), biases=b.weights(1, 9), descriptor=d)
    add = MLCArithmeticLayer(operation=MLCArithmeticOperation.add)
    for _ in range(2):
        x = b.add(add, x, b.add(MLCActivationLayer.tanh, b.add(shared, x)))
    return b.done(b.dense(x, 9, CLASSES))


def recurrent() -> Network:
    b = _Builder(5, 3)
    layer = MLCLSTMLayer(
        descriptor=MLCLSTMDescriptor(
            inputSize=3,
            hiddenSize=4,
            layerCount=2,
            usesBiases=True,
            batchFirst=True,
            isBidirectional=False,
            returnsSequences=False,
            dropout=0.0,
        ),
        inputWeights=[b.weights(4, 3) for _ in range(4)] + [b.weights(4, 4) for _ in range(4)],
        hiddenWeights=[b.weights(4, 4) for _ in range(8)],
        biases=[b.weights(4) for _ in range(8)],
    )
    return b.done(b.dense(b.add(layer, b.source), 4, CLASSES))


def attention() -> Network:
    b = _Builder(5, 8)
    layer = MLCMultiheadAttentionLayer(
        descriptor=MLCMultiheadAttentionDescriptor(modelDimension=8, headCount=2),
        weights=[b.weights(8, 8) for _ in range(4)],
        biases=[b.weights(8) for _ in range(4)],
        attentionBiases=None,
    )
    x = b.add(layer, b.source, b.source, b.source)
    x = b.add(MLCArithmeticLayer(operation=MLCArithmeticOperation.add), x, b.source)
    return b.done(b.dense(b.mean(x, 1), 8, CLASSES))


def with_dropout() -> Network:
    b = _Builder(12)
    x = b.add(MLCDropoutLayer(rate=0.4, seed=11), b.add(MLCActivationLayer.relu, b.dense(b.source, 12, 16)))
    return b.done(b.dense(x, 16, CLASSES))


def with_dropouts() -> Network:
    """One of them used twice, behind statistics that a pass moves."""
    b = _Builder(2, 6, 6)
    often = unwrap(MLCDropoutLayer(rate=0.4, seed=11))
    x = b.add(often, b.batch_norm(b.convolution(b.source, 2, 4), 4))
    x = b.add(often, b.add(MLCDropoutLayer(rate=0.2, seed=12), b.convolution(x, 4, 4)))
    return b.done(b.dense(b.mean(x, 2, 3), 4, CLASSES))


GRAPHS = [perceptron, convolutional, residual, recurrent, attention, with_dropout]


def optimizer(kind: str = "adam"):
    d = MLCOptimizerDescriptor(
        learningRate=0.05, gradientRescale=1.0, regularizationType=MLCRegularizationType.l2, regularizationScale=0.001
    )
    if kind == "sgd":
        return MLCSGDOptimizer(descriptor=d, momentumScale=0.9, usesNesterovMomentum=False)
    return MLCAdamOptimizer(descriptor=d)


def training_graph(network: Network, device: MLCDevice, options=(), kind: str = "adam", **more) -> MLCTrainingGraph:
    labels = unwrap(MLCTensor(shape=[BATCH, CLASSES]))
    loss = MLCLossLayer(
        descriptor=MLCLossDescriptor(type=MLCLossType.softmaxCrossEntropy, reductionType=MLCReductionType.mean)
    )
    graph = MLCTrainingGraph(graphObjects=[network.graph], lossLayer=loss, optimizer=optimizer(kind))
    graph.addInputs({"x": network.source}, lossLabels={"y": labels})
    assert graph.compile(options=list(options), device=device, **more)
    return graph


def batch(network: Network, number: int) -> dict[str, MLCTensorData]:
    x = values(*network.source.descriptor.shape, seed=100 + number)
    y = np.eye(CLASSES, dtype=np.float32)[np.random.default_rng(number).integers(0, CLASSES, BATCH)]
    return {name: MLCTensorData(bytesNoCopy=a, length=a.nbytes) for name, a in (("x", x), ("y", y))}


def bind(graph: MLCTrainingGraph, network: Network, number: int, device: MLCDevice) -> None:
    """Write a batch where the separate phases read it."""
    labels = MLCTensor._of(graph._declared.labels["y"])
    tensors = {"x": network.source, "y": labels}
    assert graph.bindAndWriteData(batch(network, number), forInputs=tensors, to=device, synchronous=True)


def step(graph: MLCTrainingGraph, data: dict[str, MLCTensorData], samples: int = BATCH) -> None:
    assert graph.execute(
        inputsData={"x": data["x"]}, lossLabelsData={"y": data["y"]}, lossLabelWeightsData=None, batchSize=samples
    )


def train(
    make: Callable[[], Network], steps: int, options=(), device: MLCDevice | None = None, kind: str = "adam", **more
) -> list[torch.Tensor]:
    """Every parameter and statistic after so many steps."""
    network = make()
    graph = training_graph(network, device or MLCDevice.cpu(), options, kind, **more)
    for number in range(steps):
        step(graph, batch(network, number))
    return [t.torch.cpu().clone() for t in (*network.parameters, *network.statistics)]
