"""Who writes into recorded memory, and who is given it: copies that serve for several."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch import fx, nn

from mlc_torch.device import MLCDevice
from mlc_torch.engine.mode import Mode
from mlc_torch.engine.planned import Planned
from mlc_torch.engine.views import may_write, written_by
from mlc_torch.interop import TorchLayer
from mlc_torch.nodes.node import Node, infer
from mlc_torch.running.planner import PlanRequest, make_plan
from tests.gears.plans import Formula
from tests.layers.records import tensor, values

aten = torch.ops.aten


def copied(x: torch.Tensor) -> torch.Tensor:
    """In a layout that is asked for, as it is for convolutions."""
    return x.clone(memory_format=torch.contiguous_format)


def planned(module: nn.Module, x: torch.Tensor) -> list[torch.Tensor]:
    """What the planned gear gives for a module."""
    layer, source = TorchLayer(module), tensor(x.numpy())._cell
    results = infer(layer, [source])
    plan = make_plan([Node(layer, (source,), results)], [source], MLCDevice.cpu(), PlanRequest(readable=list(results)))
    return Planned(plan, [x], [], [], Mode.infer).forward([x], [])


def by_keyword(x):
    a, b, other = copied(x), copied(x), x.exp()
    torch.mul(other, 10, out=b)
    return a + b


def by_keyword_into_a_view(x):
    a, b, other = copied(x), copied(x), x.view(6).exp()
    torch.mul(other, 10, out=b.view(6))
    return a + b


def by_keyword_into_the_source(x):
    source = x * 3
    a = copied(source)
    torch.mul(x, 10, out=source)
    return a + copied(source)


def at_once(x):
    a, b = copied(x), copied(x)
    torch._foreach_mul_([b, x * 2], 10.0)
    return a + b


def through_what_a_write_gave_back(x):
    source = x * 3
    earlier, later = source.view(6), source.add_(1)
    a = copied(later)
    earlier.mul_(10)
    return a + copied(later)


WRITTEN = [by_keyword, by_keyword_into_a_view, by_keyword_into_the_source, at_once, through_what_a_write_gave_back]


@pytest.mark.parametrize("compute", WRITTEN, ids=lambda f: f.__name__)
def test_a_copy_that_is_written_to_is_not_shared(compute: Callable[[torch.Tensor], torch.Tensor]):
    x = torch.from_numpy(values(2, 3, seed=1))
    (made,) = planned(Formula(compute), x)
    np.testing.assert_allclose(made, compute(x.clone()), rtol=1e-6)


def test_statistics_that_a_norm_moves_are_copied_before_and_after():
    class Telling(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.norm = nn.BatchNorm1d(3, momentum=0.5)

        def forward(self, x):
            before = copied(self.norm.running_mean)
            self.norm.train()
            y = self.norm(x)
            return y * 0 + before - copied(self.norm.running_mean)

    x = torch.from_numpy(values(4, 3, seed=1))
    (made,) = planned(Telling(), x)
    np.testing.assert_allclose(made, (-0.5 * x.mean(0)).expand(4, 3), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("look", [lambda a: a, lambda a: a.view(6), lambda a: a.view(6).view(3, 2)[1:]])
def test_two_results_never_share_memory(look):
    x = torch.from_numpy(values(2, 3, seed=1))
    first, second = planned(Formula(lambda x: (look(copied(x)), copied(x).view(6))), x)
    first.fill_(7)
    np.testing.assert_array_equal(second, x.view(6))


def test_operations_say_what_they_write_into():
    graph = fx.Graph()
    a, b, c = (graph.placeholder(name) for name in "abc")
    for target, args, kwargs, want in (
        (aten.mul.out, (a, b), {"out": c}, [c]),
        (aten.add_.Tensor, (a, b), {}, [a]),
        (aten.add.Tensor, (a, b), {}, []),
        (aten._foreach_mul_.Scalar, ([b, c], 2.0), {}, [b, c]),
        (aten.native_batch_norm.default, (a, None, None, b, c, True, 0.1, 1e-5), {}, [b, c]),
        (aten.native_batch_norm.default, (a, None, None, b, c, False, 0.1, 1e-5), {}, []),
        (aten.native_batch_norm.default, (a, None, None, None, None, True, 0.1, 1e-5), {}, []),
        (torch.add, (a, b), {}, None),
    ):
        node = graph.call_function(target, args, kwargs)
        assert written_by(node) == want
        assert may_write(node) is (want != [])
