"""Several changes as one: all of them are made, or none."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any

import torch

from mlc_torch.going_back import undone_if_broken_off

Undo = Callable[[Callable[[], Any]], None]
"""Takes what brings back how things were."""

Change = Callable[[Undo], None]
"""Makes a change; before each step of it, says how that step is undone."""


def all_or_nothing(changes: Iterable[Change]) -> None:
    """Make the changes one by one; whatever stops them, Ctrl-C too, undoes those that were made and goes on its way."""
    undoing: list[Callable[[], Any]] = []

    def make() -> None:
        for change in changes:
            change(undoing.append)

    undone_if_broken_off(make, lambda: _undo_all(undoing))


def _undo_all(undoing: Sequence[Callable[[], Any]]) -> None:
    """Undoing twice is as undoing once."""
    for undo in reversed(undoing):
        undo()


def overwrite(memory: torch.Tensor, value: torch.Tensor, undo: Undo) -> None:
    """Copy ``value`` into ``memory``; the old numbers wait in host memory, of which there is more."""
    undo(partial(memory.copy_, memory.to("cpu", copy=True)))
    memory.copy_(value)
