"""Numbers in recorded operations as tensors, and a·x + b as one operation."""

from __future__ import annotations

import pytest
import torch

from mlc_torch import MLCDataType, MLCTensor, unwrap
from mlc_torch.device import MLCDevice
from mlc_torch.engine.mode import Mode
from mlc_torch.engine.planned import Planned
from mlc_torch.engine.rewrite import simplify
from mlc_torch.engine.trace import record
from mlc_torch.interop import TorchLayer
from mlc_torch.nodes.node import Node, infer
from mlc_torch.running.planner import PlanRequest, make_plan
from tests.gears.plans import Formula

aten = torch.ops.aten
CPU = torch.device("cpu")


def plan_of(compute, dtype=MLCDataType.float32, differentiates=True):
    layer = TorchLayer(Formula(compute))
    source = unwrap(MLCTensor(shape=[3, 5], dataType=dtype))._cell
    results = infer(layer, [source])
    more = {"losses": list(results), "wanted": [source]} if differentiates else {}
    request = PlanRequest(readable=list(results), **more)
    return make_plan([Node(layer, (source,), results)], [source], MLCDevice.cpu(), request)


def written_between(x):
    h = x + x
    y = h * 2
    h.add_(1)
    return (y + 3) + h * 0


def part_written_between(x):
    h = x + x
    y = h * 2
    h[:, :2].zero_()
    return (y + 3) * h


FORMULAS = {
    "a sum that says its type": lambda x: torch.tanh(x).sum((1,), keepdim=True, dtype=x.dtype) + x,
    "a sum in another type": lambda x: torch.tanh(x).sum((0,), dtype=torch.float64).float() + x,
    "a mean that says its type": lambda x: torch.tanh(x).mean((-1,), keepdim=True, dtype=x.dtype) * x,
    "a mean over both": lambda x: torch.tanh(x).mean((0, 1), keepdim=True, dtype=x.dtype) * x,
    "what is scaled is written over": written_between,
    "a part of it is": part_written_between,
    "a scale that the type does not hold": lambda x: torch.sigmoid(x * 1e39 + 1),
    "scaled and shifted": lambda x: x * 1.7 + 0.3,
    "shifted alone": lambda x: torch.tanh(x) + 0.25,
    "taken away": lambda x: torch.tanh(x) - 2,
    "divided": lambda x: torch.tanh(x) / 3,
    "the scaled one is wanted too": lambda x: (y := x * 0.6) * (y + 0.5),
    "signs of zero": lambda x: torch.cat([(x * 0.0).reciprocal(), (x * -0.0).reciprocal()]),
    "infinite": lambda x: torch.sigmoid(x * float("inf")),
}


@pytest.mark.parametrize("formula", FORMULAS)
def test_results_and_gradients_stay(formula):
    compute = FORMULAS[formula]
    plan, given = plan_of(compute), torch.randn(3, 5).clamp(-2, 2)
    gear = Planned(plan, [given], (), (), Mode.infer_with_gradient)
    (got,) = gear.forward([given], ())
    _, (slope,) = gear.gradient(())
    x = given.clone().requires_grad_()
    want = compute(x)
    torch.testing.assert_close(got, want.detach(), rtol=1e-6, atol=1e-7)
    torch.testing.assert_close(slope, torch.autograd.grad(want.sum(), x)[0], rtol=1e-6, atol=1e-7, equal_nan=True)


def recorded(compute, dtype=MLCDataType.float32, given=None):
    given = torch.randn(3, 5) if given is None else given
    return simplify(record(plan_of(compute, dtype), [given], (), (), Mode.infer), CPU)


def test_a_scale_and_a_shift_are_one_operation():
    calls = [n for n in recorded(FORMULAS["scaled and shifted"]).forward if n.op == "call_function"]
    assert [n.target for n in calls] == [aten.add.Tensor]
    assert calls[0].kwargs == {"alpha": 1.7}


def test_a_view_of_the_same_shape_is_no_operation():
    views = [
        n for n in recorded(lambda x: torch.tanh(x.view(3, 5)).view(5, 3)).forward if n.target is aten.view.default
    ]
    assert [n.args[1] for n in views] == [[5, 3]]


def test_a_sum_over_one_dimension_is_said_briefly():
    (total,) = recorded(lambda x: x.sum((1,), keepdim=True, dtype=x.dtype)).forward
    assert (total.target, total.args[1:], total.kwargs) == (aten.sum.dim_IntList, (1, True), {})
    total, _ = recorded(lambda x: x.sum((0, 1), keepdim=True, dtype=torch.float64).float()).forward
    assert (total.args[1:], total.kwargs) == (([0, 1], True), {"dtype": torch.float64})


def test_whole_numbers_keep_their_type_in_a_sum():
    given = torch.arange(15, dtype=torch.int32).view(3, 5)
    plan = plan_of(lambda x: x.sum((1,), keepdim=True, dtype=x.dtype), MLCDataType.int32, differentiates=False)
    (total,) = Planned(plan, [given], (), (), Mode.infer).forward([given], ())
    assert total.dtype == torch.int32 and total.flatten().tolist() == [10, 35, 60]


def test_a_number_is_made_once():
    made = recorded(lambda x: torch.tanh(torch.tanh(x) * 1.5) * 1.5)
    assert [n.op for n in made.forward].count("get_attr") == 1
    assert not [a for n in made.forward for a in n.args if isinstance(a, float)]


def test_short_types_are_computed_with_the_number_unrounded():
    compute = FORMULAS["scaled and shifted"]
    made = recorded(compute, MLCDataType.float16, torch.randn(3, 5, dtype=torch.float16))
    assert 1.7 in [a for n in made.forward for a in n.args]
