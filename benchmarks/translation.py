"""A sequence of torch.nn modules as nodes of an ML Compute graph, with the same weights."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import nn

from benchmarks import networks
from benchmarks.graphs import Builder, lstm, tensor, transformer
from mlc_torch import (
    MLCActivationLayer,
    MLCArithmeticLayer,
    MLCArithmeticOperation,
    MLCComparisonLayer,
    MLCComparisonOperation,
    MLCConcatenationLayer,
    MLCDropoutLayer,
    MLCEmbeddingDescriptor,
    MLCEmbeddingLayer,
    MLCGroupNormalizationLayer,
    MLCInstanceNormalizationLayer,
    MLCMatMulDescriptor,
    MLCMatMulLayer,
    MLCPaddingLayer,
    MLCPoolingType,
    MLCReductionLayer,
    MLCReductionType,
    MLCSampleMode,
    MLCSelectionLayer,
    MLCSliceLayer,
    MLCTensor,
    MLCUpsampleLayer,
    unwrap,
)

Translator = Callable[[Builder, MLCTensor, Any], MLCTensor]


def translate(build: Builder, x: MLCTensor, module: nn.Module) -> MLCTensor:
    """The nodes for one module."""
    found = _TRANSLATORS.get(type(module))
    if found is None:
        raise TypeError(f"no layer is known for {type(module).__name__}")
    return found(build, x, module)


def _sequence(build: Builder, x: MLCTensor, module: nn.Sequential) -> MLCTensor:
    for part in module:
        x = translate(build, x, part)
    return x


def _ready(name: str) -> Translator:
    """An activation that the class has ready."""
    return lambda build, x, module: build.add(getattr(MLCActivationLayer, name), x)


def _flat(build: Builder, x: MLCTensor, module: nn.Flatten) -> MLCTensor:
    batch, *rest = x.descriptor.shape
    count = 1
    for size in rest:
        count *= size
    return unwrap(build.graph.reshape(shape=[batch, count], source=x))


def _group_norm(build: Builder, x: MLCTensor, module: nn.GroupNorm) -> MLCTensor:
    shape = (1, module.num_channels, 1, 1)
    layer = MLCGroupNormalizationLayer(
        featureChannelCount=module.num_channels,
        groupCount=module.num_groups,
        beta=tensor(module.bias, *shape),
        gamma=tensor(module.weight, *shape),
        varianceEpsilon=module.eps,
    )
    return build.add(layer, x)


def _instance_norm(build: Builder, x: MLCTensor, module: nn.InstanceNorm2d) -> MLCTensor:
    shape = (1, module.num_features, 1, 1)
    layer = MLCInstanceNormalizationLayer(
        featureChannelCount=module.num_features,
        beta=tensor(unwrap(module.bias), *shape),
        gamma=tensor(unwrap(module.weight), *shape),
        varianceEpsilon=module.eps,
    )
    return build.add(layer, x)


def _upsampled(build: Builder, x: MLCTensor, module: nn.Upsample) -> MLCTensor:
    *_, height, width = x.descriptor.shape
    scale = int(unwrap(module.scale_factor))
    mode = MLCSampleMode.linear if module.mode == "bilinear" else MLCSampleMode.nearest
    return build.add(MLCUpsampleLayer(shape=[height * scale, width * scale], sampleMode=mode, alignsCorners=False), x)


def _joined(build: Builder, x: MLCTensor, module: networks.Joined) -> MLCTensor:
    parts = [translate(build, x, branch) for branch in module.branches]
    return build.add(MLCConcatenationLayer(dimension=1), *parts)


def _embedded(build: Builder, x: MLCTensor, module: nn.Embedding) -> MLCTensor:
    descriptor = MLCEmbeddingDescriptor(embeddingCount=module.num_embeddings, embeddingDimension=module.embedding_dim)
    return build.add(MLCEmbeddingLayer(descriptor=unwrap(descriptor), weights=tensor(module.weight)), x)


def _last_step(build: Builder, x: MLCTensor, module: networks.LastStep, *states: MLCTensor) -> MLCTensor:
    y = build.add(lstm(module.lstm, returns_sequences=True), x, *states)
    batch, time, width = y.descriptor.shape
    last = build.add(MLCSliceLayer(start=[0, time - 1, 0], end=[batch, time, width], stride=None), y)
    return unwrap(build.graph.reshape(shape=[batch, width], source=last))


def from_states(build: Builder, x: MLCTensor, net: networks.FromStates, states: MLCTensor) -> MLCTensor:
    """The nodes of ``networks.FromStates``."""
    return build.linear(_last_step(build, x, net.recurrent, states, states), net.dense)


def product_and_sum(build: Builder, x: MLCTensor, net: nn.Module, y: MLCTensor) -> MLCTensor:
    """The nodes of ``networks.ProductAndSum``."""
    layer = MLCMatMulLayer(descriptor=MLCMatMulDescriptor(alpha=1.0, transposesX=False, transposesY=False))
    return build.add(MLCReductionLayer(reductionType=MLCReductionType.sum, dimension=1), build.add(layer, x, y))


def choice(build: Builder, x: MLCTensor, net: nn.Module, y: MLCTensor) -> MLCTensor:
    """The nodes of ``networks.Choice``."""
    product, difference = (
        build.add(MLCArithmeticLayer(operation=kind), x, y)
        for kind in (MLCArithmeticOperation.multiply, MLCArithmeticOperation.subtract)
    )
    larger = build.add(MLCComparisonLayer(operation=MLCComparisonOperation.greater), x, y)
    return build.add(MLCSelectionLayer(), larger, product, difference)


_TRANSLATORS: dict[type[nn.Module], Translator] = {
    nn.Sequential: _sequence,
    networks.TransformerBlock: transformer,
    nn.Linear: lambda build, x, m: build.linear(x, m),
    nn.Conv2d: lambda build, x, m: build.convolution(x, m),
    nn.ConvTranspose2d: lambda build, x, m: build.transposed(x, m),
    nn.BatchNorm2d: lambda build, x, m: build.batch_norm(x, m),
    nn.LayerNorm: lambda build, x, m: build.layer_norm(x, m),
    nn.GroupNorm: _group_norm,
    nn.InstanceNorm2d: _instance_norm,
    nn.MaxPool2d: lambda build, x, m: build.pool(x, MLCPoolingType.max, m.kernel_size),
    nn.AvgPool2d: lambda build, x, m: build.pool(x, MLCPoolingType.average(countIncludesPadding=True), m.kernel_size),
    nn.Dropout: lambda build, x, m: build.add(MLCDropoutLayer(rate=m.p, seed=1), x),
    nn.Flatten: _flat,
    nn.Upsample: _upsampled,
    nn.ZeroPad2d: lambda build, x, m: build.add(MLCPaddingLayer(zeroPadding=list(m.padding)), x),
    nn.ReflectionPad2d: lambda build, x, m: build.add(MLCPaddingLayer(reflectionPadding=list(m.padding)), x),
    nn.Embedding: _embedded,
    nn.ReLU: lambda build, x, m: build.relu(x),
    nn.ReLU6: _ready("relu6"),
    nn.LeakyReLU: _ready("leakyReLU"),
    nn.ELU: _ready("elu"),
    nn.SELU: _ready("selu"),
    nn.CELU: _ready("celu"),
    nn.GELU: _ready("gelu"),
    nn.Softplus: _ready("softPlus"),
    nn.Softsign: _ready("softSign"),
    nn.Hardswish: _ready("hardSwish"),
    nn.Tanh: _ready("tanh"),
    nn.Sigmoid: _ready("sigmoid"),
    networks.Mean: lambda build, x, m: build.mean(x, *m.dimensions),
    networks.Added: lambda build, x, m: build.plus(x, translate(build, x, m.inner)),
    networks.Joined: _joined,
    networks.LastStep: _last_step,
}
