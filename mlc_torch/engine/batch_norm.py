"""Batch normalization of images with channels last, for numbers of channels that torch's vectors do not divide.

torch takes the pixels one by one and the channels of each in vectors. What is left of a pixel it copies to and fro, which
takes ten times as long as the rest, and threads that add up few channels write into the same line of a cache. Several
pixels side by side are one pixel with several times as many channels, and those can be divided.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch

aten = torch.ops.aten

_VECTOR = 16
"""Numbers in the widest vector, and in a line of a cache."""
_ENOUGH = 256
"""Channels for which the way from pixel to pixel no longer counts."""

Optional = torch.Tensor | None


def pixels_at_once(channels: int, pixels: int) -> int:
    """How many pixels are taken as one; 0 where they cannot be shared out evenly."""
    count = _VECTOR // math.gcd(channels, _VECTOR)
    if pixels % count:
        return 0
    while 2 * count * channels <= _ENOUGH and pixels % (2 * count) == 0:
        count *= 2
    return count


def batch_norm(
    x: torch.Tensor, weight: Optional, bias: Optional, mean: Optional, variance: Optional,
    trains: bool, momentum: float, epsilon: float, count: int,
) -> tuple[torch.Tensor, ...]:  # fmt: skip
    """As ``native_batch_norm`` with ``count`` pixels at once, or over a contiguous copy where that is 0."""
    if not count:
        made, *found = aten.native_batch_norm(x.contiguous(), weight, bias, mean, variance, trains, momentum, epsilon)
        return made.contiguous(memory_format=torch.channels_last), *found
    wide = _joined(x, count)
    if not trains:
        given = [_repeated(t, count) for t in (weight, bias, mean, variance)]
        made, *found = aten.native_batch_norm(wide, *given, False, momentum, epsilon)
        return _apart(_as_matrix(made), x), *found
    means, variances = (t.view(count, -1) for t in aten.batch_norm_update_stats(wide, None, None, 0.0))
    between, own_mean = torch.var_mean(means, 0, correction=0)
    own_variance = variances.mean(0).add_(between)
    if mean is not None and variance is not None:
        pixels = x.numel() // len(own_mean)
        mean.lerp_(own_mean, momentum)
        variance.lerp_(own_variance * (pixels / (pixels - 1)), momentum)
    given = [_repeated(t, count) for t in (weight, bias, own_mean, own_variance)]
    made, *_ = aten.native_batch_norm(wide, *given, False, 0.0, epsilon)
    return _apart(_as_matrix(made), x), own_mean, (own_variance + epsilon).rsqrt_()


def batch_norm_backward(
    grad: torch.Tensor, x: torch.Tensor, weight: Optional, mean: Optional, variance: Optional,
    own_mean: Optional, own_slope: Optional, trains: bool, epsilon: float, mask: Sequence[bool], count: int,
) -> tuple[Optional, ...]:  # fmt: skip
    """As ``native_batch_norm_backward``, the same way."""
    last = torch.channels_last
    if not count:
        by_x, *found = aten.native_batch_norm_backward(
            grad.contiguous(), x.contiguous(), weight, mean, variance, own_mean, own_slope, trains, epsilon, mask
        )
        return by_x.contiguous(memory_format=last) if mask[0] else None, *found
    wide, wide_grad = _joined(x, count), _joined(grad.contiguous(memory_format=last), count)
    if not trains:
        given = [_repeated(t, count) for t in (weight, mean, variance)]
        by_x, *sums = aten.native_batch_norm_backward(wide_grad, wide, *given, None, None, False, epsilon, mask)
        return _apart(_as_matrix(by_x), x) if mask[0] else None, *(
            _summed(t, count) if t is not None else None for t in sums
        )
    assert own_mean is not None and own_slope is not None
    # With a variance of 1, what is called the gradient by the weights is the sum of (x - mean) * grad.
    means, ones = own_mean.repeat(count), torch.ones_like(own_mean).repeat(count)
    _, products, sums = aten.native_batch_norm_backward(
        wide_grad, wide, None, means, ones, None, None, False, 0.0, [False, True, True]
    )
    by_weight, by_bias = _summed(products, count).mul_(own_slope), _summed(sums, count)
    by_x = None
    if mask[0]:
        pixels = x.numel() // len(own_mean)
        scale = own_slope if weight is None else own_slope * weight
        of_x = (by_weight * own_slope).mul_(scale).div_(-pixels)
        # From the mean on, as torch does: numbers far from zero would lose digits otherwise.
        found = _as_matrix(wide).sub(means)
        torch.addcmul((by_bias * scale).div_(-pixels).repeat(count), found, of_x.repeat(count), out=found)
        found.addcmul_(_as_matrix(wide_grad), scale.repeat(count))
        by_x = _apart(found, x)
    return by_x, by_weight if mask[1] else None, by_bias if mask[2] else None


def _joined(image: torch.Tensor, count: int) -> torch.Tensor:
    """An image with ``count`` times as many channels, over the same memory."""
    pixels = image.permute(0, 2, 3, 1)
    return pixels.reshape(1, -1, 1, count * image.shape[1]).permute(0, 3, 1, 2)


def _as_matrix(wide: torch.Tensor) -> torch.Tensor:
    """Its pixels, one in each row."""
    return wide.permute(0, 2, 3, 1).flatten(0, 2)


def _apart(matrix: torch.Tensor, like: torch.Tensor) -> torch.Tensor:
    """An image of the pixels that were joined."""
    images, channels, height, width = like.shape
    return matrix.view(images, height, width, channels).permute(0, 3, 1, 2)


def _repeated(numbers: Optional, count: int) -> Optional:
    return None if numbers is None else numbers.repeat(count)


def _summed(numbers: torch.Tensor, count: int) -> torch.Tensor:
    return numbers.view(count, -1).sum(0)
