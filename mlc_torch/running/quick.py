"""Short ways through ``execute`` and the phases, for calls that ask for nothing special, again and again.

A small network computes for less time than a call's arguments take to be looked at one by one. Once a graph has run,
these look only for what would make the next call different, and leave that to the ordinary way.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from threading import get_ident
from typing import TYPE_CHECKING, Any

import torch

from mlc_torch.engine.session import Session
from mlc_torch.enums import MLCExecutionOptions as Run
from mlc_torch.nodes.feeding import write_all
from mlc_torch.refusals import MLCRefusal, answer
from mlc_torch.running.completion import deliver
from mlc_torch.tensor import MLCTensor, MLCTensorData
from mlc_torch.tensor.state import newest_change

if TYPE_CHECKING:
    from mlc_torch.running.executable import ExecutableGraph

INFER = "execute(inputsData:batchSize:options:completionHandler:)"
TRAIN = "execute(inputsData:lossLabelsData:lossLabelWeightsData:batchSize:options:completionHandler:)"
_GROUPS = ("inputsData", "lossLabelsData", "lossLabelWeightsData")
_HOW = frozenset({"options", "completionHandler"})
_BIND = {"forInputs", "to", "synchronous"}
_KINDS_OF_OPTIONS = (list, Run, tuple)
_SYNCHRONOUS = (Run.synchronous, [Run.synchronous])

Way = Callable[[tuple[Any, ...], dict[str, Any]], Any]


def quick_ways(graph: ExecutableGraph, session: Session, full: int) -> dict[str, Way]:
    """By the name of the member, what takes its arguments and runs it, or answers ``NotImplemented``."""
    if session.prepared is None or session.plan.injected or any(f.limit is not None for f in session.feeds):
        return {}
    ways = _Ways(graph, session, full)
    if not session.plan.differentiates:
        return {"execute": ways.execute()}
    return {
        "bindAndWriteData": ways.bind(),
        "execute": ways.execute(),
        "executeForward": ways.forward(),
        "executeGradient": ways.gradient(),
        "executeOptimizerUpdate": ways.update(),
    }


class _Ways:
    """Makes them, as functions that find all they need in their own variables."""

    def __init__(self, graph: ExecutableGraph, session: Session, full: int) -> None:
        self.graph = weakref.ref(graph)  # it holds us: a graph that is let go shall free its memory at once
        self.session, self.full = session, full
        self.trains = session.plan.differentiates
        self.locks, self.users, self.device = graph._lock.all(), graph._users, graph._device
        self.cells = [f.cell for f in session.feeds]
        self.fed = {id(c): (c.dtype, c.shape) for c in self.cells if not graph._keeps_value(c)}
        self.result = MLCTensor._of(session.result)

    # The members

    def execute(self) -> Way:
        feeds = [(_GROUPS[f.group], f.name, f.cell.nbytes, (f.cell.dtype, f.cell.shape)) for f in self.session.feeds]
        takes_labels = self.trains or any(group != _GROUPS[0] for group, *_ in feeds)
        groups = _GROUPS[: 3 if takes_labels else 1]
        # How many tensors each dictionary of the call holds; more may be there for a reason that the door knows.
        counts = [(group, sum(group == fed for fed, *_ in feeds)) for group in groups]

        def take(given: dict[str, Any]) -> list[torch.Tensor] | None:
            for group, count in counts:
                data = given.get(group, NotImplemented)
                if type(data) is not dict:
                    if count or data is not None:
                        return None
                elif len(data) != count:
                    return None
            taken = []
            for group, name, nbytes, key in feeds:
                found = given[group].get(name)
                if type(found) is not MLCTensorData or found._length < nbytes:
                    return None
                view = found._views.get(key)
                taken.append(found.view(*key) if view is None else view)
            return taken

        member, work = TRAIN if self.trains else INFER, self.session.again(self.device)
        return self._way(member, {"batchSize", *groups}, take, work, self.result)

    def bind(self) -> Way:
        fed = self.fed
        device: Any = self.device

        def way(args: tuple[Any, ...], given: dict[str, Any]) -> Any:
            tensors, (data, *more) = given.get("forInputs"), args or (None,)
            if given.keys() != _BIND or given["to"] is not device or type(given["synchronous"]) is not bool or more:
                return NotImplemented
            if type(data) is not dict or type(tensors) is not dict or len(data) != len(tensors):
                return NotImplemented
            pairs = []
            for name, tensor in tensors.items():
                found = data.get(name)
                if type(tensor) is not MLCTensor or type(found) is not MLCTensorData:
                    return NotImplemented
                cell = tensor._cell
                key = fed.get(id(cell))
                if key is None or found._length < cell.nbytes:
                    return NotImplemented
                view = found._views.get(key)
                pairs.append((cell, found.view(*key) if view is None else view))
            for cell, view in pairs:
                write_all(cell, view, device)
            return True

        return way

    def forward(self) -> Way:
        session, cells, full, device = self.session, self.cells, self.full, self.device

        def take(given: dict[str, Any]) -> list[torch.Tensor] | None:
            taken = []
            for cell in cells:
                if cell.value is None or cell.host is not None:
                    return None
                taken.append(cell.value.contiguous())  # another graph may have computed it in a layout of its own
            return taken

        def work(taken: list[torch.Tensor]) -> None:
            session.samples = full
            session.forward_again(taken, device)

        return self._way("executeForward(batchSize:options:completionHandler:)", {"batchSize"}, take, work, self.result)

    def gradient(self) -> Way:
        session, full = self.session, self.full

        def take(given: dict[str, Any]) -> Any:
            return () if session.went_forward and session.samples == full else None

        return self._way("executeGradient(batchSize:options:completionHandler:)", {"batchSize"}, take, session.gradient)

    def update(self) -> Way:
        session = self.session

        def take(given: dict[str, Any]) -> Any:
            return session.updater.optimizer if session.updater is not None and session.has_gradients else None

        return self._way("executeOptimizerUpdate(options:completionHandler:)", set(), take, session.update)

    # What they share

    def _way(
        self,
        member: str,
        labels: set[str],
        take: Callable[[dict[str, Any]], Any],
        work: Callable[[Any], Any],
        result: MLCTensor | None = None,
    ) -> Way:
        """Calls of ``member`` by its ``labels``, with a full batch, no option but ``synchronous``, on a device no handler,
        which would have to wait, and no gradient tensor that waits to be filled.

        ``take`` gives what ``work`` needs, or ``None``. A phase that gives no result goes on from the one before.
        """
        owner, session, full, users, trains = self.graph, self.session, self.full, self.users, self.trains
        acquires, releases = [lock.acquire for lock in self.locks], [lock.release for lock in reversed(self.locks)]
        on_cpu, goes_on, known = session.plan.device.type == "cpu", result is None, _HOW | labels
        if_none = None if "batchSize" in labels else 0

        def way(args: tuple[Any, ...], given: dict[str, Any]) -> Any:
            if args or not known.issuperset(given):
                return NotImplemented
            batch, options = given.get("batchSize", if_none), given.get("options", ())
            if type(batch) is not int or (batch != full and batch != 0) or type(options) not in _KINDS_OF_OPTIONS:
                return NotImplemented
            if options and not (on_cpu and options in _SYNCHRONOUS):
                return NotImplemented
            handler = given.get("completionHandler")
            if handler is not None and not (on_cpu and callable(handler)):
                return NotImplemented
            graph: Any = owner()
            failure, seen = None, result
            users.add(get_ident())
            for acquire in acquires:
                acquire()
            try:
                if len(users) > 1 or graph._forced_options or (trains and graph._pending_gradients):
                    return NotImplemented
                if graph._sessions.get("") is not session or (goes_on and graph._last is not session):
                    return NotImplemented
                change = newest_change()
                if (change != session.checked and not session.is_current(change)) or session.is_hooked():
                    return NotImplemented
                taken = take(given)
                if taken is None:
                    return NotImplemented
                work(taken)
                if trains:
                    graph._last = session
                if handler is not None and result is not None and len(users) > 1:
                    # Another thread waits, and may run the graph before the result is read.
                    seen = MLCTensor._of(session.result.frozen(session.result.value))
            except Exception as error:  # noqa: BLE001 - becomes the door's answer where it is a refusal
                failure = error
            finally:
                for release in releases:
                    release()
            if failure is not None:
                try:
                    graph._failed(failure, member, handler)
                except MLCRefusal as why:
                    return answer(why, "", False)
            if handler is not None:
                deliver(handler, seen, None, 0.0)
            return True

        return way
