"""Whether tensors on the CPU still hold the bytes that were copied from them, by as many threads as torch may have."""

from __future__ import annotations

import atexit
import ctypes
import functools
import os
import threading
from collections.abc import Callable, Sequence
from queue import SimpleQueue

import torch

from mlc_torch.engine.processor import cores

_MUCH_BYTES = 256 << 10
"""Of a tensor that torch's threads compare, where it has more than two; twice as much for two. (x86, microseconds for eight
tensors, by one thread and by two, four and eight: 256 KiB each 190 and 210, 109, 118; 1 MiB 740 and 630, 350, 330; 64 KiB 20 and
100, 79, 97.)"""
_TWO = 2
_MUCH_FOR_TWO = 2 << 20
"""Bytes of all tensors. With two threads, another one of Python's compares half of them: C's comparison is three times as fast as
torch's. (x86, microseconds by one thread, by torch's two and so: eight tensors of 256 KiB 176, 250 and 151; four of them and four
of 1 MiB 427, 469 and 298; eight of 1 MiB 654, 582 and 416.) It needs a core of its own: torch's second thread keeps its core for
a while after each kernel. (Inference by LSTMs of 512, 1 to 4 layers, relative to by hand, by torch's two and so: 1.02 to 1.10 and
.90 to .95 with 16 cores, 1.00 to 1.10 and .9 to 1.29 with two.)"""

Pair = tuple[torch.Tensor, torch.Tensor]
"""A copy and the tensor it was made of, each in one piece."""


class Copied:
    """Tensors beside copies of them."""

    def __init__(self, pairs: Sequence[Pair]) -> None:
        threads, size = torch.get_num_threads(), sum(part.nbytes for _, part in pairs)
        here, beside, much = list(pairs), list[Pair](), list[Pair]()
        if threads == _TWO < cores() and size >= _MUCH_FOR_TWO:
            here, beside = here[::2], here[1::2]  # of four gates each gets two
        elif threads > 1:
            least = _MUCH_BYTES if threads > _TWO else 2 * _MUCH_BYTES
            here, much = ([p for p in pairs if (p[1].nbytes >= least) is is_much] for is_much in (False, True))
        where = torch.empty(max((part.nbytes for _, part in much), default=0), dtype=torch.bool, device="cpu")
        self._by_torch = [ByTorch(copy, part, where[: part.nbytes]) for copy, part in much]
        self._here, self._beside = OneByOne(here), OneByOne(beside) if beside else None

    def differ(self) -> bool:
        if self._beside is not None:
            return self._here.differ_beside(self._beside)
        return self._here.differ() or any(one.differs() for one in self._by_torch)


class OneByOne:
    """Tensors beside copies of them, which one thread compares one after the other."""

    def __init__(self, pairs: Sequence[Pair]) -> None:
        self._pairs = pairs  # whoever compares holds their memory, too
        self._at = [(copy.data_ptr(), part, part.nbytes) for copy, part in pairs]
        self._compare = memory_differs()

    def differ(self) -> bool:
        compare = self._compare
        return any(compare(copy, part.data_ptr(), size) for copy, part, size in self._at)

    def differ_beside(self, others: OneByOne) -> bool:
        """Whether any of these or of the others differ, which are compared at the same time."""
        asked = Asked(others)
        second = second_thread()
        if second is not None:
            second.put(asked)
        return self.differ() or asked.answer()


class Asked:
    """A comparison for the second thread, unless the one that asks comes to it first.

    The other may be busy, or gone: a finalizer or a signal handler may compare in the middle of a comparison, on either of them,
    and at its end a process has only one. So nobody waits for what has not begun, nor for long.
    """

    def __init__(self, pairs: OneByOne) -> None:
        self._pairs, self._found = pairs, False
        self._begun, self._done = threading.Lock(), threading.Lock()
        self._done.acquire()

    def begin(self) -> None:
        if self._begun.acquire(blocking=False):
            self._found = self._pairs.differ()
            self._done.release()

    def answer(self) -> bool:
        if self._begun.acquire(blocking=False) or not self._done.acquire(timeout=_LONG):
            return self._pairs.differ()
        return self._found


_LONG = 0.05
"""Seconds. What is compared takes less than a hundredth of that."""


class ByTorch:
    """A tensor beside its copy, whose bytes torch's threads compare one by one; ``where`` is memory for what they find."""

    def __init__(self, copy: torch.Tensor, part: torch.Tensor, where: torch.Tensor) -> None:
        self._part, self._at, self._where = part, part.data_ptr(), where
        self._kept, self._given = as_bytes(copy), as_bytes(part)

    def differs(self) -> bool:
        if self._part.data_ptr() != self._at:  # ``share_memory_`` moves a tensor's memory away under it
            self._given, self._at = as_bytes(self._part), self._part.data_ptr()
        torch.ne(self._kept, self._given, out=self._where)
        return bool(self._where.view(torch.uint8).max())


def as_bytes(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.detach().view(-1).view(torch.uint8)


@functools.cache
def memory_differs() -> Callable[[int, int, int], int]:
    """C's ``memcmp``; other threads go on meanwhile."""
    compare = ctypes.CDLL(None).memcmp
    compare.argtypes, compare.restype = (ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t), ctypes.c_int
    return compare


Queue = SimpleQueue["Asked | None"]
_seconds: dict[int, Queue | None] = {}
"""For each process what its second thread takes from, or nothing where none can be had. A fork has none of its parent's."""


def second_thread() -> Queue | None:
    process = os.getpid()
    if process not in _seconds:
        queue: Queue = SimpleQueue()  # whose ``put`` may come in the middle of another
        thread = threading.Thread(target=_compare, args=(queue,), name="mlc_torch-compares", daemon=True)
        try:
            thread.start()
            _seconds[process] = queue
            atexit.register(_end, process, queue, thread)
        except RuntimeError:  # a limit of the process, or its end
            _seconds[process] = None
    return _seconds[process]


def _compare(queue: Queue) -> None:
    while (asked := queue.get()) is not None:
        asked.begin()


def _end(process: int, queue: Queue, thread: threading.Thread) -> None:
    """While Python can still end it in order: it would be cut off in the middle of torch's code, which ends in an abort."""
    _seconds[process] = None
    queue.put(None)
    thread.join(10.0)  # it may be in a finalizer of the program
