"""Layers that give a tensor another shape or take a part of it: reshape, transpose, slice (evidence.md D.12).

They move elements and take every data type.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import nn

from mlc_torch.enums import MLCDataType
from mlc_torch.layers.base import MLCLayer, described, element_count, one_source
from mlc_torch.layers.sharing import Samples, kept, mixes
from mlc_torch.refusals import refuse
from mlc_torch.spelling import declare, prop
from mlc_torch.tensor import MLCTensorDescriptor


class Reshape(nn.Module):
    """The same elements in another shape; for a smaller batch the first dimension gives way"""

    def __init__(self, shape: tuple[int, ...]) -> None:
        super().__init__()
        self.shape = shape
        self.resolved: dict[tuple[int, ...], tuple[int, ...]] = {}
        """The shape that a whole batch gets where a -1 stands behind the first dimension, by the shape of one sample: what the -1
        stands for must not grow or shrink with the batch."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        first, *rest = self.resolved.get(tuple(x.shape[1:]), self.shape)
        return x.reshape(first if -1 in rest else -1, *rest)

    def extra_repr(self) -> str:
        return f"shape={list(self.shape)}"


class MLCReshapeLayer(MLCLayer):
    """Gives the same elements another shape. One dimension may be -1: it takes what the others leave."""

    _named = "Reshape"

    @prop("[Int]")
    def shape(self):
        """The new shape."""
        return list(self._shape)

    @declare("init?(shape: [Int])", "layerWithShape:")
    def _create(cls, shape):
        """By the new shape."""
        if shape.count(-1) > 1:
            refuse(f"shape may hold -1 once, got {shape}")
        # A descriptor of the shape, with 1 for the one unknown dimension, refuses what is no shape.
        described([1 if size == -1 else size for size in shape], MLCDataType.boolean)
        return cls._layer(shape=tuple(shape))

    def _infer(self, sources):
        source = one_source(sources)
        return [described(self._resolve(source), source._dataType)]

    def _check(self, sources):
        # Measured: a node may have another element count than its source; the compile refuses it.
        source = one_source(sources)
        shape = self._resolve(source)
        if math.prod(shape) != element_count(source):
            refuse(
                f"shape {list(shape)} holds {math.prod(shape)} elements, the source of shape {source.shape} has "
                f"{element_count(source)}"
            )

    def _note_sources(self, sources):
        if self._shape[0] == 1 or -1 not in self._shape[1:]:
            return  # one row takes as many samples as come
        module, source = self.module, one_source(sources)
        assert isinstance(module, Reshape)
        shape = self._resolve(source)
        if module.resolved.setdefault(source._shape[1:], shape) != shape:
            known = math.prod(module.resolved[source._shape[1:]]) // math.prod(source._shape[1:])
            refuse(
                f"-1 in shape {self.shape} stands for what {known} samples of shape {list(source._shape[1:])} leave, in another "
                f"node of this layer, and the source has {source._shape[0]}: a short batch could be of either. Give each a "
                "layer of its own"
            )

    def _resolve(self, source: MLCTensorDescriptor) -> tuple[int, ...]:
        if -1 not in self._shape:
            return self._shape
        known, count = -math.prod(self._shape), element_count(source)
        if count % known:
            refuse(
                f"-1 in shape {self.shape} has no value: {known} does not divide the {count} elements of {source.shape}"
            )
        return tuple(count // known if size == -1 else size for size in self._shape)

    def _samples(self, axes, sources, results):
        ((axis,), shape, made) = axes, sources[0]._shape, results[0]._shape
        if axis is None:
            return Samples(axes, axes)
        place, gives = _place_of(axis, shape, made), self._gives_way(axis)
        if place is not None and (place == gives or shape[axis] == 1):
            return Samples(axes, [place])
        how = f"gives the shape {results[0].shape} to samples of {sources[0].shape}, across them"
        mixes(
            how,
            None if place is None else [place],
            needs_all=place is not None or not _takes_parts(axis, shape, gives, made),
        )

    def _gives_way(self, axis: int) -> int:
        """The dimension that is shorter where the source is shorter along ``axis``, as ``Reshape`` has it."""
        is_noted = axis == 0 and self._shape[0] != 1
        return 0 if is_noted or -1 not in self._shape else self._shape.index(-1)

    def _build(self):
        return Reshape(self._shape)


def _place_of(axis: int, shape: Sequence[int], made: Sequence[int]) -> int | None:
    """Which dimension of the new shape is that dimension of the old one; ``None`` where it is divided or joined to others."""
    before = math.prod(shape[:axis])
    places = (p for p, size in enumerate(made) if size == shape[axis] and math.prod(made[:p]) == before)
    return next(places, None)


def _takes_parts(axis: int, shape: Sequence[int], gives: int, made: Sequence[int]) -> bool:
    """Whether fewer samples give a part of what all give, though it has no place for each: rows that lie within one, say."""
    before, inside = math.prod(shape[:axis]), math.prod(shape[axis + 1 :])
    ahead, row = math.prod(made[:gives]), math.prod(made[gives + 1 :])
    return before == ahead or (before % ahead == 0 and inside % row == 0)


class Permute(nn.Module):
    """Dimension k of the result is dimension ``dimensions[k]`` of the source"""

    def __init__(self, dimensions: tuple[int, ...]) -> None:
        super().__init__()
        self.dimensions = dimensions

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.permute(self.dimensions)

    def extra_repr(self) -> str:
        return f"dimensions={list(self.dimensions)}"


class MLCTransposeLayer(MLCLayer):
    """Reorders the dimensions; the first, the batch, may move too (evidence.md C27)."""

    _named = "Transpose"

    @prop("[Int]")
    def dimensions(self):
        """The old position of each new dimension."""
        return list(self._dimensions)

    @declare("init?(dimensions: [Int])", "layerWithDimensions:")
    def _create(cls, dimensions):
        """By the old position of each new dimension."""
        if not dimensions or sorted(dimensions) != list(range(len(dimensions))):
            refuse(f"dimensions must name each of 0, 1, 2, ... once, got {dimensions}")
        return cls._layer(dimensions=tuple(dimensions))

    def _infer(self, sources):
        source = one_source(sources)
        if len(source._shape) != len(self._dimensions):
            refuse(f"dimensions {self.dimensions} do not fit the {len(source._shape)} dimensions of {source.shape}")
        return [described([source._shape[d] for d in self._dimensions], source._dataType)]

    def _samples(self, axes, sources, results):
        return Samples(axes, [None if axes[0] is None else self._dimensions.index(axes[0])])

    def _build(self):
        return Permute(self._dimensions)


class Slice(nn.Module):
    """Every stride-th element from start up to, without, end, in each dimension"""

    def __init__(self, start: Sequence[int], end: Sequence[int], stride: Sequence[int]) -> None:
        super().__init__()
        self.parts = tuple(slice(*ends) for ends in zip(start, end, stride, strict=True))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x[self.parts]

    def extra_repr(self) -> str:
        return ", ".join(f"{p.start}:{p.stop}:{p.step}" for p in self.parts)


class MLCSliceLayer(MLCLayer):
    """Cuts a part out of a tensor; the number of dimensions stays."""

    _named = "Slice"

    @prop("[Int]")
    def start(self):
        """The first index of each dimension."""
        return list(self._start)

    @prop("[Int]")
    def end(self):
        """The index after the last, for each dimension."""
        return list(self._end)

    @prop("[Int]?")
    def stride(self):
        """The distance between elements that are taken, for each dimension; ``None`` for 1."""
        return None if self._stride is None else list(self._stride)

    @declare("init?(start: [Int], end: [Int], stride: [Int]?)", "sliceLayerWithStart:end:stride:")
    def _create(cls, start, end, stride):
        """From ``start`` up to, not including, ``end``, every ``stride``-th element, for each dimension."""
        steps = [1] * len(start) if stride is None else stride
        if not len(start) == len(end) == len(steps) > 0:
            refuse(f"start, end and stride must be equally long and not empty, got {start}, {end} and {stride}")
        for first, last, step in zip(start, end, steps, strict=True):
            if step < 1:
                refuse(f"every stride must be at least 1, got {stride}")
            if not 0 <= first < last:
                refuse(f"every start must lie from 0 on and below its end, got {start} and {end}")
        return cls._layer(start=tuple(start), end=tuple(end), stride=None if stride is None else tuple(stride))

    @property
    def _steps(self) -> tuple[int, ...]:
        return (1,) * len(self._start) if self._stride is None else self._stride

    def _infer(self, sources):
        source = one_source(sources)
        if len(source._shape) != len(self._start):
            refuse(
                f"start has {len(self._start)} entries, the source of shape {source.shape} {len(source._shape)} dimensions"
            )
        if any(last > size for last, size in zip(self._end, source._shape, strict=True)):
            refuse(f"end {self.end} reaches beyond the source of shape {source.shape}")
        shape = [
            -(-(last - first) // step) for first, last, step in zip(self._start, self._end, self._steps, strict=True)
        ]
        return [described(shape, source._dataType)]

    def _samples(self, axes, sources, results):
        cut = [d for d, size in enumerate(sources[0]._shape) if results[0]._shape[d] != size]
        return kept(axes, 1, cut, "takes a part of")

    def _build(self):
        return Slice(self._start, self._end, self._steps)
