"""Dropout: in training elements are dropped at random and the others scaled up (evidence.md D.14)."""

from __future__ import annotations

from typing import Any

from mlc_torch.layers.base import FLOATS, MLCLayer, of_type, one_source
from mlc_torch.layers.noise import Dropout
from mlc_torch.layers.sharing import Samples
from mlc_torch.refusals import refuse
from mlc_torch.spelling import declare, prop


class MLCDropoutLayer(MLCLayer):
    """Drops each element with probability ``rate`` in training and scales the others by 1/(1 - rate).

    In inference it changes nothing.
    """

    rate = prop("Float", "The probability with which an element is dropped.")
    seed = prop("Int", "Where the layer's own random sequence starts; 0 for the library's.")
    _named = "Dropout"

    @declare("init(rate: Float, seed: Int)", "layerWithRate:seed:")
    def _create(cls, rate, seed):
        """Seed 0 draws from the library's random numbers; any other seed gives the layer a sequence of its own."""
        if not 0 <= rate < 1:
            refuse(f"rate is the probability that an element is dropped, from 0 to below 1; got {rate}")
        return cls._layer(rate=rate, seed=seed)

    def _infer(self, sources):
        return [of_type(one_source(sources), FLOATS)]

    def _samples(self, axes, sources, results):
        return Samples(axes, axes)

    def _shared_along(self, axes):
        noise: Any = self.module.noise
        noise.sample_axis = axes[0]

    def _build(self):
        return Dropout(self._rate, self._seed)
