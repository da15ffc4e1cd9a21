"""What ``fit`` takes, checked before anything is trained."""

from __future__ import annotations

import functools
import inspect
import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from numbers import Integral, Real
from typing import Any, TypeVar

from mlc_torch.running.batches import check_batches
from mlc_torch.running.history import Epoch
from mlc_torch.spelling.arguments import describe
from mlc_torch.spelling.closest import hint
from mlc_torch.spelling.own import misfit

F = TypeVar("F", bound=Callable[..., Any])
Callback = Callable[[Epoch], object]
"""Called after each epoch. Training ends where it returns ``True``."""


def check_numbers(epochs: Any, patience: Any, accumulate: Any, min_delta: Any) -> None:
    for name, number in (("epochs", epochs), ("patience", patience), ("accumulate", accumulate)):
        if number is None and name == "patience":
            continue
        if not isinstance(number, Integral) or isinstance(number, bool):
            raise TypeError(f"{name} must be a whole number, got {describe(number)}")
        if number < 1:
            raise ValueError(f"{name} must be at least 1, got {number}")
    if isinstance(min_delta, bool) or not isinstance(min_delta, Real):
        raise TypeError(f"min_delta must be a number, got {describe(min_delta)}")
    try:
        finite = math.isfinite(min_delta)
    except OverflowError:  # a whole number or a fraction that no float is as large as
        raise TypeError(f"min_delta must be a number that a float holds, got {describe(min_delta)}") from None
    if not finite:
        raise ValueError(f"min_delta must be finite, got {min_delta}")


def check_sources(batches: Any, validation: Any, epochs: int) -> None:
    """What gives batches gives them as often as they are asked for."""
    for name, given in (("batches", batches), ("validation", validation)):
        if given is not None or name == "batches":
            check_batches(name, given)
        if isinstance(given, Iterator) and (epochs > 1 or name == "validation"):
            raise TypeError(f"{name} is an iterator, which is empty after one epoch; pass a list, or what makes it")
    if isinstance(validation, (list, tuple)) and not validation:
        raise ValueError("the validation has no batches")  # in the words for any other, but before an epoch is trained


def as_callbacks(given: Any) -> list[Callback]:
    single = isinstance(given, (str, bytes, Mapping)) or getattr(given, "ndim", 1) == 0
    several = isinstance(given, Iterable) and not single
    called = [given] if callable(given) else list(given) if several else None
    if called is None or not all(map(callable, called)):
        raise TypeError(
            f"callbacks must be a function that is called with the Epoch, or a list of such, got {describe(given)}"
        )
    for callback in called:
        if (said := misfit("a callback of fit", callback, epoch=None)) is not None:
            raise TypeError(said)
    return called


def is_true(answer: object) -> bool:
    """Whether a callback asks for the end, in Python's words, NumPy's or torch's: what ``write`` gives, say, is no answer."""
    is_one = getattr(answer, "ndim", None) == 0 and str(getattr(answer, "dtype", "")) in ("bool", "torch.bool")
    return bool(answer) if isinstance(answer, bool) or is_one else False


def shows_usage(example: str) -> Callable[[F], F]:
    """Decorator: a call with arguments that do not exist raises a ``TypeError`` that shows how the method is called."""

    def mark(function: F) -> F:
        signature = inspect.signature(function)

        @functools.wraps(function)
        def call(*args: Any, **options: Any) -> Any:
            try:
                signature.bind(*args, **options)
            except TypeError as error:
                unknown = [name for name in options if name not in signature.parameters]
                meant = hint(unknown[0], signature.parameters) if unknown else ""
                raise TypeError(f"MLCTrainingGraph.{function.__name__}: {error}{meant}; call it as {example}") from None
            return function(*args, **options)

        return call  # type: ignore[return-value]

    return mark
