"""What compiling a graph makes: modules in order, straight through numbered slots. Immutable, and knows no Apple name."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import torch
from torch import nn

from mlc_torch.layers.noise import Noise
from mlc_torch.refusals import refuse
from mlc_torch.tensor import TensorState
from mlc_torch.torch_private.hooks import hooks_on_every_module
from mlc_torch.torch_private.lstm import recurrent_parts

Hook = Callable[[torch.Tensor], torch.Tensor | None]


@dataclass(frozen=True, eq=False)
class Step:
    """One module call: which slots it reads and which it fills."""

    module: nn.Module
    sources: tuple[int, ...]
    results: tuple[int, ...]
    label: str
    guarded: tuple[tuple[int, int], ...] = ()
    """Sources that hold indices which the graph computes itself, and the number that each must stay below."""
    rows: tuple[tuple[int, int], ...] = ()
    """Sources that are the same for all samples and have a row for each, and the dimension of the rows. Of a short batch the
    first ones are read."""

    @cached_property
    def noises(self) -> tuple[Noise, ...]:
        return tuple(m for m in self.module.modules() if isinstance(m, Noise) and m.rate > 0)

    @cached_property
    def recurrent(self) -> list[nn.RNNBase]:
        return recurrent_parts(self.module)


@dataclass(frozen=True, eq=False)
class Trained:
    """One tensor whose gradient the plan computes: every module parameter that looks into it, or the slot it fills."""

    cell: TensorState
    uses: tuple[nn.Parameter, ...] = ()
    slot: int | None = None
    updated: bool = True


@dataclass(frozen=True, eq=False)
class Plan:
    """A graph, ready to run.

    Slots are numbered: fed ones first (inputs, labels, label weights), then constants, then results in order.
    """

    cells: tuple[TensorState, ...]
    """The tensor behind each slot."""
    fed_count: int
    constant_count: int
    steps: tuple[Step, ...]
    readable: tuple[int, ...]
    """The slots whose value somebody can read."""
    losses: tuple[int, ...] = ()
    injected: tuple[int, ...] = ()
    """Slots that a gradient from outside is added to."""
    closed: tuple[int, ...] = ()
    """Slots that have a gradient in a linked graph, which is stopped before it comes here: the gradient phase is there, and
    finds none."""
    trained: tuple[Trained, ...] = ()
    wanted: tuple[int, ...] = ()
    """Slots whose gradient somebody asked for."""
    stopped: frozenset[int] = frozenset()
    hooks: dict[int, tuple[Hook, ...]] = field(default_factory=dict)
    given: tuple[nn.Module, ...] = ()
    """The modules that the program made itself, and may change in any way."""
    device: torch.device = torch.device("cpu")
    counted: tuple[int, int] | None = None
    """A fed slot, and the dimension in which it has as many samples as the batch that is run."""

    @cached_property
    def constants(self) -> tuple[TensorState, ...]:
        return self.cells[self.fed_count : self.fed_count + self.constant_count]

    def constant_values(self) -> list[torch.Tensor]:
        """What the constants hold now; refused where a linked graph has not computed one yet."""
        values = []
        for cell in self.constants:
            if cell.value is None:
                refuse(
                    f"tensor {cell.label!r} has no value yet; run executeForward of the graph that computes it first"
                )
            values.append(cell.value.contiguous())
        return values

    @cached_property
    def slots(self) -> dict[int, int]:
        """The slot of each tensor, by the cell's identity."""
        return {id(cell): slot for slot, cell in reversed(list(enumerate(self.cells)))}

    @cached_property
    def last_use(self) -> tuple[tuple[int, ...], ...]:
        """For each step the slots that nobody needs after it."""
        kept = {*self.readable, *self.losses, *self.injected, *self.wanted, *(t.slot for t in self.trained)}
        last: dict[int, int] = {}
        for number, step in enumerate(self.steps):
            for slot in (*step.sources, *step.results):
                last[slot] = number
        dead: list[list[int]] = [[] for _ in self.steps]
        for slot, number in last.items():
            if slot not in kept:
                dead[number].append(slot)
        return tuple(map(tuple, dead))

    def form(self) -> Any:
        """What a recording rests on. Equal for two plans that do the same work on tensors that lie alike, wherever those lie and
        whichever of them are updated; compared by identity, so that both plans must be alive."""
        return (
            tuple(map(id, self.cells)),
            (self.fed_count, self.constant_count, self.readable, self.losses, self.injected, self.closed, self.wanted),
            (self.stopped, self.device, {slot: tuple(map(id, hooks)) for slot, hooks in self.hooks.items()}),
            [(id(s.module), s.sources, s.results, s.guarded, s.rows) for s in self.steps],
            [(id(t.cell), tuple(map(id, t.uses)), t.slot) for t in self.trained],
            [(id(p), p.shape, p.stride(), p.dtype) for p in self.parameters],
            [(b.shape, b.stride(), b.dtype) for b in self.buffers],
        )

    @cached_property
    def modules(self) -> tuple[nn.Module, ...]:
        seen: dict[int, nn.Module] = {}
        for step in self.steps:
            seen.setdefault(id(step.module), step.module)
        return tuple(seen.values())

    @cached_property
    def parameters(self) -> tuple[nn.Parameter, ...]:
        """Every module parameter, once, trained or not."""
        return tuple({id(p): p for m in self.modules for p in m.parameters()}.values())

    @cached_property
    def buffers(self) -> tuple[torch.Tensor, ...]:
        """Running statistics and the like."""
        return tuple({id(b): b for m in self.modules for b in m.buffers()}.values())

    @cached_property
    def leaves(self) -> tuple[torch.Tensor, ...]:
        """The module parameters that the gradient phase differentiates by, in the order of ``trained``."""
        return tuple(use for t in self.trained for use in t.uses)

    @cached_property
    def work(self) -> int:
        """About how many multiplications a forward pass takes, rather too many; what a module does inside is not seen."""
        return sum(self._work_of(step) for step in self.steps)

    def _work_of(self, step: Step) -> int:
        """Whatever a step reads, once for each place of its result: a pixel or a step of a sequence has a place, its channels
        share one. Where there are weights, a sample is computed of itself and of them; and what one source alone is made into
        (an activation, a mean, pooled images) is read once."""
        weights = sum(t.numel() for t in (*step.module.parameters(), *step.module.buffers()))
        given = sum(math.prod(self.cells[slot].shape) for slot in step.sources)
        if not weights and len(step.sources) == 1:
            return given
        shapes = [self.cells[slot].shape for slot in step.results]
        samples = max(1, *(shape[0] for shape in shapes if shape)) if weights else 1
        return (weights + given // samples) * max(math.prod(shape) // _channels(shape) for shape in shapes)

    @property
    def differentiates(self) -> bool:
        return bool(self.losses or self.injected or self.closed)


def _channels(shape: tuple[int, ...]) -> int:
    """How many an image has, or one step of a sequence, or a sample of features."""
    return max(1, shape[1] if len(shape) == _IMAGES else shape[-1]) if shape else 1


_IMAGES = 4
"""Dimensions: samples, channels, rows, columns."""


def combine(
    trained: Sequence[Trained], of_leaf: Sequence[torch.Tensor | None], of_slot: dict[int, torch.Tensor | None]
) -> list[torch.Tensor | None]:
    """The gradient of each trained tensor, in its own shape: the sum over every use of it."""
    totals: list[torch.Tensor | None] = []
    leaves = iter(of_leaf)
    for item in trained:
        parts = [g for g in (next(leaves) for _ in item.uses) if g is not None]
        if item.slot is not None and of_slot.get(item.slot) is not None:
            parts.append(of_slot[item.slot])  # type: ignore[arg-type]
        shape = item.cell.shape
        total: torch.Tensor | None = None
        for part in parts:
            part = part if part.shape == shape else _in_full(part, shape)
            part = part.contiguous()  # as the tensor's own memory lies, which fused updates rely on
            total = part if total is None else total + part
        totals.append(total)
    return totals


def _in_full(gradient: torch.Tensor, shape: tuple[int, ...]) -> torch.Tensor:
    """A gradient in the shape of its tensor. Of one that is fed, a short batch reads the first rows: the others have none."""
    if gradient.numel() == math.prod(shape):
        return gradient.reshape(shape)
    missing = [whole - there for whole, there in zip(shape, gradient.shape, strict=True)]
    return nn.functional.pad(gradient, [n for more in reversed(missing) for n in (0, more)])


def module_hooks(plan: Plan) -> tuple[dict[Any, Any], ...]:
    """Where torch keeps the hooks of each module, behind those that it calls for every module; they may come and go."""
    count = 4 if plan.differentiates else 2  # without a gradient the others are never called
    return hooks_on_every_module()[:count] + tuple(
        hooks
        for root in plan.modules
        for m in root.modules()
        for hooks in (m._forward_hooks, m._forward_pre_hooks, m._backward_hooks, m._backward_pre_hooks)[:count]
    )


def all_known(plan: Plan) -> bool:
    """Whether every module of a plan is, down to the innermost."""
    return all(is_known(m) for root in plan.modules for m in root.modules())


def is_known(module: nn.Module) -> bool:
    """Whether a module is torch's own or ours: of a program's, nobody knows what it does with what it is given."""
    return type(module).__module__.startswith(("torch.nn.modules.", "mlc_torch."))
