"""What reports, drawings and modules may know of a graph; a graph gives it in one piece."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from mlc_torch.engine.session import Session
from mlc_torch.layers.base import MLCLayer
from mlc_torch.nodes.node import Node, producers
from mlc_torch.optimizers import MLCOptimizer
from mlc_torch.tensor import TensorState


@dataclass(frozen=True)
class GraphFacts:
    """A graph as it stands."""

    title: str
    """The name of its class."""
    nodes: list[Node]
    losses: frozenset[int]
    """The layers that are losses, by identity."""
    executable: bool = False
    """Whether inputs and outputs can be declared, and the graph be run."""
    declared: tuple[tuple[str, str, TensorState], ...] = ()
    """Kind, name and tensor of inputs, labels, label weights and outputs."""
    linked: frozenset[int] = frozenset()
    """Tensors that linked graphs compute, by identity."""
    trains: bool = False
    stopped: frozenset[int] = frozenset()
    """Tensors that no gradient goes back through, by identity."""
    trained_tensors: tuple[TensorState, ...] = ()
    """Tensors that are trained for themselves."""
    optimizer: MLCOptimizer | None = None
    device: torch.device | None = None
    session: Session | None = None
    """The session that the next execute uses, where it is there already."""
    sessions: tuple[Session, ...] = ()
    """Every session that holds something."""
    idle: str = ""
    """Why no gear is chosen, where there is no session."""

    def is_loss(self, layer: MLCLayer) -> bool:
        return id(layer) in self.losses

    def result_of(self, nodes: Sequence[Node]) -> TensorState:
        """What a completion handler gets of these nodes: in training the last loss, else the last result."""
        losses = [n for n in nodes if self.trains and self.is_loss(n.layer)]
        return (losses or nodes)[-1].results[0]

    def of_kind(self, *kinds: str) -> list[tuple[str, TensorState]]:
        """Names and tensors that were declared as one of these kinds."""
        return [(name, cell) for kind, name, cell in self.declared if kind in kinds]

    def names(self) -> dict[int, tuple[str, str]]:
        """Kind and name of every tensor that was declared, by its identity."""
        return {id(cell): (kind, name) for kind, name, cell in self.declared}

    def numbering(self) -> Numbering:
        return Numbering(self.nodes)


class Numbering:
    """Names for the nodes of a graph and for the tensors between them, the same in every drawing and table."""

    def __init__(self, nodes: list[Node]) -> None:
        self._number = {id(node): number for number, node in enumerate(nodes, 1)}
        self._made_by = producers(nodes)

    def of(self, node: Node) -> int:
        """The place of a node, from 1."""
        return self._number[id(node)]

    def node(self, node: Node) -> str:
        return f"n{self.of(node)}"

    def maker(self, cell: TensorState) -> Node | None:
        """The node that computes a tensor; ``None`` for one that comes from outside."""
        return self._made_by.get(id(cell))

    def origin(self, cell: TensorState) -> str:
        """Where an edge that carries this tensor begins: at the node that computes it, or at the tensor itself."""
        node = self.maker(cell)
        return f"t{cell.tensor_id}" if node is None else self.node(node)
