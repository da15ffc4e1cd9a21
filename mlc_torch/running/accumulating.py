"""The gradients of several batches, added up for one update: ``fit(accumulate=)``."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from mlc_torch.engine.session import Session
from mlc_torch.refusals import MLCRefusal
from mlc_torch.running.request import NO_DATA, SYNCHRONOUS, Request
from mlc_torch.running.road import travel
from mlc_torch.running.signatures import DATA
from mlc_torch.running.tally import LossTally
from mlc_torch.spelling.arguments import converter

_MEMBER = "fit"
_END = object()
_AS_DATA = converter(f"{DATA}?")
"""What the door makes of a call's dictionary."""


def with_updates(batches: Iterable[Any], every: int) -> Iterator[tuple[Any, bool]]:
    """Each batch, and whether an update follows it: one after so many, and after the last.

    The next batch is asked for before a batch that only adds to the others is given, since it may be the last; behind an update
    it is asked for as late as without accumulation, by a program that may have looked at the weights.
    """
    source, left = iter(batches), every
    batch = next(source, _END)
    while batch is not _END:
        left -= 1
        following = next(source, _END) if left else None
        yield batch, not left or following is _END
        batch, left = (following, left) if left else (next(source, _END), every)


class Accumulation:
    """The passes of a training graph over batch after batch, and the sum of their gradients until an update."""

    def __init__(self, graph: Any) -> None:
        self._graph = graph
        self._session: Session | None = None
        self._totals: list[Any] = []
        self._samples = 0

    def losses_of(self, batch: Any, updates: bool) -> tuple[float, float, int]:
        """What counts of a batch's losses by its samples, what is added up, and how many samples it has."""
        graph = self._graph
        reader = graph._runs.batch_reader or graph._new_batch_reader()
        *given, count, size = reader(batch)
        # Under one lock: what another thread runs in between would take the place of the gradients.
        return graph._lock.holding(self._run, tuple(map(_AS_DATA, given)), count, size, reader.tally, updates)

    def _run(
        self, data: tuple[Any, ...], count: int, size: int, tally: LossTally, updates: bool
    ) -> tuple[float, float, int]:
        graph = self._graph
        self._travel(type(graph)._forward, size, data)
        losses = graph._tallied(tally)
        self._travel(type(graph)._gradient, size)
        self._add(graph._runs.last, count)
        if updates:
            self._update()
        return (*losses, count)

    def _travel(self, work: Any, size: int = 0, data: tuple[Any, ...] = NO_DATA) -> None:
        travel(self._graph, Request(_MEMBER, SYNCHRONOUS, None, size, data), work)

    def _add(self, session: Session, count: int) -> None:
        shared = self._graph._runs.shared
        weight = count if shared is None else shared.samples_of_all(count)  # of which the gradients are
        parts = [None if g is None else g * weight for g in session.gradients]
        if not self._totals:
            self._session, self._totals, self._samples = session, parts, weight
            return
        if session is not self._session:
            raise MLCRefusal(
                "the graph was changed or compiled between batches whose gradients are added up, in their own iterator, say, or "
                "in another thread; they are gone",
                f"{type(self._graph).__name__}.{_MEMBER}",
            )
        self._totals = [p if t is None else t.add_(p) for t, p in zip(self._totals, parts, strict=True)]
        self._samples += weight

    def _update(self) -> None:
        """By the mean over all samples; without an optimizer, of which ``fit`` has warned, nothing changes."""
        totals, self._totals = self._totals, []
        if self._graph._optimizer is None:
            return
        for gradient, total in zip(self._session.gradients, totals, strict=True):  # type: ignore[union-attr]
            if gradient is not None:
                gradient.copy_(total / self._samples)
        self._travel(type(self._graph)._update)
