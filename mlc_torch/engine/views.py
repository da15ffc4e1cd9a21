"""Which recorded operations look at memory that is there, which may write into it, how much results take, how they lie."""

from __future__ import annotations

import math
import operator
from collections.abc import Sequence
from typing import Any

import torch
from torch import fx

UNSAFE = {
    torch.ops.aten._unsafe_view.default,
    torch.ops.aten.unsafe_chunk.default,
    torch.ops.aten.unsafe_split.Tensor,
    torch.ops.aten.unsafe_split_with_sizes.default,
}
"""Operations that look at their input's memory and do not say so."""
_STATISTICS = {
    torch.ops.aten.native_batch_norm.default,
    torch.ops.aten.cudnn_batch_norm.default,
    torch.ops.aten.miopen_batch_norm.default,
}
"""Operations that write into running statistics and do not say so (torch 2.11 and 2.13)."""
PLAINER = {torch.ops.aten._unsafe_view.default: torch.ops.aten.view.default}
"""What is recorded in place of an operation. (A dense layer over three dimensions ends in this one from torch 2.15 on.)"""


def is_view(node: fx.Node) -> bool:
    """Whether a node looks at its input's memory another way, and computes nothing.

    Only in a graph of what torch does in the end: further up ``reshape`` and ``contiguous`` say so of themselves too.
    """
    if node.target is operator.getitem:
        return is_view(node.all_input_nodes[0])
    return bool(getattr(node.target, "is_view", False)) or node.target in UNSAFE


def bytes_of(node: fx.Node) -> int:
    """How much memory a recorded value takes."""
    shape, _, dtype = node.meta["lies"]
    return math.prod(shape) * dtype.itemsize


def lies_in_order(shape: Sequence[int], strides: Sequence[int]) -> bool:
    """Whether elements lie one behind the other, as torch lays them out by itself."""
    return all(
        stride == math.prod(shape[n + 1 :])
        for n, (size, stride) in enumerate(zip(shape, strides, strict=True))
        if size > 1
    )


def may_write(node: fx.Node) -> bool:
    """Whether a node writes into what it is given, or is not known not to."""
    schema = getattr(node.target, "_schema", None)
    return node.op == "call_function" and (schema is None or schema.is_mutable)


def _has_effect(node: fx.Node) -> bool:
    """Whether a node does something although nobody reads what it gives."""
    if node.target in _STATISTICS:
        running_mean, trains = node.args[3], node.args[5]
        return running_mean is not None and bool(trains)
    return node.is_impure()


def share_copies(graph: fx.Graph, nodes: Sequence[fx.Node]) -> None:
    """Of several copies of one tensor in one layout, as of an image that several convolutions read, the first serves for all.

    Not where somebody writes into the tensor or a copy, or is given a copy. (Peak memory of a step with four branches over one
    image: 1.48 of by hand without this.)
    """
    writers = [n for n in graph.nodes if may_write(n) and n.target is not operator.getitem]
    if not all(n.args and isinstance(n.args[0], fx.Node) for n in writers):
        return  # into several at once, say
    written = {_root(n.args[0]) for n in writers}
    first: dict[Any, fx.Node] = {}
    for node in nodes:
        if node.target is not torch.ops.aten.clone.default or "memory_format" not in node.kwargs:
            continue
        source: Any = node.args[0]
        if not written.isdisjoint((_root(source), node)) or any(user.op == "output" for user in node.users):
            continue
        known = first.setdefault((source, node.kwargs["memory_format"]), node)
        if known is not node:
            node.replace_all_uses_with(known)


def _root(node: fx.Node) -> fx.Node:
    """What a view looks at, or a part is taken from."""
    while is_view(node) or node.target is operator.getitem:
        node = node.all_input_nodes[0]
    return node


def drop_unread(graph: fx.Graph) -> None:
    """Remove what nobody reads and what changes nothing."""
    graph.eliminate_dead_code(_has_effect)
