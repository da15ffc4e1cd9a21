"""Calling completion handlers: once each, in order, and never letting one hurt anybody else."""

from __future__ import annotations

import contextvars
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from mlc_torch.refusals import MLCRefusal, log
from mlc_torch.tensor import MLCTensor

MLCGraphCompletionHandler = Callable[[MLCTensor | None, Exception | None, float], Any]
Handler = MLCGraphCompletionHandler


def deliver(handler: Handler | None, result: MLCTensor | None, error: Exception | None, seconds: float) -> None:
    """Call ``handler``; what it raises is logged and goes no further."""
    if handler is None:
        return
    try:
        handler(result, error, seconds)
    except Exception:  # noqa: BLE001 - a handler is the user's code and may raise anything
        log.exception("a completion handler raised")


def refused(handler: Handler | None, why: MLCRefusal, member: str) -> None:
    """Tell the handler that nothing was executed."""
    if not why.member:
        why.member = member
    deliver(handler, None, why, 0.0)


class CompletionQueue:
    """Finishes queued device work in order, on a thread of its own that starts with the first such work."""

    def __init__(self) -> None:
        self._pool: ThreadPoolExecutor | None = None
        self._thread: int | None = None

    def finish(self, work: Callable[[], None], wait: bool) -> None:
        """Run ``work`` after everything finished before it. A handler that waits for its own thread runs it at once."""
        if self._thread == threading.get_ident() and wait:
            work()
            return
        if self._pool is None:
            if wait:
                work()
                return
            self._pool = ThreadPoolExecutor(1, "mlc_torch-completion", self._remember)
        context = contextvars.copy_context()
        future = self._pool.submit(context.run, work)
        if wait:
            future.result()

    def _remember(self) -> None:
        self._thread = threading.get_ident()
