"""Labels, which are free text, as names in files."""

from __future__ import annotations

from collections.abc import Container
from itertools import chain, count


def spelled(label: str) -> str:
    """A label as text that files can hold: halves of characters, which Python allows, are written out."""
    return label.encode(errors="backslashreplace").decode()


def unused(name: str, used: Container[str]) -> str:
    """``name``, or with a number where another bears it: ``a``, ``a_1``."""
    return next(n for n in chain([name], (f"{name}_{i}" for i in count(1))) if n not in used)
