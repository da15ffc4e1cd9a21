"""Products of matrices times a number, in float16 too, where the product itself may be too large and only its multiple is not."""

from __future__ import annotations

import math

import torch


def scaled_product(x: torch.Tensor, y: torch.Tensor, scale: float) -> torch.Tensor:
    """scale·x·y. Of float16 and by less than 1, both factors are made smaller first, by a power of two: that rounds nothing."""
    if x.dtype is torch.float16 and abs(scale) < 1:
        before, scale = _parted(scale)
        x, y = x * before, y * before
    product = torch.matmul(x, y)
    return product if scale == 1 else product * scale


def _parted(scale: float) -> tuple[float, float]:
    """A power of two, and what is left of ``scale`` when it is divided by that twice: from 1 up to 4. Of 0, 0 and 1."""
    if not scale:
        return 0.0, 1.0
    before = 2.0 ** ((math.frexp(scale)[1] - 1) // 2)
    return before, scale / before / before
