"""What a rank's backward pass starts with, and what it sends, by hand and without other processes."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch

from mlc_torch.device import MLCDevice
from mlc_torch.engine.captured import Captured
from mlc_torch.engine.exchange import Exchange
from mlc_torch.engine.exchange_late import LateVerdict
from mlc_torch.engine.exchange_table import Call
from mlc_torch.engine.shared_part import OwnPart
from mlc_torch.layers.sharing import Share
from mlc_torch.nodes.node import Node, infer
from mlc_torch.running.planner import PlanRequest, make_plan
from tests.graph.programs import dense, values
from tests.layers.records import tensor


class Ranks(SimpleNamespace):
    """Two processes, of which this is one."""

    __hash__ = object.__hash__


class Alone(Captured):
    """Has the memory of a recording, and nothing to replay."""

    def __init__(self, *injected: torch.Tensor) -> None:
        self.injected = list(injected)


def part_of(recordable: bool = False) -> tuple[OwnPart, Share]:
    cell = SimpleNamespace(shape=(1,), dtype=torch.float32)
    ranks = Ranks(is_recordable=recordable, rank=1, world=2)
    plan = SimpleNamespace(device=torch.device("cpu"), cells=[cell], injected=(0,), constants=(), trained=())
    shared = SimpleNamespace(ranks=ranks, axes=[None], means=(), is_own=False)
    return OwnPart(plan, shared, losses=[0], given=[0]), Share(ranks, 4, 2, 2, False)


@pytest.mark.parametrize("recorded", [True, False])
def test_gradients_from_outside_do_not_pile_up(recorded):
    """A loss starts with 1, to which the program adds 10 in some of the calls."""
    part, share = part_of()
    gear = Alone(torch.zeros(1)) if recorded else None
    found = []
    for given in ([], [torch.tensor([10.0])], [torch.tensor([10.0])], [], [], [torch.tensor([20.0])], []):
        started = part.upstream(share, given, gear)
        if gear is not None:
            gear._inject(started)
            started = gear.injected
        found.append(float(started[0]))
    assert found == [1, 11, 11, 1, 1, 21, 1]


@pytest.fixture
def of_64_bits():
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(torch.float32)


def exchange_over(ranks: Ranks, sums=((), ())) -> Exchange:
    layer, source = dense(3, 2), tensor(values(4, 3))._cell
    results = infer(layer, [source])
    request = PlanRequest(readable=list(results), losses=list(results), trains=True)
    plan = make_plan([Node(layer, (source,), results)], [source], MLCDevice.cpu(), request)
    return Exchange(ranks, 1, plan, [0] * len(plan.cells), [], [], list(plan.losses), [], sums)


def test_what_ranks_tell_each_other_has_32_bits_whatever_torch_s_default(of_64_bits):
    sent = []
    ranks = Ranks(
        is_recordable=True, rank=0, world=2, owed=None, enter=lambda *_: None, wait=lambda *_: None,
        start_sum=lambda flat, forward: sent.append(flat), sum_inside=lambda t, backward: sent.append(t),
    )  # fmt: skip
    exchange = exchange_over(ranks, ([torch.Size([2])], [torch.Size([3])]))
    exchange.begin(Share(ranks, 4, 0, 2, False), (0.0, 0), [], [])
    assert exchange._placed.dtype == exchange.late.totals.dtype == torch.float32
    exchange.stand_in(Call.EXECUTE)
    assert {tuple(t.shape) for t in sent} >= {(2,), (3,)}
    assert {t.dtype for t in sent} == {torch.float32}
    assert LateVerdict(False, 2, torch.device("cpu")).totals.dtype == torch.float32
    part, _ = part_of(recordable=True)
    assert part._own_part.dtype == torch.float32


def test_rows_of_steps_are_not_kept():
    """Where nothing is recorded, each step has a row of its own, and only recordings of a batch size need theirs."""
    ranks = Ranks(is_recordable=False, rank=0, world=2)
    exchange = exchange_over(ranks)
    exchange.plan = SimpleNamespace(device=torch.device("meta"))
    for step in range(5):
        exchange.begin(Share(ranks, 4, 0, 2, False), (0.5, step), [], [])
    assert len(exchange._rows) == 0
    ranks.is_recordable, exchange.plan = True, SimpleNamespace(device=torch.device("cpu"))
    memory = []
    for step, batch in enumerate((4, 4, 3, 4)):
        exchange.begin(Share(ranks, batch, 0, 2, False), (0.5, step), [], [])
        memory.append(exchange._placed.data_ptr())
    assert memory[0] == memory[1] == memory[3] != memory[2]
