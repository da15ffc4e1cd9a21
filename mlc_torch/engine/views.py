"""Which recorded operations look at memory that is there, which may write into it, how much results take, how they lie."""

from __future__ import annotations

import math
import operator
from collections.abc import Sequence
from typing import Any

import torch
from torch import fx

from mlc_torch.engine.batch_norm import batch_norm

UNSAFE = {
    torch.ops.aten._unsafe_view.default,
    torch.ops.aten.unsafe_chunk.default,
    torch.ops.aten.unsafe_split.Tensor,
    torch.ops.aten.unsafe_split_with_sizes.default,
}
"""Operations that look at their input's memory and do not say so."""
STATISTICS = {
    torch.ops.aten.native_batch_norm.default,
    torch.ops.aten.cudnn_batch_norm.default,
    torch.ops.aten.miopen_batch_norm.default,
    batch_norm,
}
"""Operations that write into running statistics and do not say so (torch 2.11 and 2.13), and what runs in the place of one."""
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


def written_by(node: fx.Node) -> list[fx.Node] | None:
    """What a node writes into, by what its operation says of itself; ``None`` where it is a function, which says nothing."""
    if node.op != "call_function" or node.target is operator.getitem:
        return []
    if node.target in STATISTICS:
        _, _, _, *running, trains = node.args[:6]
        return [tensor for tensor in running if isinstance(tensor, fx.Node) and trains]
    schema = getattr(node.target, "_schema", None)
    if schema is None:
        return None
    if not schema.is_mutable:
        return []
    named = dict(zip((a.name for a in schema.arguments), node.args, strict=False)) | node.kwargs
    given = [named.get(a.name) for a in schema.arguments if a.alias_info is not None and a.alias_info.is_write]
    written: list[fx.Node] = []
    fx.node.map_arg(given, written.append)
    return written


def may_write(node: fx.Node) -> bool:
    """Whether a node writes into what it is given, or is not known not to."""
    written = written_by(node)
    return written is None or bool(written)


_HOMES = ("aten", "prims", "mlc_torch")


def may_keep(node: fx.Node) -> bool:
    """Whether a node calls an operation that is neither torch's nor ours: it says what it writes into, not what it remembers of
    what it is given and gives."""
    return getattr(node.target, "namespace", "aten") not in _HOMES


def gets_out(node: fx.Node) -> bool:
    """Whether a result may be this node's memory, or an operation may write into it, or keep it."""
    seen = [node]
    for known in seen:  # which grows on the way: views may be many
        for user in known.users:
            written = written_by(user)
            if user.op == "output" or written is None or known in written or may_keep(user):
                return True
            if is_view(user):
                seen.append(user)
    return False


def _has_effect(node: fx.Node) -> bool:
    """Whether a node does something although nobody reads what it gives."""
    return bool(written_by(node)) if node.target in STATISTICS else node.is_impure()


def share_copies(graph: fx.Graph, nodes: Sequence[fx.Node]) -> None:
    """Of several copies of one tensor in one layout, as of an image that several convolutions read, the first serves for all.

    Not where somebody writes into the tensor or a copy, or is given a copy. (Peak memory of a step with four branches over one
    image: 1.48 of by hand without this.)
    """
    written: set[fx.Node] = set()
    for node in graph.nodes:
        into = written_by(node)
        if into is None:
            return
        written.update(map(root_of, into))
    first: dict[Any, fx.Node] = {}
    for node in nodes:
        if node.target is not torch.ops.aten.clone.default or "memory_format" not in node.kwargs:
            continue
        source: Any = node.args[0]
        if root_of(source) in written or gets_out(node):
            continue
        known = first.setdefault((source, node.kwargs["memory_format"]), node)
        if known is not node:
            node.replace_all_uses_with(known)


def root_of(node: fx.Node) -> fx.Node:
    """What a view looks at, a part is taken from, or an operation has written into and gives back."""
    while True:
        if is_view(node) or node.target is operator.getitem:
            node = node.all_input_nodes[0]
        elif node.target not in STATISTICS and (written := written_by(node)):
            node = written[0]
        else:
            return node


def drop_unread(graph: fx.Graph) -> None:
    """Remove what nobody reads and what changes nothing."""
    graph.eliminate_dead_code(_has_effect)
