"""Which product multiplies matrices, what is laid out for the Arm Compute Library; biases; and sums as products."""

from __future__ import annotations

import functools
import math
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import fx

from mlc_torch.engine.processor import has_avx512
from mlc_torch.engine.replacements import (
    Replacement,
    by_column,
    product_then_bias,
    product_turned,
    product_with_transposed_source,
    product_with_transposed_weight,
)
from mlc_torch.engine.rules import Rule, said
from mlc_torch.engine.views import lies_in_order

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


Multiplies = Callable[..., torch.Tensor]
"""What multiplies there; ``None`` in a rule is torch's own choice."""

_CHEAP = 2**15
"""Elements that take about 40 µs to transpose on a Neoverse-N1."""

PRODUCTS_BY_ACL: tuple[Rule[Product, Multiplies | None], ...] = (
    Rule(lambda p: p.least <= 8, None, "torch does not ask the Arm Compute Library for so little."),
    Rule(
        lambda p: p.rows >= 1024 and p.threads == 1 and p.depth * p.columns <= 2**20,
        product_with_transposed_weight,
        "One thread, 1024 and 4096 rows, time relative to torch's: weights of 784x128 .98 and .92, 512x512 .97 and .90, "
        "128x512 .83 and .83, 1024x512 .93, 2048x256 .94. With two threads the two were not told apart.",
    ),
    Rule(
        lambda p: p.depth * p.columns <= (2 * _CHEAP if p.rows >= 1024 else _CHEAP),
        product_with_transposed_weight,
        "The way to the Arm Compute Library takes 70 to 350 µs, and BLAS is as fast. Weights of 64x64 and 128x10: .03 to "
        ".5 of torch's time for 9 to 1024 rows, with one and two threads.",
    ),
    Rule(
        lambda p: p.rows * p.depth <= _CHEAP,
        product_with_transposed_source,
        "The same with the smaller factor transposed: 9 and 32 rows of 784 by 128 .50 and .86, of 512 by 512 .35 and .94.",
    ),
    # All others are torch's: of 64 to 512 rows of larger factors, transposing either takes 1.2 to 1.7 as long.
)
"""Where torch was built with the Arm Compute Library, which it hands products with a transposed factor to (torch 2.13)."""


_TILES = (16, 32)
"""Rows that fill BLAS's tiles for AVX-512. Turned, a product of 20 or 40 takes as long as one of 32 or 48."""

PRODUCTS_BY_MKL: tuple[Rule[Product, Multiplies | None], ...] = (
    Rule(
        lambda p: p.columns >= 384 and p.depth % 1024 == 0 and p.rows in (*_TILES, 48),
        product_turned,
        "Two hosts, torch 2.11 and 2.13; depths of 1024, 2048 and 3072 by 384 to 2048 columns, time relative to torch's: one "
        "thread .54 to .93, two .25 to .95, four .25 to .85, eight .27 to .97, sixteen .29 to 1.01. 16 and 32 rows of 1024 by "
        "1024: one thread .66 and .76 on one host, .56 and .66 on the other, two .64 and .73, .69 and .80, four .39 and .52, "
        "eight .42 and .65. 8 to 12 rows .5 to 2.2, 64 .6 to 1.3.",
    ),
    Rule(
        lambda p: p.columns >= 384 and p.depth % 512 == 0 and p.rows in _TILES and p.threads <= 4,
        product_turned,
        "The same, 512 deep: one thread .56 to .93, two .31 to .95, four .37 to .85; eight and sixteen .5 to 1.09.",
    ),
    Rule(
        lambda p: p.columns >= 384 and p.depth >= 512 and p.rows in _TILES and p.threads <= 2,
        product_turned,
        "Depths of 576 to 1568: one thread .62 to 1.01, two .28 to .96; four and eight .64 to 1.22.",
    ),
    Rule(
        lambda p: 84 <= p.columns <= 128 and p.depth >= 256 and p.rows in _TILES and p.threads == 1,
        product_turned,
        "256 to 3072 deep: .29 to .64 on one host, .35 to .94 on the other; 784 deep .36 to .54, .67 to .89. With more threads "
        ".5 to 1.5.",
    ),
)
"""Where torch hands products to Intel's MKL, on x86 with AVX-512. From 16 rows on it goes another way by a transposed factor."""


def product_of(rows: int, depth: int, columns: int, dtype: torch.dtype) -> Multiplies | None:
    """What multiplies [rows, depth] with a given transpose of [columns, depth]; ``None`` for torch's own choice."""
    if dtype != torch.float32:
        return None
    if multiplies_by_acl():
        rules, threads = PRODUCTS_BY_ACL, max(torch.get_num_threads(), threads_of_acl())
    elif multiplies_by_mkl():
        rules, threads = PRODUCTS_BY_MKL, torch.get_num_threads()
    else:
        return None
    asked = Product(rows, depth, columns, threads)
    return said(rules, asked)


@functools.cache
def multiplies_by_mkl() -> bool:
    return has_avx512() and torch.backends.mkl.is_available()


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


def _is_by_transposed(node: fx.Node) -> bool:
    """Whether a node multiplies with the transpose of a matrix. (A gradient does so with that of a transpose: BLAS's case.)"""
    other: Any = node.args[-1]
    return not node.kwargs and other.target is aten.t.default and other.args[0].target is not aten.t.default


def chosen_product(node: fx.Node) -> Replacement | None:
    given: Any = node.args
    *bias, x, other = given
    *_, (rows, depth), (_, columns) = node.meta["shapes"]
    product = product_of(rows, depth, columns, node.meta["dtype"])
    if product is None or not _is_by_transposed(node) or x.target is by_column:
        return None
    return product, (x, other, *bias)


def share_sources(nodes: Sequence[fx.Node]) -> None:
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


def bias_apart(where: Callable[[int, int, int, torch.dtype], bool]) -> Callable[[fx.Node], Replacement | None]:
    """A bias that is added to a product, and not handed over with its factors, for rows, depth, columns and a type."""

    def replace(node: fx.Node) -> Replacement | None:
        of_bias, (rows, depth), (_, columns) = node.meta["shapes"]
        if node.kwargs or of_bias != (columns,) or not where(rows, depth, columns, node.meta["dtype"]):
            return None
        bias, x, other = node.args
        return product_then_bias, (x, other, bias)

    return replace


def has_many_rows(rows: int, depth: int, columns: int, dtype: torch.dtype) -> bool:
    return rows >= 1024 and dtype == torch.float32


_FEW_ROWS = 128
"""BLAS adds up one row after the other, torch in pairs: so many equal numbers differ from their sum by 1e-6 of it at most, and by
1.5e-7 in torch's; 16,384 would differ by 1.5e-4."""
_MUCH = 2**18
"""Elements for which it pays to add up rows in parts, and then the parts."""


def sum_of_few_rows(node: fx.Node) -> Replacement | None:
    """A sum over the rows of a matrix, as the gradient of a bias is, by a product with a row of ones."""
    summed = _summed_rows(node)
    if summed is None:
        return None
    source, rows, _ = summed
    return (aten.mm.default, (_ones(node, rows), source)) if rows <= _FEW_ROWS else None


def sum_of_many_rows(node: fx.Node) -> Replacement | None:
    """The same for parts of a few rows each, side by side, and torch's sum of these."""
    summed = _summed_rows(node)
    if summed is None:
        return None
    source, rows, columns = summed
    parts = -(-rows // _FEW_ROWS)
    if parts == 1 or rows % parts or rows * columns < _MUCH:
        return None
    ones = _ones(node, rows // parts)
    with node.graph.inserting_before(node):
        wide = node.graph.call_function(aten.view.default, (source, [rows // parts, parts * columns]))
        product = node.graph.call_function(aten.mm.default, (ones, wide))
        apart = node.graph.call_function(aten.view.default, (product, [parts, columns]))
    return aten.sum.dim_IntList, (apart, [0], True)


def _summed_rows(node: fx.Node) -> tuple[fx.Node, int, int] | None:
    """A matrix whose rows are added up, how many it has and how long they are."""
    source, *how = node.args
    if how != [[0], True] or node.kwargs or not isinstance(source, fx.Node) or "lies" not in source.meta:
        return None
    shape, strides, dtype = source.meta["lies"]
    if len(shape) != 2 or not math.prod(shape) or not lies_in_order(shape, strides) or dtype != torch.float32:
        return None
    # Of a transposed matrix ``simplify`` would make another product.
    return (source, *shape) if source.target is not aten.t.default and multiplies_in_full() else None


def multiplies_in_full() -> bool:
    """Whether torch's products keep all bits of their factors, as things stand when a graph is compiled."""
    try:
        return torch.get_float32_matmul_precision() == "highest"
    except RuntimeError:  # it was set by one of the newer switches, which this cannot tell
        return False


def _ones(node: fx.Node, count: int) -> fx.Node:
    """A row of them, of which ``simplify`` makes a constant."""
    with node.graph.inserting_before(node):
        ones = node.graph.call_function(aten.ones.default, ([1, count],), {"dtype": torch.float32})
    ones.meta["made"] = torch.ones(1, count, dtype=torch.float32, device="cpu")
    return ones
