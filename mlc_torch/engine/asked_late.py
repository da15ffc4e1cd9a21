"""Results that nobody had asked for when a pass ran: it is run once more, on the same data and with the same dropout."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

import torch

from mlc_torch.engine.gear import Gradients, Tensors
from mlc_torch.engine.mode import Mode
from mlc_torch.engine.plain import Plain
from mlc_torch.engine.plan import Plan
from mlc_torch.engine.undo import Kept, leaving_no_trace


def values_again(plan: Plan, kept: Kept, slots: Iterable[int]) -> dict[int, torch.Tensor]:
    """Run a pass again, with what was ``kept`` of it, for the values of these slots. Running statistics do not change."""
    plan = replace(plan, readable=tuple(dict.fromkeys(slots)))
    mode = Mode.infer if kept.mode is Mode.infer else Mode.train_without_gradient
    gear = Plain(plan, mode)
    found = leaving_no_trace(plan, kept.noise, lambda: gear.forward(kept.feeds, kept.constants))
    return dict(zip(plan.readable, found, strict=True))


def gradients_again(plan: Plan, kept: Kept, injected: Tensors) -> Sequence[torch.Tensor | None]:
    """The gradients that ``plan`` wants, from a pass that is run again in the same way."""
    gear = Plain(plan, Mode.train)

    def run() -> Gradients:
        gear.forward(kept.feeds, kept.constants)
        return gear.gradient(injected)

    _, wanted = leaving_no_trace(plan, kept.noise, run)
    return wanted
