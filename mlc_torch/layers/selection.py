"""Selection: each element of the result comes from one of two sources, as a Boolean tensor says (evidence.md D.4)."""

from __future__ import annotations

import torch
from torch import nn

from mlc_torch.enums import MLCDataType
from mlc_torch.layers.base import BOOLEAN, MLCLayer, broadcast, described, exactly, of_type, same_type
from mlc_torch.layers.sharing import aligned, first_unless_spread
from mlc_torch.spelling import declare


class Select(nn.Module):
    """x where the condition is true, y where it is false"""

    def forward(self, condition: torch.Tensor, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return torch.where(condition, x, y)


class MLCSelectionLayer(MLCLayer):
    """Picks each element from x where a condition is true, and from y elsewhere.

    Its sources are [condition, x, y]; all three broadcast.
    """

    _named = "Selection"
    _supports = frozenset({MLCDataType.float32, MLCDataType.boolean})

    @declare("init()", "layer")
    def _create(cls):
        """It has no settings."""
        return cls._layer()

    def _infer(self, sources):
        condition, x, y = exactly(sources, 3)
        of_type(condition, BOOLEAN, "the condition (the first source)")
        return [described(broadcast(*(s._shape for s in sources)), same_type((x, y)))]

    def _batch_axis(self, position, sources):
        return first_unless_spread(position, sources)

    def _samples(self, axes, sources, results):
        return aligned(axes, sources, len(results[0]._shape))

    def _build(self):
        return Select()
