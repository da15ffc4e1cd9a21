"""Arithmetic: one operation on each element of one source, or of two that meet by broadcasting (evidence.md D.2)."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import nn

from mlc_torch.enums import MLCArithmeticOperation
from mlc_torch.layers.base import FLOATS, INDICES, MLCLayer, broadcast, described, exactly, of_type, same_type
from mlc_torch.layers.sharing import aligned, first_unless_spread
from mlc_torch.spelling import declare, prop

Op = MLCArithmeticOperation


class Sqrt(torch.autograd.Function):
    """The square root. Its slope at 0 is infinite, and infinity times an upstream 0 would be NaN: 0 is given instead."""

    generate_vmap_rule = True  # for programs that transform to_module() by torch.func

    @staticmethod
    def forward(x):
        return torch.sqrt(x)

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(output)

    @staticmethod
    def backward(ctx, gradient):
        (root,) = ctx.saved_tensors
        return (gradient / (2 * root)).masked_fill(root == 0, 0)


def sqrt(x: torch.Tensor) -> torch.Tensor:
    return Sqrt.apply(x) if _is_differentiated(x) else torch.sqrt(x)


def power(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """x to the power y. Below 0 there is no logarithm and so no slope along y: 0 is given instead of NaN."""
    return torch.pow(x, torch.where(x < 0, y.detach(), y) if _is_differentiated(y) else y)


def _is_differentiated(x: torch.Tensor) -> bool:
    """Whether somebody may want the slope: what keeps it finite takes longer than the value."""
    return x.requires_grad and torch.is_grad_enabled()


def multiply_no_nan(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """x·y, but 0 where y is 0 and x is NaN or infinite."""
    return torch.where((y == 0) & ~torch.isfinite(x), torch.zeros_like(x), x) * y


def divide_no_nan(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """x/y, but 0 where y is 0."""
    zero = y == 0
    # The inner where keeps the division by 0 out of the gradient, the outer one out of the value.
    return torch.where(zero, torch.zeros_like(x), x / torch.where(zero, torch.ones_like(y), y))


ONE_SOURCE: dict[MLCArithmeticOperation, Callable[[torch.Tensor], torch.Tensor]] = {
    Op.floor: torch.floor,
    Op.round: torch.round,  # halves go to even; the framework's way is not known
    Op.ceil: torch.ceil,
    Op.sqrt: sqrt,
    Op.rsqrt: torch.rsqrt,
    Op.sin: torch.sin,
    Op.cos: torch.cos,
    Op.tan: torch.tan,
    Op.asin: torch.asin,
    Op.acos: torch.acos,
    Op.atan: torch.atan,
    Op.sinh: torch.sinh,
    Op.cosh: torch.cosh,
    Op.tanh: torch.tanh,
    Op.asinh: torch.asinh,
    Op.acosh: torch.acosh,
    Op.atanh: torch.atanh,
    Op.exp: torch.exp,
    Op.exp2: torch.exp2,
    Op.log: torch.log,
    Op.log2: torch.log2,
}

TWO_SOURCES: dict[MLCArithmeticOperation, Callable[[torch.Tensor, torch.Tensor], torch.Tensor]] = {
    Op.add: torch.add,
    Op.subtract: torch.sub,
    Op.multiply: torch.mul,
    Op.divide: torch.div,
    Op.pow: power,
    Op.multiplyNoNaN: multiply_no_nan,
    Op.divideNoNaN: divide_no_nan,
    Op.min: torch.minimum,
    Op.max: torch.maximum,
}

WHOLE_NUMBERS = frozenset(
    {Op.add, Op.subtract, Op.multiply, Op.multiplyNoNaN, Op.min, Op.max, Op.pow, Op.floor, Op.round, Op.ceil}
)
"""The operations that give whole numbers for whole numbers."""


class OneSource(nn.Module):
    """f(x)"""

    def __init__(self, operation: MLCArithmeticOperation) -> None:
        super().__init__()
        self.operation = operation
        self.compute = ONE_SOURCE[operation]

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.compute(x)

    def extra_repr(self) -> str:
        return self.operation.name


class TwoSources(nn.Module):
    """f(x, y), both seen in the shape they broadcast to"""

    def __init__(self, operation: MLCArithmeticOperation) -> None:
        super().__init__()
        self.operation = operation
        self.compute = TWO_SOURCES[operation]

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return self.compute(x, y)

    def extra_repr(self) -> str:
        return self.operation.name


class MLCArithmeticLayer(MLCLayer):
    """An arithmetic operation on each element of one or two sources, which broadcast against each other."""

    operation = prop("MLCArithmeticOperation", "The operation.")
    _named = "Arithmetic"

    @declare("init(operation: MLCArithmeticOperation)", "layerWithOperation:")
    def _create(cls, operation):
        """By operation."""
        return cls._layer(operation=operation)

    @property
    def _takes(self) -> int:
        return 1 if self._operation in ONE_SOURCE else 2

    def _infer(self, sources):
        if sources and len(sources) != self._takes:
            # Measured: the node is made and the compile fails, so until then there is a result to describe.
            return [sources[0]]
        type_ = same_type(exactly(sources, self._takes))
        of_type(sources[0], FLOATS | INDICES if self._operation in WHOLE_NUMBERS else FLOATS, self._operation.name)
        return [described(broadcast(*(s._shape for s in sources)), type_)]

    def _check(self, sources):
        exactly(sources, self._takes)

    def _batch_axis(self, position, sources):
        return first_unless_spread(position, sources)

    def _samples(self, axes, sources, results):
        return aligned(axes, sources, len(results[0]._shape))

    def _build(self):
        if self._operation is Op.tanh:
            return nn.Tanh()
        return (OneSource if self._takes == 1 else TwoSources)(self._operation)
