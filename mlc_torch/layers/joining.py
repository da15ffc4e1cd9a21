"""Layers that join tensors along a dimension and cut one apart: concatenation and split (evidence.md D.5, D.12).

They move elements and take every data type.
"""

from __future__ import annotations

import torch
from torch import nn

from mlc_torch.descriptors.base import not_negative, positive
from mlc_torch.layers.base import MLCLayer, described, dimension_of, one_source, same_type
from mlc_torch.layers.sharing import aligned, kept
from mlc_torch.refusals import refuse
from mlc_torch.spelling import declare, prop
from mlc_torch.tensor import MLCTensorDescriptor


class Concatenate(nn.Module):
    """The sources one after the other along one dimension"""

    def __init__(self, dimension: int) -> None:
        super().__init__()
        self.dimension = dimension

    def forward(self, *sources: torch.Tensor) -> torch.Tensor:
        return torch.cat(sources, self.dimension)

    def extra_repr(self) -> str:
        return f"dimension={self.dimension}"


class MLCConcatenationLayer(MLCLayer):
    """Joins tensors along one dimension; they agree in all others."""

    dimension = prop("Int", "The dimension along which the tensors are joined.")
    _named = "Concat"

    @declare("init()", "layer")
    @declare("init(dimension: Int)", "layerWithDimension:")
    def _create(cls, dimension=1):
        """Along dimension 1, the channels, unless told otherwise."""
        return cls._layer(dimension=not_negative("dimension", dimension))

    def _infer(self, sources):
        if not sources:
            refuse("takes at least one source, got none")
        shape, d = list(sources[0]._shape), dimension_of(sources[0], self._dimension)
        for source in sources[1:]:
            if len(source._shape) != len(shape) or any(
                size != other for k, (size, other) in enumerate(zip(source._shape, shape, strict=True)) if k != d
            ):
                shapes = ", ".join(str(s.shape) for s in sources)
                refuse(f"sources must agree in all dimensions but {d}, got shapes {shapes}")
        shape[d] = sum(s._shape[d] for s in sources)
        return [described(shape, same_type(sources))]

    def _samples(self, axes, sources, results):
        found = aligned(axes, sources, len(results[0]._shape))
        kept(found.results, 1, [self._dimension], "joins along")
        return found

    def _build(self):
        return Concatenate(self._dimension)


class Chunk(nn.Module):
    """``count`` equal parts; the last may be smaller, and there are fewer where there is not enough"""

    def __init__(self, count: int, dimension: int) -> None:
        super().__init__()
        self.count, self.dimension = count, dimension

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return torch.chunk(x, self.count, self.dimension)

    def extra_repr(self) -> str:
        return f"count={self.count}, dimension={self.dimension}"


class Sections(nn.Module):
    """Parts of given lengths"""

    def __init__(self, lengths: tuple[int, ...], dimension: int) -> None:
        super().__init__()
        self.lengths, self.dimension = list(lengths), dimension

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return torch.split(x, self.lengths, self.dimension)

    def extra_repr(self) -> str:
        return f"lengths={self.lengths}, dimension={self.dimension}"


class MLCSplitLayer(MLCLayer):
    """Cuts a tensor along one dimension into equal parts, or into parts of given lengths."""

    dimension = prop("Int", "The dimension that is cut.")
    splitCount = prop("Int", "How many parts there are.")
    _named = "Split"

    @prop("[Int]?")
    def splitSectionLengths(self):
        """The length of each part, or ``None`` for equal parts."""
        return None if self._lengths is None else list(self._lengths)

    @declare("init(splitCount: Int, dimension: Int)", "layerWithSplitCount:dimension:")
    def _create(cls, splitCount, dimension):
        """Into ``splitCount`` equal parts."""
        not_negative("dimension", dimension)
        return cls._layer(splitCount=positive("splitCount", splitCount), dimension=dimension, lengths=None)

    @declare("init(splitSectionLengths lengths: [Int], dimension: Int)", "layerWithSplitSectionLengths:dimension:")
    def _of_lengths(cls, lengths, dimension):
        """Into parts of these lengths."""
        not_negative("dimension", dimension)
        if not lengths:
            refuse("splitSectionLengths is empty; a split gives at least one part")
        for length in lengths:
            positive("every entry of splitSectionLengths", length)
        return cls._layer(splitCount=len(lengths), dimension=dimension, lengths=tuple(lengths))

    def _infer(self, sources):
        source = one_source(sources)
        d = dimension_of(source, self._dimension)
        before, after = source._shape[:d], source._shape[d + 1 :]
        lengths = self._lengths or chunks(source._shape[d], self._splitCount)
        return [described((*before, length, *after), source._dataType) for length in lengths]

    def _check(self, sources):
        # Measured: the lengths of a node are not held against the source; the compile refuses them.
        source: MLCTensorDescriptor = one_source(sources)
        extent = source._shape[dimension_of(source, self._dimension)]
        if self._lengths is not None and sum(self._lengths) != extent:
            refuse(
                f"splitSectionLengths {list(self._lengths)} add up to {sum(self._lengths)}, dimension "
                f"{self._dimension} of the source of shape {source.shape} has {extent}"
            )

    def _samples(self, axes, sources, results):
        return kept(axes, len(results), [self._dimension], "cuts apart")

    def _build(self):
        if self._lengths is None:
            return Chunk(self._splitCount, self._dimension)
        return Sections(self._lengths, self._dimension)


def chunks(extent: int, count: int) -> list[int]:
    """The lengths ``torch.chunk`` gives: equal parts rounded up, the last one smaller or missing (evidence.md C3)."""
    size = -(-extent // count)
    return [min(size, extent - start) for start in range(0, extent, size)]
