"""How ML Compute's silent ``nil`` and ``false`` become an answer with a reason.

Code inside the library calls :func:`refuse`; the public member that was called turns that one exception, and no
other, into ``None``, ``False`` or ``[]``, logs one warning, and keeps the refusal for :func:`last_refusal`.
"""

from __future__ import annotations

import contextlib
import contextvars
import itertools
import logging
import os
import signal
import sys
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType
from typing import Any, NoReturn, TypeVar

from mlc_torch.printable import printable
from mlc_torch.shown_by_default import ShownByDefault

log = logging.getLogger("mlc_torch")
log.addHandler(ShownByDefault(log))

T = TypeVar("T")


class MLCRefusal(ValueError):
    """ML Compute would answer nil or false here.

    ``reason`` says what was expected and what was given; ``member`` names the public member that was called.
    """

    answers: type | None = None
    """The class of what the member gives where it does not refuse, if that is an object."""
    number: int = -1
    """Which of the calls in this process it was."""

    def __init__(self, reason: str, member: str = "") -> None:
        reason = printable(reason)  # a label in it must not forge lines of a log
        super().__init__(reason)
        self.reason = reason
        self.member = member
        self.is_common = False
        """Whether several processes were refused alike, and rank 0 says so for all."""
        self.came_in_the_midst = False
        """Whether it refused a call in the middle of another one, which has ended in the middle then."""
        self.from_handler = False
        """Whether a completion handler raised it: then it is the program's own, and no member turns it into an answer."""

    def __str__(self) -> str:
        return f"{self.member}: {self.reason}" if self.member else self.reason

    def __reduce__(self) -> tuple[type[MLCRefusal], tuple[str, str]]:
        return type(self), (self.reason, self.member)


class RanksLost(Exception):
    """Another process that trains the same graph ended, or did not answer in time.

    The step was not taken, and the processes cannot go on together: start them again from the last checkpoint. This is
    no refusal, which would be answered with ``False`` and passed over.
    """


class MLCTrainingWarning(UserWarning):
    """Something about a training graph that the framework accepts without a word and that keeps it from learning."""


def warn_the_program(text: str, category: type[Warning] = UserWarning) -> None:
    """Warn at the line of the program that called into the library."""
    level, frame = 1, sys._getframe()
    while frame.f_back is not None and (frame.f_code.co_filename.startswith(_OURS) or _is_generated(frame)):
        level, frame = level + 1, frame.f_back
    warnings.warn(printable(text), category, stacklevel=level)  # a label in it must not forge lines


def _is_generated(frame: FrameType) -> bool:
    """Whether no file has the code that runs there, and one has the rest of its module: what ``@dataclass`` writes is such."""
    return frame.f_code.co_filename == "<string>" and "__file__" in frame.f_globals


_OURS = (f"{Path(__file__).parent}{os.sep}", "<mlc_torch")

strictness: contextvars.ContextVar[bool | None] = contextvars.ContextVar("mlc_torch_strict", default=None)
"""What ``strict()`` sets; code that has no time for a ``with`` block sets it itself."""
_last: contextvars.ContextVar[MLCRefusal | None] = contextvars.ContextVar("mlc_torch_last_refusal", default=None)


def refuse(reason: str) -> NoReturn:
    """Leave the public member that was called with the answer ML Compute gives when it cannot do what was asked."""
    raise MLCRefusal(reason)


def pass_on_signals(error: Exception) -> None:
    """Raise what a program's signal handler has raised, a timeout for example: it says nothing about what it struck.

    For those who take any exception as an answer. Python runs handlers in the middle of other code.
    """
    handlers = [signal.getsignal(number) for number in signal.valid_signals()]
    codes = {getattr(getattr(h, "__func__", h), "__code__", None) for h in handlers} - {None}
    place = error.__traceback__
    while place is not None:
        if place.tb_frame.f_code in codes:
            raise error
        place = place.tb_next


def in_one_line(error: Exception) -> str:
    """An exception for a log line or a table."""
    return printable(f"{type(error).__name__}: {str(error).strip().partition(chr(10))[0]}".rstrip(": "))


def is_strict() -> bool:
    """Whether refusals raise in this context: inside ``strict()``, or everywhere with ``MLC_TORCH_STRICT=1``."""
    chosen = strictness.get()
    return _is_on("MLC_TORCH_STRICT") if chosen is None else chosen


_ON, _OFF = ("1", "true", "yes", "on"), ("", "0", "false", "no", "off")


def _is_on(name: str) -> bool:
    """Whether a variable of the environment says yes."""
    given = os.environ.get(name, "").strip().lower()
    if given not in _ON and given not in _OFF:
        raise MLCRefusal(f"{name}={given!r} is not known; {', '.join(_ON)} and {', '.join(_OFF[1:])} are")
    return given in _ON


@contextlib.contextmanager
def strict(on: bool = True) -> Iterator[None]:
    """Within this block a refusal raises :class:`MLCRefusal`. Other threads and asyncio tasks are not affected."""
    before = strictness.get()
    try:
        strictness.set(on)  # within: a Ctrl-C may strike as soon as it is set
        yield
    finally:
        strictness.set(before)


def raising(call: Callable[..., T], *args: Any, **given: Any) -> T:
    """What ``call`` gives; a refusal is raised. Unlike the block above, no Ctrl-C, wherever it strikes, leaves this on."""
    before = strictness.get()
    try:
        strictness.set(True)
        return call(*args, **given)
    finally:
        strictness.set(before)


def last_refusal() -> MLCRefusal | None:
    """The newest refusal in this context, or ``None``. Its text says who refused, which argument, and why."""
    return _last.get()


def forget_last() -> None:
    """Begin anew: in this context nothing was refused yet."""
    _last.set(None)


calls = itertools.count()
"""Counts what passes a door and what is refused there, to tell whether a refusal was the very last thing to happen."""


def note(why: MLCRefusal, member: str, answers: type | None = None) -> None:
    """Record a refusal at the door of ``member`` and log it, unless the caller asked for exceptions."""
    if not why.member:
        why.member = member
    why.answers, why.number = answers, next(calls)
    _last.set(why)
    if not is_strict():
        why.with_traceback(None).__context__ = None  # the frames of a kept exception would keep whole graphs alive
        log.warning("refused: %s", why)


def answer(why: MLCRefusal, member: str, value: Any, answers: type | None = None) -> Any:
    """What the public member gives back for a refusal: ``value``, or the exception in strict mode."""
    note(why, member, answers)
    if is_strict():
        raise shortened(why)
    return value


def shortened(why: MLCRefusal) -> MLCRefusal:
    """The refusal without the frames that lie inside the library, so that a traceback ends at the program's own line.

    Left as it is where a program's own code stands among them: a module, a hook or a handler of its own refused.
    """
    place = why.__traceback__
    while place is not None:
        frame = place.tb_frame
        room = str(frame.f_globals.get("__name__", "")).partition(".")[0]
        if not (room in _NOT_THE_PROGRAM or frame.f_code.co_filename.startswith("<mlc_torch")):
            return why
        place = place.tb_next
    return why.with_traceback(None)


_NOT_THE_PROGRAM = {"mlc_torch", "torch"} | (sys.stdlib_module_names - {"__main__"})


def why_none(wanted: type, call: int) -> str:
    """Where a ``None`` probably came from that stands in the place of a ``wanted``: the newest refusal, if it can be.

    ``call`` is the number of the call that was given it: straight after the refusal there is no doubt.
    """
    why = _last.get()
    if why is None or why.answers is None or not issubclass(why.answers, wanted):
        return ""
    doubt = "" if call == why.number + 1 else "perhaps "
    return f"; {doubt}from {why.member}, which was refused because {why.reason}"


def unwrap(value: T | None) -> T:
    """Swift's ``value!``: the value, or an :class:`MLCRefusal` that repeats why there is none."""
    if value is None:
        why = _last.get()
        raise MLCRefusal(f"unexpectedly found None; the last refusal was: {why}" if why else "unexpectedly found None")
    return value
