"""Which threads use a graph: where there are several, a result is kept for the handler that it belongs to."""

from __future__ import annotations

import threading


class Users:
    """The threads that have called a graph and are still there."""

    __slots__ = ("threads",)

    def __init__(self) -> None:
        self.threads: set[int] = set()
        """Their numbers; those of threads that have ended may still be among them."""

    def add(self) -> None:
        """The thread that calls this uses the graph."""
        threading.current_thread()  # makes one known that Python did not start
        self.threads.add(threading.get_ident())

    def are_several(self) -> bool:
        """Whether another thread may run the graph before a handler has read its result. Threads that ended do not count."""
        self.threads &= {thread.ident for thread in threading.enumerate()}
        return len(self.threads) > 1
