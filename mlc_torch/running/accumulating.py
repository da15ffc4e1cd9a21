"""The gradients of several batches, added up for one update: ``fit(accumulate=)``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from mlc_torch.engine.mode import Phase
from mlc_torch.engine.session import Session
from mlc_torch.nodes.feeding import DICTIONARIES
from mlc_torch.refusals import MLCRefusal
from mlc_torch.running.request import NO_DATA, SYNCHRONOUS, Request
from mlc_torch.running.road import travel
from mlc_torch.running.signatures import DATA
from mlc_torch.running.tally import LossTally
from mlc_torch.spelling.arguments import converter
from mlc_torch.tensor import TensorState

_MEMBER = "fit"
_as_data = converter(f"{DATA}?")


class Accumulation:
    """The passes of a training graph over batch after batch, and the sum of their gradients until an update.

    A batch is passed when it comes, and nothing of it is kept: a program may fill its arrays anew for the next one.
    """

    def __init__(self, graph: Any, every: int) -> None:
        self._graph, self._every = graph, every
        self._totals: list[Any] = []
        self._cells: list[TensorState] = []
        """What these are the gradients of."""
        self._samples = self._batches = 0

    def losses_of(self, batch: Any) -> tuple[float, float, int]:
        """What counts of a batch's losses by its samples, what is added up, and how many samples it has."""
        graph = self._graph
        reader = graph._runs.batch_reader or graph._new_batch_reader()
        *given, count, size = reader(batch)
        # Under one lock: what another thread runs in between would take the place of the gradients.
        return graph._lock.holding(self._run, self._data(given), count, size, reader.tally)

    def finish(self) -> None:
        """The update of the last batches, where they are fewer."""
        if self._batches:
            self._graph._lock.holding(self._update)

    def _data(self, given: Sequence[Any]) -> tuple[Any, ...]:
        made = []
        for name, values in zip(DICTIONARIES, given, strict=True):
            try:
                made.append(_as_data(values))
            except TypeError as expected:
                raise TypeError(f"{self._who}: argument {name} must be {expected}") from None
        return tuple(made)

    @property
    def _who(self) -> str:
        return f"{type(self._graph).__name__}.{_MEMBER}"

    def _run(self, data: tuple[Any, ...], count: int, size: int, tally: LossTally) -> tuple[float, float, int]:
        graph = self._graph
        self._travel(type(graph)._forward, size, data)
        losses = graph._tallied(tally)
        self._travel(type(graph)._gradient, size)
        session, shared = graph._runs.last, graph._runs.shared
        self._add(session, count if shared is None else shared.samples_of_all(count))  # of which the gradients are
        session.kept = None  # the program's arrays, which hold the next batch soon
        session.phase = Phase.updated  # the gradients have been used, and who adds up others may put them here
        if self._batches == self._every:
            self._update()
        return (*losses, count)

    def _travel(self, work: Any, size: int = 0, data: tuple[Any, ...] = NO_DATA) -> None:
        travel(self._graph, Request(_MEMBER, SYNCHRONOUS, None, size, data), work)

    def _add(self, session: Session, samples: int) -> None:
        parts, cells = [None if g is None else g * samples for g in session.gradients], _trained(session)
        if not self._batches:
            self._totals, self._cells, self._samples = parts, cells, 0
        elif not _are_same(cells, self._cells):
            raise MLCRefusal(
                "other tensors are trained than those whose gradients the batches before have added up; they are gone",
                self._who,
            )
        else:
            self._totals = [p if t is None else t.add_(p) for t, p in zip(self._totals, parts, strict=True)]
        self._samples, self._batches = self._samples + samples, self._batches + 1

    def _update(self) -> None:
        """By the mean over all samples; without an optimizer, of which ``fit`` has warned, nothing changes."""
        graph, totals = self._graph, self._totals
        self._totals, self._batches = [], 0
        if graph._optimizer is None:
            return
        session = graph._runs.last
        if session is None or session.phase is not Phase.updated or not _are_same(_trained(session), self._cells):
            raise MLCRefusal(
                "the graph ran something else behind the last batches that fit(accumulate:) has added up, in their own iterator, "
                "say, or in another thread; their gradients are gone",
                self._who,
            )
        for gradient, total in zip(session.gradients, totals, strict=True):
            if gradient is not None:
                gradient.copy_(total / self._samples)
        self._travel(type(graph)._update)


def _trained(session: Session) -> list[TensorState]:
    return [trained.cell for trained in session.plan.trained]


def _are_same(cells: Sequence[TensorState], others: Sequence[TensorState]) -> bool:
    return list(map(id, cells)) == list(map(id, others))
