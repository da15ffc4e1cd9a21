"""Which kernels compute what on the CPU: one table for layouts, one for products, one for the rest, by processor and threads.

Rules are fixed and never timed at run time: the same program gives the same numbers. They ask what torch was built for
(vector code, the Arm Compute Library), the shapes, and how many threads torch has when a graph is compiled. Each says how
it is known. What could not be shown to be safe is laid out as torch does by itself.
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

from mlc_torch.engine.depthwise import is_depthwise
from mlc_torch.engine.plan import Plan, Step
from mlc_torch.engine.replacements import (
    by_column,
    convolution_backward,
    convolution_of_one_channel,
    depthwise_backward,
    product_with_transposed_source,
    product_with_transposed_weight,
)
from mlc_torch.layers.convolution import SameConv2d, TransposedConv2d
from mlc_torch.layers.pooling import Pool2d

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
        "ms, dilation 2 18 against 42. Depthwise gradients have a rule of their own below.",
    ),
    LayoutRule(
        lambda c: c.vector_code,
        Layout.CHANNELS_LAST,
        "x86 with AVX-512, torch 2.11, microseconds forward and gradient, contiguous against channels last, one thread: 3x3 "
        "2222 and 1543, 5x5 5263 and 4914, four groups 2296 and 1255, dilation 2 3406 and 2747, depthwise 407 and 208; with "
        "8 threads 631 and 390, 1622 and 1472, 762 and 452, 1006 and 833, 287 and 184. Pooling gains most: a maximum of 2x2 "
        "1637 and 242, an average 1010 and 175. Safe: the 455 convolutions of tests/gears/convolution_grid.py lived with 1, 2, "
        "3, 4 and 8 threads under glibc's checking allocator, where the rule of version 4a2312b dies with 3, 4 and 8.",
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


def convolve(module: nn.Module, own: dict[str, torch.Tensor], sources: list[torch.Tensor], pooled: bool = False) -> Any:
    """Call a module that has convolutions in it, laid out by the rules, with ``own`` in place of its tensors.

    Only torch's own class and ours are known to compute what the rules think. In whatever else holds a convolution it
    finds contiguous images, as it would without us: channels last are handed on from layer to layer. A result that is
    ``pooled`` gets them even if it has none, as over images of a single channel, for which both layouts are the same.
    """
    made = _convolved(module, own, sources)
    if pooled and isinstance(made, torch.Tensor) and made.dim() == 4 and made.dtype == torch.float32:
        return made.contiguous(memory_format=torch.channels_last)
    return made


def _convolved(module: nn.Module, own: dict[str, torch.Tensor], sources: list[torch.Tensor]) -> Any:
    layout = Layout.CONTIGUOUS
    if type(module) in (nn.Conv2d, SameConv2d) and own["weight"].dtype == torch.float32:
        layout = layout_of(module)  # type: ignore[arg-type]
    if layout is Layout.CONTIGUOUS:
        sources = [s.contiguous() for s in sources]
    else:
        own["weight"] = own["weight"].contiguous(memory_format=torch.channels_last)
    if layout is Layout.SLICED:
        down, right = module.stride  # type: ignore[misc]
        return F.conv2d(_Image.apply(sources[0])[:, :, ::down, ::right], own["weight"], own.get("bias"))
    # Every holder of a tensor is named in ``own``, once: torch's own search for ties would swap a module that stands at
    # two places twice, and leave the stand-in behind.
    return functional_call(module, own, tuple(sources), tie_weights=False)


def before_pooling(plan: Plan) -> frozenset[Step]:
    """The convolutions whose result goes into a pooling layer, at once or behind layers that keep its shape.

    Pooling over channels last is so much faster that laying the image out for it pays. LeNet's first, 64 images of 16
    channels and 28x28, on a Neoverse-N1, one thread, milliseconds contiguous and so: forward 6.6 and 1.1, gradient 2.5 and
    .6; laying it out .8. (On x86 pooling gains as much, see the layouts above; not measured again there.)
    """
    pooled: set[int] = set()
    found = []
    for step in reversed(plan.steps):
        if isinstance(step.module, _POOLING):
            pooled.update(step.sources)
        elif len(step.results) == 1 and step.results[0] in pooled:
            if holds_convolutions(step.module):
                found.append(step)
            elif len({plan.cells[slot].shape for slot in (*step.sources, *step.results)}) == 1:
                pooled.update(step.sources)
    return frozenset(found)


_POOLING = (Pool2d, nn.MaxPool2d, nn.AvgPool2d)


class _Image(torch.autograd.Function):
    """An image as it is. Its gradient lies as it does: that of a slice is contiguous, and all before it would follow."""

    @staticmethod
    def forward(ctx, image):
        last = image.is_contiguous(memory_format=torch.channels_last) and not image.is_contiguous()
        ctx.format = torch.channels_last if last else torch.contiguous_format
        return image.view_as(image)

    @staticmethod
    def backward(ctx, grad):
        return grad.contiguous(memory_format=ctx.format)


def holds_convolutions(module: nn.Module) -> bool:
    return any(isinstance(part, (nn.modules.conv._ConvNd, TransposedConv2d)) for part in module.modules())


@functools.cache
def has_vector_code() -> bool:
    """Whether torch was built with vector instructions for this processor."""
    return torch.backends.cpu.get_cpu_capability() != "DEFAULT"


@dataclass(frozen=True)
class Product:
    """[rows, depth] times the transpose of [columns, depth]."""

    rows: int
    depth: int
    columns: int
    threads: int

    @property
    def least(self) -> int:
        return min(self.rows, self.depth, self.columns)


@dataclass(frozen=True)
class ProductRule:
    """As above; without a function torch's own choice stands."""

    applies: Callable[[Product], bool]
    function: Callable[..., torch.Tensor] | None
    evidence: str


_CHEAP = 2**15
"""Elements that take about 40 µs to transpose on a Neoverse-N1."""

PRODUCTS_BY_ACL = (
    ProductRule(lambda p: p.least <= 8, None, "torch does not ask the Arm Compute Library for so little."),
    ProductRule(
        lambda p: p.rows >= 1024 and p.threads == 1 and p.depth * p.columns <= 2**20,
        product_with_transposed_weight,
        "One thread, 1024 and 4096 rows, time relative to torch's: weights of 784x128 .98 and .92, 512x512 .97 and .90, "
        "128x512 .83 and .83, 1024x512 .93, 2048x256 .94. With two threads the two were not told apart.",
    ),
    ProductRule(
        lambda p: p.depth * p.columns <= (2 * _CHEAP if p.rows >= 1024 else _CHEAP),
        product_with_transposed_weight,
        "The way to the Arm Compute Library takes 70 to 350 µs, and BLAS is as fast. Weights of 64x64 and 128x10: .03 to "
        ".5 of torch's time for 9 to 1024 rows, with one and two threads.",
    ),
    ProductRule(
        lambda p: p.rows * p.depth <= _CHEAP,
        product_with_transposed_source,
        "The same with the smaller factor transposed: 9 and 32 rows of 784 by 128 .50 and .86, of 512 by 512 .35 and .94.",
    ),
    ProductRule(lambda p: True, None, "64 to 512 rows of larger factors: transposing either takes 1.2 to 1.7 as long."),
)
"""Where torch was built with the Arm Compute Library, which it hands products with a transposed factor to (torch 2.13)."""


def product_of(rows: int, depth: int, columns: int, dtype: torch.dtype) -> Callable[..., torch.Tensor] | None:
    """What multiplies [rows, depth] with a given transpose of [columns, depth]; ``None`` for torch's own choice."""
    if not multiplies_by_acl() or dtype != torch.float32:
        return None
    asked = Product(rows, depth, columns, torch.get_num_threads())
    return next(rule.function for rule in PRODUCTS_BY_ACL if rule.applies(asked))


@functools.cache
def multiplies_by_acl() -> bool:
    """Whether torch's products go through the Arm Compute Library."""
    ask = getattr(torch.backends.mkldnn, "is_acl_available", None)
    return ask is not None and bool(ask())


Replacement = tuple[Callable[..., Any], tuple[Any, ...]]
"""A function, and what it is called with."""


@dataclass(frozen=True)
class KernelRule:
    """An operation, when something else runs in its place, and how that is known."""

    operation: Any
    replace: Callable[[fx.Node], Replacement | None]
    evidence: str


def is_plain(how: Any) -> bool:
    """Over images, not dilated, not transposed, in one group."""
    stride, _, dilation, transposed, _, groups = how
    return len(stride) == 2 and set(dilation) == {1} and not transposed and groups == 1


def _is_by_transposed(node: fx.Node) -> bool:
    """Whether a node multiplies with the transpose of a matrix. (A gradient does so with that of a transpose: BLAS's case.)"""
    other: Any = node.args[-1]
    return not node.kwargs and other.target is aten.t.default and other.args[0].target is not aten.t.default


def _product(node: fx.Node) -> Replacement | None:
    given: Any = node.args
    *bias, x, other = given
    *_, (rows, depth), (_, columns) = node.meta["shapes"]
    product = product_of(rows, depth, columns, node.meta["dtype"])
    if product is None or not _is_by_transposed(node) or x.target is by_column:
        return None
    return product, (x, other, *bias)


def _gradient_by_products(node: fx.Node) -> Replacement | None:
    if not is_plain(node.args[4:10]):
        return None
    given: Any = node.args
    grad, x, weight, _, stride, padding, *_, mask = given
    if weight.target is aten.clone.default and weight.args[0].op == "placeholder":
        weight = weight.args[0]  # it lays weights out by itself, and what the forward pass laid out need not be kept
    return convolution_backward, (grad, x, weight, stride, padding, mask, node.meta["strides"])


def _depthwise_gradient(node: fx.Node) -> Replacement | None:
    of_grad, of_x, of_weight, *_ = node.meta["shapes"]
    if node.meta["dtype"] != torch.float32 or not is_depthwise(of_grad, of_x, of_weight, node.args[4:10]):
        return None
    grad, x, weight, _, stride, padding, dilation, *_, mask = node.args
    return depthwise_backward, (grad, x, weight, stride, padding, dilation, mask, node.meta["strides"])


def _one_channel(node: fx.Node) -> Replacement | None:
    if not is_plain(node.args[3:9]) or node.meta["shapes"][0][1] != 1:
        return None
    x, weight, bias, stride, padding, *_ = node.args
    return convolution_of_one_channel, (x, weight, bias, stride, padding, node.meta["strides"])


KERNELS_WITHOUT_VECTOR_CODE = (
    KernelRule(aten.addmm.default, _product, "PRODUCTS_BY_ACL"),
    KernelRule(aten.mm.default, _product, "PRODUCTS_BY_ACL"),
    KernelRule(
        aten.convolution_backward.default,
        _gradient_by_products,
        "Gradient of 16 to 16 channels of 32x32, 64 images, 2 threads: oneDNN 75 ms contiguous and 29 with channels last, "
        "torch's own kernel, which multiplies matrices, 12.",
    ),
    KernelRule(
        aten.convolution_backward.default,
        _depthwise_gradient,
        "16 images of 32 channels, one thread: 32x32 66 ms with channels last, 26 contiguous, 7.8 this way; stride 2 24, 8 "
        "and 6; 16x16 17, 7 and 2.2; a kernel of 5x5 137, 63 and 20.",
    ),
    KernelRule(
        aten.convolution.default,
        _one_channel,
        "The forward pass over a single channel: oneDNN takes two to four times as long as torch's own kernel.",
    ),
)
"""ARM, torch 2.13, whose build has no vector code for a Neoverse-N1. On x86 torch's own choices stand."""


def choose_kernels(nodes: Sequence[fx.Node], device: torch.device) -> list[fx.Node]:
    """Point recorded operations to what the rules name; the first rule of an operation that applies counts.

    Gives the nodes in their order, with those that the rules put in.
    """
    if device.type != "cpu" or has_vector_code():
        return list(nodes)
    rules: dict[Any, list[KernelRule]] = {}
    for rule in KERNELS_WITHOUT_VECTOR_CODE:
        rules.setdefault(rule.operation, []).append(rule)
    before = _share_sources(nodes)
    for node in nodes:
        for rule in rules.get(node.target, ()):
            found = rule.replace(node)
            if found is not None:
                node.target, node.args = found
                break
    return [n for node in nodes for n in (*before.get(node, ()), node)]


def _share_sources(nodes: Sequence[fx.Node]) -> dict[fx.Node, list[fx.Node]]:
    """Lay the source of several products out by column, once for all. Gives the nodes made, by what they stand before.

    Neoverse-N1, one thread, three products of the same rows, microseconds as their own rules say and so: 16 rows of 32 by
    32 66 and 48, 64 rows of 128 by 128 323 and 265, 256 rows of 256 by 256 3630 and 3224; 1024 rows take longer.
    """
    by_source: dict[Any, list[fx.Node]] = {}
    for node in nodes:
        if node.target in (aten.addmm.default, aten.mm.default) and _is_by_transposed(node) and _goes_by_acl(node):
            by_source.setdefault(node.args[-2], []).append(node)
    made: dict[fx.Node, list[fx.Node]] = {}
    for source, products in by_source.items():
        *_, (rows, depth), _ = products[0].meta["shapes"]
        if len(products) > 1 and rows < 1024 and rows * depth <= _CHEAP * len(products):
            with source.graph.inserting_before(products[0]):
                laid_out = source.graph.call_function(by_column, (source,))
            for node in products:
                node.replace_input_with(source, laid_out)
            made[products[0]] = [laid_out]
    return made


def _goes_by_acl(node: fx.Node) -> bool:
    *_, (rows, depth), (_, columns) = node.meta["shapes"]
    is_little = PRODUCTS_BY_ACL[0].applies(Product(rows, depth, columns, torch.get_num_threads()))
    return multiplies_by_acl() and node.meta["dtype"] == torch.float32 and not is_little
