"""Every record of every layer: the fast gear of each device against the plain gear and a float64 run."""

from __future__ import annotations

from mlc_torch.engine.captured import Captured
from mlc_torch.engine.choice import laned
from mlc_torch.engine.plain import Plain
from mlc_torch.engine.planned import Planned
from tests.gears.plans import case_of, hold_to_plain, hold_what_it_gives, in_float64, mode_of, outcome
from tests.layers.test_every_layer import records


@records()
def test_the_fast_gear_agrees_with_the_plain_one(record, torch_device):
    case = case_of(record, torch_device)
    plan, feeds, differentiates = case.plan, case.feeds, case.differentiates
    exact = in_float64(case, record.training)
    mode = mode_of(record.training, differentiates)
    plain = Plain(plan, mode)
    if torch_device.type == "cuda":
        inner = laned(plan, feeds, (), (), mode) or Plain(plan, mode)
        fast: Captured | Planned = Captured(plan, feeds, (), (), inner, None)
    else:
        fast = Planned(plan, feeds, (), (), mode)
    hold_to_plain(outcome(case, fast), outcome(case, plain), exact)
    if isinstance(fast, Planned):  # a recorded GPU's memory is always the same
        hold_what_it_gives(case, fast)
