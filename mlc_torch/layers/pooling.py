"""Pooling: the largest element, the average or the L2 norm of a window that slides over an image (evidence.md D.8)."""

from __future__ import annotations

import math

import torch
from torch import nn
from torch.nn import functional as F

from mlc_torch.descriptors import MLCPoolingDescriptor
from mlc_torch.layers.base import FLOATS, MLCLayer, described, image, of_type, one_source
from mlc_torch.layers.window import (
    padded,
    pads,
    reaches,
    refuse_beyond_memory,
    refuse_wide_numbers,
    span,
    symmetric_padding,
    windows,
)
from mlc_torch.refusals import refuse
from mlc_torch.spelling import declare, prop


class Pool2d(nn.Module):
    """A pooling with padding or dilation that torch.nn's own classes do not know."""

    def __init__(self, descriptor: MLCPoolingDescriptor) -> None:
        super().__init__()
        self.window = descriptor

    def padded(self, x: torch.Tensor, value: float = 0.0) -> torch.Tensor:
        sides = pads(x.shape[2], x.shape[3], self.window)
        return F.pad(x, sides, value=value) if any(sides) else x

    def even_padding(self, x: torch.Tensor) -> tuple[int, int] | None:
        """The padding (y, x) that torch's own functions take: as much on both sides, and at most half a kernel."""
        left, right, top, bottom = pads(x.shape[2], x.shape[3], self.window)
        high, wide = self.window.kernelSizes
        return (top, left) if left == right <= wide // 2 and top == bottom <= high // 2 else None

    def means(self, x: torch.Tensor) -> torch.Tensor:
        """The mean of each window of an image that has its padding already."""
        d = self.window
        if d.dilationRates == (1, 1):
            return F.avg_pool2d(x, tuple(d.kernelSizes), tuple(d.strides))
        (high, wide), (stride_y, stride_x), (step_y, step_x) = reaches(d), d.strides, d.dilationRates
        rows = x.unfold(2, high, stride_y)[..., ::step_y].mean(-1)
        return rows.unfold(3, wide, stride_x)[..., ::step_x].mean(-1)

    def extra_repr(self) -> str:
        d = self.window
        return (
            f"kernel_size={tuple(d.kernelSizes)}, stride={tuple(d.strides)}, dilation={tuple(d.dilationRates)}, "
            f"padding={d.paddingPolicy.name}{tuple(d.paddingPolicy.sizes)}"
        )


class MaxPool2d(Pool2d):
    """The largest element of each window; padding never wins."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        d, padding = self.window, self.even_padding(x)
        if padding is None:
            x, padding = self.padded(x, float("-inf")), (0, 0)
        return F.max_pool2d(x, tuple(d.kernelSizes), tuple(d.strides), padding, tuple(d.dilationRates))


class AveragePool2d(Pool2d):
    """The mean of each window, of its real elements alone unless padding counts."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        d, padding = self.window, self.even_padding(x)
        if padding is not None and d.dilationRates == (1, 1):
            counts = d.countIncludesPadding
            return F.avg_pool2d(x, tuple(d.kernelSizes), tuple(d.strides), padding, count_include_pad=counts)
        means = self.means(self.padded(x))
        if d.countIncludesPadding:
            return means
        # What is real of a window depends on sizes alone; ones in place of the image tell.
        return means / self.means(self.padded(x.new_ones(1, 1, *x.shape[2:])))


class L2NormPool2d(Pool2d):
    """The square root of the sum of squares of each window; unlike nn.LPPool2d its gradient at 0 is 0"""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        wider = x.float() if x.dtype is torch.float16 else x  # squares leave float16 from 256 on
        squares = self.means(self.padded(wider.square())) * math.prod(self.window.kernelSizes)
        nothing = squares == 0
        return squares.masked_fill(nothing, 1).sqrt().masked_fill(nothing, 0).to(x.dtype)


class MLCPoolingLayer(MLCLayer):
    """Reduces each window of an image to its maximum, average or L2 norm, channel by channel."""

    descriptor = prop("MLCPoolingDescriptor", "The window, and what is taken from it.")
    _named = "Pooling"

    @declare("init(descriptor: MLCPoolingDescriptor)", "layerWithDescriptor:")
    def _create(cls, descriptor):
        """By descriptor."""
        if not descriptor.poolingType:
            refuse("the descriptor has no pooling type; make it with a type, a kernel and strides")
        return cls._layer(descriptor=descriptor)

    def _infer(self, sources):
        source, d = of_type(one_source(sources), FLOATS), self._descriptor
        batch, channels, height, width = image(source, "pooling")
        refuse_wide_numbers(d, "pooling")
        refuse_beyond_memory(source._shape, padded(height, width, d), d)
        size = windows(height, width, d)
        if d.poolingType.name != "l2Norm" and not d.countIncludesPadding:
            _refuse_empty_windows(height, width, size, d)
        return [described((batch, channels, *size), source._dataType)]

    def _build(self):
        d = self._descriptor
        kernel, strides, dilation = tuple(d.kernelSizes), tuple(d.strides), tuple(d.dilationRates)
        padding = symmetric_padding(d)
        # torch.nn's own pools take padding up to half a kernel, and averages without dilation.
        if padding is not None and any(p > k // 2 for p, k in zip(padding, kernel, strict=True)):
            padding = None
        if d.poolingType.name == "max":
            return MaxPool2d(d) if padding is None else nn.MaxPool2d(kernel, strides, padding, dilation)
        if d.poolingType.name == "l2Norm":
            return L2NormPool2d(d)
        if padding is not None and dilation == (1, 1):
            return nn.AvgPool2d(kernel, strides, padding, count_include_pad=d.countIncludesPadding)
        return AveragePool2d(d)


def _refuse_empty_windows(height: int, width: int, counts: tuple[int, int], descriptor: MLCPoolingDescriptor) -> None:
    """A window over nothing but padding has no largest element, and no average of its real ones."""
    left, _, top, _ = pads(height, width, descriptor)
    sizes = zip(
        ("height", "width"),
        (height, width),
        counts,
        (top, left),
        descriptor.kernelSizes,
        descriptor.strides,
        descriptor.dilationRates,
        strict=True,
    )
    for name, size, count, before, kernel, stride, dilation in sizes:
        if _misses(size, count, before, span(kernel, dilation), stride, dilation):
            refuse(
                f"kernel {kernel}, dilation {dilation} and padding {before} are too large for a {name} of {size} pixels: "
                f"some windows would hold nothing but padding"
            )


def _misses(size: int, count: int, before: int, reach: int, stride: int, dilation: int) -> bool:
    """Whether one of ``count`` windows, the first of them ``before`` pixels early, meets none of ``size`` pixels."""
    last = (count - 1) * stride - before
    if before >= reach or last >= size:
        return True
    # A window that starts early first meets the image at its start modulo the dilation. These repeat, and at most
    # ``size`` different ones are good, so that size + 1 of them decide.
    return any(start % dilation >= size for start in range(-before, min(last + 1, 0), stride)[: size + 1])
