"""Memory that passes on the CPU give back and want again: held, so that the system does not take it in between.

A training step frees nearly all that it has asked for. What lies at the end of the C library's heap then goes back to the
system, and the next step gets it anew, page by page, each filled with zeros. A small block that is left standing behind it
keeps it where it is; nobody uses the block itself. (x86 under KVM, glibc 2.39, a page takes 2 to 3 µs; milliseconds a step that
gets its memory anew, and that finds it, two threads: a transformer block with 1,643 pages 16.2 and 11.9, eight threads 8.0 and
5.4; LeNet with 1,556 12.1 and 8.5. Other libraries that hand out memory, such as the mimalloc inside of torch's builds for ARM,
have rules of their own; so have the heaps of threads other than the first.)
"""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from mlc_torch.engine.trace import Recording
from mlc_torch.engine.views import bytes_of, is_view

if sys.platform == "linux":
    import resource

Phase = Callable[..., Any]

_BLOCK = 64 << 10
"""Bytes. The C library asks the system for blocks of 128 KiB and more one by one, until it has seen some come back."""
_GAP = 4 << 10
"""At most so many bytes lie between two blocks side by side."""
_LITTLE = 256 << 10
"""Bytes that do not matter, in a pass."""
_MOST = 512 << 20
"""Bytes. More is left to itself: blocks are asked for one by one, and of each a page is touched."""
_FIRST, _APART, _SELDOM = 3, 16, 1024
"""Which pass is looked at first, since the library learns from those before; how far apart the others are that are looked at, as
long as all is well; and where it was in vain."""
_HELD = 4
"""How many blocks are held, and how often in a row another one is tried, behind those before."""


class KeptHeap:
    """Runs the phases of a pass, looks at some of them for memory that had been given back, and holds it from then on."""

    def __init__(self, forward: Phase, backward: Phase | None, most: int) -> None:
        self._forward, self._backward, self._most = forward, backward, most
        self._held: deque[torch.Tensor] = deque(maxlen=_HELD)
        self._pages = self._tries = self._worst = 0
        self._until = _FIRST
        """How many passes from now one is looked at."""
        self._looks = False
        """Whether one is being looked at."""

    def forward(self, *given: Any) -> Any:
        if self._looks:  # and its gradient never came
            self._look()
        self._until -= 1
        if self._until > 0:
            return self._forward(*given)
        before = new_pages()
        made = self._forward(*given)
        self._pages, self._looks = new_pages() - before, True
        if self._backward is None:
            self._look()
        return made

    def backward(self, *given: Any) -> Any:
        assert self._backward is not None
        if not self._looks:
            return self._backward(*given)
        before = new_pages()
        made = self._backward(*given)
        self._pages += new_pages() - before
        self._look()
        return made

    def _look(self) -> None:
        """A pass that was looked at is over."""
        self._looks = False
        size = self._pages * resource.getpagesize()
        if size <= _LITTLE:
            self._until, self._tries, self._worst = _APART, 0, 0
            return
        size = min(size, self._most)  # other threads of the program may have got pages, too
        self._worst = max(size, self._worst)
        self._tries += 1
        block = hold(size + size // 4) if self._tries <= _HELD else None
        if block is not None:
            self._held.append(block)
            self._until = 2  # the next one still gets what is held for the first time
            return
        if size > self._worst // 2:
            self._held.clear()  # what it gets anew is nothing that can be held: no heap's, or another part of the program's
        self._until, self._tries, self._worst = _SELDOM, 0, 0


def bytes_made(recording: Recording) -> int:
    """How much memory the results of a pass take; what kernels have for themselves is not told."""
    made = [n for n in recording.graph.nodes if n.op == "call_function" and "lies" in n.meta and not is_view(n)]
    return sum(map(bytes_of, made))


def kept(forward: Phase, backward: Phase, most: int, differentiates: bool) -> tuple[Phase, Phase]:
    """Phases on the CPU that make ``most`` bytes, with an eye on their memory where that matters and the system tells of it."""
    if sys.platform != "linux" or most <= _LITTLE:
        return forward, backward
    room = 2 * most  # kernels have memory of their own
    looking = KeptHeap(forward, backward if differentiates else None, room)
    return looking.forward, looking.backward if differentiates else backward


def new_pages() -> int:
    """How many pages this process has got from the system."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt


def hold(size: int) -> torch.Tensor | None:
    """A block behind ``size`` bytes in one piece, all of them free.

    ``None`` where that is too much, and where torch's memory is not in the C library's heap, as in threads but the first.
    """
    begin, end = heap()
    blocks: deque[torch.Tensor] = deque()  # a list would move as it grows, and lie between two blocks itself
    piece, behind = 0, -1
    while piece < size <= _MOST:
        try:
            block = torch.empty(_BLOCK, dtype=torch.uint8, device="cpu")
        except RuntimeError:  # a limit of the process
            return None
        at = block.data_ptr()
        if (not blocks and not begin <= at < end) or len(blocks) > _MOST // _BLOCK:
            return None
        piece = piece + _BLOCK if 0 <= at - behind < _GAP else _BLOCK
        behind = at + _BLOCK
        blocks.append(block)
    return blocks[-1] if blocks else None


def heap() -> tuple[int, int]:
    """Where the C library's heap lies; nowhere if it has none, or the system does not tell."""
    try:
        places = Path("/proc/self/maps").read_bytes().splitlines()  # names of files may be anything
    except OSError:
        return 0, 0
    for line in places:
        if line.endswith(b"[heap]"):
            begin, _, end = line.partition(b" ")[0].partition(b"-")
            return int(begin, 16), int(end, 16)
    return 0, 0
