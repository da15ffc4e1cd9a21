"""A plan whose batches several processes share: how they share them, the plan as each runs it, and both in words."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, replace

import torch
from torch import nn

from mlc_torch.engine.plan import Plan, Step
from mlc_torch.engine.updater import Updater
from mlc_torch.layers.sharing import Axis, Share, current_share
from mlc_torch.ranks import Ranks


@dataclass(frozen=True)
class Sharing:
    """How the ranks share the batches of a plan."""

    ranks: Ranks
    number: int
    """Which of the graphs that the ranks have compiled this is."""
    batch: int
    """How many samples were declared."""
    axes: tuple[Axis, ...]
    """The dimension of each slot's tensor that counts samples."""
    means: frozenset[int]
    """The losses that divide by the number of samples."""
    outputs: tuple[int, ...]
    """The slots that every rank is given whole."""
    given: tuple[bool, ...]
    """Of the slots that are fed, which a program gives data for; a linked graph computes the others."""
    is_own: bool = False
    is_local: bool = False

    def share(self, batch: int) -> Share:
        """This rank's part of a batch."""
        if self.is_own:
            return Share(self.ranks, batch, 0, batch, is_own=True, is_local=self._is_local)
        first, count = self.ranks.rows(batch)
        if count:
            return Share(self.ranks, batch, first, count, is_local=self._is_local)
        return Share(self.ranks, batch, min(first, batch - 1), 1, is_idle=True, is_local=self._is_local)

    @property
    def _is_local(self) -> bool:
        """Batch norm over the samples of one rank needs nobody else, whatever was asked for."""
        return self.is_local or self.ranks.world == 1


class Rows(nn.Module):
    """Of a tensor that is trained, the rows of this rank's samples. Its gradient is the whole tensor's, 0 elsewhere."""

    def __init__(self, axis: int) -> None:
        super().__init__()
        self.axis = axis

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        share = current_share()
        return x if share is None else share.of(x, self.axis)

    def extra_repr(self) -> str:
        return f"axis={self.axis}"


def shared_plan(plan: Plan, sharing: Sharing) -> tuple[Plan, Sharing]:
    """The plan as each rank runs it.

    A rank starts its backward pass not with ones but with its share of each loss, so that the gradients of all ranks add
    up to those of the whole: losses become slots that a gradient from outside comes to.
    """
    axes = list(sharing.axes)
    steps, cells, moved = [], list(plan.cells), {}
    for trained in plan.trained:
        slot = trained.slot
        if slot is not None and axes[slot] is not None:
            moved[slot] = len(cells)
            steps.append(Step(Rows(axes[slot]), (slot,), (len(cells),), "rows"))  # type: ignore[arg-type]
            axes.append(axes[slot])
            axes[slot] = None
            cells.append(cells[slot])
    steps += [replace(step, sources=tuple(moved.get(s, s) for s in step.sources)) for step in plan.steps]
    shared = replace(
        plan,
        cells=tuple(cells),
        steps=tuple(steps),
        losses=(),
        injected=tuple(dict.fromkeys((*plan.losses, *plan.injected))),
        readable=tuple(dict.fromkeys((*plan.readable, *plan.losses))),
    )
    return shared, replace(sharing, axes=tuple(axes))


def plan_lines(plan: Plan, shared: Sharing, losses: Iterable[int], updater: Updater | None) -> list[str]:
    """The plan in words that must be the same on every rank."""
    lines = [f"graph {shared.number + 1}"]
    lines += [f"shares: own {shared.is_own}, local batch norm {shared.is_local}, {shared.batch} samples"]
    for slot, cell in enumerate(plan.cells):
        lines.append(f"tensor {slot}: {list(cell.shape)} {cell.dtype}, samples along {shared.axes[slot]}")
    for step in plan.steps:
        what = " ".join(without_addresses(repr(step.module)).split())
        lines.append(f"layer {step.label!r}: {what} of {list(step.sources)} gives {list(step.results)}")
    lines += [f"trains {list(t.cell.shape)} {t.cell.dtype}, updated {t.updated}" for t in plan.trained]
    lines.append(f"losses {sorted(losses)}, given gradients {list(plan.injected)}")
    lines.append(f"asked gradients {list(plan.wanted)}, outputs {list(shared.outputs)}")
    lines.append(f"stops gradients at {sorted(plan.stopped)}")
    lines.append("no optimizer" if updater is None else f"optimizer {type(updater.optimizer).__name__}")
    return lines


def rule_lines(updater: Updater | None) -> list[str]:
    """The same of the optimizer, whose numbers a program may change on the way."""
    if updater is None:
        return []
    rule, step = updater.optimizer, updater.step
    settings = without_addresses(repr(rule._configuration()))
    return [f"the optimizer's settings {settings}, step {step}: {rule._scalars(step)}"]


def without_addresses(words: str) -> str:
    """What Python says of an object, without where it lies: a function of the same program lies elsewhere in each process."""
    return re.sub(r" at 0x[0-9a-fA-F]+", "", words)
