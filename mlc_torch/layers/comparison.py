"""Comparisons and logic: two sources, or one for NOT, give a Boolean tensor (evidence.md D.3)."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import nn

from mlc_torch.enums import MLCComparisonOperation, MLCDataType
from mlc_torch.layers.base import BOOLEAN, MLCLayer, broadcast, described, exactly, of_type, same_type
from mlc_torch.layers.sharing import aligned, first_unless_spread
from mlc_torch.spelling import declare, prop

Op = MLCComparisonOperation


def nand(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return ~torch.logical_and(x, y)


def nor(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return ~torch.logical_or(x, y)


COMPARISONS: dict[MLCComparisonOperation, Callable[[torch.Tensor, torch.Tensor], torch.Tensor]] = {
    Op.equal: torch.eq,
    Op.notEqual: torch.ne,
    Op.less: torch.lt,
    Op.greater: torch.gt,
    Op.lessOrEqual: torch.le,
    Op.greaterOrEqual: torch.ge,
    Op.logicalAND: torch.logical_and,
    Op.logicalOR: torch.logical_or,
    Op.logicalNAND: nand,
    Op.logicalNOR: nor,
    Op.logicalXOR: torch.logical_xor,
}


class Comparison(nn.Module):
    """Whether a relation holds between x and y, seen in the shape they broadcast to"""

    def __init__(self, operation: MLCComparisonOperation) -> None:
        super().__init__()
        self.operation = operation
        self.compute = COMPARISONS[operation]

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return self.compute(x, y)

    def extra_repr(self) -> str:
        return self.operation.name


class LogicalNot(nn.Module):
    """not x"""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.logical_not(x)


class MLCComparisonLayer(MLCLayer):
    """Compares two sources, or combines Booleans, element by element; the result is Boolean."""

    operation = prop("MLCComparisonOperation", "The comparison or logical operation.")
    _named = "Compare"
    _supports = frozenset({MLCDataType.float32, MLCDataType.boolean})

    @declare("init(operation: MLCComparisonOperation)", "layerWithOperation:")
    def _create(cls, operation):
        """By operation."""
        return cls._layer(operation=operation)

    @property
    def _takes(self) -> int:
        return 1 if self._operation is Op.logicalNOT else 2

    def _infer(self, sources):
        same_type(sources or exactly(sources, self._takes))
        return [described(broadcast(*(s._shape for s in sources)), MLCDataType.boolean)]

    def _check(self, sources):
        # Measured: logical operations on floats make a node that does not compile.
        for source in exactly(sources, self._takes):
            if self._operation.name.startswith("logical"):
                of_type(source, BOOLEAN, f"a source of {self._operation.name}")

    def _batch_axis(self, position, sources):
        return first_unless_spread(position, sources)

    def _samples(self, axes, sources, results):
        return aligned(axes, sources, len(results[0]._shape))

    def _build(self):
        return LogicalNot() if self._operation is Op.logicalNOT else Comparison(self._operation)
