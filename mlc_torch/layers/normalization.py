"""Normalizations: values brought to mean beta and deviation gamma, over a batch, a sample, a group or a layer
(evidence.md D.15). The formulas are in ``normalization_modules``."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from torch import nn

from mlc_torch.descriptors.base import positive
from mlc_torch.layers.base import FLOATS, MLCLayer, of_the_type_of, of_type, one_source, parameter
from mlc_torch.layers.normalization_modules import BatchNorm, GroupNorm, InstanceNorm, LayerNormOfOne, RunningNorm
from mlc_torch.layers.sharing import along_first, kept, mixes
from mlc_torch.refusals import refuse
from mlc_torch.spelling import declare, prop
from mlc_torch.tensor import MLCTensor, MLCTensorDescriptor

MOMENTUM = 0.99  # measured: what the forms without a momentum give

_CHANNELS = "featureChannelCount: Int"
_STATISTICS = "mean: MLCTensor, variance: MLCTensor"
_AFFINE = "beta: MLCTensor?, gamma: MLCTensor?, varianceEpsilon: Float"


class MLCBatchNormalizationLayer(MLCLayer):
    """Normalizes each channel over the batch.

    Mean and variance are collected in training and used in inference.
    """

    featureChannelCount = prop("Int", "How many channels the source has.")
    mean = prop("MLCTensor", "The running mean of each channel.")
    variance = prop("MLCTensor", "The running variance of each channel.")
    beta = prop("MLCTensor?", "What is added after normalizing, or ``None``.")
    gamma = prop("MLCTensor?", "What normalized values are multiplied by, or ``None``.")
    betaParameter = prop("MLCTensorParameter?", "``beta`` as a parameter, or ``None``.")
    gammaParameter = prop("MLCTensorParameter?", "``gamma`` as a parameter, or ``None``.")
    varianceEpsilon = prop("Float", "What is added to the variance before its root is taken.")
    momentum = prop("Float", "How much of the old statistics a training step keeps.")
    _named = "BatchNorm"

    @declare(
        f"init?({_CHANNELS}, {_STATISTICS}, {_AFFINE})",
        "layerWithFeatureChannelCount:mean:variance:beta:gamma:varianceEpsilon:",
    )
    @declare(
        f"init?({_CHANNELS}, {_STATISTICS}, {_AFFINE}, momentum: Float)",
        "layerWithFeatureChannelCount:mean:variance:beta:gamma:varianceEpsilon:momentum:",
    )
    def _create(cls, featureChannelCount, mean, variance, beta, gamma, varianceEpsilon, momentum=MOMENTUM):
        """One mean, variance, beta and gamma per channel; beta and gamma may be ``None``."""
        return _with_statistics(cls, featureChannelCount, mean, variance, beta, gamma, varianceEpsilon, momentum)

    def _infer(self, sources):
        return [_channels_first(self, sources, 2)]

    def _samples(self, axes, sources, results):
        if axes[0] is None:
            mixes("normalizes over samples, and its source has none", [None])
        return along_first(axes, 1)

    def _build(self):
        return _shown(self, BatchNorm(self._featureChannelCount, self._varianceEpsilon, self._momentum))


class MLCInstanceNormalizationLayer(MLCLayer):
    """Normalizes each channel of each sample by itself; stored statistics, where given, are used in inference."""

    featureChannelCount = prop("Int", "How many channels the source has.")
    mean = prop("MLCTensor?", "The running mean of each channel, or ``None``.")
    variance = prop("MLCTensor?", "The running variance of each channel, or ``None``.")
    beta = prop("MLCTensor?", "What is added after normalizing, or ``None``.")
    gamma = prop("MLCTensor?", "What normalized values are multiplied by, or ``None``.")
    betaParameter = prop("MLCTensorParameter?", "``beta`` as a parameter, or ``None``.")
    gammaParameter = prop("MLCTensorParameter?", "``gamma`` as a parameter, or ``None``.")
    varianceEpsilon = prop("Float", "What is added to the variance before its root is taken.")
    momentum = prop("Float", "How much of the old statistics a training step keeps.")
    _named = "InstanceNorm"

    @declare(f"init?({_CHANNELS}, {_AFFINE})", "layerWithFeatureChannelCount:beta:gamma:varianceEpsilon:")
    @declare(
        f"init?({_CHANNELS}, {_AFFINE}, momentum: Float)",
        "layerWithFeatureChannelCount:beta:gamma:varianceEpsilon:momentum:",
    )
    @declare(
        f"init?({_CHANNELS}, {_STATISTICS}, {_AFFINE}, momentum: Float)",
        "layerWithFeatureChannelCount:mean:variance:beta:gamma:varianceEpsilon:momentum:",
    )
    def _create(cls, featureChannelCount, beta, gamma, varianceEpsilon, momentum=MOMENTUM, mean=None, variance=None):
        """Beta and gamma, one number per channel, may be ``None``; so may the statistics."""
        return _with_statistics(cls, featureChannelCount, mean, variance, beta, gamma, varianceEpsilon, momentum)

    def _infer(self, sources):
        return [_channels_first(self, sources, 3)]

    def _build(self):
        return _shown(self, InstanceNorm(self._featureChannelCount, self._varianceEpsilon, self._momentum))


class MLCGroupNormalizationLayer(MLCLayer):
    """Normalizes groups of neighbouring channels of each sample."""

    featureChannelCount = prop("Int", "How many channels the source has.")
    groupCount = prop("Int", "How many groups the channels are divided into.")
    beta = prop("MLCTensor?", "What is added after normalizing, or ``None``.")
    gamma = prop("MLCTensor?", "What normalized values are multiplied by, or ``None``.")
    betaParameter = prop("MLCTensorParameter?", "``beta`` as a parameter, or ``None``.")
    gammaParameter = prop("MLCTensorParameter?", "``gamma`` as a parameter, or ``None``.")
    varianceEpsilon = prop("Float", "What is added to the variance before its root is taken.")
    _named = "GroupNorm"

    @declare(
        f"init?({_CHANNELS}, groupCount: Int, {_AFFINE})",
        "layerWithFeatureChannelCount:groupCount:beta:gamma:varianceEpsilon:",
    )
    def _create(cls, featureChannelCount, groupCount, beta, gamma, varianceEpsilon):
        """``groupCount`` must divide the channels; beta and gamma may be ``None``."""
        channels = positive("featureChannelCount", featureChannelCount)
        if channels % positive("groupCount", groupCount):
            refuse(f"groupCount must divide the {channels} channels, got {groupCount}")
        return cls._layer(
            featureChannelCount=channels,
            groupCount=groupCount,
            **_affine((1, channels, 1, 1), beta, gamma, varianceEpsilon),
        )

    def _infer(self, sources):
        return [_channels_first(self, sources, 2)]

    def _build(self):
        made = GroupNorm(self._groupCount, self._featureChannelCount, self._varianceEpsilon, affine=False)
        return _shown_affine(self, made, (self._featureChannelCount,))


class MLCLayerNormalizationLayer(MLCLayer):
    """Normalizes each sample over its last dimensions, ``normalizedShape``."""

    beta = prop("MLCTensor?", "What is added after normalizing, or ``None``.")
    gamma = prop("MLCTensor?", "What normalized values are multiplied by, or ``None``.")
    betaParameter = prop("MLCTensorParameter?", "``beta`` as a parameter, or ``None``.")
    gammaParameter = prop("MLCTensorParameter?", "``gamma`` as a parameter, or ``None``.")
    varianceEpsilon = prop("Float", "What is added to the variance before its root is taken.")
    _named = "LayerNorm"

    @prop("[Int]")
    def normalizedShape(self):
        """The sizes of the dimensions that are normalized together."""
        return list(self._normalizedShape)

    @declare(f"init?(normalizedShape: [Int], {_AFFINE})", "layerWithNormalizedShape:beta:gamma:varianceEpsilon:")
    def _create(cls, normalizedShape, beta, gamma, varianceEpsilon):
        """Beta and gamma have the normalized shape, or are ``None``."""
        shape = tuple(normalizedShape)
        if not 1 <= len(shape) <= 3:
            refuse(
                f"normalizedShape must be [width], [height, width] or [channels, height, width], got {normalizedShape}"
            )
        for size in shape:
            positive("normalizedShape", size)
        return cls._layer(normalizedShape=shape, **_affine(shape, beta, gamma, varianceEpsilon))

    def _infer(self, sources):
        source, shape = of_type(one_source(sources), FLOATS), self._normalizedShape
        if len(source._shape) <= len(shape) or source._shape[-len(shape) :] != shape:
            refuse(f"the source must end with the dimensions {list(shape)}, after the batch; got {source.shape}")
        return [_of_the_parameters_type(self, source)]

    def _samples(self, axes, sources, results):
        rank = len(sources[0]._shape)
        return kept(axes, 1, range(rank - len(self._normalizedShape), rank), "normalizes", stays=True)

    def _build(self):
        kind = LayerNormOfOne if math.prod(self._normalizedShape) == 1 else nn.LayerNorm
        made = kind(self._normalizedShape, self._varianceEpsilon, elementwise_affine=False)
        return _shown_affine(self, made, self._normalizedShape)


def _with_statistics(
    cls: Any,
    channels: int,
    mean: MLCTensor | None,
    variance: MLCTensor | None,
    beta: MLCTensor | None,
    gamma: MLCTensor | None,
    epsilon: float,
    momentum: float,
) -> Any:
    """A batch or instance normalization layer, its arguments checked."""
    shape = (1, positive("featureChannelCount", channels), 1, 1)
    _shaped("mean", mean, shape)
    _shaped("variance", variance, shape)
    if not 0 <= momentum <= 1:
        refuse(f"momentum is the weight of the old statistics, from 0 to 1; got {momentum}")
    return cls._layer(
        featureChannelCount=channels,
        mean=mean,
        variance=variance,
        momentum=momentum,
        **_affine(shape, beta, gamma, epsilon),
    )


def _affine(shape: tuple[int, ...], beta: MLCTensor | None, gamma: MLCTensor | None, epsilon: float) -> dict[str, Any]:
    """The fields that all four layers have, checked."""
    _shaped("beta", beta, shape)
    _shaped("gamma", gamma, shape)
    if not 0 <= epsilon < math.inf:
        refuse(f"varianceEpsilon must be finite and not negative, got {epsilon}")
    return {
        "beta": beta,
        "gamma": gamma,
        "betaParameter": parameter(beta),
        "gammaParameter": parameter(gamma),
        "varianceEpsilon": epsilon,
    }


def _shaped(who: str, tensor: MLCTensor | None, shape: tuple[int, ...]) -> None:
    # The real framework makes an empty layer here (measured), which crashes later.
    if tensor is None:
        return
    if tensor._cell.shape != shape:
        refuse(f"{who} must have the shape {list(shape)}, got {list(tensor._cell.shape)}")
    of_type(tensor._cell.descriptor, FLOATS, who)


def _channels_first(layer: Any, sources: Sequence[MLCTensorDescriptor], least_rank: int) -> MLCTensorDescriptor:
    """The result of a normalization by channels: the source itself, [batch, channels, ...]."""
    source = of_type(one_source(sources), FLOATS)
    if len(source._shape) < least_rank:
        refuse(f"takes [batch, channels, height, width], at least {least_rank} dimensions; got {source.shape}")
    if source._shape[1] != layer._featureChannelCount:
        refuse(f"the source has {source._shape[1]} channels, the layer normalizes {layer._featureChannelCount}")
    return _of_the_parameters_type(layer, source)


def _of_the_parameters_type(layer: Any, source: MLCTensorDescriptor) -> MLCTensorDescriptor:
    return of_the_type_of({who: layer.__dict__.get(f"_{who}") for who in ("mean", "variance", "beta", "gamma")}, source)


def _shown(layer: Any, module: RunningNorm) -> nn.Module:
    channels = (layer._featureChannelCount,)
    layer._show_buffer(module, "running_mean", channels, layer._mean)
    layer._show_buffer(module, "running_var", channels, layer._variance)
    return _shown_affine(layer, module, channels)


def _shown_affine(layer: Any, module: nn.Module, shape: tuple[int, ...]) -> nn.Module:
    layer._show(module, "weight", shape, layer._gammaParameter, "gamma")
    layer._show(module, "bias", shape, layer._betaParameter, "beta")
    return module
