"""The planned gear: one generated function per phase, captured ahead of time. The default on the CPU and on MPS."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import torch
from torch import fx

from mlc_torch.engine.emit import Function, Send, emit
from mlc_torch.engine.gear import Gradients, Tensors
from mlc_torch.engine.kept_heap import bytes_made, kept
from mlc_torch.engine.kernels import choose_kernels
from mlc_torch.engine.mode import Mode
from mlc_torch.engine.plan import Plan
from mlc_torch.engine.rewrite import simplify
from mlc_torch.engine.standing_results import Lies, memory, standing_results
from mlc_torch.engine.trace import Draw, Recording, record

if TYPE_CHECKING:
    from mlc_torch.engine.exchange import Exchange


@dataclass(frozen=True)
class Written:
    """The phases of a plan as they were written down, for parameters and buffers wherever those lie."""

    plan: Plan
    form: Any
    """The plan's when it was recorded."""
    make_forward: Function
    make_backward: Function
    shared: Sequence[Lies]
    """How that memory lies which both of them are bound to, behind parameters and buffers."""
    draws: list[Draw]
    lent: list[int]
    written: Sequence[int]
    constants: dict[str, torch.Tensor]
    """What modules brought along besides parameters and buffers; here reports of memory find it."""
    size: int
    """How many bytes a pass makes."""


class Planned:
    """Runs the phases of one plan for one set of shapes and in one mode."""

    name = "planned"

    def __init__(
        self,
        plan: Plan,
        feeds: Tensors,
        constants: Tensors,
        injected: Tensors,
        mode: Mode,
        exchange: Exchange | None = None,
        written: Written | None = None,
    ) -> None:
        """``written``: what an earlier plan of the graph ran. If this one does the same, nothing has to be recorded again."""
        self.plan, self.mode, self.why, self._differentiates = plan, mode, "", mode.differentiates
        self._exchange = exchange
        self.sends = exchange is not None and mode.differentiates
        """Whether its gradient phase sends the gradients on their way to other processes."""
        if written is None or written.form != plan.form():
            written = self._write(feeds, constants, injected)
        self.written = written
        self._draws, self._lent, self._written = written.draws, written.lent, written.written
        self._saved: list[torch.Tensor] | None = None
        standing = [*(p.detach() for p in plan.parameters), *(b.detach() for b in plan.buffers)]
        standing += [memory(*lies) for lies in written.shared]
        self._forward, self._backward = written.make_forward(*standing), written.make_backward(*standing)
        if plan.device.type == "cpu":
            self._forward, self._backward = kept(self._forward, self._backward, written.size, mode.differentiates)
        if not (mode.differentiates or self._draws or self._lent or self._written or constants):
            self.forward = self._forward  # type: ignore[method-assign]  # there is nothing to add to it

    def _arranged(self, recording: Recording) -> Recording:
        """The phases in the order and the manner in which they are run."""
        return recording

    def _write(self, feeds: Tensors, constants: Tensors, injected: Tensors) -> Written:
        """Two functions: the backward one is handed what it needs of the forward one's values."""
        plan, form = self.plan, self.plan.form()
        is_declared = [f.shape for f in feeds] == [c.shape for c in plan.cells[: plan.fed_count]]
        chosen = choose_kernels(record(plan, feeds, constants, injected, self.mode), plan.device, is_declared)
        recording = self._arranged(simplify(chosen, plan.device))
        given = recording.placeholders
        bound = given["parameters"] + given["buffers"]
        taken = given["feeds"] + given["constants"] + given["masks"]
        gradients = [*recording.gradients, *recording.wanted]
        there = {*recording.forward, *taken}
        needed = [*(i for node in recording.backward for i in node.all_input_nodes), *gradients]
        stand = standing_results(recording, self._keeps_gradients()) if is_declared and self._has_one_shape() else ()
        both = [n for n in dict.fromkeys(n for n in needed if isinstance(n, fx.Node)) if n in there]
        saved, shared = [n for n in both if n not in stand], [n for n in both if n in stand]
        own = recording.constants
        made = (recording.readable, saved) if self._differentiates else (recording.readable,)
        make_forward = emit(
            recording.forward, bound, taken, made, own, empties=self._differentiates, stand=stand, shared=shared
        )
        make_backward = emit(
            recording.backward,
            bound,
            [*saved, *given["injected"]],
            (recording.gradients, recording.wanted),
            own,
            self._sends(recording),
            stand=stand,
            shared=shared,
        )
        draws, lent, size = recording.draws, recording.lent, bytes_made(recording)
        lies = [n.meta["lies"] for n in shared]
        return Written(plan, form, make_forward, make_backward, lies, draws, lent, recording.written, own, size)

    def _keeps_gradients(self) -> bool:
        """Whether gradients are nobody else's: an exchange sends them meanwhile, and a program that gave a module has them as the
        ``grad`` of its parameters."""
        return self._exchange is None and not self.plan.given

    def _has_one_shape(self) -> bool:
        """Whether each result on the CPU has the same shape in each pass: what a linked graph computes may have another. (It has
        no memory of its own before that has run.)"""
        return self.plan.device.type == "cpu" and all(c.host is not None for c in self.plan.constants)

    def _sends(self, recording: Recording) -> list[Send]:
        """Each bucket of gradients leaves as soon as the last of them is there."""
        exchange = self._exchange
        if exchange is None:
            return []
        return [
            (partial(exchange.start, number), [[recording.gradients[i] for i in own]])
            for number, own in enumerate(exchange.buckets)
        ]

    def forward(self, feeds: Tensors, constants: Tensors) -> Tensors:
        self._saved = None  # the last pass's memory is free for this one
        taken = [*feeds, *constants]
        for number in self._written:
            taken[number] = taken[number].clone()
        for draw in self._draws:
            taken.append(draw.mask())  # noqa: PERF401 - a comprehension is a call of its own
        if self._differentiates:
            values, self._saved = self._forward(taken)
        else:
            values = self._forward(taken)
        for number in self._lent:
            values[number] = values[number].clone()
        return values

    def release(self) -> None:
        """Let go of what the last forward pass kept."""
        self._saved = None

    def gradient(self, injected: Tensors) -> Gradients:
        assert self._saved is not None
        saved, self._saved = self._saved, None
        saved += injected
        return self._backward(saved)
