"""Calling a completion handler: with its result, once, and never so deep inside other handlers that Python gives up."""

from __future__ import annotations

import sys
import threading
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from mlc_torch.refusals import MLCRefusal
from mlc_torch.spelling.own import misfit
from mlc_torch.tensor import MLCTensor

MLCGraphCompletionHandler = Callable[[MLCTensor | None, Exception | None, float], Any]
Handler = MLCGraphCompletionHandler


def deliver(handler: Handler, result: MLCTensor | None, error: Exception | None, seconds: float) -> None:
    """Call ``handler``. A refusal that it raises is the program's own: no member shall turn it into an answer."""
    try:
        handler(result, error, seconds)
    except (MLCRefusal, TypeError) as raised:
        came_from_handler(raised, handler)
        raise


_DEEPEST = 32
"""How many handlers of a thread may be under way inside one another before the next one waits for its turn. Each takes four or
five of the thousand calls that Python allows inside one another."""
_Delivery = tuple[Handler, MLCTensor | None, Exception | None, float]


class _Handlers(threading.local):
    """Those that a thread is calling, other than for calls with the option ``synchronous``."""

    def __init__(self) -> None:
        self.depth = 0
        """How many are under way inside one another. A Ctrl-C may leave it too high."""
        self.waiting: deque[_Delivery] = deque()
        """What is left to the deepest of them, for when it has returned."""


_handlers = _Handlers()


def deliver_in_turn(handler: Handler, result: MLCTensor | None, error: Exception | None, seconds: float) -> None:
    """Call ``handler``; or, deep inside other handlers, leave it to the deepest of them, which calls it when it has returned.

    So a handler may start the next batch, whose handler starts the next one, as often as there are batches. What one raises
    keeps none of the others from being called, unless it ends the program.
    """
    mine = _handlers
    depth, waiting = mine.depth, mine.waiting
    if depth >= _DEEPEST:
        if _is_called_by_a_handler():
            waiting.append((handler, _kept(result), error, seconds))
            return
        depth = 0
    mine.depth = depth + 1
    try:
        deliver(handler, result, error, seconds)
    except Exception as raised:
        if not waiting:
            raise
        _deliver_all(waiting, raised)
    else:
        if waiting:
            _deliver_all(waiting, None)
    finally:
        mine.depth = depth
        waiting.clear()  # empty already, but for a Ctrl-C


def _deliver_all(waiting: deque[_Delivery], raised: Exception | None) -> None:
    """Call those that wait, and those that they leave; then raise what was raised last, with what came before it behind it."""
    while waiting:
        try:
            _deliver_after(raised, waiting.popleft())
        except Exception as error:  # noqa: BLE001 - raised below
            raised = error
    try:
        if raised is not None:
            with _unchanged(raised):
                raise raised
    finally:
        del raised  # which knows this call, by its traceback: nobody would let go of the two


def _deliver_after(raised: Exception | None, delivery: _Delivery) -> None:
    if raised is None:
        deliver(*delivery)
        return
    with _unchanged(raised):
        try:
            raise raised
        except Exception:  # so that Python itself says which came first
            deliver(*delivery)
            raise


@contextmanager
def _unchanged(raised: Exception) -> Iterator[None]:
    """``raised`` can be raised inside, and says afterwards where it came from, and behind what, as it did before."""
    context, trace = raised.__context__, raised.__traceback__
    try:
        yield
    finally:
        raised.__context__, raised.__traceback__ = context, trace


def _is_called_by_a_handler() -> bool:
    """Whether the count is right that somebody is there to call what waits: Python's own stack tells, a few calls up."""
    frame = sys._getframe(1).f_back
    while frame is not None and frame.f_code is not deliver_in_turn.__code__:
        frame = frame.f_back
    return frame is not None


def _kept(result: MLCTensor | None) -> MLCTensor | None:
    """A result that later runs do not change."""
    if result is None or result._cell.is_frozen:
        return result
    return MLCTensor._of(result._cell.frozen(result._cell.value))


def came_from_handler(raised: MLCRefusal | TypeError, handler: Handler) -> None:
    """Mark what a handler raised; where it could not even be called, say how it is called."""
    if isinstance(raised, MLCRefusal):
        raised.from_handler = True
    elif (said := _misfit(handler)) is not None:
        raised.add_note(said)


def check_handler(handler: Handler) -> None:
    """A handler that cannot take what it is called with: better told before the update than after it."""
    said = _misfit(handler)
    if said is not None:
        raise TypeError(said)


def _misfit(handler: Handler) -> str | None:
    return misfit("a completion handler", handler, result=None, error=None, executionTime=0.0)
