"""The locks of a graph: its own, and those of the graphs whose layers it runs."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import TypeVar

T = TypeVar("T")

_numbers = itertools.count()


class Locks:
    """Holds several graphs at once. A thread may enter again what it holds.

    Graphs over the same layers run one after the other, since a layer's module is in one mode at a time. Every thread
    takes the locks in the order they were made in, so that no two wait for each other.

    A lock is only ever taken by ``with``: a Ctrl-C between a lock's ``acquire`` and the ``try`` behind it would leave the
    lock taken for good, and other threads waiting.
    """

    def __init__(self, shared_with: Iterable[Locks] = ()) -> None:
        known = {number: lock for locks in shared_with for number, lock in locks._numbered}
        known[next(_numbers)] = threading.RLock()
        self._numbered: list[tuple[int, threading.RLock]] = sorted(known.items(), key=lambda item: item[0])
        self._locks = tuple(lock for _, lock in self._numbered)
        self._first = self._locks[0]
        self._second = self._locks[1] if len(self._locks) == 2 else None

    def holding(self, work: Callable[..., T], *args: object) -> T:
        """Call ``work`` while all locks are held: for calls that are made again and again."""
        with self._first:
            if len(self._locks) == 1:
                return work(*args)
            if self._second is not None:
                with self._second:
                    return work(*args)
            with _held(self._locks[1:]):
                return work(*args)

    @contextmanager
    def held(self) -> Iterator[None]:
        """All locks, for a ``with`` block."""
        with _held(self._locks):
            yield


@contextmanager
def _held(locks: tuple[threading.RLock, ...]) -> Iterator[None]:
    with locks[0]:
        if len(locks) == 1:
            yield
        else:
            with _held(locks[1:]):
                yield
