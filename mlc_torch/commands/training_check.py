"""A few steps of training on a device, held against the same steps on the CPU, through the public API alone."""

from __future__ import annotations

import math

import numpy as np

import mlc_torch as mlc
from mlc_torch.refusals import in_one_line

_STEPS, _BATCH, _INPUTS, _OUTPUTS = 3, 4, 5, 3


def check_training(device: mlc.MLCDevice) -> str | None:
    """Train a small network on ``device``; what went wrong, or ``None``."""
    try:
        with mlc.strict():
            here, there = _losses(mlc.MLCDevice.cpu()), _losses(device)
    except Exception as error:  # noqa: BLE001 - whatever a device cannot do is what the report is about
        return in_one_line(error)
    if not all(math.isclose(a, b, rel_tol=1e-2) for a, b in zip(here, there, strict=True)):
        return f"the losses are {there}, the CPU's {here}"
    return None if there[-1] < there[0] else f"the loss does not fall: {there}"


def _losses(device: mlc.MLCDevice) -> list[float]:
    weights = _tensor(1, _INPUTS * _OUTPUTS, 1, 1)
    source, label = mlc.MLCTensor(shape=[_BATCH, _INPUTS]), mlc.MLCTensor(shape=[_BATCH, _OUTPUTS])
    channels = mlc.MLCConvolutionDescriptor(
        kernelSizes=(1, 1), inputFeatureChannelCount=_INPUTS, outputFeatureChannelCount=_OUTPUTS
    )
    graph = mlc.MLCGraph()
    dense = mlc.MLCFullyConnectedLayer(weights=weights, biases=None, descriptor=channels)
    graph.node(mlc.unwrap(dense), source=source)
    rate = mlc.MLCOptimizerDescriptor(
        learningRate=0.1,
        gradientRescale=1,
        regularizationType=mlc.MLCRegularizationType.none,
        regularizationScale=0,
    )
    training = mlc.MLCTrainingGraph(
        graphObjects=[graph],
        lossLayer=mlc.MLCLossLayer.meanSquaredError(reductionType=mlc.MLCReductionType.mean, weight=1),
        optimizer=mlc.MLCSGDOptimizer(descriptor=rate),
    )
    training.addInputs({"x": source}, lossLabels={"y": label})
    training.compile(options=[], device=device)
    x, y = _data(_BATCH, _INPUTS, seed=1), _data(_BATCH, _OUTPUTS, seed=2)
    losses: list[float] = []
    for _ in range(_STEPS):
        training.execute(
            inputsData={"x": x},
            lossLabelsData={"y": y},
            lossLabelWeightsData=None,
            batchSize=_BATCH,
            options=[mlc.MLCExecutionOptions.synchronous],
            completionHandler=lambda result, error, seconds: losses.append(_number(result, error)),
        )
    return losses


def _number(result: mlc.MLCTensor | None, error: Exception | None) -> float:
    if error is not None:
        raise error
    data = mlc.unwrap(mlc.unwrap(result).data)
    return float(np.frombuffer(data, np.float32)[0])


def _data(*shape: int, seed: int) -> mlc.MLCTensorData:
    values = np.random.default_rng(seed).uniform(-1, 1, shape).astype(np.float32)
    return mlc.MLCTensorData(bytesNoCopy=values, length=values.nbytes)


def _tensor(*shape: int) -> mlc.MLCTensor:
    return mlc.MLCTensor(shape=shape, data=_data(*shape, seed=0), dataType=mlc.MLCDataType.float32)
