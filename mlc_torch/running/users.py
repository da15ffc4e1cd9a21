"""Which threads use a graph: where there are several, a result is kept for the handler that it belongs to."""

from __future__ import annotations

import sys
import threading
from typing import Any

from mlc_torch.running.completion import check_handler


class Users:
    """The threads that have called a graph and are still there."""

    __slots__ = ("threads",)

    def __init__(self) -> None:
        self.threads: set[int] = set()
        """Their numbers; those of threads that have ended may still be among them."""

    def add(self, handler: Any = None) -> None:
        """The thread that calls this uses the graph. Its first completion handler is looked at before anything runs."""
        if handler is not None:
            check_handler(handler)
        self.threads.add(threading.get_ident())

    def are_several(self) -> bool:
        """Whether another thread may run the graph before a handler has read its result. Threads that ended do not count."""
        self.threads &= sys._current_frames().keys()
        return len(self.threads) > 1
