"""The captured gear: the phases recorded once as CUDA graphs and replayed. The default on CUDA."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from typing import Any

import torch

from mlc_torch.engine.plain import Gradients, Plain
from mlc_torch.engine.plan import Plan
from mlc_torch.engine.updater import Updater
from mlc_torch.layers.noise import Noise

Tensors = Sequence[torch.Tensor]
_ALIGNMENT = 256
_WARM_UP = 2


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
        training: bool,
        differentiates: bool,
        updater: Updater | None,
    ) -> None:
        self.plan, self.why, self.updater = plan, "", updater
        self._block, self._static = _side_by_side(feeds, plan.device)
        self._constants = list(constants)
        self._injected = [g.detach().clone() for g in injected]
        self._masks: list[tuple[Noise, torch.Tensor]] = []
        self._plain = Plain(plan, training, differentiates)
        self._pool = torch.cuda.graph_pool_handle()
        self._updates: dict[Any, torch.cuda.CUDAGraph] = {}
        self._stream = torch.cuda.Stream(plan.device)
        self._capture(differentiates)

    def _capture(self, differentiates: bool) -> None:
        with ExitStack() as stack:
            kept = _Kept(self.plan, self.updater)
            stack.callback(kept.restore)
            self._find_masks(stack)
            self._warm_up(differentiates)
            kept.restore()
            self._forward, self._values = self._recorded(lambda: self._plain.forward(self._static, self._constants))
            if differentiates:
                self._backward, self._gradients = self._recorded(lambda: self._plain.gradient(self._injected))
                if self.updater is not None:
                    self._record_update(self.updater)
        self._plain._env = None

    def _find_masks(self, stack: ExitStack) -> None:
        """Dropout draws into memory of its own before each replay; while recording it is handed that memory."""
        noises = {id(n): n for step in self.plan.steps for n in step.noises}
        if not noises or not self._plain.training:
            return

        def overhear(noise: Noise, shape: tuple[int, ...], like: torch.Tensor) -> torch.Tensor:
            mask = torch.ones(shape, dtype=like.dtype, device=like.device)
            self._masks.append((noise, mask))
            return mask

        with ExitStack() as listening:
            for noise in noises.values():
                listening.enter_context(noise.overheard(overhear))
            self._plain.forward(self._static, self._constants)
        for noise in noises.values():
            own = [mask for n, mask in self._masks if n is noise]
            stack.enter_context(noise.overheard(_in_turn(own)))

    def _warm_up(self, differentiates: bool) -> None:
        """cuDNN, cuBLAS and autograd want to have run before they are recorded."""
        self._stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(self._stream):
            for _ in range(_WARM_UP):
                self._plain.forward(self._static, self._constants)
                if differentiates:
                    gradients, _ = self._plain.gradient(self._injected)
                    if self.updater is not None:
                        self.updater.begin(advance=False)
                        self.updater.apply(gradients)
        torch.cuda.current_stream().wait_stream(self._stream)

    def _recorded(self, work: Callable[[], Any]) -> tuple[torch.cuda.CUDAGraph, Any]:
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, pool=self._pool, stream=self._stream):
            made = work()
        return graph, made

    def _record_update(self, updater: Updater) -> torch.cuda.CUDAGraph:
        updater.begin(advance=False)
        graph, _ = self._recorded(lambda: updater.apply(self._gradients[0]))
        self._updates[updater.optimizer.configuration()] = graph
        return graph

    # The phases

    def forward(self, feeds: Tensors, constants: Tensors) -> Tensors:
        self._fill(feeds)
        for old, new in zip(self._constants, constants, strict=True):
            if old.data_ptr() != new.data_ptr():
                old.copy_(new)
        for noise, mask in self._masks:
            noise.redraw(mask)
        self._forward.replay()
        return self._values

    def _fill(self, feeds: Tensors) -> None:
        if any(f.device.type != "cpu" for f in feeds):
            for static, feed in zip(self._static, feeds, strict=True):
                static.copy_(feed, non_blocking=True)
            return
        staged = torch.empty(self._block.shape, dtype=torch.uint8, pin_memory=True)
        for view, feed in zip(_views(staged, self._static), feeds, strict=True):
            view.copy_(feed)
        self._block.copy_(staged, non_blocking=True)

    def gradient(self, injected: Tensors) -> Gradients:
        for static, given in zip(self._injected, injected, strict=True):
            static.copy_(given)
        self._backward.replay()
        return self._gradients

    def update(self, updater: Updater) -> None:
        """The optimizer's step; what it depends on besides its live numbers has a recording of its own."""
        if updater is not self.updater:
            self.updater, self._updates = updater, {}
        graph = self._updates.get(updater.optimizer.configuration())
        if graph is None:
            kept = _Kept(self.plan, updater)
            updater.begin(advance=False)
            updater.apply(self._gradients[0])
            kept.restore()
            graph = self._record_update(updater)
        updater.begin()
        graph.replay()


class _Kept:
    """What recording disturbs and must find again: parameters, running statistics, optimizer state."""

    def __init__(self, plan: Plan, updater: Updater | None) -> None:
        tensors = [*plan.parameters, *plan.buffers, *(updater.touched() if updater is not None else [])]
        self._pairs = [(t, t.detach().clone()) for t in tensors]

    def restore(self) -> None:
        with torch.no_grad():
            for tensor, old in self._pairs:
                tensor.copy_(old)


def _in_turn(masks: list[torch.Tensor]) -> Callable[..., torch.Tensor]:
    """Hands out the masks one after the other, over and over."""
    number = 0

    def give(noise: Noise, shape: tuple[int, ...], like: torch.Tensor) -> torch.Tensor:
        nonlocal number
        mask = masks[number % len(masks)]
        number += 1
        return mask

    return give


def _side_by_side(feeds: Tensors, device: torch.device) -> tuple[torch.Tensor, list[torch.Tensor]]:
    """One block of bytes on the device, and the inputs as views of it."""
    total = sum(-(-f.nbytes // _ALIGNMENT) * _ALIGNMENT for f in feeds)
    block = torch.zeros(total, dtype=torch.uint8, device=device)
    return block, _views(block, feeds)


def _views(block: torch.Tensor, like: Tensors) -> list[torch.Tensor]:
    views, start = [], 0
    for tensor in like:
        views.append(block[start : start + tensor.nbytes].view(tensor.dtype).view(tensor.shape))
        start += -(-tensor.nbytes // _ALIGNMENT) * _ALIGNMENT
    return views
