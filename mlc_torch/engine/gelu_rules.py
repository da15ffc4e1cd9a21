"""What the rules of ``kernels`` put in the place of torch's GELU and of its gradient."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from typing import Any

import torch
from torch import fx

from mlc_torch.engine.gelu import gelu_as_it_lies, gelu_gradient_by_slope, gelu_in_pieces, gelu_with_slope
from mlc_torch.engine.replacements import Replacement
from mlc_torch.engine.views import lies_in_order
from mlc_torch.torch_private.memory import GRAIN

aten = torch.ops.aten


def in_pieces(form: str, least: int, most: int) -> Callable[[fx.Node], Replacement | None]:
    """GELU in our way, from so many elements a thread on, in pieces of at most so many a thread."""

    def replace(node: fx.Node) -> Replacement | None:
        count = _pieces(form, least, most, most, node, *node.all_input_nodes)
        return None if count is None else (gelu_in_pieces, (*node.args, count))

    return replace


def as_it_lies(node: fx.Node) -> Replacement | None:
    """torch's own over the elements one behind the other, where the dimensions are in another order."""
    shape, strides, _ = node.meta["lies"]
    (x,) = node.all_input_nodes
    if lies_in_order(shape, strides) or x.meta["lies"] != node.meta["lies"] or not _is_dense(node):
        return None
    return gelu_as_it_lies, (x, node.kwargs.get("approximate", "none"))


def by_slope(form: str, least: int, most: int, up_to: int | None = None) -> Callable[[fx.Node], Replacement | None]:
    """A gradient as a product with the slope, which the forward pass keeps in place of the source.

    ``up_to``: with so many threads at most.
    """

    def replace(node: fx.Node) -> Replacement | None:
        given: Any = node.args
        grad, x = given
        ahead = next((n for n in x.users if n.target is aten.gelu.default and n.kwargs == node.kwargs), None)
        if ahead is None or (up_to is not None and torch.get_num_threads() > up_to):
            return None
        count = _pieces(form, least, most, GRAIN, node, grad, x, ahead)
        if count is None:
            return None
        with node.graph.inserting_before(ahead):
            both = node.graph.call_function(gelu_with_slope, (x, form, count))
            slope = node.graph.call_function(operator.getitem, (both, 1))
        both.meta["lies"] = slope.meta["lies"] = ahead.meta["lies"]
        ahead.target, ahead.args, ahead.kwargs = operator.getitem, (both, 0), {}
        return gelu_gradient_by_slope, (grad, slope)

    return replace


def _pieces(form: str, least: int, most: int, whole: int, *nodes: fx.Node) -> int | None:
    """Into how many pieces the first node's work is divided; ``None`` where it is left to torch.

    ``whole``: up to so many elements a thread are one piece, which is fastest; in its own memory GELU then takes as much as the
    result would. A slope needs two pieces beside it, so that a piece is at most half.
    """
    elements, threads = math.prod(nodes[0].meta["lies"][0]), torch.get_num_threads()
    if nodes[0].kwargs.get("approximate", "none") != form or elements < least * threads:
        return None
    if any(node.meta["lies"] != nodes[0].meta["lies"] for node in nodes) or not _is_dense(nodes[0]):
        return None
    if elements <= whole * threads:
        return 1
    return -(-elements // min(max(elements // 2, whole * threads), most * threads))


def _is_dense(node: fx.Node) -> bool:
    """Whether a value is of 32-bit numbers, one behind the other, in whatever order of the dimensions."""
    shape, strides, dtype = node.meta["lies"]
    length = 1
    for step, size in sorted(zip(strides, shape, strict=True)):
        if size != 1 and step != length:
            return False
        length *= size
    return dtype == torch.float32
