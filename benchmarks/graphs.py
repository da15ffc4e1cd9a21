"""The same networks as ML Compute graphs, with the hand-written networks' weights."""

from __future__ import annotations

import numpy as np
import torch
from torch import nn

from benchmarks import networks
from mlc_torch import (
    MLCActivationLayer,
    MLCArithmeticLayer,
    MLCArithmeticOperation,
    MLCBatchNormalizationLayer,
    MLCConvolutionDescriptor,
    MLCConvolutionLayer,
    MLCConvolutionType,
    MLCDataType,
    MLCFullyConnectedLayer,
    MLCGraph,
    MLCLayerNormalizationLayer,
    MLCLSTMDescriptor,
    MLCLSTMLayer,
    MLCMultiheadAttentionDescriptor,
    MLCMultiheadAttentionLayer,
    MLCPaddingPolicy,
    MLCPoolingDescriptor,
    MLCPoolingLayer,
    MLCPoolingType,
    MLCReductionLayer,
    MLCReductionType,
    MLCTensor,
    MLCTensorData,
    unwrap,
)


def tensor(values: torch.Tensor, *shape: int) -> MLCTensor:
    """A parameter that starts with these values."""
    array = np.array(values.detach().cpu().numpy().reshape(shape or tuple(values.shape)), np.float32, order="C")
    data = MLCTensorData(bytesNoCopy=array, length=array.nbytes)
    return unwrap(MLCTensor(shape=list(array.shape), data=data, dataType=MLCDataType.float32))


class Builder:
    """Adds layers to a graph, with weights from torch.nn modules."""

    def __init__(self) -> None:
        self.graph = MLCGraph()
        self.trained: list[MLCTensor] = []

    def add(self, layer, *sources: MLCTensor) -> MLCTensor:
        return unwrap(self.graph.node(unwrap(layer), sources=list(sources)))

    def dense(self, x: MLCTensor, weight: torch.Tensor, bias: torch.Tensor) -> MLCTensor:
        outputs, inputs = weight.shape
        descriptor = MLCConvolutionDescriptor(
            kernelSizes=(1, 1), inputFeatureChannelCount=inputs, outputFeatureChannelCount=outputs
        )
        return self.add(
            MLCFullyConnectedLayer(
                weights=tensor(weight, 1, outputs * inputs, 1, 1),
                biases=tensor(bias, 1, outputs, 1, 1),
                descriptor=descriptor,
            ),
            x,
        )

    def linear(self, x: MLCTensor, module: nn.Linear) -> MLCTensor:
        return self.dense(x, module.weight, module.bias)

    def convolution(self, x: MLCTensor, module: nn.Conv2d) -> MLCTensor:
        outputs, per_group, height, width = module.weight.shape
        depthwise = module.groups > 1 and module.groups == module.in_channels
        descriptor = MLCConvolutionDescriptor(
            type=MLCConvolutionType.depthwise if depthwise else MLCConvolutionType.standard,
            kernelSizes=(height, width),
            inputFeatureChannelCount=module.in_channels,
            outputFeatureChannelCount=outputs,
            groupCount=1 if depthwise else module.groups,
            strides=module.stride,
            dilationRates=module.dilation,
            paddingPolicy=MLCPaddingPolicy.sized(y=module.padding[0], x=module.padding[1]),
        )
        biases = None if module.bias is None else tensor(module.bias, 1, outputs, 1, 1)
        weights = tensor(module.weight, 1, outputs * per_group, height, width)
        return self.add(MLCConvolutionLayer(weights=weights, biases=biases, descriptor=descriptor), x)

    def transposed(self, x: MLCTensor, module: nn.ConvTranspose2d) -> MLCTensor:
        inputs, outputs, height, width = module.weight.shape
        descriptor = MLCConvolutionDescriptor(
            type=MLCConvolutionType.transposed,
            kernelSizes=(height, width),
            inputFeatureChannelCount=inputs,
            outputFeatureChannelCount=outputs,
            strides=module.stride,
            paddingPolicy=MLCPaddingPolicy.valid,
        )
        weights = tensor(module.weight.transpose(0, 1), 1, outputs * inputs, height, width)
        biases = tensor(unwrap(module.bias), 1, outputs, 1, 1)
        return self.add(MLCConvolutionLayer(weights=weights, biases=biases, descriptor=descriptor), x)

    def batch_norm(self, x: MLCTensor, module: nn.BatchNorm2d) -> MLCTensor:
        count = module.num_features
        shape = (1, count, 1, 1)
        return self.add(
            MLCBatchNormalizationLayer(
                featureChannelCount=count,
                mean=tensor(module.running_mean, *shape),
                variance=tensor(module.running_var, *shape),
                beta=tensor(module.bias, *shape),
                gamma=tensor(module.weight, *shape),
                varianceEpsilon=module.eps,
                momentum=0.9,
            ),
            x,
        )

    def layer_norm(self, x: MLCTensor, module: nn.LayerNorm) -> MLCTensor:
        return self.add(
            MLCLayerNormalizationLayer(
                normalizedShape=list(module.normalized_shape),
                beta=tensor(module.bias),
                gamma=tensor(module.weight),
                varianceEpsilon=module.eps,
            ),
            x,
        )

    def pool(self, x: MLCTensor, kind: MLCPoolingType = MLCPoolingType.max, size: int = 2) -> MLCTensor:
        descriptor = MLCPoolingDescriptor(
            type=kind, kernelSizes=(size, size), strides=(size, size), paddingPolicy=MLCPaddingPolicy.valid
        )
        return self.add(MLCPoolingLayer(descriptor=descriptor), x)

    def relu(self, x: MLCTensor) -> MLCTensor:
        return self.add(MLCActivationLayer.relu, x)

    def plus(self, x: MLCTensor, y: MLCTensor) -> MLCTensor:
        return self.add(MLCArithmeticLayer(operation=MLCArithmeticOperation.add), x, y)

    def mean(self, x: MLCTensor, *dimensions: int) -> MLCTensor:
        return self.add(MLCReductionLayer(reductionType=MLCReductionType.mean, dimensions=list(dimensions)), x)


def perceptron(build: Builder, x: MLCTensor, net: networks.Perceptron) -> MLCTensor:
    return build.linear(build.relu(build.linear(x, net.first)), net.second)


def lenet(build: Builder, x: MLCTensor, net: networks.LeNet) -> MLCTensor:
    x = build.pool(build.relu(build.convolution(x, net.conv1)))
    x = build.pool(build.relu(build.convolution(x, net.conv2)))
    x = unwrap(build.graph.reshape(shape=[x.descriptor.shape[0], 1568], source=x))
    return build.linear(build.relu(build.linear(x, net.dense1)), net.dense2)


def recurrent(build: Builder, x: MLCTensor, net: networks.Recurrent) -> MLCTensor:
    return build.linear(build.add(lstm(net.lstm, returns_sequences=False), x), net.dense)


def lstm(own: nn.LSTM, *, returns_sequences: bool) -> MLCLSTMLayer | None:
    """The layer of a module with biases and the batch first."""
    descriptor = MLCLSTMDescriptor(
        inputSize=own.input_size,
        hiddenSize=own.hidden_size,
        layerCount=own.num_layers,
        usesBiases=True,
        batchFirst=True,
        isBidirectional=own.bidirectional,
        returnsSequences=returns_sequences,
        dropout=0.0,
    )
    suffixes = [f"l{n}{way}" for way in ["", *["_reverse"] * own.bidirectional] for n in range(own.num_layers)]

    def gates(*names: str) -> list[MLCTensor]:
        found = []
        for suffix in suffixes:
            total = sum(getattr(own, f"{name}_{suffix}") for name in names)
            found += [tensor(part) for part in total.chunk(4)]
        return found

    return MLCLSTMLayer(
        descriptor=descriptor,
        inputWeights=gates("weight_ih"),
        hiddenWeights=gates("weight_hh"),
        biases=gates("bias_ih", "bias_hh"),
    )


def transformer(build: Builder, x: MLCTensor, net: networks.TransformerBlock) -> MLCTensor:
    width, heads = net.out.in_features, net.heads
    query, key, value = (tensor(w, 1, heads, width // heads, width) for w in net.qkv.weight.chunk(3))
    attention = MLCMultiheadAttentionLayer(
        descriptor=MLCMultiheadAttentionDescriptor(modelDimension=width, headCount=heads),
        weights=[query, key, value, tensor(net.out.weight, 1, 1, width, width)],
        biases=[tensor(b) for b in net.qkv.bias.chunk(3)] + [tensor(net.out.bias)],
        attentionBiases=None,
    )
    y = build.layer_norm(x, net.norm1)
    x = build.plus(x, build.add(attention, y, y, y))
    y = build.linear(build.layer_norm(x, net.norm2), net.up)
    x = build.plus(x, build.linear(build.add(MLCActivationLayer.gelu, y), net.down))
    return build.linear(build.mean(x, 1), net.dense)


def resnet20(build: Builder, x: MLCTensor, net: networks.ResNet20) -> MLCTensor:
    x = build.relu(build.batch_norm(build.convolution(x, net.conv), net.norm))
    for block in net.blocks:
        y = build.relu(build.batch_norm(build.convolution(x, block.conv1), block.norm1))
        y = build.batch_norm(build.convolution(y, block.conv2), block.norm2)
        if block.projects:
            x = build.batch_norm(build.convolution(x, block.projection), block.norm3)
        x = build.relu(build.plus(y, x))
    x = build.mean(x, 2, 3)
    return build.linear(x, net.dense)


def tiny_layers(build: Builder, x: MLCTensor, net: networks.TinyLayers) -> MLCTensor:
    weight = tensor(net.weight)
    build.trained.append(weight)
    x = build.plus(x, weight)
    for _ in range(50):
        x = build.add(MLCActivationLayer.tanh, x)
        x = build.add(MLCActivationLayer.linear(scale=1.02, bias=0.0), x)
        x = build.add(MLCActivationLayer.linear(scale=1.0, bias=0.001), x)
        x = build.relu(x)
    return x
