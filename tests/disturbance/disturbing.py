"""How a call is disturbed in the middle: interrupted at one of its lines, or with an operation of torch that fails."""

from __future__ import annotations

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


def _is_ours(frame: FrameType) -> bool:
    return frame.f_code.co_filename.startswith((_LIBRARY, _GENERATED))


class Lines:
    """Counts the lines of the library that run, and raises at one of them, as Ctrl-C would."""

    def __init__(self, at: int | None = None, error: type[BaseException] = KeyboardInterrupt) -> None:
        self.at, self.error, self.count = at, error, 0
        self.where = ""
        """The line at which it was raised."""

    def __enter__(self) -> Lines:
        self._before = sys.gettrace()
        sys.settrace(self._look)
        return self

    def __exit__(self, *_: object) -> None:
        sys.settrace(self._before)

    def _look(self, frame: FrameType, event: str, _: Any) -> Callable[..., Any] | None:
        if not _is_ours(frame):
            # Whoever it calls may be ours again; its own lines are of no interest.
            frame.f_trace_lines = False
            return None if event == "call" else self._look
        if event == "line":
            self.count += 1
            if self.count == self.at:
                self.where = f"{Path(frame.f_code.co_filename).name}:{frame.f_lineno} in {frame.f_code.co_name}"
                sys.settrace(None)
                raise self.error
        return self._look


def lines_of(call: Callable[[], Any]) -> int:
    with Lines() as lines:
        call()
    return lines.count


def spread(count: int, points: int | None) -> list[int]:
    """Numbers from 1 to ``count``: all of them, or ``points`` at even distances, the first and the last among them."""
    if points is None or count <= points:
        return list(range(1, count + 1))
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
