"""Finishing a call: results into the caller's buffers, then the handler: once each, in order, hurting nobody else."""

from __future__ import annotations

import contextvars
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import torch

from mlc_torch.refusals import MLCRefusal, log
from mlc_torch.running.clock import Clock
from mlc_torch.tensor import MLCTensor, TensorState

MLCGraphCompletionHandler = Callable[[MLCTensor | None, Exception | None, float], Any]
Handler = MLCGraphCompletionHandler
Targets = Sequence[tuple[TensorState, torch.Tensor]]
"""Output tensors, and the caller's memory that they go into."""


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


_TORCH_AND_US = (str(Path(torch.__file__).parent), str(Path(__file__).parent.parent), "<mlc_torch")


def is_torch_s(error: Exception) -> bool:
    """Whether torch could not do what the graph asks: an index out of range, a short batch that a layer cannot take.

    What a program's own hooks and modules raise is not for us to explain, and what we have not built stays loud.
    """
    if not isinstance(error, (RuntimeError, IndexError, ValueError)) or isinstance(error, NotImplementedError):
        return False
    place = error.__traceback__
    while place is not None and place.tb_next is not None:
        place = place.tb_next
    return place is not None and place.tb_frame.f_code.co_filename.startswith(_TORCH_AND_US)


def fill(target: torch.Tensor, value: torch.Tensor | None) -> None:
    """Write as many samples as the caller's memory is for."""
    if value is not None:
        target.copy_(value[: target.shape[0]].reshape(target.shape))


class CompletionQueue:
    """Finishes queued device work in order, on a thread of its own that starts with the first such work."""

    def __init__(self) -> None:
        self._pool: ThreadPoolExecutor | None = None
        self._thread: int | None = None

    def finish(self, work: Callable[[], None], wait: bool) -> None:
        """Run ``work`` after everything that was queued before it. On the queue's own thread it runs at once."""
        if wait and (self._pool is None or self._thread == threading.get_ident()):
            work()
            return
        if self._pool is None:
            self._pool = ThreadPoolExecutor(1, "mlc_torch-completion", self._remember)
        future = self._pool.submit(contextvars.copy_context().run, work)
        if wait:
            future.result()

    def _remember(self) -> None:
        self._thread = threading.get_ident()


class Queued:
    """Work that a device was given, and what is to happen when it is done.

    Later calls may overwrite the device's memory before that, so what this call promised is copied out right behind it.
    """

    def __init__(
        self,
        device: torch.device,
        result: TensorState | None,
        targets: Targets,
        handler: Handler | None,
        clock: Clock | None,
    ) -> None:
        self.device, self.result, self.handler, self.clock = device, result, handler, clock
        self.outputs = [(target, _copied_out(cell.value)) for cell, target in targets if cell.value is not None]
        value = result.value if handler is not None and result is not None else None
        self.value = _copied_out(value) if value is not None else None
        self.event: torch.cuda.Event | None = None
        if device.type == "cuda" and (self.outputs or handler is not None):
            self.event = torch.cuda.Event()
            self.event.record()

    def finish(self, queue: CompletionQueue, wait: bool) -> bool:
        if wait:
            self._wait()
        if self.handler is not None or self.outputs:
            queue.finish(self._complete, wait)
        return True

    def _wait(self) -> None:
        if self.event is not None:
            self.event.synchronize()
        elif self.device.type == "cuda":
            torch.cuda.current_stream(self.device).synchronize()
        else:
            torch.mps.synchronize()

    def _complete(self) -> None:
        self._wait()
        for target, value in self.outputs:
            fill(target, value)
        seconds = self.clock.seconds() if self.clock is not None else 0.0
        result = None if self.result is None else MLCTensor._of(self.result.frozen(self.value))
        deliver(self.handler, result, None, seconds)


def _copied_out(value: torch.Tensor) -> torch.Tensor:
    """The value as it is now in the device's order of work, on its way to the host."""
    if value.device.type != "cuda":
        return value.cpu()
    copy = torch.empty(value.shape, dtype=value.dtype, pin_memory=True)
    return copy.copy_(value, non_blocking=True)
