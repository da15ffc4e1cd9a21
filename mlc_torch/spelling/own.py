"""Checks of arguments that Apple's interface does not have, in the words that the door uses for those it has."""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from mlc_torch.refusals import MLCRefusal
from mlc_torch.spelling.arguments import describe, is_bool


def wrong_type(who: str, name: str, what: str, came: Any) -> TypeError:
    """The error for an argument of the wrong type."""
    return TypeError(f"{who}: argument {name!r} expects {what}, got {describe(came)}")


def as_path(who: str, path: Any, name: str = "path") -> Path:
    """A path as the program gave it; what no file can be called is refused."""
    try:
        text = os.fspath(path)
    except TypeError:
        text = None
    if not isinstance(text, str):  # bytes, which Python takes for paths too, would be text in some places only
        raise wrong_type(who, name, "a path (str or os.PathLike)", path)
    try:
        speakable = b"\0" not in os.fsencode(text)
    except UnicodeEncodeError:
        speakable = False
    if not speakable:
        raise MLCRefusal(f"argument {name!r} is {text!r}, and no file can be called so", who)
    return Path(text)


def as_switch(who: str, name: str, value: Any) -> bool:
    """True or false, NumPy's too: in Python any other value passes for one of the two, ``"no"`` for true."""
    if not is_bool(value):
        raise wrong_type(who, name, "a bool", value)
    return bool(value)


def misfit(what: str, function: Callable[..., Any], **called_with: Any) -> str | None:
    """What is wrong with the parameters of a program's function, told by what it will be called with, in this order."""
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):
        return None  # some of what C code defines does not tell
    try:
        signature.bind(*called_with.values())
    except TypeError:
        return f"{what} is called with ({', '.join(called_with)}), this one takes {signature}"
    return None
