"""The label each factory gives its layer, and the types it says it supports (evidence.md D.0, B.3)."""

from __future__ import annotations

import numpy as np
import pytest

from mlc_torch.descriptors import MLCConvolutionDescriptor, MLCEmbeddingDescriptor, MLCMatMulDescriptor
from mlc_torch.device import MLCDevice
from mlc_torch.enums import MLCArithmeticOperation, MLCComparisonOperation, MLCReductionType
from mlc_torch.enums import MLCDataType as Type
from mlc_torch.layers.arithmetic import MLCArithmeticLayer
from mlc_torch.layers.comparison import MLCComparisonLayer
from mlc_torch.layers.embedding import MLCEmbeddingLayer
from mlc_torch.layers.fully_connected import MLCFullyConnectedLayer
from mlc_torch.layers.indexing import MLCGatherLayer, MLCScatterLayer
from mlc_torch.layers.joining import MLCConcatenationLayer, MLCSplitLayer
from mlc_torch.layers.matmul import MLCMatMulLayer
from mlc_torch.layers.selection import MLCSelectionLayer
from mlc_torch.layers.shape import MLCReshapeLayer, MLCSliceLayer, MLCTransposeLayer
from tests.layers.records import tensor

_FLOAT = {Type.float32}
_ONE = np.ones(1, np.float32)


def _connected():
    channels = MLCConvolutionDescriptor(kernelSizes=(1, 1), inputFeatureChannelCount=1, outputFeatureChannelCount=1)
    return MLCFullyConnectedLayer(weights=tensor(_ONE), biases=None, descriptor=channels)


def _embedding():
    dictionary = MLCEmbeddingDescriptor(embeddingCount=1, embeddingDimension=1)
    return MLCEmbeddingLayer(descriptor=dictionary, weights=tensor(_ONE))


LAYERS = [
    (lambda: MLCArithmeticLayer(operation=MLCArithmeticOperation.add), "Arithmetic", _FLOAT),
    (lambda: MLCComparisonLayer(operation=MLCComparisonOperation.less), "Compare", {Type.float32, Type.boolean}),
    (MLCSelectionLayer, "Selection", {Type.float32, Type.boolean}),
    (lambda: MLCReshapeLayer(shape=[1]), "Reshape", _FLOAT),
    (lambda: MLCTransposeLayer(dimensions=[0]), "Transpose", _FLOAT),
    (lambda: MLCSliceLayer(start=[0], end=[1], stride=None), "Slice", _FLOAT),
    (MLCConcatenationLayer, "Concat", _FLOAT),
    (lambda: MLCConcatenationLayer(dimension=0), "Concat", _FLOAT),
    (lambda: MLCSplitLayer(splitCount=1, dimension=0), "Split", _FLOAT),
    (lambda: MLCSplitLayer(splitSectionLengths=[1], dimension=0), "Split", _FLOAT),
    (lambda: MLCGatherLayer(dimension=0), "Gather", {Type.float32, Type.int32}),
    (lambda: MLCScatterLayer(dimension=0, reductionType=MLCReductionType.sum), "Scatter", {Type.float32, Type.int32}),
    (lambda: MLCMatMulLayer(descriptor=MLCMatMulDescriptor()), "MatMul", _FLOAT),
    (_connected, "FullyConnected", _FLOAT),
    (_embedding, "Embedding", {Type.int32, Type.int64}),
]


@pytest.mark.parametrize(
    ("make", "label", "types"), LAYERS, ids=[f"{label} {i}" for i, (_, label, _) in enumerate(LAYERS)]
)
def test_the_label_and_the_types(make, label, types):
    layer = make()
    assert layer.label == label
    assert {t for t in Type if type(layer).supportsDataType(t, on=MLCDevice.cpu())} == types
    assert repr(layer).startswith(type(layer).__name__)
    assert repr(layer.module)
