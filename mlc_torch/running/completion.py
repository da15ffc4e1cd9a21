"""Finishing a call: results go into the caller's buffers, then the handler is called: once for each call, and in their order.

What a handler raises is never lost. Where the handler runs inside the call, the call raises it, once the graph is in order
again. On the completion thread it goes to ``threading.excepthook``, and the graph's next call raises it once.
"""

from __future__ import annotations

import contextvars
import threading
import weakref
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor

import torch

from mlc_torch.device import queueing
from mlc_torch.running.clock import Clock
from mlc_torch.running.handlers import Handler, deliver
from mlc_torch.tensor import MLCTensor, TensorState
from mlc_torch.tensor.state import host_bytes

Targets = Sequence[tuple[TensorState, torch.Tensor | memoryview]]
"""Output tensors, and the caller's memory that they go into: as bytes where it is little."""


def fill(target: torch.Tensor | memoryview, value: torch.Tensor | None) -> None:
    """Write as many samples as the caller's memory is for."""
    if value is None:
        return
    if isinstance(target, memoryview):
        source = host_bytes(value)
        target[:] = source if len(source) == len(target) else source[: len(target)]
    else:
        target.copy_(value if value.shape == target.shape else value[tuple(slice(size) for size in target.shape)])


_queues: weakref.WeakSet[CompletionQueue] = weakref.WeakSet()


def wait_for_handlers() -> list[BaseException]:
    """Wait until every completion thread has nothing left to do; gives what handlers raised there, each once."""
    return [error for queue in list(_queues) for error in queue.drain()]


class CompletionQueue:
    """Finishes queued device work in order, on a thread of its own that starts with the first such work."""

    def __init__(self) -> None:
        self._pools: list[ThreadPoolExecutor] = []
        """The first one is used. Two threads that find none at once may each bring one: no lock, since a signal handler may run a
        graph, too."""
        self._thread: int | None = None
        self.failures: list[BaseException] = []
        """What handlers raised on the thread and no call has raised yet."""

    def finish(self, work: Callable[[], None], wait: bool) -> None:
        """Run ``work`` after everything that was queued before it. On the queue's own thread it runs at once."""
        if wait and (self.is_unused or self._thread == threading.get_ident()):
            work()
            return
        if self.is_unused:
            self._pools.append(ThreadPoolExecutor(1, "mlc_torch-completion", self._remember))
            _queues.add(self)
        run, pool = contextvars.copy_context().run, self._pools[0]
        if wait:
            pool.submit(run, work).result()
        else:
            pool.submit(run, self._catching, work)

    @property
    def is_unused(self) -> bool:
        """Whether nothing was ever queued: nobody need wait for a handler, then."""
        return not self._pools

    def _remember(self) -> None:
        self._thread = threading.get_ident()

    def _catching(self, work: Callable[[], None]) -> None:
        try:
            work()
        except BaseException as error:  # noqa: BLE001 - a handler is the program's code and may raise anything
            self.failures.append(error)
            threading.excepthook(
                threading.ExceptHookArgs((type(error), error, error.__traceback__, threading.current_thread()))
            )

    def raise_failure(self) -> None:
        """Raise what a handler raised since the last call, once; nothing, where another thread has just done so."""
        failure = self._oldest_failure()
        if failure is not None:
            raise failure

    def _oldest_failure(self) -> BaseException | None:
        try:
            return self.failures.pop(0)
        except IndexError:
            return None

    def drain(self) -> list[BaseException]:
        """Wait for what is queued; gives what handlers raised."""
        if self._pools and self._thread != threading.get_ident():
            self._pools[0].submit(int).result()
        return list(iter(self._oldest_failure, None))


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
        look: Callable[[torch.Tensor], None],
    ) -> None:
        self.look = look
        self.device, self.result, self.handler, self.clock = device, result, handler, clock
        self.outputs = [(target, _copied_out(cell.value)) for cell, target in targets if cell.value is not None]
        value = result.value if handler is not None and result is not None else None
        self.value = _copied_out(value) if value is not None else None
        self.event: torch.cuda.Event | None = None
        if device.type == "cuda" and (self.outputs or handler is not None):
            self.event = torch.cuda.Event()
            with queueing(device):
                self.event.record()

    def finish(self, queue: CompletionQueue, wait: bool, soon: bool) -> bool:
        """``soon``: the device needs so little time that output buffers are filled here rather than on the queue's thread."""
        if wait:
            self._wait()
        if self.handler is not None or self.outputs:
            queue.finish(self._complete, wait or (soon and self.handler is None and queue.is_unused))
        return True

    def _wait(self) -> None:
        if self.event is not None:
            self.event.synchronize()
        else:
            wait_for(self.device)

    def _complete(self) -> None:
        self._wait()
        for target, value in self.outputs:
            fill(target, value)
        if self.handler is not None:
            seconds = self.clock.seconds() if self.clock is not None else 0.0
            result = None if self.result is None else MLCTensor._of(self.result.frozen(self.value))
            if self.value is not None:
                self.look(self.value)
            deliver(self.handler, result, None, seconds)


def wait_for(device: torch.device) -> None:
    """Wait until a device has done what it was given so far."""
    if device.type == "cuda":
        done = torch.cuda.Event()
        with queueing(device):
            done.record()
        done.synchronize()
    else:
        torch.mps.synchronize()


def on_host(value: torch.Tensor | None) -> torch.Tensor | None:
    """A device's value in host memory, as soon as the device has it."""
    if value is None:
        return None
    with queueing(value.device):
        return value.cpu()


def _copied_out(value: torch.Tensor) -> torch.Tensor:
    """The value as it is now in the device's order of work, on its way to the host."""
    if value.device.type != "cuda":
        return value.cpu()
    with queueing(value.device):  # for the memory too: to get new pinned memory waits for the device
        copy = torch.empty(value.shape, dtype=value.dtype, device="cpu", pin_memory=True)
        return copy.copy_(value, non_blocking=True)
