"""Calls that a program makes in the middle of another one, on the same thread: in a hook, a module, or a signal handler.

A lock does not stop a thread that holds it. What such a call would find is half a step: it is refused. Nothing has to be
remembered for it, which an interruption could leave wrong: Python's own stack tells who is running what.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from types import CodeType
from typing import Any

from mlc_torch.refusals import MLCRefusal

INFERENCE = "<mlc_torch inference>"
"""The file that the code of usual inferences says it is from."""
runs_a_call: set[CodeType] = set()
"""What runs a call under its graph's lock, with that ``graph`` and a ``request`` among its variables."""


def refuse_in_the_midst(graph: Any, over_its_layers: bool = False) -> None:
    """Refuse to go on where this thread is in the middle of a call of ``graph``, or of any graph ``over_its_layers``."""
    if not graph._lock.places[0].lock._is_owned():
        return  # nearly always
    for running, member in _running():
        if running is graph or (over_its_layers and not _places(graph).isdisjoint(_places(running))):
            why = MLCRefusal(
                f"this thread is in the middle of {type(running).__name__}.{member}: what a hook, a module or a signal handler "
                "finds there is half a step; remember what is wanted, and do it when that call has returned"
            )
            why.came_in_the_midst = True
            raise why


def _running() -> Iterator[tuple[Any, str]]:
    """The graphs that this thread is running, the innermost first, and what was called."""
    frame = sys._getframe(1)
    while frame is not None:
        code, outer = frame.f_code, frame.f_back
        if code in runs_a_call:
            yield frame.f_locals["graph"], frame.f_locals["request"].member
        elif code.co_filename == INFERENCE and code.co_name == "inside" and outer is not None:
            yield frame.f_locals["graph"], outer.f_locals["member"]
        frame = outer  # type: ignore[assignment]


def _places(graph: Any) -> set[Any]:
    return set(graph._lock.places)
