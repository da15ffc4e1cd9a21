"""What the records of these two small layers cannot say: labels and properties."""

from __future__ import annotations

import torch

from mlc_torch.enums import MLCSoftmaxOperation
from mlc_torch.layers.gram import MLCGramMatrixLayer
from mlc_torch.layers.softmax import MLCSoftmaxLayer


def test_softmax_properties():
    short = MLCSoftmaxLayer(operation=MLCSoftmaxOperation.softmax)
    long = MLCSoftmaxLayer(operation=MLCSoftmaxOperation.logSoftmax, dimension=3)
    assert (short.label, short.operation, short.dimension) == ("Softmax", MLCSoftmaxOperation.softmax, 1)
    assert (long.operation, long.dimension) == (MLCSoftmaxOperation.logSoftmax, 3)


def test_gram_properties():
    layer = MLCGramMatrixLayer(scale=0.5)
    assert (layer.label, layer.scale) == ("GramMatrix", 0.5)
    assert "scale=0.5" in repr(layer.module)


def test_a_gram_matrix_is_symmetric():
    y = MLCGramMatrixLayer(scale=1).module(torch.randn(2, 4, 3, 3)).squeeze(2)
    torch.testing.assert_close(y, y.transpose(1, 2))
