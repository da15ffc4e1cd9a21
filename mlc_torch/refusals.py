"""How ML Compute's silent ``nil`` and ``false`` become an answer with a reason.

Code inside the library calls :func:`refuse`; the public member that was called turns that one exception, and no
other, into ``None``, ``False`` or ``[]``, logs one warning, and keeps the refusal for :func:`last_refusal`.
"""

from __future__ import annotations

import contextlib
import contextvars
import logging
import os
from collections.abc import Iterator
from typing import Any, NoReturn, TypeVar

from mlc_torch.shown_by_default import ShownByDefault

log = logging.getLogger("mlc_torch")
log.addHandler(ShownByDefault(log))

T = TypeVar("T")


class MLCRefusal(ValueError):
    """ML Compute would answer nil or false here.

    ``reason`` says what was expected and what was given; ``member`` names the public member that was called.
    """

    def __init__(self, reason: str, member: str = "") -> None:
        super().__init__(reason)
        self.reason = reason
        self.member = member
        self.from_handler = False
        """Whether a completion handler raised it: then it is the program's own, and no member turns it into an answer."""

    def __str__(self) -> str:
        return f"{self.member}: {self.reason}" if self.member else self.reason

    def __reduce__(self) -> tuple[type[MLCRefusal], tuple[str, str]]:
        return type(self), (self.reason, self.member)


class MLCTrainingWarning(UserWarning):
    """Something about a training graph that the framework accepts without a word and that keeps it from learning."""


_strict: contextvars.ContextVar[bool | None] = contextvars.ContextVar("mlc_torch_strict", default=None)
_last: contextvars.ContextVar[MLCRefusal | None] = contextvars.ContextVar("mlc_torch_last_refusal", default=None)


def refuse(reason: str) -> NoReturn:
    """Leave the public member that was called with the answer ML Compute gives when it cannot do what was asked."""
    raise MLCRefusal(reason)


def in_one_line(error: Exception) -> str:
    """An exception for a log line or a table."""
    return f"{type(error).__name__}: {str(error).strip().partition(chr(10))[0]}".rstrip(": ")


def is_strict() -> bool:
    """Whether refusals raise in this context: inside ``strict()``, or everywhere with ``MLC_TORCH_STRICT=1``."""
    chosen = _strict.get()
    if chosen is None:
        return os.environ.get("MLC_TORCH_STRICT", "") not in ("", "0")
    return chosen


@contextlib.contextmanager
def strict(on: bool = True) -> Iterator[None]:
    """Within this block a refusal raises :class:`MLCRefusal`. Other threads and asyncio tasks are not affected."""
    token = _strict.set(on)
    try:
        yield
    finally:
        _strict.reset(token)


def last_refusal() -> MLCRefusal | None:
    """The newest refusal in this context, or ``None``. Its text says who refused, which argument, and why."""
    return _last.get()


def note(why: MLCRefusal, member: str) -> None:
    """Record a refusal at the door of ``member`` and log it, unless the caller asked for exceptions."""
    if not why.member:
        why.member = member
    _last.set(why)
    if not is_strict():
        why.with_traceback(None).__context__ = None  # the frames of a kept exception would keep whole graphs alive
        log.warning("refused: %s", why)


def answer(why: MLCRefusal, member: str, value: Any) -> Any:
    """What the public member gives back for a refusal: ``value``, or the exception in strict mode."""
    note(why, member)
    if is_strict():
        raise why
    return value


def unwrap(value: T | None) -> T:
    """Swift's ``value!``: the value, or an :class:`MLCRefusal` that repeats why there is none."""
    if value is None:
        why = _last.get()
        raise MLCRefusal(f"unexpectedly found None; the last refusal was: {why}" if why else "unexpectedly found None")
    return value
