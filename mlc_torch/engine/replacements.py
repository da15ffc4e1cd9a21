"""What runs in place of torch's kernels where the rules of ``kernels`` say so: the same numbers to rounding."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from mlc_torch.engine.depthwise import depthwise_gradients
from mlc_torch.torch_private.convolution import own_conv_backward, own_conv_forward
from mlc_torch.torch_private.memory import GRAIN

Replacement = tuple[Callable[..., Any], tuple[Any, ...]]
"""A function, and what it is called with."""


def product_with_transposed_weight(
    x: torch.Tensor, transposed: torch.Tensor, bias: torch.Tensor | None = None
) -> torch.Tensor:
    """By the transpose of a matrix, which is laid out as such."""
    other = transposed.contiguous()
    return torch.mm(x, other) if bias is None else torch.addmm(bias, x, other)


def product_with_transposed_source(
    x: torch.Tensor, transposed: torch.Tensor, bias: torch.Tensor | None = None
) -> torch.Tensor:
    """By the transpose of a matrix, with the source laid out by column: BLAS takes both as transposed."""
    source = by_column(x)
    return torch.mm(source, transposed) if bias is None else torch.addmm(bias, source, transposed)


def product_then_bias(x: torch.Tensor, other: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
    return torch.mm(x, other).add_(bias)


def product_turned(x: torch.Tensor, other: torch.Tensor, bias: torch.Tensor | None = None) -> torch.Tensor:
    """The transpose of the transposes' product."""
    turned = torch.mm(other.t(), x.t()).t()
    return turned.contiguous() if bias is None else torch.add(turned, bias, out=x.new_empty(turned.shape))


def bias_gradient(grad: torch.Tensor) -> torch.Tensor:
    """Of a convolution: the images first, which leaves little to add up."""
    return grad.sum(0).flatten(1).sum(1)


def by_column(x: torch.Tensor) -> torch.Tensor:
    """A matrix laid out column by column.

    To write little of it with a stride takes less time than to read it so; several threads would write into the same lines of a
    cache. (Neoverse-N1, two threads, µs: 32x784 79 and 100, 32x128 41 and 40, 64x784 629 and 147.)
    """
    if x.numel() >= GRAIN or not x.is_contiguous():
        return x.t().contiguous().t()
    return x.new_empty(x.shape[::-1]).t().copy_(x)


def convolution_of_one_channel(
    x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None, stride: Any, padding: Any, strides: Any
) -> torch.Tensor:
    if x.stride(1) == 1:
        # An image whose channels came last: of a single one that means nothing, but torch would go by it, pixel by pixel. (32
        # images of 28x28 to 8 channels, 3x3, Neoverse-N1, one thread, 2.8 ms and so .4.)
        x = x.flatten().view(x.shape)
    return _laid_out(own_conv_forward(x, weight, bias, stride, padding), strides)


def convolution_backward(
    grad: torch.Tensor,
    x: torch.Tensor,
    weight: torch.Tensor,
    stride: Any,
    padding: Any,
    mask: Sequence[bool],
    strides: Any,
) -> list[torch.Tensor | None]:
    """The gradients by source, weight and bias, as far as ``mask`` asks for them, laid out as they were recorded."""
    grad, x, weight = (t.contiguous(memory_format=torch.channels_last) for t in (grad, x, weight))
    by_source, by_weight = own_conv_backward(grad, x, weight, stride, padding, mask[0], mask[1])
    by_bias = grad.sum((0, 2, 3)) if mask[2] else None
    return [_laid_out(g, s) for g, s in zip((by_source, by_weight, by_bias), strides, strict=True)]


def depthwise_backward(
    grad: torch.Tensor, x: torch.Tensor, weight: torch.Tensor, stride: Any, padding: Any, dilation: Any,
    mask: Sequence[bool], strides: Any,
) -> list[torch.Tensor | None]:  # fmt: skip
    """The same of a depthwise convolution."""
    found = depthwise_gradients(grad, x, weight, stride, padding, dilation, mask)
    return [_laid_out(g, s) for g, s in zip(found, strides, strict=True)]


def depthwise_backward_contiguous(
    grad: torch.Tensor, x: torch.Tensor, weight: torch.Tensor, stride: Any, padding: Any, dilation: Any,
    mask: Sequence[bool], strides: Any,
) -> list[torch.Tensor | None]:  # fmt: skip
    """The same by torch's own kernel, over contiguous images."""
    grad, x, weight = grad.contiguous(), x.contiguous(), weight.contiguous()
    found = torch.ops.aten.convolution_backward.default(
        grad, x, weight, [len(weight)], stride, padding, dilation, False, [0, 0], len(weight), mask
    )
    return [_laid_out(g, s) for g, s in zip(found, strides, strict=True)]


def _laid_out(tensor: torch.Tensor | None, strides: tuple[int, ...] | None) -> Any:
    """Later operations were recorded for these strides."""
    if tensor is None or strides is None or tensor.stride() == strides:
        return tensor
    return torch.empty_strided(tensor.shape, strides, dtype=tensor.dtype).copy_(tensor)
