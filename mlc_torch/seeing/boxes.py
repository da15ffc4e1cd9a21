"""What a picture of a graph consists of."""

from __future__ import annotations

from dataclasses import dataclass


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
