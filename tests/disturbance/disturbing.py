"""How a call is disturbed in the middle: interrupted at one of its lines, or with an operation of torch that fails."""

from __future__ import annotations

import contextlib
import dis
import linecache
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

import mlc_torch

_LIBRARY = str(Path(mlc_torch.__file__).parent)
_GENERATED = "<mlc_torch"
AROUND = (contextlib.__file__, str(Path(torch.nn.utils.__file__).parent))
"""Whose lines are interrupted as our own: what enters and leaves blocks, and torch's way to swap a module's tensors."""
TORCH_S_OPTIMIZERS = str(Path(torch.optim.__file__).parent)


class Lines:
    """Counts the lines of the library that run, and raises at one of them, as Ctrl-C would.

    With ``again`` it raises a second time, at one of the lines that run because of the first. ``others`` are folders
    whose lines count as the library's. Where ``error`` gives nothing, the call goes on, as behind a signal handler.
    """

    def __init__(
        self,
        at: int | None = None,
        error: Callable[[], BaseException | None] = KeyboardInterrupt,
        again: int | None = None,
        others: tuple[str, ...] = AROUND,
    ) -> None:
        self.at, self.error, self.again, self.count = at, error, again, 0
        self.where = ""
        """The line at which it was raised."""
        self.since = 0
        """How many lines have run since."""
        self._ours = (_LIBRARY, _GENERATED, *others)
        self._ends: dict[tuple[str, int], int] = {}

    def __enter__(self) -> Lines:
        self._before = sys.gettrace()
        sys.settrace(self._look)
        return self

    def __exit__(self, *_: object) -> None:
        sys.setprofile(None)
        sys.settrace(self._before)

    def points(self, points: int | None) -> list[int]:
        """Where to interrupt: at every line; or at some, at the end of every ``with`` block, and around our code.

        Python comes back to the line of a ``with`` when its block has ended, before it lets go of what the block held.
        """
        if points is None:
            return spread(self.count, None)
        chosen, around = {*spread(self.count, points)}, []
        for (file, line), number in self._ends.items():
            if file.startswith(AROUND):
                around.append(number)
            elif linecache.getline(file, line).lstrip().startswith("with "):
                chosen.add(number)
        chosen |= {around[place - 1] for place in spread(len(around), points // 2)}
        return sorted(chosen)

    def of_file(self, name: str, but: str | None = None) -> list[int]:
        """The last time that each line of a file of ours ran, ``but`` for one with this text."""
        return [
            number
            for (file, line), number in self._ends.items()
            if Path(file).name == name and linecache.getline(file, line).strip() != but
        ]

    def each_once(self) -> list[int]:
        """The last time that each line ran: for calls that run some lines ten thousand times."""
        return sorted(self._ends.values())

    def _is_ours(self, frame: FrameType) -> bool:
        return frame.f_code.co_filename.startswith(self._ours)

    def _look(self, frame: FrameType, event: str, _: Any) -> Callable[..., Any] | None:
        if not self._is_ours(frame):
            # Whoever it calls may be ours again; its own lines are of no interest.
            frame.f_trace_lines = False
            return None if event == "call" else self._look
        if event == "line" and not _leaves_by_exception(frame):
            if self.where:
                self.since += 1
            else:
                self.count += 1
                self._ends[frame.f_code.co_filename, frame.f_lineno] = self.count
            if self.since == self.again if self.where else self.count == self.at:
                second = bool(self.where)
                self.where += (
                    f"{', then ' * second}{Path(frame.f_code.co_filename).name}:{frame.f_lineno} "
                    f"in {frame.f_code.co_name}"
                )
                sys.settrace(None)
                if self.again is not None and not second:
                    # Python takes a trace function away that raises; whatever is called or returns next brings it back.
                    sys.setprofile(self._look_on)
                error = self.error()
                if error is not None:
                    raise error
        return self._look

    def _look_on(self, frame: FrameType | None, event: str, _: Any) -> None:
        if frame is None or frame.f_code is Lines._look.__code__:
            return
        sys.setprofile(None)
        sys.settrace(self._look)
        while frame is not None:
            if self._is_ours(frame):
                frame.f_trace = self._look
            frame = frame.f_back


def _leaves_by_exception(frame: FrameType) -> bool:
    """Whether an exception has just come back to the line of a ``with``, whose block is about to let go of what it held.

    From Python 3.12 on this is reported as a line. No Ctrl-C can come there: Python looks for signals when a call returns
    or begins and at the end of a loop, and between the exception and ``__exit__`` there is none of these.
    """
    return dis.opname[frame.f_code.co_code[frame.f_lasti]] in ("PUSH_EXC_INFO", "WITH_EXCEPT_START")


def lines_of(call: Callable[[], Any], others: tuple[str, ...] = AROUND) -> Lines:
    """The lines of an undisturbed call."""
    with Lines(others=others) as lines:
        call()
    return lines


def spread(count: int, points: int | None) -> list[int]:
    """Numbers from 1 to ``count``: all of them, or ``points`` at even distances, the first and the last among them."""
    if points is None or count <= points:
        return list(range(1, count + 1))
    if points == 1:
        return [1]
    return sorted({1 + round(k * (count - 1) / (points - 1)) for k in range(points)})


class FailingOperation(TorchDispatchMode):
    """Lets the ``at``-th operation of torch fail with ``error``; without one, counts."""

    def __init__(self, at: int | None = None, error: BaseException | None = None) -> None:
        super().__init__()
        self.at, self.error, self.count = at, error, 0
        self.fired: str | None = None

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.count += 1
        if self.count == self.at and self.error is not None:
            self.fired = str(func)
            raise self.error
        return func(*args, **(kwargs or {}))


@contextmanager
def entered_inside(mode: FailingOperation) -> Iterator[FailingOperation]:
    """The mode is there from the first line of the engine that a call reaches.

    One that stood around the call would be seen: the graph would run in another gear, for it to observe.
    """
    entered = False

    def look(frame: FrameType, event: str, _: Any) -> Callable[..., Any] | None:
        nonlocal entered
        if not entered and frame.f_code.co_filename.startswith(f"{_LIBRARY}/engine/"):
            entered = True
            sys.settrace(None)
            mode.__enter__()
        return None

    before = sys.gettrace()
    sys.settrace(look)
    try:
        yield mode
    finally:
        sys.settrace(before)
        if entered:
            mode.__exit__(None, None, None)


OUT_OF_MEMORY: dict[str, Callable[[], BaseException]] = {
    "torch.OutOfMemoryError": lambda: torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB."),
    "MemoryError": lambda: MemoryError(),
    "the CPU's allocator": lambda: RuntimeError(
        "[enforce fail at alloc_cpu.cpp:124] err == 0. DefaultCPUAllocator: can't allocate memory: you tried to "
        "allocate 4294967296 bytes. Error code 12 (Cannot allocate memory)"
    ),
}
"""How the lack of memory shows itself, on GPUs and on the CPU."""
