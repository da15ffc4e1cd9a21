"""Which threads use a graph: where there may be several, a result is kept for the handler that it belongs to."""

from __future__ import annotations

import threading
from collections.abc import Sequence

from mlc_torch.graph.locks import Place


class Users:
    """The threads that have called a graph, and those that have called another one over the same layers."""

    __slots__ = ("__weakref__", "_places", "may_be_several", "threads")

    def __init__(self, places: Sequence[Place]) -> None:
        self.threads: set[int] = set()
        """The numbers of those that have called this graph; the system gives that of a thread that has ended to another one."""
        self.may_be_several = any(len(place.threads) > 1 for place in places)
        """Whether another thread may compute the same tensors before a handler has read its result: if one ever has, and where
        threads other than the main one do, as those of a server, of which each may be the first."""
        self._places = places
        for place in places:
            with place.guard:
                place.users.add(self)

    def add(self) -> None:
        """The thread that calls this uses the graph."""
        me = threading.get_ident()
        is_main = threading.current_thread() is threading.main_thread()
        for place in self._places:
            with place.guard:
                place.threads.add(me)
                if len(place.threads) > 1 or not is_main:
                    for users in place.users:
                        users.may_be_several = True
        self.threads.add(me)
