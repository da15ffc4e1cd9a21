"""The gradient of a depthwise convolution, written with operations that torch computes fast where its own kernel is slow."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch.nn import functional as F


def is_depthwise(grad: Sequence[int], x: Sequence[int], weight: Sequence[int], how: Any) -> bool:
    """Whether the gradient below is that of this convolution, by its shapes: each channel by itself, one for one."""
    _, padding, dilation, transposed, _, groups = how
    fits = all(d * (k - 1) >= p for d, k, p in zip(dilation, weight[2:], padding, strict=True))
    return not transposed and groups > 1 and groups == x[1] == grad[1] and len(x) == 4 and fits


def depthwise_gradients(
    grad: torch.Tensor, x: torch.Tensor, weight: torch.Tensor, stride: Any, padding: Any, dilation: Any,
    mask: Sequence[bool],
) -> list[torch.Tensor | None]:  # fmt: skip
    """The gradients by source, weight and bias, as far as ``mask`` asks for them.

    By the source it is a convolution of the gradient with the kernel turned round, after zeros have been put where the
    stride left pixels out. By the weight it is, for each place of the kernel, a product with the source moved that far.
    """
    last = torch.channels_last
    grad, x = grad.contiguous(memory_format=last), x.contiguous(memory_format=last)
    by_source = _by_source(grad, x.shape, weight, stride, padding, dilation) if mask[0] else None
    by_weight = _by_weight(grad, x, weight, stride, padding, dilation) if mask[1] else None
    return [by_source, by_weight, grad.sum((0, 2, 3)) if mask[2] else None]


def _by_source(
    grad: torch.Tensor, shape: Sequence[int], weight: torch.Tensor, stride: Any, padding: Any, dilation: Any
) -> torch.Tensor:
    sizes = [(n - 1) * s + 1 for n, s in zip(grad.shape[2:], stride, strict=True)]
    edges = [d * (k - 1) - p for d, k, p in zip(dilation, weight.shape[2:], padding, strict=True)]
    # Pixels at the end that no window reached have the gradient 0.
    missing = [
        n - (size + 2 * edge - d * (k - 1))
        for n, size, edge, d, k in zip(shape[2:], sizes, edges, dilation, weight.shape[2:], strict=True)
    ]
    if max(stride) > 1 or any(missing):
        full = [size + more for size, more in zip(sizes, missing, strict=True)]
        spread = grad.new_zeros(grad.shape[0], *full, grad.shape[1]).permute(0, 3, 1, 2)  # channels last
        spread[:, :, : sizes[0] : stride[0], : sizes[1] : stride[1]] = grad
        grad = spread
    turned = weight.flip(2, 3).contiguous(memory_format=torch.channels_last)
    return F.conv2d(grad, turned, None, 1, edges, dilation, shape[1])


def _by_weight(
    grad: torch.Tensor, x: torch.Tensor, weight: torch.Tensor, stride: Any, padding: Any, dilation: Any
) -> torch.Tensor:
    (down, right), (high, wide) = stride, grad.shape[2:]
    padded = F.pad(x, (padding[1], padding[1], padding[0], padding[0])) if any(padding) else x
    made = torch.empty_like(weight)
    for i in range(weight.shape[2]):
        for j in range(weight.shape[3]):
            top, left = i * dilation[0], j * dilation[1]
            moved = padded[:, :, top : top + down * (high - 1) + 1 : down, left : left + right * (wide - 1) + 1 : right]
            made[:, 0, i, j] = (moved * grad).sum((0, 2, 3))
    return made
