"""Matrix products over the last two dimensions (evidence.md D.19)."""

from __future__ import annotations

import torch
from torch import nn

from mlc_torch.layers.base import FLOATS, MLCLayer, broadcast, described, exactly, of_type, same_type
from mlc_torch.layers.scaled_product import scaled_product
from mlc_torch.layers.sharing import Samples, aligned, first_unless_spread, mixes
from mlc_torch.refusals import refuse
from mlc_torch.spelling import declare, prop


class MatMul(nn.Module):
    """alpha·X·Y; the dimensions before the last two broadcast"""

    def __init__(self, alpha: float, transposes_x: bool, transposes_y: bool) -> None:
        super().__init__()
        self.alpha, self.transposes_x, self.transposes_y = alpha, transposes_x, transposes_y

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return scaled_product(x.mT if self.transposes_x else x, y.mT if self.transposes_y else y, self.alpha)

    def extra_repr(self) -> str:
        return f"alpha={self.alpha}, transposes_x={self.transposes_x}, transposes_y={self.transposes_y}"


class MLCMatMulLayer(MLCLayer):
    """The product of two matrices, or of two stacks of matrices."""

    descriptor = prop("MLCMatMulDescriptor", "The scale, and which factors are transposed.")
    _named = "MatMul"

    @declare("init?(descriptor: MLCMatMulDescriptor)", "layerWithDescriptor:")
    def _create(cls, descriptor):
        """By descriptor."""
        return cls._layer(descriptor=descriptor)

    def _infer(self, sources):
        d, type_ = self._descriptor, same_type(exactly(sources, 2))
        for source in sources:
            of_type(source, FLOATS)
            if len(source._shape) < 2:
                refuse(f"a matrix has at least two dimensions, got shape {source.shape}")
        (*stack_x, rows, inner_x), (*stack_y, inner_y, columns) = (
            _turned(s._shape, turn) for s, turn in zip(sources, (d.transposesX, d.transposesY), strict=True)
        )
        if inner_x != inner_y:
            refuse(
                f"the columns of X ({inner_x}) must be as many as the rows of Y ({inner_y}), got shapes "
                f"{sources[0].shape} (transposed: {d.transposesX}) and {sources[1].shape} (transposed: {d.transposesY})"
            )
        stack = broadcast(tuple(stack_x), tuple(stack_y))
        return [described((*stack, rows, columns), type_)]

    def _batch_axis(self, position, sources):
        """Matrices of a stack, or the rows of X; those of Y are added up, unless X's are, too, or Y is turned."""
        if any(len(s._shape) > 2 for s in sources):
            return first_unless_spread(position, sources)
        d = self._descriptor
        is_counted = (d.transposesX or d.transposesY) if position else not (d.transposesX and d.transposesY)
        return 0 if is_counted else None

    def _samples(self, axes, sources, results):
        """Samples are matrices of a stack, or the rows of X, or the columns of Y."""
        d, (x, y) = self._descriptor, sources
        rows, columns = len(x._shape) - (1 if d.transposesX else 2), len(y._shape) - (2 if d.transposesY else 1)
        rank = len(results[0]._shape)
        if axes == [rows, None]:
            return Samples(axes, [rank - 2])
        if axes == [None, columns]:
            return Samples(axes, [rank - 1])
        in_stack = all(axis is None or axis < len(s._shape) - 2 for axis, s in zip(axes, sources, strict=True))
        if not in_stack:
            mixes("multiplies and adds up along the dimension that counts samples")
        return aligned(axes, sources, rank)

    def _build(self):
        d = self._descriptor
        return MatMul(d.alpha, d.transposesX, d.transposesY)


def _turned(shape: tuple[int, ...], transposed: bool) -> tuple[int, ...]:
    return (*shape[:-2], shape[-1], shape[-2]) if transposed else shape
