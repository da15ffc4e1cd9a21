"""What every gear offers: a way to run a plan's forward and gradient phases."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

import torch

Tensors = Sequence[torch.Tensor]
Forward = Callable[[Tensors, Tensors], Tensors]
Gradients = tuple[list[torch.Tensor | None], list[torch.Tensor | None]]
"""Those of the plan's trained tensors, and those of its wanted slots."""


class Gear(Protocol):
    """Runs the phases of one plan for one set of shapes and in one mode."""

    name: str
    why: str
    """Why it is not the usual gear; empty where it is."""

    def forward(self, feeds: Tensors, constants: Tensors) -> Tensors:
        """The values of the plan's readable slots; what the gradient needs is kept if it is to follow."""

    def gradient(self, injected: Tensors) -> Gradients:
        """The gradients, once for each forward pass."""
