"""Each layer says where its samples are; one that mixes them is refused, by name, where several processes share a batch."""

from __future__ import annotations

import numpy as np
import pytest
from torch import nn

import mlc_torch as mlc
from mlc_torch import MLCTensor
from mlc_torch.interop import TorchLayer
from mlc_torch.layers.sharing import PART
from mlc_torch.nodes.samples import sample_axes, with_weights

ARITHMETIC = mlc.MLCArithmeticOperation
REDUCTION = mlc.MLCReductionType


def tensor(*shape, data=None, dtype=mlc.MLCDataType.float32):
    if data is None:
        return MLCTensor(shape=list(shape), dataType=dtype)
    return MLCTensor(shape=list(shape), data=mlc.MLCTensorData(bytesNoCopy=data, length=data.nbytes), dataType=dtype)


def constant(*shape):
    return tensor(*shape, data=np.ones(shape, np.float32))


def axes_of(layer, sources, axes, labels=()):
    """Where the result and the sources of one layer count samples, given those of the sources."""
    graph = mlc.MLCGraph()
    made = graph.node(layer, sources=sources, lossLabels=labels) if labels else graph.node(layer, sources=sources)
    assert made is not None, mlc.last_refusal()
    nodes = with_weights(graph._all_nodes())
    found = sample_axes(nodes, {id(t._cell): a for t, a in zip([*sources, *labels], axes, strict=False)})
    return found[id(nodes[0].results[0])], [found.get(id(c)) for c in nodes[0].reads]


B = 6
X = (B, 4, 8, 8)


def weights(outputs, inputs):
    return constant(1, outputs * inputs, 1, 1)


def dense(inputs, outputs):
    descriptor = mlc.MLCConvolutionDescriptor(
        kernelSizes=(height := inputs, width := outputs),
        inputFeatureChannelCount=height,
        outputFeatureChannelCount=width,
    )
    return mlc.MLCFullyConnectedLayer(weights=weights(outputs, inputs), biases=None, descriptor=descriptor)


def matmul(x=False, y=False):
    return mlc.MLCMatMulLayer(descriptor=mlc.MLCMatMulDescriptor(alpha=1.0, transposesX=x, transposesY=y))


def loss(reduction, own=None):
    descriptor = mlc.MLCLossDescriptor(type=mlc.MLCLossType.meanSquaredError, reductionType=reduction)
    return (
        mlc.MLCLossLayer(descriptor=descriptor) if own is None else mlc.MLCLossLayer(descriptor=descriptor, weights=own)
    )


def add():
    return mlc.MLCArithmeticLayer(operation=ARITHMETIC.add)


KEPT = {
    "activation": (lambda: mlc.MLCActivationLayer.relu, [X], [0], 0),
    "activation after a transpose": (lambda: mlc.MLCActivationLayer.relu, [(4, B)], [1], 1),
    "a row for all": (add, [(B, 4), (1, 4)], [0, None], 0),
    "a row of lower rank": (add, [(B, 4), (4,)], [0, None], 0),
    "no samples at all": (add, [(B, 4), (B, 4)], [None, None], None),
    "dense": (lambda: dense(4, 3), [(B, 4)], [0], 0),
    "dense, time first": (lambda: dense(4, 3), [(5, B, 4)], [1], 1),
    "softmax": (lambda: mlc.MLCSoftmaxLayer(operation=mlc.MLCSoftmaxOperation.softmax, dimension=1), [(B, 4)], [0], 0),
    "reduction of others": (
        lambda: mlc.MLCReductionLayer(reductionType=REDUCTION.mean, dimensions=[2, 3]),
        [X],
        [0],
        0,
    ),
    "transpose": (lambda: mlc.MLCTransposeLayer(dimensions=[1, 0, 2]), [(B, 4, 5)], [0], 1),
    "reshape": (lambda: mlc.MLCReshapeLayer(shape=[B, 16, 16]), [X], [0], 0),
    "slice of others": (lambda: mlc.MLCSliceLayer(start=[0, 1], end=[B, 3], stride=None), [(B, 4)], [0], 0),
    "concatenation of channels": (lambda: mlc.MLCConcatenationLayer(dimension=1), [X, X], [0, 0], 0),
    "split of channels": (lambda: mlc.MLCSplitLayer(splitCount=2, dimension=1), [X], [0], 0),
    "matrices of a stack": (matmul, [(B, 3, 4), (B, 4, 5)], [0, 0], 0),
    "rows of X": (matmul, [(B, 4), (4, 5)], [0, None], 0),
    "columns of Y": (matmul, [(5, 4), (4, B)], [None, 1], 1),
    "padding": (lambda: mlc.MLCPaddingLayer(zeroPadding=[1]), [X], [0], 0),
}


@pytest.mark.parametrize("name", KEPT)
def test_samples_stay_apart(name):
    layer, shapes, axes, result = KEPT[name]
    found, sources = axes_of(layer(), [tensor(*s) for s in shapes], axes)
    assert found == result and sources == axes


MIXED = {
    "reduction": (lambda: mlc.MLCReductionLayer(reductionType=REDUCTION.sum, dimension=0), [X], [0], "reduces"),
    "concatenation": (lambda: mlc.MLCConcatenationLayer(dimension=0), [X, X], [0, 0], "joins along"),
    "split": (lambda: mlc.MLCSplitLayer(splitCount=2, dimension=0), [X], [0], "cuts apart"),
    "slice": (lambda: mlc.MLCSliceLayer(start=[1, 0], end=[B, 4], stride=None), [(B, 4)], [0], "takes a part"),
    "softmax": (
        lambda: mlc.MLCSoftmaxLayer(operation=mlc.MLCSoftmaxOperation.softmax, dimension=0),
        [(B, 4)],
        [0],
        "adds up along",
    ),
    "matmul, contracted": (lambda: matmul(x=True), [(B, 4), (B, 5)], [0, None], "multiplies and adds"),
    "matmul of samples": (lambda: matmul(y=True), [(B, 4), (B, 4)], [0, 0], "multiplies and adds"),
    "reshape": (lambda: mlc.MLCReshapeLayer(shape=[B * 4, 64]), [X], [0], "across them"),
    "padding of a matrix": (lambda: mlc.MLCPaddingLayer(zeroPadding=[1]), [(B, 4)], [0], "pads"),
    "different dimensions": (add, [(B, B), (B,)], [0, 0], "different dimensions"),
    "convolution after a transpose": (lambda: mlc.MLCGramMatrixLayer(scale=1.0), [(4, B, 8, 8)], [1], "dimension 0"),
    "torch's batch norm": (lambda: TorchLayer(nn.BatchNorm1d(4)), [(B, 4)], [0], "normalizes over samples"),
    "torch's sum": (lambda: TorchLayer(_Sum()), [(B, 4)], [0], "without a row"),
}


class _Sum(nn.Module):
    def forward(self, x):
        return x.sum(0)


@pytest.mark.parametrize("name", MIXED)
def test_mixing_is_refused_with_the_layers_name(name):
    make, shapes, axes, words = MIXED[name]
    layer = make()
    layer.label = "the culprit"
    with pytest.raises(mlc.MLCRefusal, match=words) as why:
        axes_of(layer, [tensor(*s) for s in shapes], axes)
    assert "the culprit" in str(why.value)


def test_gather_and_scatter():
    indices = tensor(3, dtype=mlc.MLCDataType.int32)
    assert axes_of(mlc.MLCGatherLayer(dimension=1), [tensor(B, 4), indices], [0, None]) == (0, [0, None])
    each = tensor(B, 2, dtype=mlc.MLCDataType.int32)
    assert axes_of(mlc.MLCGatherLayer(dimension=1), [tensor(B, 4), each], [0, 0]) == (0, [0, 0])
    with pytest.raises(mlc.MLCRefusal, match="its indices lead along"):
        axes_of(mlc.MLCGatherLayer(dimension=0), [tensor(B, 4), indices], [0, None])
    with pytest.raises(mlc.MLCRefusal, match="an index for each sample"):
        axes_of(mlc.MLCGatherLayer(dimension=1), [tensor(B, 4), tensor(B, dtype=mlc.MLCDataType.int32)], [0, 0])
    scatter = mlc.MLCScatterLayer(dimension=1, reductionType=REDUCTION.none)
    assert axes_of(scatter, [tensor(B, 3), indices, tensor(B, 4)], [0, None, 0]) == (0, [0, None, 0])


def test_embeddings_that_look_at_all_indices():
    plain = mlc.MLCEmbeddingDescriptor(embeddingCount=5, embeddingDimension=4)
    source = tensor(B, 3, dtype=mlc.MLCDataType.int32)
    assert axes_of(mlc.MLCEmbeddingLayer(descriptor=plain, weights=constant(5, 4)), [source], [0])[0] == 0
    normed = mlc.MLCEmbeddingDescriptor(
        embeddingCount=5, embeddingDimension=4, paddingIndex=None, maximumNorm=1.0, pNorm=2.0,
        scalesGradientByFrequency=False,
    )  # fmt: skip
    with pytest.raises(mlc.MLCRefusal, match="maximumNorm"):
        axes_of(mlc.MLCEmbeddingLayer(descriptor=normed, weights=constant(5, 4)), [source], [0])


def test_a_constant_with_a_row_for_each_sample_is_cut():
    assert axes_of(add(), [tensor(B, 4), constant(B, 4)], [0, None]) == (0, [0, 0])
    assert axes_of(mlc.MLCConcatenationLayer(dimension=1), [tensor(B, 4), constant(B, 2)], [0, None]) == (0, [0, 0])


def test_a_loss_is_a_part_of_the_whole():
    for reduction in (REDUCTION.mean, REDUCTION.sum):
        found = axes_of(loss(reduction), [tensor(B, 4)], [0, 0], labels=[tensor(B, 4)])
        assert found == (PART, [0, 0])
    assert axes_of(loss(REDUCTION.none), [tensor(B, 4)], [0, 0], labels=[tensor(B, 4)])[0] == 0


def test_the_own_weights_of_a_loss_are_cut_too():
    assert axes_of(loss(REDUCTION.mean, constant(B, 1)), [tensor(B, 4)], [0, 0], labels=[tensor(B, 4)])[1] == [0, 0, 0]
    assert axes_of(loss(REDUCTION.mean, constant(1, 4)), [tensor(B, 4)], [0, 0], labels=[tensor(B, 4)])[1] == [0, 0]


def test_nothing_may_read_a_part():
    graph = mlc.MLCGraph()
    x, t = tensor(B, 4), tensor(B, 4)
    part = graph.node(loss(REDUCTION.mean), sources=[x], lossLabels=[t])
    assert graph.node(mlc.MLCActivationLayer.relu, source=part) is not None
    with pytest.raises(mlc.MLCRefusal, match="reads a loss"):
        sample_axes(graph._all_nodes(), {id(x._cell): 0, id(t._cell): 0})


def test_a_computed_tensor_cannot_be_cut():
    graph = mlc.MLCGraph()
    x = tensor(B, 4)
    computed = graph.node(mlc.MLCActivationLayer.relu, source=constant(B, 4))
    assert graph.node(add(), sources=[x, computed]) is not None
    with pytest.raises(mlc.MLCRefusal, match="whose row is whose"):
        sample_axes(graph._all_nodes(), {id(x._cell): 0})


def test_what_one_layer_reads_whole_is_not_cut_for_another():
    graph, x, rows = mlc.MLCGraph(), tensor(B, 4), constant(B, 4)
    mean = mlc.MLCReductionLayer(reductionType=REDUCTION.mean, dimensions=[0])
    assert graph.node(add(), sources=[x, graph.node(mean, source=rows)]) is not None
    assert graph.node(add(), sources=[x, rows]) is not None
    with pytest.raises(mlc.MLCRefusal, match="reads all of it"):
        sample_axes(graph._all_nodes(), {id(x._cell): 0})


def test_a_module_that_reads_a_constant_with_as_many_rows_as_samples():
    class Adds(nn.Module):
        def forward(self, x, y):
            return x + y

    assert axes_of(TorchLayer(Adds()), [tensor(B, 4), constant(1, 4)], [0, None]) == (0, [0, None])
    with pytest.raises(mlc.MLCRefusal, match="declare it as an input"):
        axes_of(TorchLayer(Adds()), [tensor(B, 4), constant(B, 4)], [0, None])
