"""The locks of a graph, and what else graphs over the same layers share: those of the graphs whose layers it runs, or its own."""

from __future__ import annotations

import itertools
import weakref
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from functools import partial, wraps
from typing import Any, ParamSpec, TypeVar

from mlc_torch.forks import free_in_child_lock

P = ParamSpec("P")
T = TypeVar("T")
Lock = AbstractContextManager[Any]

_numbers = itertools.count()


class Place:
    """What all graphs over some layers share."""

    def __init__(self) -> None:
        self.lock: Any = free_in_child_lock()
        self.threads: set[int] = set()
        """The numbers of threads that have run one of them."""
        self.users: set[weakref.ref[Any]] = set()
        """Who wants to know when there are several."""
        self.runners: set[weakref.ref[Any]] = set()
        """The graphs that run the layers."""
        self.asked: dict[int, Any] = {}
        """The results that were asked of the graph that records the layers, by identity: whoever runs it keeps them."""

    def enter(self, runner: Any) -> dict[int, Any]:
        """A new graph that runs the layers; gives what was asked for before it came."""
        self.runners.add(weakref.ref(runner, self.runners.discard))
        return self.asked  # looked at last: whoever asks meanwhile finds the new one among the runners


class Locks:
    """Holds several graphs at once. A thread may enter again what it holds.

    Graphs over the same layers run one after the other, since a layer's module is in one mode at a time: a graph over
    others is locked where they are, and needs no lock of its own. Every thread takes the locks in the order they were made
    in, so that no two wait for each other.

    A lock is only ever taken by its own ``with``: a Ctrl-C between a lock's ``acquire`` and the ``try`` behind it would
    leave the lock taken for good, and other threads waiting; so would one that strikes as a context manager written in
    Python is about to let go. The block stands on the line of its ``with``, so that there is no line to stop at, for a
    debugger or for what a test puts there, between the block's end and the lock's release.
    """

    def __init__(self, shared_with: Iterable[Locks] = ()) -> None:
        known = {number: place for locks in shared_with for number, place in locks._numbered}
        known = known or {next(_numbers): Place()}
        self._numbered: list[tuple[int, Place]] = sorted(known.items(), key=lambda item: item[0])
        self.places = [place for _, place in self._numbered]
        self._locks = tuple(place.lock for place in self.places)
        self.one = self._locks[0] if len(self._locks) == 1 else None
        """The lock, where there is one, which is the usual case."""
        together = _TOGETHER.get(len(self._locks))
        self.holding = partial(_hold_all, self._locks) if together is None else partial(together, *self._locks)
        """Calls a function with the arguments behind it while all locks are held."""


def unless_held(lock: Any, work: Callable[[], T]) -> T | None:
    """What ``work`` gives while the lock is held; ``None`` where another thread holds it: nobody waits.

    What is asked at the end is not what was remembered: a Ctrl-C may strike when the lock is taken and before that is known.
    """
    if lock._is_owned():
        return work()
    try:
        return work() if lock.acquire(blocking=False) else None
    finally:
        if lock._is_owned():
            lock.release()


# fmt: off


def _hold_one(first: Lock, work: Callable[..., T], *args: object) -> T:
    with first: return work(*args)  # noqa: E701


def _hold_two(first: Lock, second: Lock, work: Callable[..., T], *args: object) -> T:
    with first, second: return work(*args)  # noqa: E701


def _hold_all(locks: tuple[Lock, ...], work: Callable[..., T], *args: object) -> T:
    if not locks:
        return work(*args)
    if len(locks) < 8:
        with locks[0]: return _hold_all(locks[1:], work, *args)  # noqa: E701
    a, b, c, d, e, f, g, h = locks[:8]  # Python does not go as deep as some programs have graphs
    with a, b, c, d, e, f, g, h: return _hold_all(locks[8:], work, *args)  # noqa: E701


# fmt: on

_TOGETHER: dict[int, Callable[..., Any]] = {1: _hold_one, 2: _hold_two}


def locked(method: Callable[P, T]) -> Callable[P, T]:
    """A method that runs while its graph's locks are held."""

    @wraps(method)
    def hold(*args: P.args, **given: P.kwargs) -> T:
        graph: Any = args[0]
        return graph._lock.holding(partial(method, *args, **given))

    return hold
