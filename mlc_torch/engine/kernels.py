"""Which of torch's CPU kernels computes a convolution or a product, by a fixed rule (never by timing: same program,
same numbers).

The rule was measured on both kinds of processor (docs, performance) and asks only what torch was built for. With vector
code, kernels of up to 3x3 run faster with channels last, larger ones do not. Without, all of them do, and oneDNN's
gradient takes two to four times as long as that of torch's own kernel, which multiplies matrices; the same holds for
the forward pass over a single channel.

Where torch was built with the Arm Compute Library it hands products with a transposed factor to it, and pays 70 to
350 µs for the way there. BLAS is faster by more than it takes to transpose a small factor beforehand.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import fx, nn

from mlc_torch.torch_private import own_conv_backward, own_conv_forward

aten = torch.ops.aten


def prefers_channels_last(module: nn.Module, device: torch.device) -> bool:
    """Whether the recorded module gets its weight with channels last, and so gives its result that way."""
    if device.type != "cpu" or not isinstance(module, nn.Conv2d) or module.weight.dtype != torch.float32:
        return False
    return not has_vector_code() or max(module.kernel_size) <= 3


@functools.cache
def has_vector_code() -> bool:
    """Whether torch was built with vector instructions for this processor."""
    return torch.backends.cpu.get_cpu_capability() != "DEFAULT"


def choose_kernels(nodes: Sequence[fx.Node], device: torch.device) -> None:
    """Point recorded convolutions and products to the kernels that the rule names."""
    if device.type != "cpu" or has_vector_code():
        return
    for node in nodes:
        if node.target in (aten.addmm.default, aten.mm.default) and not node.kwargs:
            given: Any = node.args
            *bias, x, other = given
            *_, (rows, depth), (_, columns) = node.meta["shapes"]
            product = product_of(rows, depth, columns, node.meta["dtype"])
            if product is not None and isinstance(other, fx.Node) and other.target is aten.t.default:
                node.target, node.args = product, (x, other.args[0], *bias)
        elif node.target is aten.convolution_backward.default and is_plain(node.args[4:10]):
            grad, x, weight, _, stride, padding, *_, mask = node.args
            node.target = convolution_backward
            node.args = (grad, x, weight, stride, padding, mask, node.meta["strides"])
        elif node.target is aten.convolution.default and is_plain(node.args[3:9]):
            x, weight, bias, stride, padding, *_ = node.args
            if node.meta["shapes"][0][1] == 1:
                node.target = convolution_of_one_channel
                node.args = (x, weight, bias, stride, padding, node.meta["strides"])


def product_of(rows: int, depth: int, columns: int, dtype: torch.dtype) -> Callable[..., torch.Tensor] | None:
    """What multiplies [rows, depth] with the transpose of [columns, depth]; ``None`` for torch's own choice."""
    if not multiplies_by_acl() or dtype != torch.float32 or min(rows, depth, columns) <= _LEFT_TO_BLAS:
        return None
    small = _CHEAP_TO_TRANSPOSE
    if columns * depth <= (2 * small if rows >= _MANY_ROWS else small):
        return product_with_transposed_weight
    return product_with_transposed_source if rows * depth <= small else None


_LEFT_TO_BLAS = 8
"""Up to here torch itself does."""
_CHEAP_TO_TRANSPOSE, _MANY_ROWS = 2**15, 1024
"""Elements that take about 40 µs to transpose; the rows that make up for twice as many."""


@functools.cache
def multiplies_by_acl() -> bool:
    """Whether torch's products go through the Arm Compute Library."""
    ask = getattr(torch.backends.mkldnn, "is_acl_available", None)
    return ask is not None and bool(ask())


def product_with_transposed_weight(
    x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None = None
) -> torch.Tensor:
    other = weight.t().contiguous()
    return torch.mm(x, other) if bias is None else torch.addmm(bias, x, other)


def product_with_transposed_source(
    x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None = None
) -> torch.Tensor:
    """The source is laid out column by column: BLAS takes both as transposed."""
    by_column = x.t().contiguous().t()
    return torch.mm(by_column, weight.t()) if bias is None else torch.addmm(bias, by_column, weight.t())


def is_plain(how: Any) -> bool:
    """Over images, not dilated, not transposed, in one group."""
    stride, _, dilation, transposed, _, groups = how
    return len(stride) == 2 and set(dilation) == {1} and not transposed and groups == 1


def convolution_of_one_channel(
    x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None, stride: Any, padding: Any, strides: Any
) -> torch.Tensor:
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


def _laid_out(tensor: torch.Tensor | None, strides: tuple[int, ...] | None) -> Any:
    """Later operations were recorded for these strides."""
    if tensor is None or strides is None or tensor.stride() == strides:
        return tensor
    return torch.empty_strided(tensor.shape, strides, dtype=tensor.dtype).copy_(tensor)
