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
from dataclasses import dataclass
from enum import Enum
from typing import Any

import torch
from torch import fx, nn
from torch.func import functional_call
from torch.nn import functional as F

from mlc_torch.layers.convolution import SameConv2d, TransposedConv2d
from mlc_torch.torch_private import own_conv_backward, own_conv_forward

aten = torch.ops.aten


class Layout(Enum):
    """How a convolution is laid out while a graph is recorded; whoever runs the recording does the same."""

    CONTIGUOUS = "image and weights contiguous"
    CHANNELS_LAST = "weights with channels last, and with them the result"
    SLICED = "channels last over every n-th pixel, in place of a stride of n"


@dataclass(frozen=True)
class Convolution:
    """What the rules ask of a convolution."""

    kernel: tuple[int, ...]
    stride: tuple[int, ...]
    padding: tuple[int, ...]
    dilation: tuple[int, ...]
    groups: int
    channels: int
    vector_code: bool

    @property
    def is_strided_pointwise(self) -> bool:
        return set(self.kernel) == {1} and set(self.stride) != {1} and set(self.padding) == {0}

    @property
    def is_dense(self) -> bool:
        return self.groups == 1 and set(self.dilation) == {1}

    @property
    def is_depthwise(self) -> bool:
        return self.groups > 1 and self.groups == self.channels


@dataclass(frozen=True)
class LayoutRule:
    """Where it applies, what it says, and how that is known. The first rule that applies counts."""

    applies: Callable[[Convolution], bool]
    layout: Layout
    evidence: str


CONVOLUTION_LAYOUTS = (
    LayoutRule(
        lambda c: c.is_strided_pointwise and c.is_dense,
        Layout.SLICED,
        "oneDNN's gradient by the weights of a 1x1 convolution with a stride writes past its memory where the image has "
        "channels last (uxlfoundation/oneDNN issue 6035: fewer channels than a vector holds, 16 with AVX-512, 8 with "
        "AVX2; no overflow with stride 1 or contiguous images). Seen with torch 2.11 (oneDNN 3.10.2, jit_1x1:avx512_core) "
        "with 3, 4, 8 and 16 threads: crashes in 13 of 56 runs of 60 steps, and wrong gradients in one; the gradient by "
        "the image and all of 60 runs with stride 1 were sound. The same product over every n-th pixel has no stride.",
    ),
    LayoutRule(
        lambda c: set(c.kernel) == {1} and set(c.stride) != {1},
        Layout.CONTIGUOUS,
        "The same kernel where slicing does not do (padding, groups): contiguous images take another way through oneDNN.",
    ),
    LayoutRule(
        lambda c: not c.vector_code,
        Layout.CHANNELS_LAST,
        "ARM, torch 2.13 without vector code: all convolutions of a ResNet-20 step take 483 ms with channels last, 843 "
        "contiguous (batch 64, 2 threads). Forward and gradient, one thread, 16 images of 32x32: two groups 22 against 58 "
        "ms, dilation 2 18 against 42. For the gradient of a depthwise convolution see GRADIENT_KERNELS.",
    ),
    LayoutRule(
        lambda c: not c.is_dense,
        Layout.CONTIGUOUS,
        "x86, groups and dilation: neither shown safe with channels last nor shown faster.",
    ),
    LayoutRule(
        lambda c: max(c.kernel) <= 3,
        Layout.CHANNELS_LAST,
        "x86 with vector code: kernels of up to 3x3 run faster with channels last, larger ones do not.",
    ),
    LayoutRule(lambda c: True, Layout.CONTIGUOUS, "torch's own choice."),
)


def layout_of(module: nn.Conv2d) -> Layout:
    """How the rules lay out a convolution of float32 on the CPU."""
    padding = module.padding if isinstance(module.padding, tuple) else (-1,)
    asked = Convolution(
        tuple(module.kernel_size),
        tuple(module.stride),
        tuple(padding),
        tuple(module.dilation),
        module.groups,
        module.in_channels,
        has_vector_code(),
    )
    return next(rule.layout for rule in CONVOLUTION_LAYOUTS if rule.applies(asked))


def convolve(module: nn.Module, own: dict[str, torch.Tensor], sources: list[torch.Tensor]) -> Any:
    """Call a module that has convolutions in it, laid out by the rules, with ``own`` in place of its tensors.

    Only torch's own class and ours are known to compute what the rules think. In whatever else holds a convolution it
    finds contiguous images, as it would without us: channels last are handed on from layer to layer.
    """
    layout = Layout.CONTIGUOUS
    if type(module) in (nn.Conv2d, SameConv2d) and own["weight"].dtype == torch.float32:
        layout = layout_of(module)  # type: ignore[arg-type]
    if layout is Layout.CONTIGUOUS:
        sources = [s.contiguous() for s in sources]
    else:
        own["weight"] = own["weight"].contiguous(memory_format=torch.channels_last)
    if layout is Layout.SLICED:
        down, right = module.stride  # type: ignore[misc]
        return F.conv2d(sources[0][:, :, ::down, ::right], own["weight"], own.get("bias"))
    # Every holder of a tensor is named in ``own``, once: torch's own search for ties would swap a module that stands at
    # two places twice, and leave the stand-in behind.
    return functional_call(module, own, tuple(sources), tie_weights=False)


def holds_convolutions(module: nn.Module) -> bool:
    return any(isinstance(part, (nn.modules.conv._ConvNd, TransposedConv2d)) for part in module.modules())


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
