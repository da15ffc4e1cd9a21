"""Bringing a call's inputs to a CUDA device: one block, one copy, and no waiting for the copy before."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from functools import partial

import numpy as np
import torch

from mlc_torch.engine.gear import Tensors
from mlc_torch.engine.recording import recorded, release_later
from mlc_torch.tensor.host_copy import host_copy
from mlc_torch.tensor.staged import is_much, is_staged

_ALIGNMENT = 256
_SMALL, _LARGE = 128 << 10, 16 << 20
"""In bytes. Below the first an inference may have a recording for each slot, from the second on there are few slots."""
_READ = {True: 640 << 10, False: 320 << 10}
"""In bytes, for a training step and for an inference, which has little else to do meanwhile: below it kernels read the slots,
from there on what the program has pinned is not copied to them."""
_ZERO = torch.zeros((), dtype=torch.int32, device="cpu")


class _Slot:
    """Pinned host memory laid out like the block."""

    def __init__(self, like: Tensors, numbers: int, size: int) -> None:
        self.memory = _pinned(size)
        self.views = views_of(self.memory, like)
        self.bytes = [v.reshape(-1).view(torch.uint8).numpy().data for v in self.views]
        """The same, for what is no tensor."""
        self.numbers: np.ndarray = (
            self.memory[size - 4 * numbers :].view(torch.float32).numpy() if numbers else np.empty(0)
        )


class Block:
    """Static device memory for inputs, and for a few numbers behind them, filled by one copy a call, and by one more for each
    large input that lies in pinned memory. Those come first, so that the others lie side by side, too.

    Slots of host memory are used one after the other: recording an event costs more than a small copy, so half a round of
    them shares one.
    """

    _seen: Sequence[torch.Tensor] = ()
    """The slots' memory as the device sees it, where kernels read it there."""
    _fetched: Sequence[torch.Tensor] = ()
    """What was staged and may be copied from, until the next call: it is let go of under the lock that calls are made under."""

    def __init__(self, like: Tensors, numbers: int, device: torch.device, trains: bool = True) -> None:
        size = sum(map(_padded, like)) + 4 * numbers
        size = -(-size // 4) * 4
        self.memory = torch.zeros(size, dtype=torch.uint8, device=device)
        self.feeds = views_of(self.memory, like)
        self.numbers = self.memory[size - 4 * numbers :].view(torch.float32) if numbers else None
        self._slot_count = 8 if size < _SMALL else 4 if size < _LARGE else 2
        self.is_small, self._straight_from = size < _SMALL, _READ[trains]
        self._is_large = size >= self._straight_from
        self._taken: torch.cuda.Event | None = None
        self._all = range(len(like))
        self._much = [n for n in self._all if is_much(like[n])]
        self._little = [n for n in self._all if not is_much(like[n])]
        self._slots = [_Slot(like, numbers, size) for _ in range(self._slot_count)]
        if size and not self._is_large:
            seen = [_seen_by(device, slot.memory) for slot in self._slots]
            # Memory that was pinned for another GPU is not seen by this one: torch gives a copy.
            if all(s.data_ptr() == slot.memory.data_ptr() for s, slot in zip(seen, self._slots, strict=True)):
                self._seen = seen
        much = sum(_padded(like[n]) for n in self._much)
        self._ways = {False: self._way(0), True: self._way(much)}
        """Whether only what comes behind large inputs is brought, and for each slot where to and where from."""
        self._recorded: dict[bool, list[torch.cuda.CUDAGraph | None]] = {}
        """The same, and for each slot what brings it."""
        self._done: list[torch.cuda.Event | None] = [None, None]
        self._next_slot = 0

    def __del__(self) -> None:
        # torch itself keeps pinned memory until the copies are done; of kernels that read it it does not know.
        waiting = [*(self._slots if self._seen else ()), *self._fetched]
        self._fetched = ()
        if waiting:
            with contextlib.suppress(Exception):  # the process may be ending
                release_later(waiting, self.memory.device)

    @property
    def slot_numbers(self) -> range:
        return range(self._slot_count)

    def fill(self, feeds: Tensors, numbers: Sequence[float]) -> bool:
        """Copy host tensors and numbers to the device. Gives whether the numbers went along.

        Large ones that were staged when they were bound go from there: the host would take longer to copy them once more than the
        GPU takes for its step. (H200, three phases of a transformer block, 512 KiB, us beyond one call: 33, and 134 with a copy.)
        """
        self._fetched = [feed for feed in feeds if is_staged(feed)]
        straight = len(self._fetched) == len(self._much) > 0
        if not straight and self._is_large and _large_are_pinned(feeds, self._straight_from):
            self.take(feeds)
            return False
        slot_number = self.stage(feeds, numbers, self._little if straight else self._all)
        if slot_number is None:
            self.take(feeds)
            return False
        if straight:
            for n in self._much:
                self.feeds[n].copy_(feeds[n], non_blocking=True)
        if not self._recorded:
            self.bring(slot_number, behind_much=straight)
        elif (graph := self._recorded[straight][slot_number]) is not None:
            graph.replay()
        self.mark(slot_number)
        return bool(numbers)

    def wait_for_inputs(self) -> None:
        """Wait for copies out of the program's own memory, which it may write into once the call returns."""
        if self._taken is not None:
            self._taken.synchronize()
            self._taken = None

    def take(self, feeds: Tensors) -> None:
        """Copy tensors from where they lie: some device, or pinned memory."""
        for static, feed in zip(self.feeds, feeds, strict=True):
            static.copy_(feed, non_blocking=True)
        if any(feed.is_cpu and not is_staged(feed) and feed.is_pinned() for feed in feeds):
            self._taken = torch.cuda.Event()
            self._taken.record(torch.cuda.current_stream(self.memory.device))

    def stage(self, feeds: Tensors, numbers: Sequence[float], which: Sequence[int] | None = None) -> int | None:
        """Copy feeds, all or those of some places, and numbers into the slot that comes next. Gives the slot's number, or
        ``None`` where a feed is no host tensor."""
        for feed in feeds:
            if not feed.is_cpu:
                return None
        slot_number = self.next_slot()
        slot = self._slots[slot_number]
        for n in self._all if which is None else which:
            host_copy(slot.views[n], feeds[n])
        if numbers:
            slot.numbers[:] = numbers
        return slot_number

    def next_slot(self) -> int:
        """The number of the slot that comes next; what was in it has been read."""
        slot_number, half = self._next_slot, self._slot_count // 2
        self._next_slot = (slot_number + 1) % self._slot_count
        if slot_number % half == 0:
            done = self._done[slot_number // half]
            if done is not None:
                done.synchronize()
        return slot_number

    def fill_from(self, slot_number: int, memory: Sequence[memoryview]) -> None:
        """Copy the bytes of the inputs into a slot."""
        for target, source in zip(self._slots[slot_number].bytes, memory):  # noqa: B905 - strict takes its time
            target[:] = source

    def _way(self, start: int) -> list[tuple[torch.Tensor, torch.Tensor]]:
        if self._seen:
            words = self.memory.view(torch.int32)[start // 4 :]
            return [(words, seen[start // 4 :]) for seen in self._seen]
        return [(self.memory[start:], slot.memory[start:]) for slot in self._slots]

    def bring(self, slot_number: int, behind_much: bool = False) -> None:
        """Queue the copy of what was staged. Little is read by a kernel, since a copy by the GPU's copy engine begins later.

        (H200, us, with and without: a perceptron's inference of one sample 17.9 and 23.4, of 147 KiB 30.6 and 36.8, 294 KiB 37.5
        and 38.7, 392 KiB 44 and 39, 784 KiB 71 to 129 and 48 to 51; its training step of 99 KiB 72 and 104, 397 KiB 119 and 128,
        794 KiB 133 and 142, a transformer's of 512 KiB 215 and 222.)
        """
        target, source = self._ways[behind_much][slot_number]
        if self._seen:
            torch.add(source, _ZERO, out=target)
        else:
            target.copy_(source, non_blocking=True)

    def record(self, stream: torch.cuda.Stream) -> None:
        """Replay from now on what kernels bring: that takes the host half the time, since the launch is ready. (H200, us: 3.5
        and 7.6. Perceptron, one call 66 and 76, three phases 129 and 147; all slots are recorded in 1.2 ms.)"""
        if self._seen:
            self._recorded = {
                behind_much: [recorded(partial(self.bring, n, behind_much), None, stream)[0] for n in self.slot_numbers]
                for behind_much in ((False, True) if self._much else (False,))
            }

    def mark(self, slot_number: int) -> None:
        """The copies queued so far are those of this slot and before."""
        half = self._slot_count // 2
        if slot_number % half == half - 1:
            done = self._done[slot_number // half] or torch.cuda.Event()
            done.record(torch.cuda.current_stream(self.memory.device))
            self._done[slot_number // half] = done


def _large_are_pinned(feeds: Tensors, least: int) -> bool:
    """Whether all of the feeds that have so many bytes lie where the GPU can copy them from by itself.

    (H200, microseconds, through memory of ours, copied by one thread and by 16 of torch's, and straight. Inferences of a
    perceptron: 784 KiB 101, 66 and 48. Its training step: 794 KiB 152, 87 and 107; a transformer's of 512 KiB 214, 221 and 226,
    an LSTM's of 256 KiB 244, 243 and 252: it waits for the step before.)
    """
    large = [f for f in feeds if f.nbytes >= least]
    return bool(large) and all(f.is_cpu and f.is_pinned() for f in large)


def _pinned(size: int) -> torch.Tensor:
    return torch.empty(size, dtype=torch.uint8, device="cpu", pin_memory=True)


class _Pinned:
    """Pinned host memory, which a GPU sees too, by the protocol that torch takes device memory by."""

    def __init__(self, memory: torch.Tensor) -> None:
        where = {"data": (memory.data_ptr(), False), "shape": (memory.nbytes // 4,), "typestr": "<i4"}
        self.__cuda_array_interface__ = where | {"version": 3}


def _seen_by(device: torch.device, memory: torch.Tensor) -> torch.Tensor:
    """Pinned memory as whole numbers on a device, where it lies: kernels can read it there."""
    return torch.as_tensor(_Pinned(memory), device=device)


def _padded(tensor: torch.Tensor) -> int:
    return -(-tensor.nbytes // _ALIGNMENT) * _ALIGNMENT


def views_of(memory: torch.Tensor, like: Tensors) -> list[torch.Tensor]:
    """Tensors side by side in a block of bytes, large ones first; in the order they are given."""
    views, start = {}, 0
    for n in sorted(range(len(like)), key=lambda n: not is_much(like[n])):
        tensor = like[n]
        views[n] = memory[start : start + tensor.nbytes].view(tensor.dtype).view(tensor.shape)
        start += _padded(tensor)
    return [views[n] for n in range(len(like))]
