"""What a picture of a graph consists of."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from mlc_torch.printable import printable

LONGEST, _LONGEST_HINT = 34, 300


@dataclass(frozen=True)
class Box:
    """A layer, or a tensor at the border of the graph."""

    key: str
    kind: str
    """``layer``, ``loss``, ``input``, ``label``, ``constant`` or ``output``."""
    title: str
    details: tuple[str, ...]
    hint: str
    """What a mouse over the box shows."""

    @classmethod
    def of(cls, key: str, kind: str, title: str, details: Iterable[str], hint: str) -> Box:
        """Labels in it made fit for a picture; they may be long, and hold anything."""
        lines = tuple(printable(line) for line in details)
        return cls(key, kind, printable(title, LONGEST), lines, printable(hint, _LONGEST_HINT))


@dataclass(frozen=True)
class Edge:
    """A tensor on its way from one box to another."""

    tail: str
    head: str
    shape: str
    stopped: bool
    """Whether no gradient flows back here."""


@dataclass(frozen=True)
class Picture:
    boxes: tuple[Box, ...]
    edges: tuple[Edge, ...]
