"""Inputs on their way to a device: read where they lie if the device sees them there, copied otherwise."""

from __future__ import annotations

import pytest
import torch

from mlc_torch.engine import staging
from mlc_torch.engine.staging import Block

CPU = torch.device("cpu")


@pytest.fixture(autouse=True)
def without_a_gpu(monkeypatch):
    """Ordinary memory, which a kernel of the CPU's reads as one of a GPU's reads pinned memory."""
    monkeypatch.setattr(staging, "_pinned", lambda size: torch.zeros(size, dtype=torch.uint8))


def in_place(device, memory):
    return memory.view(torch.int32)


def elsewhere(device, memory):
    return memory.view(torch.int32).clone()


@pytest.mark.parametrize("seen_by", [in_place, elsewhere])
def test_what_is_given_arrives(seen_by, monkeypatch):
    monkeypatch.setattr(staging, "_seen_by", seen_by)
    given = [torch.randn(3, 5), torch.randint(0, 9, (7,))]
    block = Block(given, 2, CPU)
    assert bool(block._seen) == (seen_by is in_place)
    for number in range(3):  # the fourth would make an event
        feeds = [g + number for g in given]
        assert block.fill(feeds, [0.5, number])
        for got, want in zip(block.feeds, feeds, strict=True):
            assert torch.equal(got, want)
        assert block.numbers.tolist() == [0.5, number]


@pytest.mark.parametrize("trains", [True, False])
def test_much_is_copied(trains, monkeypatch):
    monkeypatch.setattr(staging, "_seen_by", in_place)
    least = staging._READ[trains]
    little, much = torch.empty(least - 256, dtype=torch.uint8), torch.empty(least, dtype=torch.uint8)
    assert Block([little], 0, CPU, trains)._seen
    assert not Block([much], 0, CPU, trains)._seen


def test_nothing_is_nothing_to_see(monkeypatch):
    monkeypatch.setattr(staging, "_seen_by", lambda device, memory: pytest.fail("there is no memory"))
    assert Block([], 0, CPU).feeds == []
