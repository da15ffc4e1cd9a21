"""Gather and scatter: elements fetched from, and written to, places that an index tensor names (evidence.md D.13).

The indices come in two forms. As many dimensions as the source: one index for each element. One dimension: one index
for each slice along the layer's dimension. For sources of one dimension both say the same.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import nn

from mlc_torch.descriptors.base import not_negative
from mlc_torch.enums import MLCDataType, MLCReductionType
from mlc_torch.layers.base import BOOLEAN, INDICES, MLCLayer, described, dimension_of, exactly, of_type, same_type
from mlc_torch.layers.sharing import UNKNOWN, Axis, Samples, aligned, kept, mixes
from mlc_torch.refusals import refuse
from mlc_torch.spelling import declare, prop
from mlc_torch.tensor import MLCTensorDescriptor

_SUPPORTED = frozenset({MLCDataType.float32, MLCDataType.int32})


class Gather(nn.Module):
    """The elements or slices of x that the indices name"""

    def __init__(self, dimension: int) -> None:
        super().__init__()
        self.dimension = dimension

    def forward(self, x: torch.Tensor, indices: torch.Tensor) -> torch.Tensor:
        if indices.dim() == x.dim():
            return torch.gather(x, self.dimension, indices.long())
        return torch.index_select(x, self.dimension, indices)

    def extra_repr(self) -> str:
        return f"dimension={self.dimension}"


class MLCGatherLayer(MLCLayer):
    """Picks elements of a source along one dimension by index. Its sources are [source, indices]."""

    dimension = prop("Int", "The dimension that the indices run along.")
    _named = "Gather"
    _supports = _SUPPORTED

    @declare("init(dimension: Int)", "layerWithDimension:")
    def _create(cls, dimension):
        """By the dimension that the indices run along."""
        return cls._layer(dimension=not_negative("dimension", dimension))

    def _infer(self, sources):
        source, indices = exactly(sources, 2)
        shape, d = list(source._shape), dimension_of(source, self._dimension)
        if _for_each_element(indices, source):
            if any(n > size for k, (n, size) in enumerate(zip(indices._shape, shape, strict=True)) if k != d):
                refuse(f"indices of shape {indices.shape} reach beyond the source of shape {source.shape}")
            shape = indices._shape
        else:
            shape[d] = indices._shape[0]
        return [described(shape, source._dataType)]

    def _index_limit(self, position, sources):
        return sources[0]._shape[self._dimension] if position == 1 else None

    def _batch_axis(self, position, sources):
        return _unless_along_samples(position, sources, self._dimension)

    def _samples(self, axes, sources, results):
        return _by_rows(axes, sources, self._dimension, sources[0])

    def _build(self):
        return Gather(self._dimension)


class Scatter(nn.Module):
    """A copy of ``copy_from`` with the updates written over, or added to, the places that the indices name"""

    def __init__(self, dimension: int, adds: bool) -> None:
        super().__init__()
        self.dimension, self.adds = dimension, adds

    def forward(self, updates: torch.Tensor, indices: torch.Tensor, copy_from: torch.Tensor) -> torch.Tensor:
        indices = indices.long()
        write: Callable[..., torch.Tensor]
        if indices.dim() == copy_from.dim():
            write = copy_from.scatter_add if self.adds else copy_from.scatter
        else:
            write = copy_from.index_add if self.adds else copy_from.index_copy
        return write(self.dimension, indices, updates)

    def extra_repr(self) -> str:
        return f"dimension={self.dimension}, adds={self.adds}"


class MLCScatterLayer(MLCLayer):
    """Writes or adds elements of a source into a copy of a tensor, by index.

    Its sources are [source, indices, copyFrom]; the result has the shape of copyFrom.
    """

    dimension = prop("Int", "The dimension that the indices run along.")
    reductionType = prop("MLCReductionType", "``none`` to write, ``sum`` to add.")
    _named = "Scatter"
    _supports = _SUPPORTED

    @declare("init?(dimension: Int, reductionType: MLCReductionType)", "layerWithDimension:reductionType:")
    def _create(cls, dimension, reductionType):
        """By the dimension that the indices run along, and ``none`` to write or ``sum`` to add."""
        if reductionType not in (MLCReductionType.none, MLCReductionType.sum):
            refuse(f"reductionType must be none or sum, got {reductionType.name}")
        return cls._layer(dimension=not_negative("dimension", dimension), reductionType=reductionType)

    def _infer(self, sources):
        source, indices, copy_from = exactly(sources, 3)
        d, type_ = dimension_of(copy_from, self._dimension), same_type((source, copy_from))
        if self._reductionType is MLCReductionType.sum and type_ in BOOLEAN:
            refuse("Boolean values cannot be added")
        if len(source._shape) != len(copy_from._shape):
            refuse(f"the source of shape {source.shape} and copyFrom of shape {copy_from.shape} differ in rank")
        if _for_each_element(indices, copy_from):
            if indices._shape != source._shape:
                refuse(f"indices of shape {indices.shape} must have the shape of the source, {source.shape}")
            fits = all(
                n <= size for k, (n, size) in enumerate(zip(source._shape, copy_from._shape, strict=True)) if k != d
            )
        else:
            fits = source._shape == (*copy_from._shape[:d], indices._shape[0], *copy_from._shape[d + 1 :])
        if not fits:
            refuse(
                f"a source of shape {source.shape} with indices of shape {indices.shape} along dimension {d} does not "
                f"fit copyFrom of shape {copy_from.shape}"
            )
        return [described(copy_from._shape, type_)]

    def _index_limit(self, position, sources):
        return sources[2]._shape[self._dimension] if position == 1 else None

    def _batch_axis(self, position, sources):
        return _unless_along_samples(position, sources, self._dimension)

    def _samples(self, axes, sources, results):
        return _by_rows(axes, sources, self._dimension, sources[2])

    def _build(self):
        return Scatter(self._dimension, self._reductionType is MLCReductionType.sum)


def _for_each_element(indices: MLCTensorDescriptor, source: MLCTensorDescriptor) -> bool:
    """Whether there is an index for each element, rather than for each slice."""
    of_type(indices, INDICES, "the indices")
    if len(indices._shape) not in (1, len(source._shape)):
        refuse(f"indices must have one dimension or the {len(source._shape)} of {source.shape}, got {indices.shape}")
    return len(indices._shape) == len(source._shape)


def _unless_along_samples(position: int, sources: list[MLCTensorDescriptor], dimension: int) -> Axis:
    """Indices of slices along another dimension than that of the samples are the same for all of these."""
    is_for_all = position == 1 and len(sources[1]._shape) == 1 < len(sources[0]._shape) and dimension
    return None if is_for_all else 0


def _by_rows(
    axes: list[Axis], sources: list[MLCTensorDescriptor], dimension: int, indexed: MLCTensorDescriptor
) -> Samples:
    """Samples stay apart where the indices lead along another dimension and there is one for each element."""
    if _for_each_element(sources[1], indexed):
        found = aligned(axes, sources, len(indexed._shape))
        kept(found.results, 1, [dimension], "its indices lead along")
        return found
    if axes[1] is not None:
        # What is gathered has a row for each index; what is scattered goes anywhere.
        rows = dimension if indexed is sources[0] and axes[0] in (None, dimension) else UNKNOWN
        mixes("has an index for each sample, and uses each for all of them", [rows])
    others = [axis for k, axis in enumerate(axes) if k != 1]
    found = aligned(others, [s for k, s in enumerate(sources) if k != 1], len(indexed._shape))
    kept(found.results, 1, [dimension], "its indices lead along")
    return Samples([found.sources[0], None, *found.sources[1:]], found.results)
