"""Which known name a mistaken one was probably meant to be."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

_NEAR = 0.75
"""From which likeness on (1: the same letters) a name counts as a near miss: ``lable`` and ``label`` have 0.8."""


_WORTH_COMPARING = 0.5
"""Names whose lengths alone keep them from this likeness are nobody's typing mistake: to compare long ones takes seconds."""


def likeness(one: str, other: str) -> float:
    """From 0 to 1; capitals do not count. 0 where one name is more than three times as long as the other."""
    if 2 * min(len(one), len(other)) < _WORTH_COMPARING * (len(one) + len(other)):
        return 0.0
    return difflib.SequenceMatcher(None, one.lower(), other.lower()).ratio()


def near_miss(name: str, known: Iterable[str]) -> str | None:
    """The known name that ``name`` nearly is."""
    best = max(known, key=lambda other: likeness(name, other), default="")
    return best if likeness(name, best) >= _NEAR else None


def hint(name: str, known: Iterable[str]) -> str:
    """The end of an error message: the near miss where there is one."""
    best = near_miss(name, known)
    return f"; closest: {best}" if best is not None else ""


def hint_or_all(name: str, known: Iterable[str]) -> str:
    """The end of an error message: the near miss, or all there is where nothing comes near."""
    known = list(known)
    return hint(name, known) or (f"; there is {', '.join(known)}" if known else "")
