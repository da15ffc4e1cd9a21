"""Small programs that the tests of this folder are written with: tensors, layers, optimizers and graphs of a few numbers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import numpy as np
import torch

from mlc_torch import (
    MLCActivationLayer,
    MLCConvolutionDescriptor,
    MLCDataType,
    MLCDevice,
    MLCFullyConnectedLayer,
    MLCGraph,
    MLCInferenceGraph,
    MLCLossDescriptor,
    MLCLossLayer,
    MLCLossType,
    MLCLSTMDescriptor,
    MLCLSTMLayer,
    MLCLSTMResultMode,
    MLCOptimizerDescriptor,
    MLCReductionType,
    MLCRegularizationType,
    MLCSGDOptimizer,
    MLCTensor,
    MLCTensorData,
    MLCTrainingGraph,
)
from tests.layers.records import tensor, values

Array = np.ndarray


def cpu() -> MLCDevice:
    return MLCDevice.cpu()


def on(device: torch.device) -> MLCDevice:
    """The ``MLCDevice`` for a device of the ``torch_device`` fixture."""
    return MLCDevice.cpu() if device.type == "cpu" else MLCDevice(gpuDevices=[device])


def data(values: Any, length: int | None = None) -> MLCTensorData:
    """The caller's own memory, all of it unless a length is given."""
    return MLCTensorData(bytesNoCopy=values, length=values.nbytes if length is None else length)


def placeholder(*shape: int, type_: MLCDataType = MLCDataType.float32) -> MLCTensor:
    return MLCTensor(shape=list(shape), dataType=type_)


def array(held: MLCTensor) -> Array:
    """A copy of what ``tensor.data`` shows, in the tensor's shape."""
    assert held.data is not None
    count = int(np.prod(held.descriptor.shape))
    return np.frombuffer(held.data, np.float32, count).reshape(held.descriptor.shape).copy()


def dense(inputs: int, outputs: int, seed: int = 0, bias: bool = True) -> MLCFullyConnectedLayer:
    weights = values(outputs, inputs, seed=seed) * 0.5
    return MLCFullyConnectedLayer(
        weights=tensor(weights, [1, inputs * outputs, 1, 1]),
        biases=tensor(values(outputs, seed=seed + 1), [1, outputs, 1, 1]) if bias else None,
        descriptor=MLCConvolutionDescriptor(
            kernelSizes=(1, 1), inputFeatureChannelCount=inputs, outputFeatureChannelCount=outputs
        ),
    )


def lstm(
    batch_first: bool, layers: int = 1, mode: MLCLSTMResultMode = MLCLSTMResultMode.output
) -> tuple[MLCLSTMLayer, torch.nn.LSTM]:
    """Two features in and two out; torch's LSTM with the same weights beside it."""
    torch.manual_seed(0)
    reference = torch.nn.LSTM(2, 2, layers, bias=False, batch_first=batch_first)

    def gates(kind: str) -> list[MLCTensor]:
        whole = [getattr(reference, f"weight_{kind}_l{n}").detach() for n in range(layers)]
        return [MLCTensor.from_torch(gate.clone()) for w in whole for gate in w.chunk(4)]

    descriptor = MLCLSTMDescriptor(
        inputSize=2,
        hiddenSize=2,
        layerCount=layers,
        usesBiases=False,
        batchFirst=batch_first,
        isBidirectional=False,
        returnsSequences=True,
        dropout=0.0,
        resultMode=mode,
    )
    layer = MLCLSTMLayer(descriptor=descriptor, inputWeights=gates("ih"), hiddenWeights=gates("hh"), biases=None)
    return layer, reference


def conv(inputs: int, outputs: int, size: int = 3) -> MLCConvolutionDescriptor:
    return MLCConvolutionDescriptor(
        kernelSizes=(size, size), inputFeatureChannelCount=inputs, outputFeatureChannelCount=outputs
    )


def loss(
    kind: MLCLossType = MLCLossType.meanSquaredError, reduction: MLCReductionType = MLCReductionType.mean
) -> MLCLossLayer:
    return MLCLossLayer(descriptor=MLCLossDescriptor(type=kind, reductionType=reduction))


def hyper(
    rate: float = 0.1,
    rescale: float = 1.0,
    regularization: MLCRegularizationType = MLCRegularizationType.none,
    scale: float = 0.0,
) -> MLCOptimizerDescriptor:
    return MLCOptimizerDescriptor(
        learningRate=rate, gradientRescale=rescale, regularizationType=regularization, regularizationScale=scale
    )


def sgd(rate: float = 0.1) -> MLCSGDOptimizer:
    return MLCSGDOptimizer(descriptor=hyper(rate))


@dataclass
class Program:
    """A training graph, the tensors it is fed with, and data for them."""

    training: MLCTrainingGraph
    graph: MLCGraph
    inputs: dict[str, MLCTensor]
    labels: dict[str, MLCTensor]
    given: dict[str, Array]
    layers: Sequence[Any] = ()
    result: MLCTensor | None = None
    device: MLCDevice = field(default_factory=cpu)

    def compile(self, options: Any = (), **more: Any) -> bool:
        return self.training.compile(options=options, device=self.device, **more)

    def inputs_data(self) -> dict[str, MLCTensorData]:
        return {name: data(self.given[name]) for name in self.inputs}

    def labels_data(self) -> dict[str, MLCTensorData]:
        return {name: data(self.given[name]) for name in self.labels}

    def execute(self, batchSize: int = 0, options: Any = (), **more: Any) -> bool:
        return self.training.execute(
            inputsData=self.inputs_data(),
            lossLabelsData=self.labels_data(),
            lossLabelWeightsData=None,
            batchSize=batchSize,
            options=options,
            **more,
        )

    def bind(self) -> bool:
        return self.training.bindAndWriteData(
            {name: data(values) for name, values in self.given.items()},
            forInputs=self.inputs | self.labels,
            to=self.device,
            synchronous=True,
        )

    def forward(self, **more: Any) -> bool:
        return self.training.executeForward(batchSize=0, **more)

    def gradient(self, **more: Any) -> bool:
        return self.training.executeGradient(batchSize=0, **more)

    def update(self, **more: Any) -> bool:
        return self.training.executeOptimizerUpdate(**more)

    def phases(self) -> bool:
        """Forward and gradient over freshly bound data."""
        return self.bind() and self.forward() and self.gradient()

    def step(self) -> float:
        """One call; gives the loss."""
        answers: list[Any] = []
        assert self.execute(completionHandler=lambda *given: answers.append(given), options=2)
        result, error, _ = answers[0]
        assert error is None
        return float(array(result).ravel()[0])

    def gradient_of(self, parameter: MLCTensor, layer: Any) -> Array | None:
        found = self.training.gradientData(forParameter=parameter, layer=layer)
        return None if found is None else np.frombuffer(found, np.float32).reshape(parameter.descriptor.shape).copy()


def regression(
    optimizer: Any = None,
    batch: int = 4,
    widths: Sequence[int] = (6, 3),
    reduction: MLCReductionType = MLCReductionType.mean,
    device: MLCDevice | None = None,
) -> Program:
    """Dense layers with ReLU between them under a squared error, declared and not yet compiled."""
    graph = MLCGraph()
    x, t = placeholder(batch, widths[0]), placeholder(batch, widths[-1])
    layers, y = [], x
    for number, (inputs, outputs) in enumerate(pairwise(widths)):
        if number:
            y = graph.node(MLCActivationLayer.relu, source=y)
        layers.append(dense(inputs, outputs, seed=10 * number))
        y = graph.node(layers[-1], source=y)
    training = MLCTrainingGraph(
        graphObjects=[graph], lossLayer=loss(reduction=reduction), optimizer=sgd() if optimizer is None else optimizer
    )
    assert training.addInputs({"x": x}, lossLabels={"t": t})
    given = {"x": values(batch, widths[0], seed=5), "t": values(batch, widths[-1], seed=6)}
    return Program(training, graph, {"x": x}, {"t": t}, given, layers, y, device or cpu())


def compiled(**more: Any) -> Program:
    """Two dense layers, from six numbers to three."""
    program = regression(widths=(6, 5, 3), **more)
    assert program.compile()
    return program


def inferring(graph: MLCGraph, x: MLCTensor, options: Any = ()) -> MLCInferenceGraph:
    """An inference graph over these layers, compiled."""
    made = MLCInferenceGraph(graphObjects=[graph])
    assert made.addInputs({"x": x}) and made.compile(options=options, device=cpu())
    return made


# By hand


def predictions(program, rows=slice(None)):
    """What the first layer computes now."""
    layer = program.layers[0]
    return program.given["x"][rows] @ layer.weights.numpy().reshape(3, 6).T + layer.biases.numpy().ravel()


def squared_error(program, rows=slice(None)):
    return ((predictions(program, rows) - program.given["t"][rows]) ** 2).mean()


def slopes(program: Program) -> dict[str, np.ndarray]:
    """By hand, for a program of two layers: the gradients of the squared error."""
    first, second = program.layers
    w1, b1, w2, b2 = (p.numpy().astype(float) for p in (first.weights, first.biases, second.weights, second.biases))
    w1, w2 = w1.reshape(b1.size, -1), w2.reshape(b2.size, -1)
    x, t = (program.given[n].astype(float) for n in "xt")
    h = x @ w1.T + b1.ravel()
    a = np.maximum(h, 0)
    y = a @ w2.T + b2.ravel()
    dy = 2 * (y - t) / y.size
    da = dy @ w2
    dh = da * (h > 0)
    return {"x": dh @ w1, "h": dh, "a": da, "y": dy, "w1": dh.T @ x, "w2": dy.T @ a}


def close(got, want):
    np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-6)
