"""The gradients that linked graphs have computed of a graph's results."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from mlc_torch.engine.session import Session
from mlc_torch.nodes.node import producers
from mlc_torch.refusals import refuse
from mlc_torch.tensor import TensorState


def linked_gradients(graph: Any, cell: TensorState, number: int, has_loss: bool) -> list[torch.Tensor]:
    """The gradients of one of the graph's results in the graphs that read it; they went back after its pass ``number``.

    Each that went forward since, to be differentiated, has its part. One at least must, though it may read another result: of
    two heads that are trained in turn, the other one gives nothing. Who ``has_loss`` waits for no reader that has none.
    """
    linked = [g for g in graph._linked if not has_loss or g._runs.may_differentiate()]
    readers = [g for g in linked if any(cell is c for n in g._planned_nodes() for c in n.reads)]
    went, back = _passes(readers, number)
    if len(back) < went or (readers and not back and not _passes(_readers_of_any(graph, linked), number)[1]):
        refuse(
            f"no gradient of {cell.label!r} for this forward pass; run the phases one by one, and executeGradient of "
            "the linked graph that reads it first"
        )
    slots = [(last, last.plan.slots.get(id(cell))) for last in back]
    return [g for last, slot in slots if slot is not None and (g := last.gradient_of(slot)) is not None]


def _readers_of_any(graph: Any, linked: Sequence[Any]) -> list[Any]:
    own = producers(graph._planned_nodes())
    return [g for g in linked if any(id(c) in own for n in g._planned_nodes() for c in n.reads)]


def _passes(graphs: Sequence[Any], number: int) -> tuple[int, list[Session]]:
    """How many of these graphs went forward after ``number``, to be differentiated, and the passes that have gradients."""
    went = [g._runs for g in graphs if g._runs.begun > number]
    return len(went), [runs.last for runs in went if runs.last is not None and runs.last.phase.has_gradients]
