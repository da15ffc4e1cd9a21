"""The captured gear: the phases of another gear recorded once as CUDA graphs and replayed. The default on CUDA."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from typing import TYPE_CHECKING, Any

import torch

from mlc_torch.engine import recording
from mlc_torch.engine.gear import Gradients, Tensors
from mlc_torch.engine.lanes import Laned
from mlc_torch.engine.plain import Plain
from mlc_torch.engine.plan import Plan
from mlc_torch.engine.staging import Block
from mlc_torch.engine.updater import Updater
from mlc_torch.layers.noise import Noise

if TYPE_CHECKING:
    from mlc_torch.engine.compiled import Compiled
    from mlc_torch.engine.exchange import Exchange

_WARM_UP = 2
_FEW_STEPS = 16
"""A plan with at most this many steps finishes before a copy of its own could be queued."""
_SMALL_RESULTS = 1 << 20
"""In bytes. Where there are several recordings of one pass, each has memory of its own for the results."""
_NOTHING = object()
"""Stands for an update of no parameters."""


class Captured:
    """Replays forward, gradient and update from static memory that all three share.

    Inputs lie side by side in one block, so that one copy brings them to the device.
    """

    name = "captured"

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
        self._block = Block(feeds, updater.number_count if updater is not None else 0, plan.device)
        self._static = self._block.feeds
        if updater is not None and self._block.numbers is not None:
            updater.keep_numbers_in(self._block.numbers)
        self._constants = list(constants)
        self.injected = [g.detach().clone() for g in injected]
        """Gradients from outside; what is given is copied here."""
        self._values: Tensors = ()
        self._masks: list[tuple[Noise, torch.Tensor]] = []
        self._pool = torch.cuda.graph_pool_handle()
        self._updates: dict[Any, Any] = {}
        self._stream = recording.stream_for(self, plan.device)
        self._by_slot: list[tuple[torch.cuda.CUDAGraph | None, Tensors]] = []
        with recording.LOCK:
            self._capture(inner.mode.differentiates)
        recording.release(plan.device)

    def _capture(self, differentiates: bool) -> None:
        with ExitStack() as stack:
            kept = _Kept(self.plan, self.updater)
            stack.callback(kept.restore)
            self._find_masks(stack)
            self._warm_up(differentiates)
            kept.restore()
            self._forward, self._values = self._recorded(lambda: self._inner.forward(self._static, self._constants))
            if not differentiates and self._is_soon_done():
                self._by_slot = [
                    self._recorded(partial(self._bring_and_run, slot_number))
                    for slot_number in self._block.slot_numbers
                ]
            if differentiates:
                self._backward, self._gradients = self._recorded(self._differentiate)
                if self.updater is not None:
                    self._record_update(self.updater)
        self._inner.release()

    def _differentiate(self) -> Gradients:
        gradients, wanted = self._inner.gradient(self.injected)
        exchange = self._exchange
        if exchange is None:
            return gradients, wanted
        exchange.start_all(gradients)
        exchange.conclude()
        return exchange.reduced(gradients), wanted

    def _is_soon_done(self) -> bool:
        """Whether an inference is so small that it pays to record it with its copy, once for each slot of host memory."""
        if self._masks or self._constants or len(self.plan.steps) > _FEW_STEPS:
            return False
        return self._block.is_small and sum(v.nbytes for v in self._values) <= _SMALL_RESULTS

    def _bring_and_run(self, slot_number: int) -> Tensors:
        self._block.bring(slot_number)
        return self._inner.forward(self._static, self._constants)

    def _find_masks(self, stack: ExitStack) -> None:
        """Dropout draws into memory of its own before each replay; while recording it is handed that memory."""
        noises = {id(n): n for step in self.plan.steps for n in step.noises}
        if not noises or not self._inner.mode.trains:
            return

        def intercept(noise: Noise, shape: tuple[int, ...], dtype: torch.dtype, device: torch.device) -> torch.Tensor:
            mask = torch.ones(shape, dtype=dtype, device=device)
            self._masks.append((noise, mask))
            return mask

        with ExitStack() as listening:
            for noise in noises.values():
                listening.enter_context(noise.intercepted(intercept))
            self._inner.forward(self._static, self._constants)
        for noise in noises.values():
            own = [mask for n, mask in self._masks if n is noise]
            stack.enter_context(noise.intercepted(_one_after_another(own)))

    def _warm_up(self, differentiates: bool) -> None:
        """cuDNN, cuBLAS and autograd want to have run before they are recorded."""
        self._stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(self._stream):
            for _ in range(_WARM_UP):
                self._inner.forward(self._static, self._constants)
                if differentiates:
                    self._inner.gradient(self.injected)
        torch.cuda.current_stream().wait_stream(self._stream)
        if isinstance(self._inner, Laned):
            self._inner.settle()

    def _recorded(self, work: Callable[[], Any]) -> tuple[torch.cuda.CUDAGraph | None, Any]:
        exchange = self._exchange
        if exchange is None:
            return recording.recorded(work, self._pool, self._stream)
        with exchange.recording():
            exchange.opening(self._values)
            return recording.recorded(work, self._pool, self._stream)

    def _record_update(self, updater: Updater) -> Any:
        updater.prepare()
        graph, _ = self._recorded(self._ready_to_update(updater))
        self._updates[updater.optimizer._configuration()] = graph or _NOTHING
        return graph or _NOTHING

    def _ready_to_update(self, updater: Updater) -> Callable[[], None]:
        """The update of the recorded gradients, run once so that nothing is loaded while it is recorded."""
        kept = _Kept(self.plan, updater)
        work: Callable[[], None] = partial(updater.apply, self._gradients[0])
        if not isinstance(self._inner, (Plain, Laned)):
            work = self._inner.update_of(updater, self._gradients[0]) or work
        if self._exchange is not None:
            work = partial(self._exchange.late.unless_refused, updater.touched(), work)
        work()
        kept.restore()
        return work

    @property
    def pool(self) -> tuple[int, int]:
        """The memory pool that all recordings share."""
        first, second = self._pool
        return first, second

    # The phases

    def forward(self, feeds: Tensors, constants: Tensors) -> Tensors:
        try:
            with recording.LOCK:
                return self._run_forward(feeds, constants)
        finally:
            self._block.wait_for_inputs()  # without the lock, since earlier work comes first

    def _run_forward(self, feeds: Tensors, constants: Tensors) -> Tensors:
        updater = self.updater
        if self._by_slot:
            return self._run_from_slot(feeds)
        if self._block.fill(feeds, updater.upcoming() if updater is not None else ()):
            updater.numbers_are_there()  # type: ignore[union-attr]
        for old, new in zip(self._constants, constants, strict=True):
            if old.data_ptr() != new.data_ptr():
                old.copy_(new)
        for noise, mask in self._masks:
            noise.redraw(mask)
        return self._replay()

    def _replay(self) -> Tensors:
        if self._forward is not None:
            self._forward.replay()
        return self._values

    def _run_from_slot(self, feeds: Tensors) -> Tensors:
        """The copy to the device is part of what is replayed."""
        block = self._block
        slot_number = block.stage(feeds, ())
        if slot_number is None:
            block.take(feeds)
            return self._replay()
        graph, values = self._by_slot[slot_number]
        if graph is not None:
            graph.replay()
        block.mark(slot_number)
        return values

    def gradient(self, injected: Tensors) -> Gradients:
        with recording.LOCK:
            for static, given in zip(self.injected, injected, strict=True):
                if static is not given:
                    static.copy_(given)
            if self._backward is not None:
                self._backward.replay()
        return self._gradients

    def update(self, updater: Updater) -> None:
        """The optimizer's step; what it depends on besides its live numbers has a recording of its own."""
        if updater is not self.updater:
            self.updater, self._updates = updater, {}
            if self._block.numbers is not None and updater.number_count == len(self._block.numbers):
                updater.keep_numbers_in(self._block.numbers)
        graph = self._updates.get(updater.optimizer._configuration())
        with recording.LOCK:
            if graph is None:
                graph = self._record_update(updater)
            updater.prepare()
            if graph is not _NOTHING:
                graph.replay()
        updater.count()


class _Kept:
    """What recording disturbs and must find again: parameters, running statistics, optimizer state."""

    def __init__(self, plan: Plan, updater: Updater | None) -> None:
        tensors = [*plan.parameters, *plan.buffers, *(updater.touched() if updater is not None else [])]
        self._pairs = [(t, t.detach().clone()) for t in tensors]

    def restore(self) -> None:
        with torch.no_grad():
            for tensor, old in self._pairs:
                tensor.copy_(old)


def _one_after_another(masks: list[torch.Tensor]) -> Callable[..., torch.Tensor]:
    """Hands out the masks one after the other, over and over."""
    number = 0

    def give(noise: Noise, shape: tuple[int, ...], dtype: torch.dtype, device: torch.device) -> torch.Tensor:
        nonlocal number
        mask = masks[number % len(masks)]
        number += 1
        return mask

    return give
