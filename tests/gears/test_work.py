"""How much a plan says that there is to do: never much less than there is, and no more for each sample of a larger batch."""

from __future__ import annotations

import pytest

from mlc_torch import (
    MLCActivationLayer,
    MLCConvolutionLayer,
    MLCFullyConnectedLayer,
    MLCGraph,
    MLCInferenceGraph,
    MLCMatMulDescriptor,
    MLCMatMulLayer,
    MLCReductionLayer,
    MLCReductionType,
    unwrap,
)
from mlc_torch.descriptors import MLCConvolutionDescriptor
from mlc_torch.running.state import Variant
from tests.graph.programs import conv, cpu, placeholder, values
from tests.layers.records import tensor


def dense(inputs: int, outputs: int) -> MLCFullyConnectedLayer:
    descriptor = MLCConvolutionDescriptor(
        kernelSizes=(inputs, outputs), inputFeatureChannelCount=inputs, outputFeatureChannelCount=outputs
    )
    weights = tensor(values(inputs, outputs), [1, inputs * outputs, 1, 1])
    return unwrap(MLCFullyConnectedLayer(weights=weights, biases=None, descriptor=unwrap(descriptor)))


def convolution(inputs: int, outputs: int) -> MLCConvolutionLayer:
    weights = tensor(values(outputs, inputs, 3, 3), [1, inputs * outputs, 3, 3])
    return unwrap(MLCConvolutionLayer(weights=weights, biases=None, descriptor=conv(inputs, outputs)))


def work_of(layer, *shapes: tuple[int, ...]) -> int:
    graph, given = MLCGraph(), [placeholder(*shape) for shape in shapes]
    result = graph.node(layer, sources=given)
    inference = MLCInferenceGraph(graphObjects=[graph])
    assert inference.addInputs({str(n): x for n, x in enumerate(given)})
    assert inference.compile(options=[], device=cpu())
    assert result is not None
    return inference._session(Variant.whole).plan.work


MATMUL = MLCMatMulLayer(descriptor=MLCMatMulDescriptor(alpha=1.0, transposesX=False, transposesY=False))
MEAN = MLCReductionLayer(reductionType=MLCReductionType.mean, dimensions=[2, 3])


@pytest.mark.parametrize(
    ("layer", "shapes", "multiplications", "at_most"),
    [
        (dense(64, 32), [(16, 64)], 16 * 64 * 32, 2),
        (convolution(3, 16), [(8, 3, 32, 32)], 8 * 1024 * 16 * 27, 10),
        (convolution(16, 16), [(8, 16, 9, 9)], 8 * 81 * 16 * 144, 2),
        (MATMUL, [(4, 20, 30), (4, 30, 10)], 4 * 20 * 30 * 10, 40),
        (MLCActivationLayer.relu, [(8, 16, 32, 32)], 8 * 16 * 32 * 32, 2),
        (MEAN, [(8, 16, 32, 32)], 8 * 16 * 32 * 32, 2),
    ],
    ids=["dense", "few channels", "convolution", "product", "activation", "mean"],
)
def test_the_work_of_a_layer(layer, shapes, multiplications, at_most):
    found = work_of(layer, *shapes)
    assert multiplications <= found <= at_most * multiplications


@pytest.mark.parametrize(
    ("layer", "shape"),
    [(dense(64, 32), (64,)), (convolution(3, 16), (3, 8, 8)), (MLCActivationLayer.relu, (3, 8, 8))],
    ids=["dense", "convolution", "activation"],
)
def test_a_batch_is_as_much_work_as_its_samples(layer, shape):
    one, many = (work_of(layer, (samples, *shape)) for samples in (2, 64))
    assert many == 32 * one
