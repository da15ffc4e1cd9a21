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
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import fx

from mlc_torch.engine.depthwise import is_depthwise
from mlc_torch.engine.gelu_rules import as_it_lies, by_slope, in_pieces
from mlc_torch.engine.layouts import has_vector_code, is_little_for_torch
from mlc_torch.engine.replacements import (
    Replacement,
    by_column,
    convolution_backward,
    convolution_of_one_channel,
    depthwise_backward,
    depthwise_backward_contiguous,
    product_with_transposed_source,
    product_with_transposed_weight,
)
from mlc_torch.engine.standing import joined_parameters, packed_layer
from mlc_torch.engine.trace import Recording

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


@dataclass(frozen=True)
class KernelRule:
    """An operation, when something else runs in its place, and how that is known."""

    operation: Any
    replace: Callable[[fx.Node], Replacement | None]
    evidence: str
    keeps: bool = False
    """Whether memory is kept between passes: not for every batch size that comes along."""


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
    _, of_x, of_weight, *_ = node.meta["shapes"]
    if not is_plain(node.args[4:10]) or is_little_for_torch(of_x, of_weight[2:]):  # which multiplies by itself there
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
    threads, elements = torch.get_num_threads(), math.prod(of_grad)
    # Where torch does not ask oneDNN, it takes the channels one by one.
    by_library = max(of_weight[2:]) > 1 or of_x[0] >= 16 or threads > 1
    is_much = elements >= (2**14 if threads == 1 else 5 * 2**12 * threads)
    way = depthwise_backward if is_much and by_library else depthwise_backward_contiguous
    return way, (grad, x, weight, stride, padding, dilation, mask, node.meta["strides"])


def _one_channel(node: fx.Node) -> Replacement | None:
    if not is_plain(node.args[3:9]) or node.meta["shapes"][0][1] != 1:
        return None
    x, weight, bias, stride, padding, *_ = node.args
    return convolution_of_one_channel, (x, weight, bias, stride, padding, node.meta["strides"])


_JOINED = KernelRule(
    aten.cat.default,
    joined_parameters,
    "An LSTM's gates, 4 parts each of inputs x hidden and hidden x hidden, microseconds for both, new memory and so: ARM, one "
    "thread, 16x32 8.4 and 1.8, 64x128 25 and 15, 256x256 133 and 115; x86, one thread, 4.8 and 1.0, 17 and 12, and 937 and 190 "
    "where new memory has to be asked of the system; two threads 64x128 20 and 12, 256x256 by torch's threads 79, by Python 158.",
    keeps=True,
)
_PACKED = KernelRule(
    torch.ops.mlc_torch.lstm_library_inference.default,
    packed_layer,
    "torch 2.11, AVX-512; microseconds of a layer by nn.LSTM, by the library over joined weights, over packed ones, and to find "
    "that their bytes are the same; one thread, samples x steps, inputs x hidden: 1x1 16x32 52, 43, 26 and 5; 1x5 64x128 101, "
    "91, 49 and 17; 8x12 64x128 244, 229, 188 and 17; 1x5 256x256 408, 404, 146 and 171; two threads 1x5 64x128 155, 136, 70 "
    "and 18; 1x5 256x256 367, 335, 129 and 170. On ARM packing changes nothing (64x128, 1x5: 695 and 697).",
    keeps=True,
)

KERNELS_WITHOUT_VECTOR_CODE = (
    _JOINED,
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
        "16 images of 32 channels, one thread: 32x32 66 ms with channels last, 26 contiguous, 7.8 by products; stride 2 24, 8 "
        "and 6; 16x16 17, 7 and 2.2; a kernel of 5x5 137, 63 and 20. Few elements take products longer than torch over "
        "contiguous images: 3x3 and 5x5, one thread, 9,216 elements 1.0 to 1.4 times, 13,824 .9 to 1.0, 18,432 .7 to .9; two "
        "threads 18,432 1.0 to 1.4, 36,864 .7 to 1.2, 73,728 .4 to .7; a kernel of one pixel 1.4 to 3.9 with one thread and "
        "fewer than 16 images.",
    ),
    KernelRule(
        aten.convolution.default,
        _one_channel,
        "The forward pass over a single channel: oneDNN takes two to four times as long as torch's own kernel.",
    ),
    KernelRule(
        aten.gelu.default,
        as_it_lies,
        "oneDNN takes only what is contiguous: 524,288 elements, one thread, 1.8 ms and with channels last 6.1; .7 and 2.0 in "
        "the exact form.",
    ),
    KernelRule(
        aten.gelu_backward.default,
        by_slope("tanh", least=2**13, most=2**18),
        "Milliseconds with the forward pass, torch's and so, one thread: 8,192 elements .18 and .13, 65,536 1.1 and .65, "
        "524,288 8.3 and 3.6, 16 million 261 and 114; two threads 16,384 .30 and .18, .58 and .31, 4.2 and 2.0, 132 and 61. "
        "This processor's large third cache makes calls dearer than memory: 524,288 elements take 3.6 in two pieces, 4.6 in "
        "16. Alone, torch's forward pass, 1.9, is not to be had for less: the sigmoid takes 1.8.",
    ),
    KernelRule(
        aten.gelu_backward.default,
        by_slope("none", least=2**13, most=2**18),
        "The same for the exact form: 8,192 elements .36 and .15, 65,536 2.2 and .79, 524,288 17 and 4.9, 16 million 535 and "
        "155; two threads 16,384 .40 and .19, 1.3 and .41, 9.4 and 2.7, 294 and 80.",
    ),
)
"""ARM, torch 2.13, whose build has no vector code for a Neoverse-N1."""

KERNELS_WITH_AVX512 = (
    _JOINED,
    _PACKED,
    KernelRule(
        aten.gelu.default,
        in_pieces("tanh", least=2**15, most=2**16),
        "torch 2.11, AVX-512; milliseconds, torch's and so: one thread 65,536 elements .15 and .07, 524,288 1.3 and .70, 16 "
        "million 52 and 35; two threads .11 and .06, .75 and .45, 28 and 19; eight threads 524,288 elements .27 and .21, 16 "
        "million 8.4 and 8.9, and 65,536 .04 and .06, where it is left. (Inside of torch's kernel the hyperbolic tangent is "
        "Sleef's; a sigmoid takes a fifth of its time.)",
    ),
    KernelRule(
        aten.gelu_backward.default,
        by_slope("tanh", least=2**13, most=2**16, up_to=4),
        "The same, both passes, torch's, the forward pass so and the gradient from its source in pieces, and so: one thread "
        "8,192 elements .06, .07 and .05, 65,536 .42, .34 and .23, 524,288 4.3, 3.1 and 2.5; two threads 16,384 .08, .06 and "
        ".04, 65,536 .17, .11 and .08, 524,288 2.2, 1.4 and 1.1; four threads 65,536 .17, .16 and .11, 524,288 1.3, 1.2 and "
        "1.0; eight threads 524,288 .77, 1.0 and .89: left. The exact form is torch's own everywhere (one thread, 131,072 "
        "elements .18 and .33 so).",
    ),
)
"""x86, where it was measured. With other vector code torch's own choices stand."""


@functools.cache
def has_avx512() -> bool:
    return torch.backends.cpu.get_cpu_capability() == "AVX512"


def choose_kernels(recording: Recording, device: torch.device, is_declared: bool = True) -> Recording:
    """Point recorded operations to what the first rule that applies names. ``is_declared``: its shapes are the graph's."""
    vectors = has_vector_code()
    if device.type != "cpu" or (vectors and not has_avx512()):
        return recording
    rules: dict[Any, list[KernelRule]] = {}
    for rule in KERNELS_WITH_AVX512 if vectors else KERNELS_WITHOUT_VECTOR_CODE:
        if is_declared or not rule.keeps:
            rules.setdefault(rule.operation, []).append(rule)
    for phase in (recording.backward, recording.forward):  # a gradient's rule may change the operation it belongs to
        if not vectors:
            _share_sources(phase)
        for node in phase:
            for rule in rules.get(node.target, ()):
                found = rule.replace(node)
                if found is not None:
                    (node.target, node.args), node.kwargs = found, {}
                    break
    # What was put in belongs to the phase of the node that it stands before.
    calls = [n for n in recording.graph.nodes if n.op in ("call_function", "get_attr")]
    end = calls.index(recording.forward[-1]) + 1 if recording.forward else 0
    return replace(recording, forward=calls[:end], backward=calls[end:])


def _share_sources(nodes: Sequence[fx.Node]) -> None:
    """Lay the source of several products out by column, once for all.

    Neoverse-N1, one thread, three products of the same rows, microseconds as their own rules say and so: 16 rows of 32 by
    32 66 and 48, 64 rows of 128 by 128 323 and 265, 256 rows of 256 by 256 3630 and 3224; 1024 rows take longer.
    """
    by_source: dict[Any, list[fx.Node]] = {}
    for node in nodes:
        if node.target in (aten.addmm.default, aten.mm.default) and _is_by_transposed(node) and _goes_by_acl(node):
            by_source.setdefault(node.args[-2], []).append(node)
    for source, products in by_source.items():
        *_, (rows, depth), _ = products[0].meta["shapes"]
        if len(products) > 1 and rows < 1024 and rows * depth <= _CHEAP * len(products):
            with source.graph.inserting_before(products[0]):
                laid_out = source.graph.call_function(by_column, (source,))
            for node in products:
                node.replace_input_with(source, laid_out)


def _goes_by_acl(node: fx.Node) -> bool:
    *_, (rows, depth), (_, columns) = node.meta["shapes"]
    is_little = PRODUCTS_BY_ACL[0].applies(Product(rows, depth, columns, torch.get_num_threads()))
    return multiplies_by_acl() and node.meta["dtype"] == torch.float32 and not is_little
