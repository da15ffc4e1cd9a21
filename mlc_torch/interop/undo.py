"""Several changes as one: all of them are made, or none."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

import torch

Undo = Callable[[Callable[[], Any]], None]
"""Takes what brings back how things were."""

Change = Callable[[Undo], None]
"""Makes a change; before each step of it, says how that step is undone."""


def all_or_nothing(changes: Iterable[Change]) -> None:
    """Make the changes one by one; whatever stops them, Ctrl-C too, undoes those that were made and goes on its way."""
    undoing: list[Callable[[], Any]] = []
    try:
        for change in changes:
            change(undoing.append)
    except BaseException:
        for undo in reversed(undoing):
            undo()
        raise


def overwrite(memory: torch.Tensor, value: torch.Tensor, undo: Undo) -> None:
    """Copy ``value`` into ``memory``; the old numbers wait in host memory, of which there is more."""
    undo(partial(memory.copy_, memory.to("cpu", copy=True)))
    memory.copy_(value)
