"""Graphs to look at: a small perceptron, residual blocks, an LSTM."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from mlc_torch import (
    MLCActivationLayer,
    MLCAdamOptimizer,
    MLCArithmeticLayer,
    MLCArithmeticOperation,
    MLCBatchNormalizationLayer,
    MLCConvolutionDescriptor,
    MLCConvolutionLayer,
    MLCDataType,
    MLCDevice,
    MLCFullyConnectedLayer,
    MLCGraph,
    MLCLossDescriptor,
    MLCLossLayer,
    MLCLossType,
    MLCLSTMDescriptor,
    MLCLSTMLayer,
    MLCOptimizerDescriptor,
    MLCPoolingDescriptor,
    MLCPoolingLayer,
    MLCPoolingType,
    MLCRandomInitializerType,
    MLCReductionType,
    MLCRegularizationType,
    MLCSliceLayer,
    MLCTensor,
    MLCTensorData,
    MLCTensorDescriptor,
    MLCTrainingGraph,
)


@dataclass
class Built:
    """A graph, and the tensors one needs to run it."""

    graph: MLCGraph
    inputs: dict[str, MLCTensor]
    result: MLCTensor
    labels: dict[str, MLCTensor] = field(default_factory=dict)


def random(shape) -> MLCTensor:
    return MLCTensor(
        descriptor=MLCTensorDescriptor(shape=shape, dataType=MLCDataType.float32),
        randomInitializerType=MLCRandomInitializerType.glorotUniform,
    )


def bare(shape) -> MLCTensor:
    return MLCTensor(descriptor=MLCTensorDescriptor(shape=shape, dataType=MLCDataType.float32))


def filled(shape, number) -> MLCTensor:
    descriptor = MLCTensorDescriptor(shape=shape, dataType=MLCDataType.float32)
    return MLCTensor(descriptor=descriptor, fillWithData=number)


def data(shape, seed=0) -> MLCTensorData:
    values = np.random.default_rng(seed).random(shape, dtype=np.float32)
    return MLCTensorData(immutableBytesNoCopy=values, length=values.nbytes)


def dense(inputs: int, outputs: int, label: str) -> MLCFullyConnectedLayer:
    layer = MLCFullyConnectedLayer(
        weights=random([1, inputs * outputs, 1, 1]),
        biases=random([1, outputs, 1, 1]),
        descriptor=MLCConvolutionDescriptor(
            kernelSizes=(1, 1), inputFeatureChannelCount=inputs, outputFeatureChannelCount=outputs
        ),
    )
    layer.label = label
    return layer


def convolution(inputs: int, outputs: int, label: str, size: int = 3, stride: int = 1) -> MLCConvolutionLayer:
    layer = MLCConvolutionLayer(
        weights=random([1, inputs * outputs, size, size]),
        biases=None,
        descriptor=MLCConvolutionDescriptor(
            kernelSizes=(size, size),
            inputFeatureChannelCount=inputs,
            outputFeatureChannelCount=outputs,
            strides=(stride, stride),
        ),
    )
    layer.label = label
    return layer


def batch_norm(channels: int, label: str) -> MLCBatchNormalizationLayer:
    shape = [1, channels, 1, 1]
    layer = MLCBatchNormalizationLayer(
        featureChannelCount=channels,
        mean=filled(shape, 0),
        variance=filled(shape, 1),
        beta=filled(shape, 0),
        gamma=filled(shape, 1),
        varianceEpsilon=1e-5,
    )
    layer.label = label
    return layer


def perceptron(batch: int = 8) -> Built:
    graph, x = MLCGraph(), bare([batch, 12, 1, 1])
    y = graph.node(dense(12, 16, "hidden"), source=x)
    y = graph.node(MLCActivationLayer.relu, source=y)
    y = graph.node(dense(16, 3, "scores"), source=y)
    return Built(graph, {"features": x}, y, {"target": bare([batch, 3])})


def residual(batch: int = 2, blocks: int = 3) -> Built:
    graph, x = MLCGraph(), bare([batch, 3, 16, 16])
    y = graph.node(convolution(3, 8, "stem"), source=x)
    channels = 8
    for number in range(1, blocks + 1):
        wider = channels * 2
        z = graph.node(convolution(channels, wider, f"block{number}.conv1", stride=2), source=y)
        z = graph.node(batch_norm(wider, f"block{number}.norm1"), source=z)
        z = graph.node(MLCActivationLayer.relu, source=z)
        z = graph.node(convolution(wider, wider, f"block{number}.conv2"), source=z)
        short = graph.node(convolution(channels, wider, f"block{number}.shortcut", 1, 2), source=y)
        y = graph.node(MLCArithmeticLayer(operation=MLCArithmeticOperation.add), sources=[z, short])
        channels = wider
    side = 16 // 2**blocks
    pool = MLCPoolingDescriptor(type=MLCPoolingType.average, kernelSizes=(side, side), strides=(side, side))
    y = graph.node(MLCPoolingLayer(descriptor=pool), source=y)
    y = graph.node(dense(channels, 10, "scores"), source=y)
    return Built(graph, {"image": x}, y, {"digit": bare([batch, 10])})


def recurrent(batch: int = 4) -> Built:
    graph, x = MLCGraph(), bare([batch, 7, 5])
    layer = MLCLSTMLayer(
        descriptor=MLCLSTMDescriptor(inputSize=5, hiddenSize=6, layerCount=1),
        inputWeights=[random([1, 30, 1, 1]) for _ in range(4)],
        hiddenWeights=[random([1, 36, 1, 1]) for _ in range(4)],
        biases=[random([1, 6, 1, 1]) for _ in range(4)],
    )
    layer.label = "memory"
    y = graph.node(layer, source=x)
    last = graph.node(MLCSliceLayer(start=[0, 6, 0], end=[batch, 7, 6], stride=None), source=y)
    y = graph.reshape(shape=[batch, 6], source=last)
    scale = filled([1, 6], 0.5)
    scale.label = "scale"
    y = graph.node(MLCArithmeticLayer(operation=MLCArithmeticOperation.multiply), sources=[y, scale])
    y = graph.node(dense(6, 2, "next"), source=y)
    return Built(graph, {"series": x}, y, {"target": bare([batch, 2])})


def training(built: Built, device: MLCDevice | None = None, compiled: bool = True, **more) -> MLCTrainingGraph:
    """A training graph with a mean squared error and Adam over ``built``."""
    loss = MLCLossDescriptor(type=MLCLossType.meanSquaredError, reductionType=MLCReductionType.mean)
    settings = MLCOptimizerDescriptor(
        learningRate=0.01, gradientRescale=1, regularizationType=MLCRegularizationType.none, regularizationScale=0
    )
    made = MLCTrainingGraph(
        graphObjects=[built.graph],
        lossLayer=MLCLossLayer(descriptor=loss),
        optimizer=MLCAdamOptimizer(descriptor=settings),
    )
    assert made.addInputs(built.inputs, lossLabels=built.labels)
    if compiled:
        assert made.compile(options=more.get("options", []), device=device or MLCDevice.cpu())
    return made


def step(made: MLCTrainingGraph, built: Built, options=()) -> None:
    """One ``execute`` on made-up numbers."""
    assert made.execute(
        inputsData={name: data(t.descriptor.shape, 1) for name, t in built.inputs.items()},
        lossLabelsData={name: data(t.descriptor.shape, 2) for name, t in built.labels.items()},
        lossLabelWeightsData=None,
        batchSize=0,
        options=list(options),
    )
