"""Dropout: in training elements are dropped at random and the others scaled up (evidence.md D.14)."""

from __future__ import annotations

from mlc_torch.layers.base import FLOATS, MLCLayer, of_type, one_source
from mlc_torch.layers.noise import Dropout
from mlc_torch.refusals import refuse
from mlc_torch.spelling import declare, prop


class MLCDropoutLayer(MLCLayer):
    """Drops each element with probability ``rate`` and scales the others by 1/(1 - rate); in inference the identity."""

    rate = prop("Float")
    seed = prop("Int")
    _named = "Dropout"

    @declare("init(rate: Float, seed: Int)", "layerWithRate:seed:")
    def _create(cls, rate, seed):
        if not 0 <= rate < 1:
            refuse(f"rate is the probability that an element is dropped, from 0 to below 1; got {rate}")
        return cls._layer(rate=rate, seed=seed)

    def _infer(self, sources):
        return [of_type(one_source(sources), FLOATS)]

    def _build(self):
        return Dropout(self._rate, self._seed)
