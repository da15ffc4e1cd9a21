"""Numbers that the real framework gave for tensors, shapes, strides, initializers and optimizer settings."""

from __future__ import annotations

import json
import math
from pathlib import Path

import numpy as np
import pytest
import torch

import mlc_torch as mlc
from mlc_torch import MLCTensor, MLCTensorDescriptor

ORACLES = json.loads((Path(__file__).parents[1] / "oracles.json").read_text("utf-8"))
SHAPES = ORACLES["shape_cases"]


def cases(op):
    found = [case for case in SHAPES if case["op"] == op]
    assert found, op
    return pytest.mark.parametrize("case", found, ids=lambda c: str({k: v for k, v in c.items() if k != "op"}))


def tensors(shapes):
    return [MLCTensor(shape=shape) for shape in shapes]


def expect(result, case):
    """The framework raises NSRangeException where we refuse with a reason, and answers nil where we do."""
    if case.get("out") is None:
        assert result is None
        assert mlc.last_refusal() is not None
    elif isinstance(case["out"][0], list):
        assert [t.descriptor.shape for t in result] == case["out"]
    else:
        assert result.descriptor.shape == case["out"]
        assert result.descriptor.dataType.name == case.get("dtype", "float32")


def test_every_shape_case_is_used():
    used = {"concatenate", "reshape", "transpose", "split", "relu node", "descriptor"}
    alone = {case["op"] for case in SHAPES} - used
    assert {op.split()[0] for op in alone} == {
        "descriptor",
        "convolutionWeightsDescriptor",
        "convolutionBiasesDescriptor",
        "tensorWithSequenceLength",
    }


@cases("concatenate")
def test_concatenate(case):
    expect(mlc.MLCGraph().concatenate(sources=tensors(case["inputs"]), dimension=case["dimension"]), case)


@cases("reshape")
def test_reshape(case):
    expect(mlc.MLCGraph().reshape(shape=case["shape"], source=MLCTensor(shape=case["input"])), case)


@cases("transpose")
def test_transpose(case):
    expect(mlc.MLCGraph().transpose(dimensions=case["dimensions"], source=MLCTensor(shape=case["input"])), case)


@cases("split")
def test_split(case):
    source = MLCTensor(shape=case["input"])
    expect(mlc.MLCGraph().split(source=source, splitCount=case["count"], dimension=case["dimension"]), case)


@cases("relu node")
def test_relu_node(case):
    expect(mlc.MLCGraph().node(mlc.MLCActivationLayer.relu, sources=tensors(case["inputs"])), case)


@cases("descriptor")
def test_descriptor(case):
    dtype = mlc.MLCDataType[case["dtype"]]
    assert MLCTensorDescriptor(shape=case["shape"], dataType=dtype).stride == case["stride_bytes"]


@cases("descriptor NCHW w5 h6 c7 n8")
def test_image_descriptor(case):
    made = MLCTensorDescriptor(width=5, height=6, featureChannelCount=7, batchSize=8)
    assert made.shape == case["out"] and made.stride == case["stride_bytes"]
    assert made == MLCTensorDescriptor(width=5, height=6, featureChannelCount=7, batchSize=8, dataType=1)


@cases("convolutionWeightsDescriptor in4 out5")
def test_weights_descriptor(case):
    made = MLCTensorDescriptor(
        convolutionWeightsWithInputFeatureChannelCount=4, outputFeatureChannelCount=5, dataType=1
    )
    assert made.shape == case["out"]
    wide = MLCTensorDescriptor(
        convolutionWeightsWithWidth=3, height=3, inputFeatureChannelCount=4, outputFeatureChannelCount=5, dataType=1
    )
    assert wide.shape == [1, 20, 3, 3] and wide.stride == [720, 36, 12, 4]  # evidence.md A.1


@cases("convolutionBiasesDescriptor 5")
def test_biases_descriptor(case):
    assert MLCTensorDescriptor(convolutionBiasesWithFeatureChannelCount=5, dataType=1).shape == case["out"]


@cases("tensorWithSequenceLength 3, features 2, batch 2")
def test_sequence_tensor(case):
    made = MLCTensor(sequenceLength=3, featureChannelCount=2, batchSize=2).descriptor
    assert made.shape == case["out"]
    assert made.sequenceLengths == case["sequenceLengths"]
    assert made.batchSizePerSequenceStep == case["batchSizePerSequenceStep"]


def test_sequence_lengths():
    """evidence.md A.4: the batch size is not checked against the number of lengths."""
    made = MLCTensor(sequenceLengths=[3, 2, 1], sortedSequences=True, featureChannelCount=2, batchSize=1).descriptor
    assert made.shape == [1, 3, 2] and made.sequenceLengths == [3, 2, 1] and made.batchSizePerSequenceStep == [3, 2, 1]


def test_the_most_dimensions():
    assert MLCTensorDescriptor.maxTensorDimensions == 4


# Optimizer settings


FULL, ZEROS = ORACLES["optimizer_getters"]


def read(made, expected):
    for name, value in expected.items():
        if name != "from":
            assert getattr(made, name) == value, name


def test_the_full_optimizer_descriptor():
    made = mlc.MLCOptimizerDescriptor(**{name: value for name, value in FULL.items() if name != "from"})
    read(made, FULL)


def test_the_short_optimizer_descriptor():
    made = mlc.MLCOptimizerDescriptor(
        learningRate=0, gradientRescale=0, regularizationType=mlc.MLCRegularizationType.none, regularizationScale=0
    )
    read(made, ZEROS)


@pytest.mark.parametrize("name", ["MLCSGDOptimizer", "MLCAdamOptimizer", "MLCAdamWOptimizer", "MLCRMSPropOptimizer"])
def test_optimizers_repeat_their_descriptor(name):
    settings = {key: value for key, value in FULL.items() if key != "from"}
    optimizer = getattr(mlc, name)(descriptor=mlc.MLCOptimizerDescriptor(**settings))
    read(optimizer, FULL)
    optimizer.learningRate = 0.5
    optimizer.appliesGradientClipping = False
    assert optimizer.learningRate == 0.5 and optimizer.appliesGradientClipping is False


# Random initializers


RANDOM = ORACLES["random_initializers"]
MANY = [1000, 1000]


@pytest.fixture(scope="module")
def drawn():
    return {
        kind.name: MLCTensor(shape=MANY, randomInitializerType=kind).numpy() for kind in mlc.MLCRandomInitializerType
    }


@pytest.mark.parametrize("kind", ["uniform", "glorotUniform"])
def test_uniform_distributions(drawn, kind):
    values, oracle = drawn[kind], RANDOM[kind]
    assert values.min() >= oracle["low"] and values.max() <= oracle["high"]
    reach = oracle["high"] - oracle["low"]
    assert values.min() < oracle["low"] + reach * 1e-4 and values.max() > oracle["high"] - reach * 1e-4
    assert values.mean() == pytest.approx(oracle["mean"], abs=5e-3)
    assert values.std() == pytest.approx(oracle["std"], abs=2e-3)


def test_the_normal_distribution(drawn):
    values, oracle = drawn["xavier"], RANDOM["xavier"]
    assert values.mean() == pytest.approx(oracle["mean"], abs=5e-3)
    assert values.std() == pytest.approx(oracle["std"], abs=2e-3)
    inside = [np.mean(np.abs(values) < k * 0.5) for k in (1, 2, 3)]
    assert inside == pytest.approx([math.erf(k / math.sqrt(2)) for k in (1, 2, 3)], abs=3e-3)


@pytest.mark.parametrize("shape", [[4, 4], [64, 64], [3, 4, 5], [16]])
def test_ranks_below_four_have_no_fans(shape):
    """Measured for 4×4 and 64×64: independent of the shape."""
    values = MLCTensor(shape=shape, randomInitializerType=mlc.MLCRandomInitializerType.glorotUniform).numpy()
    assert np.abs(values).max() <= math.sqrt(3)
    assert values.std() == pytest.approx(1, rel=0.7)


def test_fans_of_rank_four():
    """Decided from all evidence (evidence.md A.6): the first two dimensions."""
    shape, fans = [1, 784 * 128, 1, 1], 1 + 784 * 128
    values = MLCTensor(shape=shape, randomInitializerType=mlc.MLCRandomInitializerType.glorotUniform).numpy()
    bound = math.sqrt(6 / fans)
    assert 0.999 * bound < np.abs(values).max() <= bound * (1 + 1e-6)
    values = MLCTensor(shape=shape, randomInitializerType=mlc.MLCRandomInitializerType.xavier).numpy()
    assert values.std() == pytest.approx(0.5 * math.sqrt(2 / fans), rel=2e-2)


def test_half_precision_values_are_drawn_too():
    descriptor = MLCTensorDescriptor(shape=[100], dataType=mlc.MLCDataType.float16)
    values = MLCTensor(descriptor=descriptor, randomInitializerType=mlc.MLCRandomInitializerType.uniform)
    assert values.torch.dtype == torch.float16 and values.hasValidNumerics
