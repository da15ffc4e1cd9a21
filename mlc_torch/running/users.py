"""Which threads use a graph: where there are several, a result is kept for the handler that it belongs to."""

from __future__ import annotations

import threading


class Users:
    """The threads that have called a graph and are still there."""

    __slots__ = ("threads",)

    def __init__(self) -> None:
        self.threads: dict[int, threading.Thread] = {}
        """By their numbers; those that have ended may still be among them."""

    def add(self) -> None:
        """The thread that calls this uses the graph."""
        self.threads[threading.get_ident()] = threading.current_thread()

    def are_several(self) -> bool:
        """Whether another thread may run the graph before a handler has read its result. Threads that ended do not count."""
        threads = self.threads
        for number, thread in list(threads.items()):
            if not thread.is_alive():
                threads.pop(number, None)
        return len(threads) > 1
