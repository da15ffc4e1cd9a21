"""Key-value coding: ``valueForKey_``, ``setValue_forKey_`` and paths such as ``descriptor.shape`` or ``layers.@count``."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from mlc_torch.spelling.arguments import describe

_OPERATORS: dict[str, Callable[[list[Any]], Any]] = {
    "@count": len,
    "@sum": sum,
    "@avg": lambda numbers: sum(numbers) / len(numbers) if numbers else 0.0,
    "@max": lambda numbers: max(numbers, default=None),
    "@min": lambda numbers: min(numbers, default=None),
}


class Keyed:
    """Answers key-value coding by calling its own members."""

    __slots__ = ()

    def valueForKey_(self, key: str) -> Any:
        return own_value(self, key)

    def valueForKeyPath_(self, path: str) -> Any:
        return value_for_path(self, path)

    def setValue_forKey_(self, value: Any, key: str) -> None:
        set_value(self, value, key)

    def setValue_forKeyPath_(self, value: Any, path: str) -> None:
        set_value_for_path(self, value, path)


def _check_key(owner: Any, key: Any, what: str = "key") -> None:
    if not isinstance(key, str):
        raise TypeError(f"{type(owner).__name__}: a {what} is a string, got {describe(key)}")


def value_for_key(owner: Any, key: str) -> Any:
    """What ``owner`` says to a key. Nil has an answer to everything: nil."""
    if owner is None:
        return None
    if not hasattr(owner, "valueForKey_"):
        raise KeyError(f"{owner!r} has no value for the key {key!r}")
    return owner.valueForKey_(key)


def own_value(owner: Any, key: str) -> Any:
    """What ``getKey``, ``key`` or ``isKey`` answers, in this order."""
    _check_key(owner, key)
    titled = key[:1].upper() + key[1:]
    for name in (f"get{titled}", key, f"is{titled}"):
        found = getattr(owner, name, None) if not name.startswith("_") else None
        if callable(found):
            return found()
    raise KeyError(f"{type(owner).__name__} has no value for the key {key!r}")


def value_for_path(owner: Any, path: str) -> Any:
    _check_key(owner, path, "key path")
    key, _, rest = path.partition(".")
    if key in _OPERATORS:
        return _OPERATORS[key](value_for_path(owner, rest) if rest else owner)
    if key.startswith("@"):
        raise KeyError(f"{key} is none of {', '.join(_OPERATORS)}")
    value = value_for_key(owner, key)
    return value_for_path(value, rest) if rest else value


def set_value(owner: Any, value: Any, key: str) -> None:
    """Calls ``setKey_``."""
    _check_key(owner, key)
    found = getattr(owner, f"set{key[:1].upper()}{key[1:]}_", None)
    if found is None:
        raise KeyError(f"{type(owner).__name__} has no value to be set for the key {key!r}")
    found(value)


def set_value_for_path(owner: Any, value: Any, path: str) -> None:
    _check_key(owner, path, "key path")
    first, _, key = path.rpartition(".")
    (value_for_path(owner, first) if first else owner).setValue_forKey_(value, key)
