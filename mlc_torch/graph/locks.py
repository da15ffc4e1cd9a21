"""The locks of a graph: its own, and those of the graphs whose layers it runs."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from typing import Any, TypeVar

T = TypeVar("T")
Lock = AbstractContextManager[Any]

_numbers = itertools.count()


class Locks:
    """Holds several graphs at once. A thread may enter again what it holds.

    Graphs over the same layers run one after the other, since a layer's module is in one mode at a time. Every thread
    takes the locks in the order they were made in, so that no two wait for each other.

    A lock is only ever taken by ``with``: a Ctrl-C between a lock's ``acquire`` and the ``try`` behind it would leave the
    lock taken for good, and other threads waiting. The block stands on the line of its ``with``, so that there is no line
    to stop at, for a debugger or for what a test puts there, between the block's end and the lock's release.
    """

    def __init__(self, shared_with: Iterable[Locks] = ()) -> None:
        known = {number: lock for locks in shared_with for number, lock in locks._numbered}
        known[next(_numbers)] = threading.RLock()
        self._numbered: list[tuple[int, threading.RLock]] = sorted(known.items(), key=lambda item: item[0])
        self._locks = tuple(lock for _, lock in self._numbered)
        self.pair = self._locks if len(self._locks) == 2 else None
        """The locks of a graph over one other, which is the usual case; ``None`` where there are more or fewer."""
        together = _TOGETHER.get(len(self._locks))
        self.holding = partial(_hold_all, self._locks) if together is None else partial(together, *self._locks)
        """Calls a function with the arguments behind it while all locks are held: for what is called again and again."""

    def held(self) -> AbstractContextManager[None]:
        """All locks, for a ``with`` block."""
        return _held(self._locks)


# fmt: off


def _hold_one(first: Lock, work: Callable[..., T], *args: object) -> T:
    with first: return work(*args)  # noqa: E701


def _hold_two(first: Lock, second: Lock, work: Callable[..., T], *args: object) -> T:
    with first, second: return work(*args)  # noqa: E701


def _hold_all(locks: tuple[Lock, ...], work: Callable[..., T], *args: object) -> T:
    with _held(locks): return work(*args)  # noqa: E701


@contextmanager
def _held(locks: tuple[Lock, ...]) -> Iterator[None]:
    if len(locks) == 1:
        with locks[0]: yield  # noqa: E701
    else:
        with locks[0], _held(locks[1:]): yield  # noqa: E701


# fmt: on

_TOGETHER: dict[int, Callable[..., Any]] = {1: _hold_one, 2: _hold_two}
