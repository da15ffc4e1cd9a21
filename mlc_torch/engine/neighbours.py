"""Sessions that read the same tensors: one whose update has changed them tells the others.

Graphs may be over the same layers, or over others that share a weight. What a pass left behind rests on the weights that it
read, and nothing can be computed from both when they are others. A forward pass must not pay for that: only an update tells.
"""

from __future__ import annotations

import itertools
import weakref
from typing import Any, Protocol


class Neighbour(Protocol):
    """What is known of a session here."""

    reads: frozenset[int]
    """The tensors and parameters that its passes read, by identity."""
    updater: Any

    def lose_weights(self) -> None:
        """Somebody else has changed some of them, perhaps on another thread."""


Reference = weakref.ref[Neighbour]


class Neighbours:
    """All sessions that are alive; nobody is kept alive by it. There is no lock: each line that reads or writes ``_live`` is one
    operation to Python, so that threads may come and go."""

    def __init__(self) -> None:
        self._live: set[Reference] = set()
        self._count, self.newest = itertools.count(1), 0
        """``newest`` changes when one is made: who has found his neighbours need not look for them again until then."""

    def enter(self, made: Neighbour) -> None:
        self._live.add(weakref.ref(made, self._live.discard))
        self.newest = next(self._count)  # at the end: who sees the number finds the session

    def reading(self, changed: frozenset[int], updater: object) -> list[Reference]:
        """Those that read one of the ``changed`` tensors, without the one whose ``updater`` changes them."""
        found = []
        for reference in self._live.copy():
            session = reference()
            if session is not None and session.updater is not updater and not session.reads.isdisjoint(changed):
                found.append(reference)
        return found


neighbours = Neighbours()
