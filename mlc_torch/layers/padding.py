"""Padding: a frame around the last two dimensions, of one value or of the image mirrored (evidence.md D.9)."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import nn

from mlc_torch.enums import MLCPaddingType
from mlc_torch.layers.base import MLCLayer, described, one_source
from mlc_torch.layers.sharing import kept
from mlc_torch.refusals import refuse
from mlc_torch.spelling import declare, prop
from mlc_torch.tensor import TORCH_TYPES, MLCTensorDescriptor

Kind = MLCPaddingType


class ReflectionPad2d(nn.ReflectionPad2d):
    """The image mirrored, its edge not repeated; integers, Booleans and plain matrices too."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if x.is_floating_point() and x.dim() > 2:
            return super().forward(x)
        left, right, top, bottom = self.padding
        return _reflected(_reflected(x, -2, top, bottom), -1, left, right)


class SymmetricPad2d(nn.Module):
    """The image mirrored, its edge repeated, as often as the padding asks for."""

    def __init__(self, padding: Sequence[int]) -> None:
        super().__init__()
        self.padding = tuple(padding)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        left, right, top, bottom = self.padding
        return _mirrored(_mirrored(x, -2, top, bottom), -1, left, right)

    def extra_repr(self) -> str:
        return f"{self.padding}"


def _reflected(x: torch.Tensor, dim: int, before: int, after: int) -> torch.Tensor:
    size = x.shape[dim]
    start, end = x.narrow(dim, 1, before).flip(dim), x.narrow(dim, size - 1 - after, after).flip(dim)
    return torch.cat([start, x, end], dim)


def _mirrored(x: torch.Tensor, dim: int, before: int, after: int) -> torch.Tensor:
    """Copies of x laid side by side, every other one turned around, cut to the padding that is asked for."""
    size = x.shape[dim]
    pieces = []
    for copy in range(-math.ceil(before / size), math.ceil(after / size) + 1):
        start, end = max(-before - copy * size, 0), min(size + after - copy * size, size)
        turned = copy % 2 == 1
        piece = x.narrow(dim, size - end if turned else start, end - start)
        pieces.append(piece.flip(dim) if turned else piece)
    return torch.cat(pieces, dim)


class MLCPaddingLayer(MLCLayer):
    """Adds a border around images: zeros, a constant, or a reflection of the image.

    Sizes are one for all sides, two for left and right, or four for top, bottom, left and right.
    """

    paddingType = prop("MLCPaddingType", "What the border is filled with.")
    paddingLeft = prop("Int", "Columns added at the left.")
    paddingRight = prop("Int", "Columns added at the right.")
    paddingTop = prop("Int", "Rows added at the top.")
    paddingBottom = prop("Int", "Rows added at the bottom.")
    constantValue = prop("Float", "The number that a constant border holds.")
    _named = "Padding"

    @declare("init(zeroPadding padding: [Int])", "layerWithZeroPadding:", about="A border of zeros.", type=Kind.zero)
    @declare(
        "init(reflectionPadding padding: [Int])",
        "layerWithReflectionPadding:",
        about="The image mirrored at its edge, without the edge itself.",
        type=Kind.reflect,
    )
    @declare(
        "init(symmetricPadding padding: [Int])",
        "layerWithSymmetricPadding:",
        about="The image mirrored at its edge, the edge included.",
        type=Kind.symmetric,
    )
    @declare(
        "init(constantPadding padding: [Int], constantValue: Float)",
        "layerWithConstantPadding:constantValue:",
        about="A border of one number.",
        type=Kind.constant,
    )
    def _create(cls, type, padding, constantValue=0.0):
        top, bottom, left, right = _sides(padding)
        return cls._layer(
            paddingType=type,
            paddingLeft=left,
            paddingRight=right,
            paddingTop=top,
            paddingBottom=bottom,
            constantValue=constantValue,
        )

    def _infer(self, sources):
        source = one_source(sources)
        if len(source._shape) < 2:
            refuse(f"padding goes around the last two dimensions of a tensor, got shape {source.shape}")
        *outer, height, width = source._shape
        top, bottom, left, right = self._paddingTop, self._paddingBottom, self._paddingLeft, self._paddingRight
        if self._paddingType is Kind.reflect and (max(top, bottom) >= height or max(left, right) >= width):
            refuse(
                f"reflection without the edge serves paddings below the size; got top {top}, bottom {bottom}, "
                f"left {left}, right {right} for {height} x {width}"
            )
        if self._paddingType is Kind.constant:
            _refuse_unfit(self._constantValue, source)
        return [described((*outer, top + height + bottom, left + width + right), source._dataType)]

    def _samples(self, axes, sources, results):
        rank = len(sources[0]._shape)
        return kept(axes, 1, [rank - 2, rank - 1], "pads")

    def _build(self):
        sides = self._paddingLeft, self._paddingRight, self._paddingTop, self._paddingBottom
        if self._paddingType is Kind.zero:
            return nn.ZeroPad2d(sides)
        if self._paddingType is Kind.constant:
            return nn.ConstantPad2d(sides, self._constantValue)
        return ReflectionPad2d(sides) if self._paddingType is Kind.reflect else SymmetricPad2d(sides)


def _sides(padding: list[int]) -> tuple[int, int, int, int]:
    """Top, bottom, left, right."""
    if any(size < 0 for size in padding):
        refuse(f"padding sizes must not be negative, got {padding}")
    if len(padding) == 1:
        return padding[0], padding[0], padding[0], padding[0]
    if len(padding) == 2:
        return 0, 0, padding[0], padding[1]
    if len(padding) == 4:
        return padding[0], padding[1], padding[2], padding[3]
    # The real framework raises NSRangeException here (measured).
    refuse(f"padding takes 1 size, 2 (left, right) or 4 (top, bottom, left, right), got {padding}")


def _refuse_unfit(value: float, source: MLCTensorDescriptor) -> None:
    dtype = TORCH_TYPES[source._dataType]
    if dtype is torch.bool:
        fits = value in (0, 1)
    elif dtype.is_floating_point:
        fits = not math.isfinite(value) or abs(value) <= torch.finfo(dtype).max
    else:
        fits = value.is_integer() and torch.iinfo(dtype).min <= int(value) <= torch.iinfo(dtype).max
    if not fits:
        refuse(f"constantValue {value} is no {source._dataType.name}, the type of the source")
