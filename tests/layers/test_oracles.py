"""Numbers that the real framework gave for layers, each run through a graph as a program would."""

from __future__ import annotations

import json
import math
from pathlib import Path

import numpy as np
import pytest

import mlc_torch as mlc
from tests.layers.records import tensor

ORACLES = json.loads((Path(__file__).parents[1] / "oracles.json").read_text("utf-8"))


def _activation(name, p):
    kind = mlc.MLCActivationType(p["type"])
    given = {k: p[k] for k in "abc" if k in p}
    descriptor = mlc.MLCActivationDescriptor(type=kind, **given)
    if "default" in name:
        # What the framework filled in by itself when it was measured.
        filled = mlc.MLCActivationDescriptor(type=kind)
        assert {k: getattr(filled, k) for k in given} == pytest.approx(given)
    return mlc.MLCActivationLayer(descriptor=descriptor)


def _padding(name, p):
    kind = name.split(".")[1]
    if kind == "constant9":
        return mlc.MLCPaddingLayer(constantPadding=p["padding"], constantValue=p["value"])
    return mlc.MLCPaddingLayer(**{{"zero": "zeroPadding", "reflect": "reflectionPadding"}[kind]: p["padding"]})


def _reduction(name, p):
    where = {k: p[k] for k in ("dimension", "dimensions") if k in p}
    return mlc.MLCReductionLayer(reductionType=mlc.MLCReductionType[p["type"]], **where)


def _pooling(name, p):
    kind, policy = getattr(mlc.MLCPoolingType, name.split(".")[1]), getattr(mlc.MLCPaddingPolicy, p["policy"])
    sizes, strides = (p["kernelSize"],) * 2, (p["stride"],) * 2
    return mlc.MLCPoolingLayer(
        descriptor=mlc.MLCPoolingDescriptor(type=kind, kernelSizes=sizes, strides=strides, paddingPolicy=policy)
    )


def _per_channel(*numbers):
    return [tensor(np.full((1, 1, 1, 1), n, np.float32)) for n in numbers]


def _convolution(name, p):
    weights, biases = _per_channel(*p["weights"], *p["biases"])
    descriptor = mlc.MLCConvolutionDescriptor(
        kernelSizes=p["kernel"], inputFeatureChannelCount=1, outputFeatureChannelCount=1
    )
    return mlc.MLCConvolutionLayer(weights=weights, biases=biases, descriptor=descriptor)


def _batch_norm(name, p):
    mean, variance, beta, gamma = _per_channel(p["mean"], p["variance"], p["beta"], p["gamma"])
    return mlc.MLCBatchNormalizationLayer(
        featureChannelCount=1, mean=mean, variance=variance, beta=beta, gamma=gamma, varianceEpsilon=p["epsilon"]
    )


def _instance_norm(name, p):
    beta, gamma = _per_channel(p["beta"], p["gamma"])
    return mlc.MLCInstanceNormalizationLayer(
        featureChannelCount=p["channels"], beta=beta, gamma=gamma, varianceEpsilon=p["epsilon"]
    )


MAKERS = {
    "MLCActivationLayer": _activation,
    "MLCArithmeticLayer": lambda name, p: mlc.MLCArithmeticLayer(operation=mlc.MLCArithmeticOperation[p["operation"]]),
    "MLCComparisonLayer": lambda name, p: mlc.MLCComparisonLayer(operation=mlc.MLCComparisonOperation[p["operation"]]),
    "MLCReshapeLayer": lambda name, p: mlc.MLCReshapeLayer(**p),
    "MLCTransposeLayer": lambda name, p: mlc.MLCTransposeLayer(**p),
    "MLCSliceLayer": lambda name, p: mlc.MLCSliceLayer(**p),
    "MLCSplitLayer": lambda name, p: mlc.MLCSplitLayer(**p),
    "MLCPaddingLayer": _padding,
    "MLCDropoutLayer": lambda name, p: mlc.MLCDropoutLayer(**p),
    "MLCSoftmaxLayer": lambda name, p: mlc.MLCSoftmaxLayer(operation=mlc.MLCSoftmaxOperation[p["operation"]]),
    "MLCReductionLayer": _reduction,
    "MLCPoolingLayer": _pooling,
    "MLCGramMatrixLayer": lambda name, p: mlc.MLCGramMatrixLayer(**p),
    "MLCConvolutionLayer": _convolution,
    "MLCMatMulLayer": lambda name, p: mlc.MLCMatMulLayer(
        descriptor=mlc.MLCMatMulDescriptor(**{k: p[k] for k in ("alpha", "transposesX", "transposesY")})
    ),
    "MLCBatchNormalizationLayer": _batch_norm,
    "MLCInstanceNormalizationLayer": _instance_norm,
}
TWICE = ("MLCComparisonLayer", "MLCMatMulLayer")
"""Layers that were measured with one tensor as both sources, without the case saying so."""


def ran(layer, *arrays):
    """The first result of a layer in an inference graph."""
    inputs = [mlc.MLCTensor(shape=list(a.shape), dataType=tensor(a).descriptor.dataType) for a in arrays]
    names = {f"x{i}": x for i, x in enumerate(inputs)}
    with mlc.strict():
        graph = mlc.MLCGraph()
        result = graph.node(layer, sources=inputs)
        inference = mlc.MLCInferenceGraph(graphObjects=[graph])
        inference.addInputs(names)
        inference.addOutputs({"y": result})
        inference.compile(device=mlc.MLCDevice())
        data = {n: mlc.MLCTensorData(bytesNoCopy=a, length=a.nbytes) for n, a in zip(names, arrays, strict=True)}
        inference.execute(inputsData=data, batchSize=0, options=[mlc.MLCExecutionOptions.synchronous])
    return result


@pytest.mark.parametrize("case", ORACLES["cases"], ids=lambda case: case["id"])
def test_what_the_framework_measured(case):
    layer = MAKERS[case["kind"]](case["id"], case["params"])
    x = np.array(case["input"], np.float32).reshape(case["input_shape"])
    count = 2 if case["kind"] in TWICE else case["params"].get("sources", 1)
    result = ran(layer, *[x] * count)
    assert result.descriptor.shape == case["output_shape"]
    expected = np.array([float(v) for v in case["output"]]).reshape(case["output_shape"])
    np.testing.assert_allclose(result.numpy(), expected, rtol=case["rtol"], atol=0)
    boolean = case["kind"] == "MLCComparisonLayer"
    assert result.descriptor.dataType is (mlc.MLCDataType.boolean if boolean else mlc.MLCDataType.float32)


EXAMPLES = {example["id"]: example for example in ORACLES["documentation_examples"]}


def test_the_documentations_gather():
    example = EXAMPLES["bnns.gather.1d"]
    layer = mlc.MLCGatherLayer(dimension=example["axis"])
    result = ran(layer, np.array(example["input"], np.float32), np.array(example["indices"], np.int32))
    assert result.numpy().tolist() == example["output"]


def test_the_documentations_scatter():
    example = EXAMPLES["bnns.scatter.sum.1d"]
    layer = mlc.MLCScatterLayer(dimension=example["axis"], reductionType=mlc.MLCReductionType[example["reduction"]])
    source, copy_from = (np.array(example[name], np.float32) for name in ("source", "copy_from"))
    result = ran(layer, source, np.array(example["indices"], np.int32), copy_from)
    assert result.numpy().tolist() == example["output"]


def test_the_documentations_loss():
    example = EXAMPLES["bnns.loss.mse.sum"]
    kind, reduction = mlc.MLCLossType[example["loss"]], mlc.MLCReductionType[example["reduction"]]
    layer = mlc.MLCLossLayer(descriptor=mlc.MLCLossDescriptor(type=kind, reductionType=reduction))
    predictions, labels = (np.array(example[name], np.float32) for name in ("predictions", "labels"))
    assert math.isclose(ran(layer, predictions, labels).numpy().item(), example["output"])


def test_every_example_is_used():
    assert set(EXAMPLES) == {"bnns.gather.1d", "bnns.scatter.sum.1d", "bnns.loss.mse.sum"}
