"""Softmax and its logarithm along one dimension (evidence.md D.10)."""

from __future__ import annotations

from torch import nn

from mlc_torch.enums import MLCSoftmaxOperation
from mlc_torch.layers.base import FLOATS, MLCLayer, dimension_of, of_type, one_source
from mlc_torch.layers.sharing import kept
from mlc_torch.spelling import declare, prop

MODULES: dict[MLCSoftmaxOperation, type[nn.Module]] = {
    MLCSoftmaxOperation.softmax: nn.Softmax,
    MLCSoftmaxOperation.logSoftmax: nn.LogSoftmax,
}


class MLCSoftmaxLayer(MLCLayer):
    """e^x / Σ e^x along a dimension, or the logarithm of that; the result has the source's shape and type."""

    operation = prop("MLCSoftmaxOperation", "Softmax or its logarithm.")
    dimension = prop("Int", "The dimension whose elements add up to 1.")
    _named = "Softmax"

    @declare("init(operation: MLCSoftmaxOperation)", "layerWithOperation:")
    @declare("init(operation: MLCSoftmaxOperation, dimension: Int)", "layerWithOperation:dimension:")
    def _create(cls, operation, dimension=1):
        """Along dimension 1, the channels, unless told otherwise."""
        return cls._layer(operation=operation, dimension=dimension)

    def _infer(self, sources):
        source = of_type(one_source(sources), FLOATS)
        dimension_of(source, self._dimension)
        return [source]

    def _samples(self, axes, sources, results):
        return kept(axes, 1, [self._dimension], "adds up along", stays=True)

    def _build(self):
        return MODULES[self._operation](self._dimension)
