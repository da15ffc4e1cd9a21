"""Tables of rules: what is done where, and how that is known."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

Asked = TypeVar("Asked")
Said = TypeVar("Said")


@dataclass(frozen=True)
class Rule(Generic[Asked, Said]):
    """Where it applies, what it says there, and how that is known."""

    applies: Callable[[Asked], bool]
    says: Said
    evidence: str


def said(rules: Sequence[Rule[Asked, Said]], asked: Asked) -> Said | None:
    """What the first rule that applies says; ``None`` where none does."""
    return next((rule.says for rule in rules if rule.applies(asked)), None)
