"""Inputs on their way to a device: read where they lie if the device sees them there, copied otherwise."""

from __future__ import annotations

import weakref

import pytest
import torch

from mlc_torch.engine import staging
from mlc_torch.engine.captured import Captured
from mlc_torch.engine.staging import Block
from mlc_torch.tensor.data import seen_as_bytes
from tests.gears.recordings import Event, Stream

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


def staged(tensor):
    tensor.is_staged = True
    return tensor


@pytest.mark.parametrize("seen_by", [in_place, elsewhere])
@pytest.mark.parametrize("numbers", [[], [0.5, 3]])
def test_what_was_staged_when_it_was_bound_is_not_copied_again(seen_by, numbers, monkeypatch):
    monkeypatch.setattr(staging, "_seen_by", seen_by)
    monkeypatch.setattr(torch.cuda, "Event", Event)
    monkeypatch.setattr(torch.cuda, "current_stream", lambda device: Stream())
    given = [torch.randn(7), torch.randn(2**15), torch.randint(0, 9, (3,)), torch.randint(0, 9, (2**14,))]
    block = Block(given, len(numbers), CPU)
    for number in range(9):
        feeds = [staged(g + number) if g.nbytes >= 2**17 else g + number for g in given]
        assert block.fill(feeds, numbers) == bool(numbers)
        for got, want in zip(block.feeds, feeds, strict=True):
            assert torch.equal(got, want)
        assert not numbers or block.numbers.tolist() == numbers
    assert not any(slot.views[n].any() for slot in block._slots for n in (1, 3))


class Elsewhere:
    """A feed that is no host tensor, for all that a block asks."""

    is_cpu = False

    def __init__(self, tensor):
        self.tensor = tensor

    @classmethod
    def __torch_function__(cls, function, types, args=(), kwargs=None):
        return function(*(a.tensor if isinstance(a, cls) else a for a in args), **(kwargs or {}))


@pytest.mark.parametrize("beside", [False, True])
def test_what_is_copied_from_is_let_go_of_by_the_next_call(beside, monkeypatch):
    """Or with the block, and then under the lock, whoever else has let go of it before."""
    monkeypatch.setattr(staging, "_seen_by", elsewhere)
    monkeypatch.setattr(torch.cuda, "Event", Event)
    monkeypatch.setattr(torch.cuda, "current_stream", lambda device: Stream())
    released = []
    monkeypatch.setattr(staging, "release_later", lambda memory, device: released.extend(memory))
    like = [torch.randn(2**15), torch.randn(3)]
    block, there = Block(like, 0, CPU), []
    for number in range(3):
        feeds = [staged(like[0] + number), Elsewhere(like[1]) if beside else like[1]]
        there.append(weakref.ref(feeds[0]))
        block.fill(feeds, [])
        assert torch.equal(block.feeds[0], feeds[0]) and torch.equal(block.feeds[1], like[1])
        del feeds
        assert [t() is not None for t in there] == [False] * number + [True]
    block.fill(like, [])
    assert not any(t() is not None for t in there)
    block.fill([staged(like[0] + 1), like[1]], [])
    del block
    assert len(released) == 1 and torch.equal(released[0], like[0] + 1)


@pytest.mark.parametrize("rest", [[], [torch.randn(5)]])
def test_one_that_is_not_staged_is_copied_with_the_others(rest, monkeypatch):
    monkeypatch.setattr(staging, "_seen_by", in_place)
    feeds = [staged(torch.randn(2**15)), torch.randn(2**15), *rest]
    block = Block(feeds, 0, CPU)
    block.fill(feeds, [])
    for got, copied, want in zip(block.feeds, block._slots[0].views, feeds, strict=True):
        assert torch.equal(got, want) and torch.equal(copied, want)


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


def test_memory_that_all_calls_share_goes_to_one_slot_after_the_other(monkeypatch):
    """With recordings that only write down what they would read; the real ones are in test_cuda_calls.py."""
    monkeypatch.setattr(staging, "_seen_by", in_place)
    given = [torch.zeros(2, 3), torch.zeros(4, dtype=torch.int64)]
    gear, seen = Captured.__new__(Captured), []
    gear._block = block = Block(given, 0, CPU)

    class Recorded:
        def __init__(self, number):
            self.views = block._slots[number].views

        def replay(self):
            seen.append([view.clone() for view in self.views])

    gear._by_slot = [(Recorded(number), [torch.tensor(number)]) for number in block.slot_numbers]
    forward = gear.forward_from([seen_as_bytes(t)[0] for t in given])
    for number in range(3):  # the fourth would make an event
        for tensor in given:
            tensor += 1
        assert forward([], []) == [torch.tensor(number)]
    assert [[float(view.sum()) for view in views] for views in seen] == [[6, 4], [12, 8], [18, 12]]


@pytest.mark.parametrize("recorded", [[], [(None, [])] * 8])
def test_what_is_not_recorded_for_each_slot_is_not_replayed_so(recorded, monkeypatch):
    monkeypatch.setattr(staging, "_seen_by", in_place)
    gear = Captured.__new__(Captured)
    gear._block, gear._by_slot = Block([torch.zeros(2)], 0, CPU), recorded
    assert gear.forward_from([]) is None


def test_what_brings_a_slot_is_recorded_and_replayed(monkeypatch):
    """With recordings that are the work itself, and with none where there is nothing behind large inputs."""
    replayed = []

    class Recorded:
        def __init__(self, work):
            self.work = work

        def replay(self):
            replayed.append(self)
            self.work()

    def recorded(work, pool, stream):
        return Recorded(work) if much is not alone or not work.args[1] else None, None

    monkeypatch.setattr(staging, "_seen_by", in_place)
    monkeypatch.setattr(staging, "recorded", recorded)
    monkeypatch.setattr(torch.cuda, "Event", Event)
    monkeypatch.setattr(torch.cuda, "current_stream", lambda device: Stream())
    alone, with_little, little = (torch.randn(2**15),), (torch.randn(2**15), torch.randn(3)), (torch.randn(3),)
    for much in (alone, with_little, little):
        block = Block(much, 0, CPU)
        block.record(Stream())
        for number in range(9):
            feeds = [(staged(m + number) if number % 2 and len(m) > 3 else m + number) for m in much]
            assert not block.fill(feeds, [])
            assert all(torch.equal(got, want) for got, want in zip(block.feeds, feeds, strict=True))
        assert len(replayed) == (5 if much is alone else 9)
        replayed.clear()
