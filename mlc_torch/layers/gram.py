"""Gram matrices: how strongly each pair of channels of an image goes together (evidence.md D.20)."""

from __future__ import annotations

import torch
from torch import nn

from mlc_torch.layers.base import FLOATS, MLCLayer, described, image, of_type, one_source
from mlc_torch.layers.scaled_product import scaled_product
from mlc_torch.spelling import declare, prop


class GramMatrix(nn.Module):
    """scale·Σ x[n, f, ·]·x[n, c, ·] over all pixels, for every pair of channels f and c"""

    def __init__(self, scale: float) -> None:
        super().__init__()
        self.scale = scale

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        pixels = x.flatten(2)
        return scaled_product(pixels, pixels.transpose(1, 2), self.scale).unsqueeze(2)

    def extra_repr(self) -> str:
        return f"scale={self.scale}"


class MLCGramMatrixLayer(MLCLayer):
    """Products of each pair of channels, summed over the image and scaled.

    [batch, channels, height, width] becomes [batch, channels, 1, channels].
    """

    scale = prop("Float", "The number that the products are multiplied by.")
    _named = "GramMatrix"

    @declare("init(scale: Float)", "layerWithScale:")
    def _create(cls, scale):
        """By the number that the products are multiplied by."""
        return cls._layer(scale=scale)

    def _infer(self, sources):
        source = of_type(one_source(sources), FLOATS)
        batch, channels, _, _ = image(source, "a gram matrix")
        return [described((batch, channels, 1, channels), source._dataType)]

    def _build(self):
        return GramMatrix(self._scale)
