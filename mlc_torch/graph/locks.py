"""The locks of a graph: its own, and those of the graphs whose layers it runs."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Iterable
from typing import Any

_numbers = itertools.count()


class Locks:
    """Holds several graphs at once. A thread may enter again what it holds.

    Graphs over the same layers run one after the other, since a layer's module is in one mode at a time. Every thread
    takes the locks in the order they were made in, so that no two wait for each other.
    """

    def __init__(self, shared_with: Iterable[Locks] = ()) -> None:
        known = {number: lock for locks in shared_with for number, lock in locks._all}
        self._all = (*sorted(known.items(), key=lambda item: item[0]), (next(_numbers), threading.RLock()))

    def all(self) -> tuple[threading.RLock, ...]:
        """The locks in the order in which they are to be taken."""
        return tuple(lock for _, lock in self._all)

    def __enter__(self) -> None:
        for _, lock in self._all:
            lock.acquire()

    def __exit__(self, *error: Any) -> None:
        for _, lock in reversed(self._all):
            lock.release()
