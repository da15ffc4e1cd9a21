"""Every record of every layer: the fast gear of each device against the plain gear and a float64 run."""

from __future__ import annotations

import torch

from mlc_torch.engine.captured import Captured
from mlc_torch.engine.plain import Plain
from mlc_torch.engine.planned import Planned
from tests.gears.plans import case_of, in_float64, no_further
from tests.layers.test_every_layer import records


@records()
def test_the_fast_gear_agrees_with_the_plain_one(record, torch_device):
    case = case_of(record, torch_device)
    plan, feeds, differentiates = case.plan, case.feeds, case.differentiates
    exact_values, exact_gradients = in_float64(case, record.training)
    before = [b.clone() for b in plan.buffers]

    def run(gear):
        for buffer, old in zip(plan.buffers, before, strict=True):
            buffer.copy_(old)
        values = [v.clone() for v in gear.forward(feeds, ())]
        gradients, wanted = gear.gradient(()) if differentiates else ([], [])
        return (
            values,
            [None if g is None else g.clone() for g in (*gradients, *wanted)],
            [b.clone() for b in plan.buffers],
        )

    plain = run(Plain(plan, record.training, differentiates))
    if torch_device.type == "cuda":
        fast = run(Captured(plan, feeds, (), (), Plain(plan, record.training, differentiates), differentiates, None))
    else:
        fast = run(Planned(plan, feeds, (), (), record.training, differentiates))
    for mine, theirs, exact in zip(fast[0], plain[0], exact_values, strict=True):
        if mine.is_floating_point():
            assert no_further(mine, theirs, exact.double())
        else:
            assert torch.equal(mine, theirs)
    if len(exact_gradients) == len(plain[1]):  # one use for each parameter: the sums need no splitting
        for mine, theirs, exact in zip(fast[1], plain[1], exact_gradients, strict=True):
            assert (mine is None) == (theirs is None) == (exact is None)
            if exact is not None:
                assert no_further(mine, theirs, exact.double())
    for mine, theirs in zip(fast[2], plain[2], strict=True):
        torch.testing.assert_close(mine, theirs, rtol=1e-6, atol=1e-7, equal_nan=True)
