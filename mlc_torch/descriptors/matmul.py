"""A matrix product: a factor, and which operand is transposed first."""

from __future__ import annotations

from mlc_torch.descriptors.base import Descriptor
from mlc_torch.spelling import declare, prop


class MLCMatMulDescriptor(Descriptor):
    """alpha · X · Y, with the last two dimensions of X or Y swapped where asked."""

    alpha = prop("Float")
    transposesX = prop("Bool")
    transposesY = prop("Bool")

    @declare("init()", "descriptor")
    @declare(
        "init?(alpha: Float, transposesX: Bool, transposesY: Bool)", "descriptorWithAlpha:transposesX:transposesY:"
    )
    def _create(cls, alpha=1.0, transposesX=False, transposesY=False):
        return cls._make(alpha=alpha, transposesX=transposesX, transposesY=transposesY)
