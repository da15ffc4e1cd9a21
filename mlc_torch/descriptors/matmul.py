"""A matrix product: a factor, and which operand is transposed first."""

from __future__ import annotations

from mlc_torch.descriptors.base import Descriptor
from mlc_torch.spelling import declare, prop


class MLCMatMulDescriptor(Descriptor):
    """A matrix product alpha · X · Y, and which of the factors is transposed first."""

    alpha = prop("Float", "A number that the product is multiplied by.")
    transposesX = prop("Bool", "Whether the last two dimensions of X are swapped before the product.")
    transposesY = prop("Bool", "Whether the last two dimensions of Y are swapped before the product.")

    @declare("init()", "descriptor")
    @declare(
        "init?(alpha: Float, transposesX: Bool, transposesY: Bool)", "descriptorWithAlpha:transposesX:transposesY:"
    )
    def _create(cls, alpha=1.0, transposesX=False, transposesY=False):
        """alpha is 1 and nothing is transposed unless given."""
        return cls._make(alpha=alpha, transposesX=transposesX, transposesY=transposesY)
