"""Which threads use a graph: where there may be several, a result is kept for the handler that it belongs to."""

from __future__ import annotations

import threading


class Users:
    """The threads that have called a graph."""

    __slots__ = ("may_be_several", "threads")

    def __init__(self) -> None:
        self.threads: set[int] = set()
        """Their numbers; the system gives that of a thread that has ended to another one."""
        self.may_be_several = False
        """Whether another thread may run the graph before a handler has read its result: if one ever has, and where threads
        other than the main one use it, as those of a server do, of which each may be the first."""

    def add(self) -> None:
        """The thread that calls this uses the graph."""
        self.threads.add(threading.get_ident())
        if len(self.threads) > 1 or threading.current_thread() is not threading.main_thread():
            self.may_be_several = True
