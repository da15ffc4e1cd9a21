"""Plans made from layer records, one pass of a gear over them, and a float64 run to hold it to."""

from __future__ import annotations

import copy
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import torch

from mlc_torch.device import MLCDevice
from mlc_torch.engine.gear import Gear
from mlc_torch.engine.mode import Mode
from mlc_torch.engine.plan import Plan
from mlc_torch.nodes.node import Node, infer
from mlc_torch.running.planner import PlanRequest, make_plan
from tests.layers.records import Record, tensor


class Formula(torch.nn.Module):
    """Any function of one tensor, for a TorchLayer."""

    def __init__(self, compute) -> None:
        super().__init__()
        self.compute = compute

    def forward(self, x):
        return self.compute(x)


@dataclass
class Case:
    """One record as a plan of one step that differentiates by everything it can."""

    plan: Plan
    feeds: list[torch.Tensor]
    differentiates: bool


def mlc_device(device: torch.device) -> MLCDevice:
    return MLCDevice._on([] if device.type == "cpu" else [torch.device(device.type, device.index or 0)])


def mode_of(trains: bool, differentiates: bool) -> Mode:
    return next(m for m in Mode if (m.trains, m.differentiates) == (trains, differentiates))


def case_of(record: Record, device: torch.device) -> Case:
    layer, where = record.make(), mlc_device(device)
    cells = [tensor(s)._cell for s in record.sources]
    results = infer(layer, cells)
    for cell in (*(use.cell for use in layer._parameter_uses), *layer._buffer_cells):
        cell.place(where, writable=True)
    differentiates = record.result_type == "float32"
    floats = [c for c in cells if c.dtype.is_floating_point]
    request = PlanRequest(
        readable=list(results),
        losses=[c for c in results if c.dtype.is_floating_point] if differentiates else [],
        wanted=floats if differentiates else [],
        trains=True,
    )
    plan = make_plan([Node(layer, tuple(cells), results)], cells, where, request)
    feeds = [torch.from_numpy(np.array(s, order="C")).to(plan.device) for s in record.sources]
    return Case(plan, feeds, differentiates)


Exact = tuple[list[torch.Tensor], list[torch.Tensor | None]]


def in_float64(case: Case, training: bool) -> Exact:
    """Results, and gradients by parameters and sources, computed on the CPU in float64 under plain autograd."""
    (step,) = case.plan.steps
    module = copy.deepcopy(step.module).cpu().double().train(training)
    sources = [f.cpu() for f in case.feeds]
    sources = [s.double().requires_grad_(case.differentiates) if s.is_floating_point() else s for s in sources]
    results = module(*(sources[i] for i in step.sources))
    results = list(results) if isinstance(results, (tuple, list)) else [results]
    if not case.differentiates:
        return [r.detach() for r in results], []
    named = dict(zip(step.module.parameters(), module.parameters(), strict=True))
    leaves = [named[leaf] for leaf in case.plan.leaves]
    wanted = [sources[slot] for slot in case.plan.wanted]
    roots = [r for r in results if r.requires_grad]
    gradients = (
        torch.autograd.grad(roots, [*leaves, *wanted], [torch.ones_like(r) for r in roots], allow_unused=True)
        if roots and (leaves or wanted)
        else [None] * (len(leaves) + len(wanted))
    )
    return [r.detach() for r in results], list(gradients)


@dataclass
class Outcome:
    """What one pass gave: results, gradients by parameters and then by sources, and statistics."""

    values: list[torch.Tensor]
    gradients: list[torch.Tensor | None]
    buffers: list[torch.Tensor]


def outcome(case: Case, gear: Gear) -> Outcome:
    """One pass of ``gear``; the statistics are put back behind it, so that the next gear starts from the same ones."""
    before = [b.clone() for b in case.plan.buffers]
    values = [v.clone() for v in gear.forward(case.feeds, ())]
    gradients, wanted = gear.gradient(()) if case.differentiates else ([], [])
    made = Outcome(
        values,
        [None if g is None else g.clone() for g in (*gradients, *wanted)],
        [b.clone() for b in case.plan.buffers],
    )
    for buffer, old in zip(case.plan.buffers, before, strict=True):
        buffer.copy_(old)
    return made


def hold_to_plain(fast: Outcome, plain: Outcome, exact: Exact, rtol: float = 1e-6) -> None:
    """Floating-point numbers may be no further from the exact ones than the plain gear's; statistics keep to ``rtol``."""
    exact_values, exact_gradients = exact
    for mine, theirs, true in zip(fast.values, plain.values, exact_values, strict=True):
        assert no_further(mine, theirs, true.double()) if mine.is_floating_point() else torch.equal(mine, theirs)
    everything = [t.double() for t in (*exact_values, *exact_gradients) if t is not None]
    whole = sum(float(t[t.isfinite()].square().sum()) for t in everything) ** 0.5
    # A record uses each of its parameters once, so that the gradients stand side by side with those of the leaves.
    for mine, theirs, true in zip(fast.gradients, plain.gradients, exact_gradients, strict=True):
        assert (mine is None) == (theirs is None) == (true is None)
        if mine is not None:
            vanishes = float(torch.linalg.vector_norm(true)) < 1e-6 * whole
            assert no_further(mine, theirs, true, among=whole if vanishes else 0.0)
    for mine, theirs in zip(fast.buffers, plain.buffers, strict=True):
        torch.testing.assert_close(mine, theirs, rtol=rtol, atol=rtol / 10, equal_nan=True)


def memory_of(tensors: Iterable[torch.Tensor | None]) -> set[int]:
    """Where they lie."""
    return {t.untyped_storage().data_ptr() for t in tensors if t is not None and t.numel()}


def hold_what_it_gives(case: Case, gear: Gear) -> None:
    """What a program can be given stays as it was in later passes, which lie elsewhere as long as somebody holds it."""

    def given() -> list[torch.Tensor]:
        values = list(gear.forward(case.feeds, ()))
        wanted = list(gear.gradient(())[1]) if case.differentiates else []
        return [t for t in (*values, *wanted) if t is not None]

    first = given()
    copies = [t.clone() for t in first]
    for feed in case.feeds:
        if feed.is_floating_point():
            feed.mul_(0.5)
    second = given()
    assert not (memory_of(first) & memory_of(second)) - memory_of(case.feeds)
    for held, then in zip(first, copies, strict=True):
        if not memory_of([held]) & memory_of(case.feeds):
            torch.testing.assert_close(held, then, rtol=0, atol=0, equal_nan=True)


def distance(value: torch.Tensor, exact: torch.Tensor) -> float:
    return float(torch.linalg.vector_norm(value.detach().cpu().double().reshape(-1) - exact.reshape(-1)))


def no_further(fast: torch.Tensor, plain: torch.Tensor, exact: torch.Tensor, among: float = 0.0) -> bool:
    """Whether ``fast`` is no further from the exact value than twice what ``plain`` is, plus 1e-6 relative.

    ``among`` is the norm of everything computed with it: a gradient that is truly zero has no size of its own.
    """
    if not bool(torch.isfinite(exact).all()):
        return bool(torch.allclose(fast.cpu().double(), plain.cpu().double(), rtol=1e-5, atol=1e-6, equal_nan=True))
    scale = max(float(torch.linalg.vector_norm(exact)) + 1e-6 * exact.numel() ** 0.5, among)
    return distance(fast, exact) <= 2 * distance(plain, exact) + 1e-6 * scale
