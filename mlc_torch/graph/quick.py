"""The short way through ``execute``, for the call that asks for nothing special, again and again.

A small network computes for less time than a call's arguments take to be looked at one by one. Once a graph has run,
this looks only for what would make the next call different, and leaves that to the ordinary way.
"""

from __future__ import annotations

from collections.abc import Callable
from threading import get_ident
from typing import TYPE_CHECKING, Any

from mlc_torch.engine.session import Session
from mlc_torch.enums import MLCExecutionOptions as Run
from mlc_torch.graph.completion import deliver
from mlc_torch.refusals import MLCRefusal, answer
from mlc_torch.tensor import MLCTensor, MLCTensorData
from mlc_torch.tensor.cell import newest_change

if TYPE_CHECKING:
    from mlc_torch.graph.executable import ExecutableGraph

EXECUTE = "execute(inputsData:batchSize:options:completionHandler:)"
_GROUPS = ("inputsData", "lossLabelsData", "lossLabelWeightsData")
_KNOWN = {*_GROUPS, "batchSize", "options", "completionHandler"}


def quick_way(graph: ExecutableGraph, session: Session, full: int) -> Callable[[dict[str, Any]], Any] | None:
    """A function of the labelled arguments that runs ``session``, or answers ``NotImplemented``."""
    on_cpu = session.plan.device.type == "cpu"
    if session.prepared is None or session.plan.injected or any(f.limit is not None for f in session.feeds):
        return None
    feeds = [(_GROUPS[f.group], f.name, f.cell.nbytes, (f.cell.dtype, f.cell.shape)) for f in session.feeds]
    trains, locks, device, users = session.plan.differentiates, graph._lock.all(), graph._device, graph._users
    readable, result, again = session.readable, MLCTensor._of(session.result), session.again()

    def run(given: dict[str, Any]) -> Any:
        batch, handler = given.get("batchSize"), given.get("completionHandler")
        if type(batch) is not int or (batch != full and batch != 0) or not _KNOWN.issuperset(given) or graph._always:
            return NotImplemented
        options = given.get("options")
        if options and not (on_cpu and options in (Run.synchronous, [Run.synchronous])):
            return NotImplemented
        if handler is not None and not (on_cpu and callable(handler)):
            return NotImplemented
        taken = []
        for group, name, nbytes, key in feeds:
            data = given.get(group)
            found = data.get(name) if type(data) is dict else None
            if type(found) is not MLCTensorData or found._length < nbytes:
                return NotImplemented
            view = found._views.get(key)
            taken.append(found.view(*key) if view is None else view)
        for lock in locks:
            lock.acquire()
        try:
            users.add(get_ident())
            if len(users) > 1 or not session.is_current(newest_change()) or session.why_plain() is not None:
                return NotImplemented
            for cell, value in zip(readable, again(taken), strict=True):
                cell.publish(value, device)
            if trains:
                graph._last = session
        except Exception as error:  # noqa: BLE001 - becomes the door's answer where it is a refusal
            try:
                graph._failed(error, EXECUTE, handler)
            except MLCRefusal as why:
                return answer(why, "", False)
        finally:
            for lock in locks:
                lock.release()
        if handler is not None:
            deliver(handler, result, None, 0.0)
        return True

    return run
