"""Which threads use a graph: where there may be several, a result is kept for the handler that it belongs to."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Sequence

from mlc_torch.graph.locks import Place


class Users:
    """The threads that have called a graph, and those that have called another one over the same layers."""

    __slots__ = ("__weakref__", "_places", "may_be_several", "threads")

    def __init__(self, places: Sequence[Place]) -> None:
        self.threads: set[int] = set()
        """The numbers of those that have called this graph; the system gives that of a thread that has ended to another one."""
        self.may_be_several = False
        """Whether another thread may compute the same tensors before a handler has read its result: if one ever has, and where
        threads other than the main one do, as those of a server, of which each may be the first."""
        self._places = places
        for place in places:
            place.users.add(weakref.ref(self, place.users.discard))
        if any(
            len(place.threads) > 1 for place in places
        ):  # asked last: who comes meanwhile finds this one among the users
            self.may_be_several = True

    def add(self) -> None:
        """The thread that calls this uses the graph.

        Without a lock, since a signal handler may make or call a graph in the middle of it: each line is one step of Python's.
        """
        me = threading.get_ident()
        is_main = threading.current_thread() is threading.main_thread()
        for place in self._places:
            place.threads.add(me)
            if len(place.threads) > 1 or not is_main:
                for user in tuple(place.users):
                    if (users := user()) is not None:
                        users.may_be_several = True
        self.threads.add(me)
