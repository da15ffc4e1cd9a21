"""Which product multiplies matrices where torch asks the Arm Compute Library, what is laid out for it; and sums as products."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import fx

from mlc_torch.engine.replacements import (
    Replacement,
    by_column,
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


_NARROW, _SMALL, _LONG = 32, 2**12, 2**14
"""Columns; elements; rows."""

SUMS_BY_PRODUCT = (
    "The sum over the rows of a matrix, as a bias' gradient is, and a row of ones times the matrix, microseconds. Neoverse-N1, "
    "torch 2.13, one thread: 4x4 5.9 and 4.8, 32x10 6.2 and 4.5, 32x128 6.7 and 6.0, 1024x128 83 and 35, 1024x512 1075 and "
    "168, 4096x128 649 and 160, and 16384x16 41 and 54; two threads 6.1 and 4.7, 6.5 and 5.0, 7.4 and 5.6, 55 and 36, 490 and "
    "118, 296 and 158, and 50 and 57. x86, AVX-512, torch 2.11, one thread: 4.2 and 2.9, 4.3 and 2.9, 4.5 and 3.2, 26 and 24, "
    "102 and 97, 100 and 92, and 66 and 54; two threads 4.4 and 2.8, 4.6 and 3.0, 4.7 and 3.2, 18 and 13, 60 and 55, 74 and "
    "54, and 55 and 32; eight threads 2.4 and 1.3, 2.3 and 1.4, 2.5 and 1.5, 10 and 9, 20 and 14, 48 and 16, and 49 and 15. "
    "1024x10, eight threads: 3.3 and 12.2."
)


def sum_by_product(node: fx.Node) -> Replacement | None:
    """Where products are computed in 32 bits."""
    source, *how = node.args
    if how != [[0], True] or node.kwargs or not isinstance(source, fx.Node) or "lies" not in source.meta:
        return None
    shape, strides, dtype = source.meta["lies"]
    if len(shape) != 2 or strides != (shape[1], 1) or dtype != torch.float32 or source.target is aten.t.default:
        return None
    rows, columns = shape
    if rows > _LONG or (columns < _NARROW and rows * columns > _SMALL) or not rows * columns:
        return None
    if torch.get_float32_matmul_precision() != "highest":
        return None
    with node.graph.inserting_before(node):
        ones = node.graph.call_function(aten.ones.default, ([1, rows],))
    ones.meta["made"] = torch.ones(1, rows, dtype=dtype, device="cpu")  # ``simplify`` makes a constant of it
    return aten.mm.default, (ones, source)
