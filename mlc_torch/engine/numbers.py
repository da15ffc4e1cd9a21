"""Numbers in a recorded graph as tensors that are made once, and a·x + b as one operation.

torch makes a tensor of a number at every call: four by four elements times a number take 6.7 µs on a Neoverse-N1, times a
tensor without dimensions 3.4; a·x + b takes 12.8 as two operations and 4.4 as a sum. On a GPU a tensor without dimensions on
the host is a number to the kernel, as before; only in a sum it must lie on the GPU, or torch makes two kernels of it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import fx

from mlc_torch.engine.views import may_write

aten = torch.ops.aten

_BY_NUMBER = frozenset(
    operation.Tensor
    for operation in (aten.add, aten.add_, aten.sub, aten.sub_, aten.mul, aten.mul_, aten.div, aten.div_)
)
_HOST = torch.device("cpu")
_EXACT = (torch.float32, torch.float64)
"""Types in which a number is the same to torch as a tensor; shorter ones are computed with the number unrounded."""


def numbers_as_tensors(
    nodes: Sequence[fx.Node], constants: dict[str, torch.Tensor], device: torch.device
) -> list[fx.Node]:
    """The nodes of one phase, behind the constants they take; ``constants`` learns the new ones' values."""
    made: dict[Any, fx.Node] = {}

    def constant(value: float, user: fx.Node, where: torch.device) -> fx.Node:
        dtype = user.meta["lies"][2]
        known = (str(value), dtype, where)  # -0.0 is not 0.0
        node = made.get(known)
        if node is None:
            name = f"number{len(constants)}"
            constants[name] = torch.tensor(value, dtype=dtype, device=where)
            with user.graph.inserting_before(nodes[0]):
                node = made[known] = user.graph.create_node("get_attr", name)
        return node

    taking = [node for node in nodes if _takes_number(node)]
    position = {node: number for number, node in enumerate(nodes)}
    for node in taking:
        given: Any = node.args
        if node.target not in (aten.add.Tensor, aten.add_.Tensor) or given[0] not in position:
            continue
        if not _only_scales_for(given[0], node):
            continue
        between = nodes[position[given[0]] + 1 : position[node]]
        if not any(may_write(n) for n in between):  # what is scaled is still there
            x, scale = given[0].args
            node.target, node.args = aten.add.Tensor, (constant(given[1], node, device), x)
            node.kwargs = {"alpha": scale}
    for node in taking:
        if not node.kwargs:
            given = node.args
            node.args = (given[0], constant(given[1], node, _HOST))
    return [*made.values(), *nodes]


def _takes_number(node: fx.Node) -> bool:
    given: Any = node.args
    return (
        node.target in _BY_NUMBER
        and not node.kwargs
        and type(given[1]) in (int, float)
        and "lies" in given[0].meta
        and given[0].meta["lies"] == node.meta.get("lies")
        and node.meta["lies"][2] in _EXACT
    )


def _only_scales_for(scaled: fx.Node, node: fx.Node) -> bool:
    """Whether a value is a number times another, and only ``node`` wants it."""
    if scaled.target is not aten.mul.Tensor or list(scaled.users) != [node] or not _takes_number(scaled):
        return False
    scale: Any = scaled.args[1]  # torch refuses to scale by what the type does not hold
    return abs(scale) <= torch.finfo(node.meta["lies"][2]).max
