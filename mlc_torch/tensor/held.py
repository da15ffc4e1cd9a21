"""A tensor's value as one thread goes on seeing it, while other threads see a newer one.

A result that is handed to a completion handler is the graph's own tensor as long as one thread alone uses the graph. Should
another thread come just then, the handler still reads its own result: the state behind the tensor is of the class below
until the handler is done. All other times nothing of this is there, and nothing is asked.
"""

from __future__ import annotations

import sys
from threading import get_ident
from types import FrameType
from typing import NamedTuple

import torch

from mlc_torch.tensor.state import TensorState


class Held(NamedTuple):
    """What a thread goes on seeing."""

    thread: int
    call: FrameType
    """It lasts as long as this call."""
    state: TensorState
    """The tensor as it was."""

    def is_over(self) -> bool:
        frame = sys._current_frames().get(self.thread)
        while frame is not None and frame is not self.call:
            frame = frame.f_back
        return frame is None


def hold(state: TensorState, thread: int, call: FrameType) -> None:
    """Let ``thread`` see ``state`` as it is now, until ``call`` has returned or the thread itself gives it a value."""
    if state.held is not None and not state.held.is_over():
        return  # a third thread has come, and the first one still sees what it did
    state.held = Held(thread, call, state.frozen(state.value))
    state.__class__ = HeldState


class HeldState(TensorState):
    """A tensor whose value looks different to one thread."""

    __slots__ = ()

    def _seen(self) -> TensorState | None:
        """What the calling thread sees in place of the newest value."""
        held = self.held
        if held is None or held.is_over():
            self._let_go()
            return None
        return held.state if held.thread == get_ident() else None

    def _let_go(self) -> None:
        self.__class__, self.held = TensorState, None  # type: ignore[assignment]

    @property
    def value(self) -> torch.Tensor | None:
        seen = self._seen()
        return _value.__get__(self) if seen is None else seen.value

    @value.setter
    def value(self, value: torch.Tensor | None) -> None:
        if self._seen() is not None:
            self._let_go()
        _value.__set__(self, value)

    @property
    def snapshot(self) -> memoryview | None:
        seen = self._seen()
        return _snapshot.__get__(self) if seen is None else seen.snapshot

    @snapshot.setter
    def snapshot(self, snapshot: memoryview | None) -> None:
        seen = self._seen()
        if seen is None:
            _snapshot.__set__(self, snapshot)
        else:
            seen.snapshot = snapshot


_value, _snapshot = vars(TensorState)["value"], vars(TensorState)["snapshot"]
