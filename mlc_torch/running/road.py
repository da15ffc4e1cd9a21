"""The one road that every call of ``execute`` and of a phase takes: lock, run, publish, finish, tell the handler.

It is fast because it does little: a small network computes for less time than a call would take that looks at everything.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import partial
from pathlib import Path
from threading import get_ident
from typing import Any, NamedTuple, NoReturn, Protocol

import torch

from mlc_torch.device import MLCDevice
from mlc_torch.engine.mode import Phase
from mlc_torch.engine.plain import WHERE
from mlc_torch.engine.session import Session
from mlc_torch.graph.locks import Locks
from mlc_torch.graph.surroundings import undisturbed
from mlc_torch.refusals import MLCRefusal, note
from mlc_torch.running.clock import Clock
from mlc_torch.running.completion import CompletionQueue, Queued, Targets, fill
from mlc_torch.running.handlers import Handler, came_from_handler, check_handler, deliver, deliver_in_turn
from mlc_torch.running.midst import refuse_in_the_midst, runs_a_call
from mlc_torch.running.request import PROFILING, SYNCHRONOUS, Request
from mlc_torch.running.state import Runs
from mlc_torch.running.users import Users
from mlc_torch.tensor import MLCTensor, TensorState
from mlc_torch.tensor.lack_of_memory import no_memory
from mlc_torch.torch_private.memory import lacks_memory
from mlc_torch.torch_private.modes import (
    Ambience,
    any_autocast,
    dispatch_modes,
    function_modes,
    inference_mode,
    is_traced,
    records_gradients,
    restore_ambience,
    transformations,
)

Work = Callable[[Any, Request], tuple[TensorState | None, Targets]]
"""What a call does under the lock: gives the handler's result, and what goes into the caller's buffers."""


_NOT_COMPILED = MLCDevice._cpu()
"""The device of a graph whose call is going to be refused."""


class Gate(NamedTuple):
    """What every call looks at first, in one piece."""

    failures: list[BaseException]
    """What handlers raised on the completion thread and no call has raised yet."""
    threads: set[int]
    """Those that use the graph."""
    lock: Any
    """The graph's lock, where it has only one, or ``None``."""


class Traveller(Protocol):
    """What the road knows of a graph."""

    _queue: CompletionQueue
    _users: Users
    _lock: Locks
    _gate: Gate
    _runs: Runs
    _device: MLCDevice | None

    def _broke_off(self) -> Any:
        """A phase ended in the middle."""

    def _together(self, work: Work) -> Work:
        """``work`` as it is done where several processes share each batch."""

    def _look_at_result(self, value: torch.Tensor, phase: Phase | None = None) -> None:
        """A result has come to the host: of the pass that ended in ``phase``, or of the last one."""


Done = tuple[TensorState | None, Clock | None] | Queued | None
"""What is left to do without the locks: to call the handler with its result and the clock of a measured call, or to wait
for a device; or nothing."""


def travel(graph: Traveller, request: Request, work: Work) -> bool:
    """Run ``work`` under the graph's lock, then the handler. A refusal reaches the handler and then the door."""
    failures, threads, lock = graph._gate
    _, options, handler, _, _, _, _ = request
    if failures:
        graph._queue.raise_failure()
    if get_ident() not in threads:
        if handler is not None:
            check_handler(handler)  # a thread's first one, before anything runs
        graph._users.add()
    try:
        if lock is None or lock._is_owned():
            refuse_in_the_midst(graph)
        # On one line, so that nothing can come between the work and letting go of the locks.
        if lock is not None:
            with lock: done = _drive(graph, request, work, options, handler)  # noqa: E701  # fmt: skip
        else:
            done = graph._lock.holding(_drive, graph, request, work, options, handler)
    except Exception as error:  # noqa: BLE001 - raised again, as a refusal where it is one
        fail(graph, error, request)
    if done is None:
        return True
    if isinstance(done, Queued):
        return done.finish(graph._queue, bool(options & SYNCHRONOUS), is_soon_done(graph._runs.active))
    assert handler is not None
    result, clock = done
    made, seconds = None if result is None else MLCTensor._of(result), clock.seconds() if clock is not None else 0.0
    if not options & SYNCHRONOUS:
        deliver_in_turn(handler, made, None, seconds)
        return True
    try:  # as ``deliver``, which would be one more call in the most usual way of all
        handler(made, None, seconds)
    except (MLCRefusal, TypeError) as raised:
        came_from_handler(raised, handler)
        raise
    return True


_FEW_STEPS, _LITTLE_WORK, _LITTLE_RESULT = 16, 2**28, 128 << 10
"""What a GPU does in less time than the completion thread takes to begin. Larger results are brought to the host by the GPU
itself, into memory that is pinned for it."""


def is_soon_done(session: Session | None) -> bool:
    """Whether a device has hardly anything to do for an inference."""
    if session is None or session.plan.differentiates or session.result.nbytes > _LITTLE_RESULT:
        return False
    return len(session.plan.steps) <= _FEW_STEPS and session.plan.work <= _LITTLE_WORK


def _drive(graph: Traveller, request: Request, work: Work, options: int, handler: Handler | None) -> Done:
    device = graph._device or _NOT_COMPILED
    clock = Clock(device.torch_device) if options & PROFILING else None
    if device._is_shared:
        work = graph._together(work)
    before = modes, functions, _ = dispatch_modes(), function_modes(), records_gradients()
    try:
        try:
            # As ``is_disturbed``, which would be one more call, and ask again for what is known already.
            if modes or functions or inference_mode() or any_autocast() or transformations() or is_traced():
                with undisturbed(device.torch_device):
                    result, targets = work(graph, request)
            else:
                result, targets = work(graph, request)
        except MLCRefusal as why:
            if why.came_in_the_midst:
                recover(graph, before)
            raise
        except BaseException:  # Ctrl-C too: the graph answers afterwards
            recover(graph, before)
            raise
    except MLCRefusal:
        raise
    except BaseException:  # a second Ctrl-C in the middle of that: from the beginning, then
        recover(graph, before)
        raise
    if clock is not None:
        clock.stop()
    if device._kind != "cpu":
        if handler is None and not targets and not options & SYNCHRONOUS:
            return None  # the device has its work, and nobody waits for it
        last = graph._runs.last
        look = partial(graph._look_at_result, phase=None if last is None else last.phase)
        return Queued(device.torch_device, result, targets, handler, clock, look)
    for cell, target in targets:
        fill(target, cell.value)
    if handler is None:
        return None
    if result is not None and (request.keeps_result or graph._users.may_be_several):
        result = result.frozen(result.value)  # another thread may run the graph before the result is read
    return result, clock


runs_a_call.add(_drive.__code__)


def recover(graph: Traveller, before: Ambience) -> None:
    """Nothing of a call that broke off is left. Can be repeated."""
    restore_ambience(before)
    graph._broke_off()


def fail(graph: Traveller, error: Exception, request: Request) -> NoReturn:
    """Tell the handler, and raise: what torch could not compute as a refusal, what a program's hook raised as it is."""
    if isinstance(error, MLCRefusal):
        why, cause = error, None
    elif lacks_memory(error):
        why, cause = MLCRefusal(no_memory(error)), error
    elif is_torch_s(error):
        where = [f", {n}" for n in getattr(error, "__notes__", ()) if n.startswith(WHERE)]
        why = MLCRefusal(f"torch cannot compute this{''.join(where[:1])}: {str(error).partition(chr(10))[0]}")
        cause = error
    else:
        raise error
    if not why.member:
        why.member = f"{type(graph).__name__}.{request.member}"
    if request.handler is not None:
        try:
            tell = deliver if request.options & SYNCHRONOUS else deliver_in_turn
            tell(request.handler, None, why, 0.0)
        except Exception as raised:
            note(why, why.member)
            raise raised from why
    raise why from cause


_TORCH_AND_US = (f"{Path(torch.__file__).parent}{os.sep}", f"{Path(__file__).parent.parent}{os.sep}", "<mlc_torch")
"""Where their code lies. With a separator: torchvision lies beside torch, and is a program's."""


def is_torch_s(error: Exception) -> bool:
    """Whether torch could not do what the graph asks: an index out of range, a batch a layer cannot take.

    What a program's own hooks and modules raise is not for us to explain, and what we have not built stays loud.
    """
    if not isinstance(error, (RuntimeError, IndexError, ValueError)):
        return False
    if isinstance(error, (NotImplementedError, RecursionError)):
        return False
    place = error.__traceback__
    while place is not None and place.tb_next is not None:
        place = place.tb_next
    return place is not None and place.tb_frame.f_code.co_filename.startswith(_TORCH_AND_US)
