"""Short ways through ``execute`` and the phases, for calls that ask for nothing special, again and again.

A small network computes for less time than a call's arguments take to be looked at one by one. Once a graph has run,
these look only for what would make the next call different, and leave that to the ordinary way.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from threading import get_ident
from typing import TYPE_CHECKING, Any

from mlc_torch.engine.session import Session
from mlc_torch.enums import MLCExecutionOptions as Run
from mlc_torch.graph.completion import deliver
from mlc_torch.graph.feeding import write
from mlc_torch.refusals import MLCRefusal, answer
from mlc_torch.tensor import MLCTensor, MLCTensorData
from mlc_torch.tensor.cell import newest_change

if TYPE_CHECKING:
    from mlc_torch.graph.executable import ExecutableGraph

INFER = "execute(inputsData:batchSize:options:completionHandler:)"
TRAIN = "execute(inputsData:lossLabelsData:lossLabelWeightsData:batchSize:options:completionHandler:)"
_GROUPS = ("inputsData", "lossLabelsData", "lossLabelWeightsData")
_PHASE = frozenset({"batchSize", "options", "completionHandler"})
_WHOLE = _PHASE | {*_GROUPS}
_BIND = {"forInputs", "to", "synchronous"}
_KINDS_OF_OPTIONS = (list, Run, type(None))


def quick_ways(graph: ExecutableGraph, session: Session, full: int) -> dict[str, Callable[..., Any]]:
    """By the name of the member, what takes its arguments and runs it, or answers ``NotImplemented``."""
    if session.prepared is None or session.plan.injected or any(f.limit is not None for f in session.feeds):
        return {}
    ways = _Ways(graph, session, full)
    if not session.plan.differentiates:
        return {"execute": ways.execute}
    return {
        "bindAndWriteData": ways.bind,
        "execute": ways.execute,
        "executeForward": ways.forward,
        "executeGradient": ways.gradient,
        "executeOptimizerUpdate": ways.update,
    }


class _Ways:
    def __init__(self, graph: ExecutableGraph, session: Session, full: int) -> None:
        self.graph = weakref.ref(graph)  # it holds us: a graph that is let go shall free its memory at once
        self.session, self.full = session, full
        self.on_cpu = session.plan.device.type == "cpu"
        self.trains = session.plan.differentiates
        self.member = TRAIN if self.trains else INFER
        self.locks, self.users, self.device = graph._lock.all(), graph._users, graph._device
        self.feeds = [(_GROUPS[f.group], f.name, f.cell.nbytes, (f.cell.dtype, f.cell.shape)) for f in session.feeds]
        self.unfed = [group for group in _GROUPS if all(group != fed for fed, *_ in self.feeds)]
        self.cells = [f.cell for f in session.feeds]
        self.fed = {id(cell) for cell in self.cells if not graph._stands(cell)}
        self.result = MLCTensor._of(session.result)
        self.again = session.again()

    # The members

    def execute(self, args: tuple[Any, ...], given: dict[str, Any]) -> Any:
        if args or not self._is_ordinary(given, _WHOLE):
            return NotImplemented
        for group in self.unfed:
            if given.get(group):
                return NotImplemented
        taken = []
        for group, name, nbytes, key in self.feeds:
            data = given.get(group)
            found = data.get(name) if type(data) is dict else None
            if type(found) is not MLCTensorData or found._length < nbytes:
                return NotImplemented
            view = found._views.get(key)
            taken.append(found.view(*key) if view is None else view)
        return self._run(self.member, lambda: self._publish(self.again(taken)), given, self.result)

    def bind(self, args: tuple[Any, ...], given: dict[str, Any]) -> Any:
        device, tensors, (data, *more) = given.get("to"), given.get("forInputs"), args or (None,)
        if device is not self.device or given.keys() != _BIND or type(given["synchronous"]) is not bool or more:
            return NotImplemented
        if type(data) is not dict or type(tensors) is not dict or data.keys() != tensors.keys():
            return NotImplemented
        for name, tensor in tensors.items():
            found = data[name]
            if type(tensor) is not MLCTensor or type(found) is not MLCTensorData:
                return NotImplemented
            if id(tensor._cell) not in self.fed or found._length < tensor._cell.nbytes:
                return NotImplemented
        for name, tensor in tensors.items():
            write(tensor._cell, data[name], device, 0)
        return True

    def forward(self, args: tuple[Any, ...], given: dict[str, Any]) -> Any:
        if args or not self._is_ordinary(given, _PHASE):
            return NotImplemented
        taken = []
        for cell in self.cells:
            if cell.value is None or cell.host is not None:
                return NotImplemented
            taken.append(cell.value)

        def work() -> None:
            self.session.samples = self.full
            self._publish(self.session.forward_again(taken))

        return self._run("executeForward(batchSize:options:completionHandler:)", work, given, self.result)

    def gradient(self, args: tuple[Any, ...], given: dict[str, Any]) -> Any:
        session = self.session
        if args or not self._is_ordinary(given, _PHASE) or not session.went_forward or session.samples != self.full:
            return NotImplemented
        return self._run(
            "executeGradient(batchSize:options:completionHandler:)", lambda: session.gradient(()), given, None
        )

    def update(self, args: tuple[Any, ...], given: dict[str, Any]) -> Any:
        session, updater = self.session, self.session.updater
        if args or "batchSize" in given or updater is None or not session.has_gradients:
            return NotImplemented
        if not self._is_ordinary({"batchSize": 0, **given}, _PHASE):
            return NotImplemented
        member = "executeOptimizerUpdate(options:completionHandler:)"
        return self._run(member, lambda: session.update(updater.optimizer), given, None)

    # What they share

    def _is_ordinary(self, given: dict[str, Any], known: frozenset[str]) -> bool:
        """A full batch, no option but ``synchronous``, on a device no handler, which would have to wait, and no gradient
        tensor that waits to be filled."""
        batch, options, handler = given.get("batchSize"), given.get("options"), given.get("completionHandler")
        if type(batch) is not int or (batch != self.full and batch != 0) or not known.issuperset(given):
            return False
        if type(options) not in _KINDS_OF_OPTIONS:
            return False
        if options and not (self.on_cpu and options in (Run.synchronous, [Run.synchronous])):
            return False
        graph: Any = self.graph()
        if graph._always or (self.trains and graph._unfilled):
            return False
        return handler is None or (self.on_cpu and callable(handler))

    def _publish(self, values: Any) -> None:
        device = self.device
        for cell, value in zip(self.session.readable, values, strict=True):
            cell.publish(value, device)

    def _run(self, member: str, work: Callable[[], None], given: dict[str, Any], result: MLCTensor | None) -> Any:
        graph: Any = self.graph()
        session, users = self.session, self.users
        handler = given.get("completionHandler")
        for lock in self.locks:
            lock.acquire()
        try:
            users.add(get_ident())
            if len(users) > 1 or not session.is_current(newest_change()) or session.why_plain() is not None:
                return NotImplemented
            if result is None and graph._last is not session:
                return NotImplemented
            work()
            if self.trains:
                graph._last = session
        except Exception as error:  # noqa: BLE001 - becomes the door's answer where it is a refusal
            try:
                graph._failed(error, member, handler)
            except MLCRefusal as why:
                return answer(why, "", False)
        finally:
            for lock in self.locks:
                lock.release()
        if handler is not None:
            deliver(handler, result, None, 0.0)
        return True
