"""For each Swift type of the list: the Swift expression that makes a Python object of a value, and the one back."""

from __future__ import annotations

import re

from mlc_torch.coverage.api import api

_PAIR = re.compile(r"\((\w+): Int, (\w+): Int\)")
_PLAIN = {"Int", "Float", "Double", "TimeInterval", "Bool", "String", "Data"}


def to_python(type_: str, value: str) -> str:
    """Swift for a new reference to ``value``. Pointers take their size from a parameter ``length`` beside them."""
    if _PAIR.fullmatch(type_):
        return f"pair({value}.0, {value}.1)"
    if re.fullmatch(r"\[String : \w+\]\??", type_):
        return f"dictionary({value})"
    special = {
        "NSNumber": f"number({value})",
        "UnsafeRawPointer": f"memory({value}, length)",
        "UnsafeMutableRawPointer": f"memory({value}, length)",
        "MLCGraphCompletionHandler?": f"handler({value})",
        "@escaping (UnsafeMutableRawPointer, Int) -> Void": f"releasing({value}, bytes, length)",
        "[any MTLDevice]": f"devices({value})",
    }
    if type_ in special:
        return special[type_]
    _bridged(type_)
    return f"{value}.toPython()"


def from_python(type_: str, value: str) -> str:
    """Swift for the value of the borrowed Python object ``value``."""
    if pair := _PAIR.fullmatch(type_):
        return f"({pair[1]}: item({value}, 0), {pair[2]}: item({value}, 1))"
    special = {
        "NSNumber?": f"numberOrNil({value})",
        "UnsafeMutableRawPointer": f"address({value})",
        "[any MTLDevice]": f"deviceList({value})",
    }
    if type_ in special:
        return special[type_]
    _bridged(type_)
    return f"({type_}).fromPython({value})"


def _bridged(type_: str) -> None:
    """Whether the hand-written or generated Swift makes ``type_`` Bridged; a new kind of type must be seen at once."""
    inner = type_.removesuffix("?")
    if inner.startswith("[") and " : " not in inner:
        inner = inner[1:-1]
    listed = api()["classes"].keys() | api()["enums"].keys() | api()["option_sets"].keys() | _PLAIN | {"Self"}
    if inner not in listed:
        raise LookupError(f"there is no conversion for the Swift type {type_}")
