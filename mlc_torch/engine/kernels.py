"""Which kernels compute what on the CPU: a table for products and one for the rest, by processor and threads.

Rules are fixed and never timed at run time: the same program gives the same numbers. They ask what torch was built for
(vector code, the Arm Compute Library), the shapes, and how many threads there are when a graph is compiled. Each says how
it is known. How images are laid out for these kernels is in ``layouts.py``.
"""

from __future__ import annotations

import functools
import math
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import fx

from mlc_torch.engine.depthwise import is_depthwise
from mlc_torch.engine.gelu import gelu_gradient_in_pieces, gelu_in_pieces
from mlc_torch.engine.layouts import has_vector_code
from mlc_torch.engine.replacements import (
    by_column,
    convolution_backward,
    convolution_of_one_channel,
    depthwise_backward,
    product_with_transposed_source,
    product_with_transposed_weight,
)

aten = torch.ops.aten


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
    """Where it applies, what multiplies there (``None``: torch's own choice), and how that is known."""

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
    asked = Product(rows, depth, columns, max(torch.get_num_threads(), threads_of_acl()))
    return next(rule.function for rule in PRODUCTS_BY_ACL if rule.applies(asked))


@functools.cache
def multiplies_by_acl() -> bool:
    """Whether torch's products go through the Arm Compute Library."""
    ask = getattr(torch.backends.mkldnn, "is_acl_available", None)
    return ask is not None and bool(ask())


@functools.cache
def threads_of_acl() -> int:
    """How many threads the Arm Compute Library takes: OpenMP's number when it was loaded.

    ``torch.set_num_threads`` does not reach it. (1024 rows of 784 by 128 on two cores after ``set_num_threads(1)``: 3.3 ms of
    6.4 ms of processor time; with ``OMP_NUM_THREADS=1`` 6.2 of 6.2.)
    """
    given = os.environ.get("OMP_NUM_THREADS", "").partition(",")[0].strip()
    return int(given) if given.isdecimal() else os.cpu_count() or 1


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


_GRAIN = 2**15
"""Fewer elements torch does not share out between threads."""


def _in_pieces(form: str, least: int, most: int, up_to: int | None = None) -> Callable[[fx.Node], Replacement | None]:
    """GELU or its gradient in our way, from so many elements a thread on, in pieces of at most so many a thread.

    ``up_to``: with so many threads at most.

    Two pieces are all the memory that a gradient in place needs, and a piece is at most half if that still gives every thread
    its grain: no more than torch takes for a gradient in memory of its own, or 256 KiB a thread.
    """

    def replace(node: fx.Node) -> Replacement | None:
        elements, threads = math.prod(node.meta["lies"][0]), torch.get_num_threads()
        fits = all(_lies_densely(n) for n in (node, *node.all_input_nodes))
        if node.kwargs.get("approximate", "none") != form or elements < least * threads or not fits:
            return None
        if up_to is not None and threads > up_to:
            return None
        piece = min(max(elements // 2, _GRAIN * threads), most * threads)
        count = -(-elements // piece)
        if node.target is aten.gelu.default:
            return gelu_in_pieces, (*node.args, count)
        return gelu_gradient_in_pieces, (*node.args, form, count)

    return replace


def _lies_densely(node: fx.Node) -> bool:
    """Whether a value is of 32-bit numbers, one behind the other in the order of the dimensions."""
    shape, strides, dtype = node.meta["lies"]
    behind = [math.prod(shape[i + 1 :]) for i in range(len(shape))]
    in_order = all(size == 1 or step == want for size, step, want in zip(shape, strides, behind, strict=True))
    return dtype == torch.float32 and in_order


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
    KernelRule(
        aten.gelu_backward.default,
        _in_pieces("tanh", least=2**14, most=2**18),
        "Milliseconds, torch's and so, one thread: 16,384 elements .21 and .16, 131,072 1.6 and 1.0, 524,288 6.4 and 3.4, 16 "
        "million 204 and 108; two threads 32,768 .41 and .27, .82 and .63, 3.2 and 1.9, 102 and 58. (8,192: no difference.) "
        "This processor's large third cache makes calls dearer than memory: 524,288 elements take 3.2 in one piece, 4.2 in "
        "16. torch's forward pass, 1.9, is not to be had for less: the sigmoid alone takes 1.8.",
    ),
    KernelRule(
        aten.gelu_backward.default,
        _in_pieces("none", least=2**13, most=2**18),
        "The same for the exact form: 8,192 elements .30 and .15, 131,072 4.0 and 1.4, 524,288 15.6 and 4.8, 16 million 494 "
        "and 150; two threads 16,384 .33 and .18, 2.2 and .85, 8.7 and 2.6, 249 and 76. The forward pass takes torch 1.4, "
        "its error function alone 1.5.",
    ),
)
"""ARM, torch 2.13, whose build has no vector code for a Neoverse-N1."""

KERNELS_WITH_AVX512 = (
    KernelRule(
        aten.gelu.default,
        _in_pieces("tanh", least=2**15, most=2**16),
        "torch 2.11, AVX-512; milliseconds, torch's and so: one thread 65,536 elements .15 and .07, 524,288 1.3 and .70, 16 "
        "million 52 and 35; two threads .11 and .06, .75 and .45, 28 and 19; eight threads 524,288 elements .27 and .21, 16 "
        "million 8.4 and 8.9, and 65,536 .04 and .06, where it is left. (Inside of torch's kernel the hyperbolic tangent is "
        "Sleef's; a sigmoid takes a fifth of its time.)",
    ),
    KernelRule(
        aten.gelu_backward.default,
        _in_pieces("tanh", least=2**15, most=2**16, up_to=1),
        "The same, one thread: 524,288 elements 1.31 and 1.07, 16 million 53 and 52. With two threads .71 and .68, with eight "
        ".29 and .35: left. The exact form is torch's own everywhere (.48, 1.5).",
    ),
)
"""x86, where it was measured. With other vector code torch's own choices stand."""


@functools.cache
def has_avx512() -> bool:
    return torch.backends.cpu.get_cpu_capability() == "AVX512"


def choose_kernels(nodes: Sequence[fx.Node], device: torch.device) -> list[fx.Node]:
    """Point recorded operations to what the rules name; the first rule of an operation that applies counts.

    Gives the nodes in their order, with those that the rules put in.
    """
    vectors = has_vector_code()
    if device.type != "cpu" or (vectors and not has_avx512()):
        return list(nodes)
    rules: dict[Any, list[KernelRule]] = {}
    for rule in KERNELS_WITH_AVX512 if vectors else KERNELS_WITHOUT_VECTOR_CODE:
        rules.setdefault(rule.operation, []).append(rule)
    before = {} if vectors else _share_sources(nodes)
    for node in nodes:
        for rule in rules.get(node.target, ()):
            found = rule.replace(node)
            if found is not None:
                (node.target, node.args), node.kwargs = found, {}
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
