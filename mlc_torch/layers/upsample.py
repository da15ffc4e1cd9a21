"""Upsampling: an image at another size, by repeating pixels or by going linearly between them (evidence.md D.12)."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import nn
from torch.nn import functional as F

from mlc_torch.descriptors.base import positive
from mlc_torch.enums import MLCSampleMode
from mlc_torch.layers.base import FLOATS, MLCLayer, described, of_type, one_source
from mlc_torch.refusals import refuse
from mlc_torch.spelling import declare, prop


class NearestUpsample(nn.Module):
    """Pixel i of the result is pixel floor(i·size/new size) of the source.

    torch computes that quotient in float32 and is one pixel off for some sizes (2 to 82); powers of two are safe.
    """

    def __init__(self, size: Sequence[int]) -> None:
        super().__init__()
        self.size = tuple(size)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        sizes = [*x.shape[2 : x.dim() - len(self.size)], *self.size]
        if all(_by_a_power_of_two(old, new) for old, new in zip(x.shape[2:], sizes, strict=True)):
            return F.interpolate(x, sizes, mode="nearest")
        for dim, new in enumerate(sizes, start=2):
            x = _stretched(x, dim, new)
        return x

    def extra_repr(self) -> str:
        return f"size={self.size}"


class LinearUpsample(nn.Module):
    """The width alone, linearly between neighbouring pixels."""

    def __init__(self, width: int, aligned: bool) -> None:
        super().__init__()
        self.width, self.aligned = width, aligned

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        mode = "linear" if x.dim() == 3 else "bilinear"
        return F.interpolate(x, [*x.shape[2:-1], self.width], mode=mode, align_corners=self.aligned)

    def extra_repr(self) -> str:
        return f"width={self.width}, align_corners={self.aligned}"


def _by_a_power_of_two(old: int, new: int) -> bool:
    factor, rest = divmod(new, old)
    return rest == 0 and factor & (factor - 1) == 0


def _stretched(x: torch.Tensor, dim: int, new: int) -> torch.Tensor:
    old = x.shape[dim]
    if new == old:
        return x
    if new % old == 0:
        return x.repeat_interleave(new // old, dim)
    return x.index_select(dim, torch.arange(new, device=x.device) * old // new)


class MLCUpsampleLayer(MLCLayer):
    """Enlarges images to ``shape``: [height, width], or [width] alone."""

    sampleMode = prop("MLCSampleMode", "To the nearest pixel, or linear between pixels.")
    alignsCorners = prop("Bool", "Whether linear sampling puts the corner pixels of source and result on each other.")
    _named = "Upsampling"

    @prop("[Int]")
    def shape(self):
        """The size of the result."""
        return list(self._shape)

    @declare("init?(shape: [Int])", "layerWithShape:")
    @declare(
        "init?(shape: [Int], sampleMode: MLCSampleMode, alignsCorners: Bool)",
        "layerWithShape:sampleMode:alignsCorners:",
    )
    def _create(cls, shape, sampleMode=MLCSampleMode.nearest, alignsCorners=False):
        """To the nearest pixel unless linear sampling is asked for."""
        if len(shape) not in (1, 2):
            refuse(f"shape must be [width] or [height, width], got {shape}")
        for size in shape:
            positive("shape", size)
        return cls._layer(shape=tuple(shape), sampleMode=sampleMode, alignsCorners=alignsCorners)

    def _infer(self, sources):
        source = of_type(one_source(sources), FLOATS)
        old, new = source._shape, self._shape
        if len(old) != 4 and (len(old), len(new)) != (3, 1):
            refuse(
                f"upsampling takes [batch, channels, height, width], or for a width alone [batch, channels, width]; "
                f"got {source.shape} for shape {list(new)}"
            )
        return [described((*old[: -len(new)], *new), source._dataType)]

    def _build(self):
        if self._sampleMode is MLCSampleMode.nearest:
            return NearestUpsample(self._shape)
        if len(self._shape) == 1:
            return LinearUpsample(self._shape[0], self._alignsCorners)
        return nn.Upsample(self._shape, mode="bilinear", align_corners=self._alignsCorners)
