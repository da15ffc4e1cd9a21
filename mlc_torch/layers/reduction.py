"""Reductions: many elements become one, along some dimensions, which stay with size 1 (evidence.md D.11)."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import nn

from mlc_torch.enums import MLCDataType, MLCReductionType
from mlc_torch.layers.base import (
    ANY_TYPE,
    BOOLEAN,
    FLOATS,
    INDICES,
    MLCLayer,
    described,
    dimension_of,
    of_type,
    one_source,
)
from mlc_torch.layers.sharing import kept
from mlc_torch.refusals import refuse
from mlc_torch.spelling import declare, prop

Kind = MLCReductionType

_NUMBERS = ANY_TYPE - BOOLEAN


class Reduction(nn.Module):
    """A reduction over ``dimensions``."""

    def __init__(self, dimensions: Sequence[int]) -> None:
        super().__init__()
        self.dimensions = tuple(dimensions)

    def extra_repr(self) -> str:
        return f"dimensions={self.dimensions}"


class Sum(Reduction):
    """Σ x"""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.sum(self.dimensions, keepdim=True, dtype=x.dtype)


class Mean(Reduction):
    """Σ x / n"""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.mean(self.dimensions, keepdim=True)


class Max(Reduction):
    """The largest element; where several are, they share the gradient."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.amax(self.dimensions, keepdim=True)


class Min(Reduction):
    """The smallest element; where several are, they share the gradient."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.amin(self.dimensions, keepdim=True)


class L1Norm(Reduction):
    """Σ |x|"""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.abs().sum(self.dimensions, keepdim=True, dtype=x.dtype)


class Any(Reduction):
    """Whether some element is not 0."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.any(self.dimensions, keepdim=True).bool()  # uint8 would stay uint8


class All(Reduction):
    """Whether no element is 0."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.all(self.dimensions, keepdim=True).bool()


class Position(Reduction):
    """Where an element lies, as float32 (measured); of equal elements the first.

    Over several dimensions it counts through them in the order they were listed, the last one fastest.
    """

    def found(self, x: torch.Tensor, find: Callable[[torch.Tensor, int], torch.Tensor]) -> torch.Tensor:
        kept = [d for d in range(x.dim()) if d not in self.dimensions]
        rows = x.permute(*kept, *self.dimensions).flatten(len(kept))
        shape = [1 if d in self.dimensions else size for d, size in enumerate(x.shape)]
        return find(rows, -1).to(torch.float32).view(shape)


class ArgMax(Position):
    """Where the largest element lies."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.found(x, torch.argmax)


class ArgMin(Position):
    """Where the smallest element lies."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.found(x, torch.argmin)


MODULES: dict[MLCReductionType, tuple[type[Reduction], frozenset[MLCDataType]]] = {
    Kind.sum: (Sum, FLOATS | INDICES),
    Kind.mean: (Mean, FLOATS),
    Kind.max: (Max, _NUMBERS),
    Kind.min: (Min, _NUMBERS),
    Kind.argMax: (ArgMax, _NUMBERS),
    Kind.argMin: (ArgMin, _NUMBERS),
    Kind.l1Norm: (L1Norm, FLOATS | INDICES),
    Kind.any: (Any, ANY_TYPE),
    Kind.all: (All, ANY_TYPE),
}
"""The module of each type, and the data types it takes. Sums of 8-bit integers would not fit into 8 bits."""

_RESULT = {
    Kind.argMax: MLCDataType.float32,
    Kind.argMin: MLCDataType.float32,
    Kind.any: MLCDataType.boolean,
    Kind.all: MLCDataType.boolean,
}
"""Where the result's type is not the source's."""


class MLCReductionLayer(MLCLayer):
    """A sum, mean, extreme, position, norm, "any" or "all" over some dimensions, each of which stays with size 1."""

    reductionType = prop("MLCReductionType", "What is computed over the dimensions.")
    _named = "Reduction"

    @prop("[Int]")
    def dimensions(self):
        """The dimensions that are reduced."""
        return list(self._dimensions)

    @prop("Int")
    def dimension(self):
        """The first of ``dimensions``."""
        return self._dimensions[0] if self._dimensions else 0

    @declare("init?(reductionType: MLCReductionType, dimension: Int)", "layerWithReductionType:dimension:")
    def _along(cls, reductionType, dimension):
        """Over one dimension."""
        return cls._create(reductionType, [dimension])

    @declare("init?(reductionType: MLCReductionType, dimensions: [Int])", "layerWithReductionType:dimensions:")
    def _create(cls, reductionType, dimensions):
        """Over several dimensions."""
        if reductionType not in MODULES:
            refuse(f"reductionType {reductionType.name} reduces nothing; use {', '.join(k.name for k in MODULES)}")
        if not dimensions:
            refuse("dimensions is empty; name at least one")
        if len(set(dimensions)) != len(dimensions):
            refuse(f"dimensions names one twice: {dimensions}")
        return cls._layer(reductionType=reductionType, dimensions=tuple(dimensions))

    def _infer(self, sources):
        source = of_type(one_source(sources), MODULES[self._reductionType][1])
        reduced = {dimension_of(source, d) for d in self._dimensions}
        shape = [1 if d in reduced else size for d, size in enumerate(source._shape)]
        return [described(shape, _RESULT.get(self._reductionType, source._dataType))]

    def _samples(self, axes, sources, results):
        return kept(axes, 1, self._dimensions, "reduces")

    def _build(self):
        return MODULES[self._reductionType][0](self._dimensions)
