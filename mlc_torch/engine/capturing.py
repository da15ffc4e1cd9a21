"""Recording a gear's phases as CUDA graphs: all of a training step in one, or one by one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import torch

from mlc_torch.engine import recording
from mlc_torch.engine.gear import Gradients, Tensors
from mlc_torch.engine.lanes import Laned
from mlc_torch.engine.lent_masks import LentMasks
from mlc_torch.engine.plain import Plain
from mlc_torch.engine.plan import Plan
from mlc_torch.engine.staging import Block
from mlc_torch.engine.updater import Update, Updater
from mlc_torch.going_back import undone
from mlc_torch.torch_private.lists import copy_all

if TYPE_CHECKING:
    from mlc_torch.engine.compiled import Compiled
    from mlc_torch.engine.exchange import Exchange

T = TypeVar("T")

_WARM_UP, _TRIES = 2, 4
_FEW_STEPS = 16
"""A plan with at most this many steps finishes before a copy of its own could be queued."""
_SMALL_RESULTS = 1 << 20
"""In bytes. Where there are several recordings of one pass, each has memory of its own for the results."""
NOTHING = object()
"""Stands for an update of no parameters."""


class Step(NamedTuple):
    """A recording of all phases, and whose update it has, with what of the optimizer."""

    updater: Updater
    configuration: Any
    graph: torch.cuda.CUDAGraph


class Capturing:
    """Has the recordings of another gear, over static memory that all of them share.

    A training step is one recording, until somebody calls its phases one by one: then each has its own. (To give a device
    three takes the host longer, H200, µs: LeNet 137 and 46, an LSTM 154 and 40, a perceptron 38 and 21; and the device pauses
    between them: a transformer block's step takes 229 and 216.) Inputs lie side by side in one block, so that one copy brings
    them to the device.
    """

    def __init__(
        self,
        plan: Plan,
        feeds: Tensors,
        constants: Tensors,
        injected: Tensors,
        inner: Plain | Laned | Compiled,
        updater: Updater | None,
        exchange: Exchange | None = None,
    ) -> None:
        self.plan, self.updater, self._inner = plan, updater, inner
        self._exchange = exchange if inner.mode.differentiates else None
        self.sends = self._exchange is not None
        """Whether its gradient phase sends the gradients to other processes, and waits for theirs."""
        self.why = f"over the {inner.name} phases"
        numbers = updater.number_count if updater is not None else 0
        self._block = Block(feeds, numbers, plan.device, inner.mode.differentiates)
        self._static = self._block.feeds
        self._constants = list(constants)
        self.injected = [g.detach().clone() for g in injected]
        """Gradients from outside; what is given is copied here."""
        self._values: Tensors = ()
        self.gradients: Gradients = ([], [])
        """Where the last gradient phase has left them."""
        self._masks = LentMasks(plan)
        self._pool = torch.cuda.graph_pool_handle()
        self._stream = recording.stream_for(self, plan.device)
        self._step: Step | None = None
        """Where there is one, no phase is recorded by itself."""
        self._is_parted = False
        """Whether each is."""
        self._forward: torch.cuda.CUDAGraph | None = None
        self._backward: torch.cuda.CUDAGraph | None = None
        self._updates: dict[Any, Any] = {}
        self._by_slot: list[tuple[torch.cuda.CUDAGraph | None, Tensors]] = []
        with recording.LOCK:
            if inner.mode.trains:
                self._undone(lambda: self._masks.find(lambda: inner.forward(self._static, self._constants)))
            self._capture(updater is not None and inner.mode.differentiates and self._exchange is None)
            if not self._by_slot:
                self._tried(partial(self._block.record, self._stream))
        recording.release(plan.device)

    @property
    def pool(self) -> tuple[int, int]:
        """The memory pool that all recordings share."""
        first, second = self._pool
        return first, second

    def _lends_numbers(self) -> bool:
        """Let the updater keep its numbers where these recordings read them; those of another batch size read elsewhere."""
        numbers, updater = self._block.numbers, self.updater
        return updater is not None and numbers is not None and updater.keeps_numbers_in(numbers)

    def _capture(self, joined: bool) -> None:
        """Record a step, or its phases."""
        self._tried(partial(self._record, joined))

    def _tried(self, work: Callable[[], T]) -> T:
        """What recording ``work`` gives. A program's own work in another thread may end a recording: it is tried again."""
        for left in reversed(range(_TRIES)):
            try:
                return work()
            except RuntimeError as error:
                if not left or "captur" not in str(error):
                    raise
                torch.cuda.synchronize(self.plan.device)
                self._pool = torch.cuda.graph_pool_handle()
        raise AssertionError("the last try raises")

    def _record(self, joined: bool) -> None:
        self._lends_numbers()

        def ready() -> Update | None:
            gradients = self._warm_up()
            return self._ready_to_update(self.updater, gradients) if joined and self.updater is not None else None

        try:
            with self._masks.lent():
                update = self._undone(ready)
                if update is None or not self._record_step(update):
                    self._record_phases()
        finally:
            self._inner.release()

    def _undone(self, work: Callable[[], T]) -> T:
        """What ``work`` gives; parameters, running statistics and the optimizer's state are then as they were."""
        tensors = [
            *self.plan.parameters,
            *self.plan.buffers,
            *(self.updater.touched() if self.updater is not None else []),
        ]
        kept = [t.detach().clone() for t in tensors]
        return undone(work, lambda: copy_all(tensors, kept))

    def _warm_up(self) -> Sequence[torch.Tensor | None]:
        """cuDNN, cuBLAS and autograd want to have run before they are recorded, in every thread. Gives the gradients."""
        gradients: Sequence[torch.Tensor | None] = ()
        self._stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(self._stream):
            for _ in range(_WARM_UP):
                self._inner.forward(self._static, self._constants)
                if self._inner.mode.differentiates:
                    gradients, _ = self._inner.gradient(self.injected)
        torch.cuda.current_stream().wait_stream(self._stream)
        if isinstance(self._inner, Laned):
            self._inner.settle()
        return gradients

    def _ready_to_update(self, updater: Updater, gradients: Sequence[torch.Tensor | None]) -> Update:
        """The update by gradients like these, run once so that nothing is loaded while it is recorded."""
        updater.prepare()
        update: Update = updater.apply
        if not isinstance(self._inner, (Plain, Laned)):
            update = self._inner.update_of(updater, gradients) or update
        if self._exchange is not None:
            update = partial(self._unless_refused, updater, update)
        self._undone(lambda: update(gradients))
        return update

    def _unless_refused(self, updater: Updater, update: Update, gradients: Sequence[torch.Tensor | None]) -> None:
        assert self._exchange is not None
        self._exchange.late.unless_refused(updater.touched(), partial(update, gradients))

    # All phases in one

    def _record_step(self, update: Update) -> bool:
        """Gives whether there is anything to record."""
        assert self.updater is not None

        def all_phases() -> tuple[Tensors, Gradients]:
            values = self._inner.forward(self._static, self._constants)
            gradients, wanted = self._inner.gradient(self.injected)
            update(gradients)
            return values, (gradients, wanted)

        graph, (values, gradients) = self._recorded(all_phases)
        if graph is None:
            return False
        step = Step(self.updater, self.updater.optimizer._configuration(), graph)
        self._values, self.gradients, self._updates, self._step = values, gradients, {}, step
        return True

    # One by one

    def _part(self) -> None:
        """Each phase is a recording of its own from now on."""
        old, self._step = self._step, None  # it goes last, since torch forgets a pool that no recording is using
        self._values, self.gradients = (), ([], [])
        try:
            self._capture(joined=False)
        except BaseException:  # too little memory, a Ctrl-C: the next call tries again
            self._pool = torch.cuda.graph_pool_handle()
            raise
        del old

    def _record_phases(self) -> None:
        self._forward, self._values = self._recorded(lambda: self._inner.forward(self._static, self._constants))
        if not self._inner.mode.differentiates:
            if self._is_soon_done():
                slots = self._block.slot_numbers
                self._by_slot = [self._recorded(partial(self._bring_and_run, slot_number)) for slot_number in slots]
        else:
            self._backward, self.gradients = self._recorded(self._differentiate)
            self._updates = {}  # they read the gradients where they were
            if self.updater is not None:
                self._record_update(self.updater)
        self._is_parted = True

    def _is_soon_done(self) -> bool:
        """Whether an inference is so small that it pays to record it with its copy, once for each slot of host memory."""
        if self._masks or self._constants or len(self.plan.steps) > _FEW_STEPS:
            return False
        return self._block.is_small and sum(v.nbytes for v in self._values) <= _SMALL_RESULTS

    def _bring_and_run(self, slot_number: int) -> Tensors:
        self._block.bring(slot_number)
        return self._inner.forward(self._static, self._constants)

    def _differentiate(self) -> Gradients:
        gradients, wanted = self._inner.gradient(self.injected)
        exchange = self._exchange
        if exchange is None:
            return gradients, wanted
        exchange.start_all(gradients)
        exchange.conclude()
        return exchange.reduced(gradients), wanted

    def _record_update(self, updater: Updater) -> Any:
        gradients, _ = self.gradients
        graph, _ = self._recorded(partial(self._ready_to_update(updater, gradients), gradients))
        self._updates[updater.optimizer._configuration()] = graph or NOTHING
        return graph or NOTHING

    def _recorded(self, work: Callable[[], Any]) -> tuple[torch.cuda.CUDAGraph | None, Any]:
        exchange = self._exchange
        if exchange is None:
            return recording.recorded(work, self._pool, self._stream)
        with exchange.recording():
            exchange.opening(self._values)
            return recording.recorded(work, self._pool, self._stream)
