"""Every record of every layer: the fast gear of each device against the plain gear and a float64 run."""

from __future__ import annotations

from mlc_torch.engine.captured import Captured
from mlc_torch.engine.mode import Mode
from mlc_torch.engine.plain import Plain
from mlc_torch.engine.planned import Planned
from tests.gears.plans import case_of, hold_to_plain, in_float64, outcome
from tests.layers.test_every_layer import records


@records()
def test_the_fast_gear_agrees_with_the_plain_one(record, torch_device):
    case = case_of(record, torch_device)
    plan, feeds, differentiates = case.plan, case.feeds, case.differentiates
    exact = in_float64(case, record.training)
    plain = Plain(plan, Mode.of(record.training, differentiates))
    if torch_device.type == "cuda":
        inner = Plain(plan, Mode.of(record.training, differentiates))
        fast: Captured | Planned = Captured(plan, feeds, (), (), inner, None)
    else:
        fast = Planned(plan, feeds, (), (), Mode.of(record.training, differentiates))
    hold_to_plain(outcome(case, fast), outcome(case, plain), exact)
