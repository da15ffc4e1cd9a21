"""Convolutions: standard, grouped, depthwise and transposed (evidence.md D.6).

The operation is a cross-correlation over [batch, channels, height, width]. Weights lie flat in the order output, input,
height, width inside a tensor of shape [1, outputs·inputs/groups, height, width].
"""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional as F

from mlc_torch.descriptors import MLCConvolutionDescriptor
from mlc_torch.layers.base import (
    FLOATS,
    MLCLayer,
    described,
    holds,
    image,
    like_weights,
    of_the_type_of,
    of_type,
    one_source,
    parameter,
)
from mlc_torch.layers.window import (
    padded,
    reaches,
    refuse_beyond_memory,
    refuse_wide_numbers,
    same_padding,
    symmetric_padding,
    windows,
)
from mlc_torch.refusals import refuse
from mlc_torch.spelling import declare, prop


class SameConv2d(nn.Conv2d):
    """A convolution with SAME padding that depends on the image size or is larger on one side."""

    def __init__(self, descriptor: MLCConvolutionDescriptor, **kw) -> None:
        super().__init__(**kw)
        self.window = descriptor

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        pads = same_padding(x.shape[2], x.shape[3], self.window)
        return super().forward(F.pad(x, pads) if any(pads) else x)


class TransposedConv2d(nn.Module):
    """The gradient of a convolution as a layer of its own; its weight keeps ML Compute's order, output before input.

    SAME gives size·stride: of the full result, half of what is too much is cut from the top and left, the rest from the
    bottom and right.
    """

    weight: torch.Tensor
    bias: torch.Tensor | None

    def __init__(self, descriptor: MLCConvolutionDescriptor) -> None:
        super().__init__()
        self.window, self.groups = descriptor, descriptor.groupCount
        surplus = [reach - stride for reach, stride in zip(reaches(descriptor), descriptor.strides, strict=True)]
        if descriptor.paddingPolicy.name == "same":
            self.crop = tuple(max(s, 0) // 2 for s in surplus)
            self.extra = tuple(max(-s, 0) for s in surplus)
            self.odd = tuple(max(s, 0) % 2 for s in surplus)
        else:
            self.crop, self.extra, self.odd = tuple(descriptor.paddingPolicy.sizes), (0, 0), (0, 0)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        weight = self.weight.unflatten(0, (self.groups, -1)).transpose(1, 2).flatten(0, 1)
        d = self.window
        y = F.conv_transpose2d(
            x, weight, self.bias, d.strides, self.crop, self.extra, self.groups, tuple(d.dilationRates)
        )
        if any(self.odd):
            y = y[:, :, : y.shape[2] - self.odd[0], : y.shape[3] - self.odd[1]]
        return y

    def extra_repr(self) -> str:
        d = self.window
        return (
            f"{d.inputFeatureChannelCount}, {d.outputFeatureChannelCount}, kernel_size={tuple(d.kernelSizes)}, "
            f"stride={tuple(d.strides)}, padding={d.paddingPolicy.name}"
        )


class MLCConvolutionLayer(MLCLayer):
    """Convolves images with trainable weights and adds biases: standard, transposed or depthwise."""

    descriptor = prop("MLCConvolutionDescriptor", "Window, channels and kind.")
    weights = prop("MLCTensor", "The weights.")
    biases = prop("MLCTensor?", "The biases, or ``None``.")
    weightsParameter = prop("MLCTensorParameter", "The weights as a parameter.")
    biasesParameter = prop("MLCTensorParameter?", "The biases as a parameter, or ``None``.")
    _named = "Convolution"

    @declare(
        "init?(weights: MLCTensor, biases: MLCTensor?, descriptor: MLCConvolutionDescriptor)",
        "layerWithWeights:biases:descriptor:",
    )
    def _create(cls, weights, biases, descriptor):
        """Weights and, unless ``None``, biases, in the sizes that the descriptor asks for."""
        of_type(weights._cell.descriptor, FLOATS, "weights")
        outputs = descriptor.outputFeatureChannelCount
        expected = (1, outputs * _inputs_per_output(descriptor), *descriptor.kernelSizes)
        if weights._cell.shape != expected:
            refuse(f"weights must have the shape {list(expected)}, got {list(weights._cell.shape)}")
        holds(biases, outputs, "biases")
        like_weights(biases, weights)
        return cls._layer(
            descriptor=descriptor,
            weights=weights,
            biases=biases,
            weightsParameter=parameter(weights),
            biasesParameter=parameter(biases),
        )

    def _infer(self, sources):
        source, d = of_the_type_of({"the weights": self._weights}, one_source(sources)), self._descriptor
        batch, channels, height, width = image(source, "a convolution")
        if channels != d.inputFeatureChannelCount:
            refuse(f"the source has {channels} channels, the convolution takes {d.inputFeatureChannelCount}")
        if d.isConvolutionTranspose:
            sizes = list(zip((height, width), reaches(d), d.strides, d.paddingPolicy.sizes, strict=True))
            size = tuple(_transposed(n, r, s, p, d) for n, r, s, p in sizes)
            refuse_wide_numbers(d, "a transposed convolution")
            refuse_beyond_memory(source._shape, [_uncropped(n, r, s) for n, r, s, _ in sizes], d)
        else:
            refuse_beyond_memory(source._shape, padded(height, width, d), d)
            size = windows(height, width, d)
        return [described((batch, d.outputFeatureChannelCount, *size), source._dataType)]

    def _build(self):
        d = self._descriptor
        if d.isConvolutionTranspose:
            module: nn.Module = TransposedConv2d(d)
        else:
            shape = {
                "in_channels": d.inputFeatureChannelCount,
                "out_channels": d.outputFeatureChannelCount,
                "kernel_size": tuple(d.kernelSizes),
                "stride": tuple(d.strides),
                "dilation": tuple(d.dilationRates),
                "groups": d.inputFeatureChannelCount if d.usesDepthwiseConvolution else d.groupCount,
                "bias": self._biases is not None,
                "device": "meta",
            }
            padding = symmetric_padding(d)
            module = SameConv2d(d, **shape) if padding is None else nn.Conv2d(padding=padding, **shape)
        weight = (d.outputFeatureChannelCount, _inputs_per_output(d), *d.kernelSizes)
        self._show(module, "weight", weight, self._weightsParameter, "weights")
        self._show(module, "bias", (d.outputFeatureChannelCount,), self._biasesParameter, "biases")
        return module


def _inputs_per_output(descriptor: MLCConvolutionDescriptor) -> int:
    if descriptor.usesDepthwiseConvolution:
        return 1
    return descriptor.inputFeatureChannelCount // descriptor.groupCount


def _uncropped(size: int, reach: int, stride: int) -> int:
    """How many pixels all windows of a transposed convolution reach over, before padding is cut off."""
    return (size - 1) * stride + reach


def _transposed(size: int, reach: int, stride: int, pad: int, descriptor: MLCConvolutionDescriptor) -> int:
    if descriptor.paddingPolicy.name == "same":
        return size * stride
    full = _uncropped(size, reach, stride) - 2 * pad
    if full < 1:
        refuse(f"padding {pad} leaves nothing of the {full + 2 * pad} pixels of the result")
    return full
