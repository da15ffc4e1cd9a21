"""What ``step``, ``evaluate`` and ``fit`` call the loss: all losses of a graph added up, over any number of batches.

The number for several batches is that of one call over all their samples. So each loss is joined by its own reduction: a mean
counts by the samples of its batch, a sum is added up.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

import torch

from mlc_torch.engine.session import Session
from mlc_torch.layers import MLCLayer, MLCLossLayer
from mlc_torch.nodes.node import Node
from mlc_torch.running.completion import on_host
from mlc_torch.tensor import TensorState

Amounts = tuple[float, float]
"""The losses of one batch: those that count by its samples where batches are joined, and those that are added up."""


class Summed(NamedTuple):
    """The losses of several batches."""

    weighed: float
    """Those that count by samples, each times those of its batch."""
    added: float
    samples: int

    @property
    def loss(self) -> float:
        """That of one call over all their samples."""
        return self.weighed / self.samples + self.added


class _Counted(NamedTuple):
    """How one loss counts."""

    cell: TensorState
    is_added: bool
    """Whether the losses of several batches are added up; else each counts by its samples."""
    is_averaged: bool
    """Whether its values are told by their mean; else by their sum, which is what a graph differentiates."""


class LossTally:
    """Adds up the losses of a graph. Made once for many batches."""

    def __init__(
        self, nodes: Sequence[Node], is_loss: Callable[[MLCLayer], bool], counting: Iterable[TensorState], samples: int
    ) -> None:
        """``counting`` are the tensors that a batch is given in and that count its samples; ``samples`` were declared."""
        losses = [node for node in nodes if is_loss(node.layer)]
        by_samples = _behind(nodes, counting)
        self._losses = [_counted(n, len(losses) == 1, id(n.results[0]) in by_samples, samples) for n in losses]
        self.adds: bool | None = None
        """Of a graph with one loss, which gives one number: whether it is added up. All others are looked at by ``of``."""
        if len(losses) == 1 and isinstance(losses[0].layer, MLCLossLayer) and losses[0].results[0].shape == (1,):
            self.adds = self._losses[0].is_added

    def of(self, session: Session) -> Amounts:
        """The losses of a session's last pass; of one that has none, the mean of its result."""
        if not session.losses:
            return _number(session, session.result, True), 0.0
        weighed = added = 0.0
        for cell, is_added, is_averaged in self._losses:
            number = _number(session, cell, is_averaged)
            if is_added:
                added += number
            else:
                weighed += number
        return weighed, added


def _number(session: Session, cell: TensorState, is_averaged: bool) -> float:
    """Of the pass's own values: those of a short batch, and not what the rest of the tensor holds."""
    value = session.value_of(cell)
    assert value is not None  # every loss is kept
    value = value if value.is_cpu else on_host(value)
    wide = value.to(torch.float64)  # type: ignore[union-attr]
    return (wide.mean() if is_averaged else wide.sum()).item()


def _counted(node: Node, is_alone: bool, is_by_samples: bool, samples: int) -> _Counted:
    layer, cell = node.layer, node.results[0]
    if isinstance(layer, MLCLossLayer):
        is_divided, is_reduced = layer._divides_by_samples, layer._gives_one_loss
    else:  # what any other layer computes is minimised as it is; without a row for each sample it is taken for a mean
        is_reduced = is_divided = not cell.shape or cell.shape[0] != samples
    is_averaged = is_alone and not is_reduced
    # What depends on no sample is the same in every batch, and there once in a call over all of them.
    return _Counted(cell, is_by_samples and not is_divided and not is_averaged, is_averaged)


def _behind(nodes: Sequence[Node], cells: Iterable[TensorState]) -> set[int]:
    """These tensors and all that is computed from them, by identity."""
    found = {id(cell) for cell in cells}
    for node in nodes:
        if any(id(cell) in found for cell in node.reads):
            found |= {id(cell) for cell in node.results}
    return found
