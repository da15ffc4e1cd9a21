"""Small networks as ported programs. Nothing in them knows of ranks but the device they are compiled for."""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

import mlc_torch as mlc
from mlc_torch import MLCTensor, MLCTensorData, unwrap

Arrays = dict[str, np.ndarray]
LOSS, MEAN, SUM, NONE = mlc.MLCLossType, mlc.MLCReductionType.mean, mlc.MLCReductionType.sum, mlc.MLCReductionType.none


def data(array: np.ndarray) -> MLCTensorData:
    return MLCTensorData(bytesNoCopy=array, length=array.nbytes)


class Net:
    """A graph in the making, and after ``compile`` a program that trains it."""

    def __init__(self, batch: int = 8, seed: int = 0) -> None:
        self.batch, self.draw = batch, np.random.default_rng(seed)
        self.graph = mlc.MLCGraph()
        self.inputs: dict[str, MLCTensor] = {}
        self.labels: dict[str, MLCTensor] = {}
        self.weights: dict[str, MLCTensor] = {}
        self.outputs: dict[str, MLCTensor] = {}
        self.trained: list[MLCTensor] = []
        self.statistics: list[MLCTensor] = []
        self.makers: dict[str, Callable[[], np.ndarray]] = {}
        self.stopped: list[MLCTensor] = []
        self.training_tensors: list[Any] = []
        self.user: dict[str, tuple[MLCTensor, np.ndarray]] = {}

    # Tensors

    def numbers(self, *shape: int, scale: float = 1.0) -> np.ndarray:
        return (self.draw.standard_normal(shape) * scale).astype(np.float32)

    def parameter(self, *shape: int, scale: float = 0.3, trained: bool = True) -> MLCTensor:
        made = self.constant(self.numbers(*shape, scale=scale))
        if trained:
            self.trained.append(made)
        return made

    def constant(self, array: np.ndarray, dtype=mlc.MLCDataType.float32) -> MLCTensor:
        return unwrap(MLCTensor(shape=list(array.shape), data=data(array), dataType=dtype))

    def fed(self, kind: str, name: str, shape: Sequence[int], make=None, dtype=mlc.MLCDataType.float32) -> MLCTensor:
        made = unwrap(MLCTensor(shape=list(shape), dataType=dtype))
        getattr(self, kind)[name] = made
        self.makers[name] = make or (lambda: self.numbers(*shape))
        return made

    def input(self, *shape: int, name: str = "x", **how: Any) -> MLCTensor:
        return self.fed("inputs", name, (self.batch, *shape), **how)

    def classes(self, count: int, *, name: str = "t") -> MLCTensor:
        def make() -> np.ndarray:
            return np.eye(count, dtype=np.float32)[self.draw.integers(0, count, self.batch)]

        return self.fed("labels", name, (self.batch, count), make)

    def targets(self, *shape: int, name: str = "t") -> MLCTensor:
        return self.fed("labels", name, (self.batch, *shape))

    # Layers

    def add(self, layer: Any, *sources: MLCTensor, **how: Any) -> MLCTensor:
        return unwrap(self.graph.node(unwrap(layer), sources=list(sources), **how))

    def dense(self, x: MLCTensor, inputs: int, outputs: int, trained: bool = True, **how: Any) -> MLCTensor:
        descriptor = mlc.MLCConvolutionDescriptor(
            kernelSizes=(1, 1), inputFeatureChannelCount=inputs, outputFeatureChannelCount=outputs
        )
        layer = mlc.MLCFullyConnectedLayer(
            weights=self.parameter(1, outputs * inputs, 1, 1, trained=trained),
            biases=self.parameter(1, outputs, 1, 1, trained=trained),
            descriptor=descriptor,
        )
        return self.add(layer, x, **how)

    def convolution(self, x: MLCTensor, inputs: int, outputs: int) -> MLCTensor:
        descriptor = mlc.MLCConvolutionDescriptor(
            kernelSizes=(3, 3),
            inputFeatureChannelCount=inputs,
            outputFeatureChannelCount=outputs,
            strides=(1, 1),
            paddingPolicy=mlc.MLCPaddingPolicy.same,
        )
        weights = self.parameter(1, outputs * inputs, 3, 3)
        return self.add(mlc.MLCConvolutionLayer(weights=weights, biases=None, descriptor=descriptor), x)

    def norm(self, kind: Any, x: MLCTensor, channels: int, statistics: bool = True, **more: Any) -> MLCTensor:
        shape = (1, channels, 1, 1)
        if statistics:
            mean = self.constant(np.zeros(shape, np.float32))
            variance = self.constant(np.ones(shape, np.float32))
            self.statistics += [mean, variance]
            more |= {"mean": mean, "variance": variance, "momentum": 0.8}
        beta, gamma = self.parameter(*shape), self.parameter(*shape)
        layer = kind(featureChannelCount=channels, beta=beta, gamma=gamma, varianceEpsilon=1e-3, **more)
        return self.add(layer, x)

    def pool(self, x: MLCTensor) -> MLCTensor:
        descriptor = mlc.MLCPoolingDescriptor(type=mlc.MLCPoolingType.max, kernelSizes=(2, 2), strides=(2, 2))
        return self.add(mlc.MLCPoolingLayer(descriptor=descriptor), x)

    def relu(self, x: MLCTensor) -> MLCTensor:
        return self.add(mlc.MLCActivationLayer.relu, x)

    def tanh(self, x: MLCTensor) -> MLCTensor:
        return self.add(mlc.MLCActivationLayer.tanh, x)

    def dropout(self, x: MLCTensor, seed: int = 0) -> MLCTensor:
        return self.add(mlc.MLCDropoutLayer(rate=0.4, seed=seed), x)

    def plus(self, x: MLCTensor, y: MLCTensor) -> MLCTensor:
        return self.add(mlc.MLCArithmeticLayer(operation=mlc.MLCArithmeticOperation.add), x, y)

    def reshape(self, x: MLCTensor, *shape: int) -> MLCTensor:
        return unwrap(self.graph.reshape(shape=list(shape), source=x))

    def lstm(self, *sources: MLCTensor, inputs: int, hidden: int, layers: int = 1, **how: Any) -> MLCTensor:
        options = {"batchFirst": True, "isBidirectional": False, "returnsSequences": True, "dropout": 0.0} | how
        d = mlc.MLCLSTMDescriptor(inputSize=inputs, hiddenSize=hidden, layerCount=layers, usesBiases=True, **options)
        width = [inputs] + [hidden] * (layers - 1)
        layer = mlc.MLCLSTMLayer(
            descriptor=d,
            inputWeights=[self.parameter(hidden, n) for n in width for _ in range(4)],
            hiddenWeights=[self.parameter(hidden, hidden) for _ in width for _ in range(4)],
            biases=[self.parameter(hidden) for _ in width for _ in range(4)],
        )
        return self.add(layer, *sources)

    def attention(self, x: MLCTensor, model: int, *masks: MLCTensor) -> MLCTensor:
        layer = mlc.MLCMultiheadAttentionLayer(
            descriptor=mlc.MLCMultiheadAttentionDescriptor(modelDimension=model, headCount=2),
            weights=[self.parameter(1, model * model, 1, 1) for _ in range(4)],
            biases=[self.parameter(1, model, 1, 1) for _ in range(4)],
            attentionBiases=None,
        )
        return self.add(layer, x, x, x, *masks)

    # Training

    def compile(
        self,
        device: mlc.MLCDevice,
        loss: Any,
        optimizer: Any,
        options: Any = (),
        graphs: Sequence[Any] = (),
        **how: Any,
    ) -> Net:
        self.device = device
        self.training = mlc.MLCTrainingGraph(graphObjects=graphs or [self.graph], lossLayer=loss, optimizer=optimizer)
        unwrapped = self.training.addInputs(self.inputs, lossLabels=self.labels, lossLabelWeights=self.weights or None)
        assert unwrapped, mlc.last_refusal()
        if self.outputs:
            assert self.training.addOutputs(self.outputs)
        if self.stopped:
            assert self.training.stopGradient(for_=self.stopped)
        if self.training_tensors:
            assert self.training.setTrainingTensorParameters(self.training_tensors)
        assert self.training.compile(options=list(options), device=device, **how), mlc.last_refusal()
        return self

    def batches(self, count: int) -> list[Arrays]:
        return [{name: make() for name, make in self.makers.items()} for _ in range(count)]

    def data(self, arrays: Arrays) -> dict[str, Any]:
        def of(kind: dict[str, MLCTensor]) -> dict[str, MLCTensorData]:
            return {name: data(arrays[name]) for name in kind}

        return {
            "inputsData": of(self.inputs),
            "lossLabelsData": of(self.labels),
            "lossLabelWeightsData": of(self.weights) if self.weights else None,
        }

    def step(self, arrays: Arrays, batch: int = 0, **how: Any) -> Any:
        """One call of ``execute``. Gives what it answered and what its handler was told."""
        told: list[Any] = []
        answer = self.training.execute(
            **self.data(arrays),
            batchSize=batch or self.batch,
            options=how.pop("options", [mlc.MLCExecutionOptions.synchronous]),
            completionHandler=lambda result, error, seconds: told.append((result, error)),
            **how,
        )
        ((result, error),) = told
        return answer, None if result is None else result.numpy().copy(), error

    def bind(self, arrays: Arrays) -> None:
        tensors = {**self.inputs, **self.labels, **self.weights}
        given = {name: data(arrays[name]) for name in tensors}
        assert self.training.bindAndWriteData(given, forInputs=tensors, to=self.device, synchronous=True)

    def phases(self, arrays: Arrays, batch: int = 0) -> np.ndarray:
        """The same step by its three phases."""
        told: list[Any] = []
        batch, options = batch or self.batch, [mlc.MLCExecutionOptions.synchronous]
        self.bind(arrays)
        assert self.training.executeForward(
            batchSize=batch, options=options, completionHandler=lambda r, e, s: told.append(r.numpy().copy())
        ), mlc.last_refusal()
        assert self.training.executeGradient(batchSize=batch, options=options), mlc.last_refusal()
        if self.training.optimizer is not None:
            assert self.training.executeOptimizerUpdate(options=options), mlc.last_refusal()
        return told[0]

    def numbers_now(self) -> list[np.ndarray]:
        """The weights as they are."""
        self.training.synchronizeUpdates()
        return [t.numpy().copy() for t in self.trained]

    def take_over(self, other: Net) -> None:
        """Begin from the weights and statistics of another program."""
        tensors, arrays = [*self.trained, *self.statistics], other.numbers_now() + other.statistics_now()
        for tensor, array in zip(tensors, arrays, strict=True):
            if self.device.torch_device.type == "cpu":
                tensor.numpy()[...] = array
            else:
                assert tensor.bindAndWriteData(data(array), to=self.device)

    def statistics_now(self) -> list[np.ndarray]:
        self.training.synchronizeUpdates()
        return [t.numpy().copy() for t in self.statistics]


# Losses and optimizers


def loss(kind: Any = LOSS.softmaxCrossEntropy, reduction: Any = MEAN, own: MLCTensor | None = None, **more: Any) -> Any:
    d = mlc.MLCLossDescriptor(type=kind, reductionType=reduction, **more)
    return unwrap(mlc.MLCLossLayer(descriptor=d) if own is None else mlc.MLCLossLayer(descriptor=d, weights=own))


def descriptor(rate: float = 0.05, clip: bool = False, decay: float = 0.0, rescale: float = 1.0) -> Any:
    how: dict[str, Any] = {"learningRate": rate, "gradientRescale": rescale}
    how["regularizationType"] = mlc.MLCRegularizationType.l2 if decay else mlc.MLCRegularizationType.none
    how["regularizationScale"] = decay
    if clip:
        how |= {
            "appliesGradientClipping": True,
            "gradientClippingType": mlc.MLCGradientClippingType.byGlobalNorm,
            "gradientClipMax": 1.0,
            "gradientClipMin": -1.0,
            "maximumClippingNorm": 0.2,
            "customGlobalNorm": 0.0,
        }
    return mlc.MLCOptimizerDescriptor(**how)


def sgd(**how: Any) -> Any:
    return mlc.MLCSGDOptimizer(descriptor=descriptor(**how), momentumScale=0.9, usesNesterovMomentum=False)


def adam(**how: Any) -> Any:
    return mlc.MLCAdamOptimizer(descriptor=descriptor(**{"rate": 0.01} | how))


def rmsprop(**how: Any) -> Any:
    return mlc.MLCRMSPropOptimizer(descriptor=descriptor(**{"rate": 0.01} | how))


# Networks: each takes a device and gives a compiled program


def perceptron(device, batch=8, reduction=MEAN, optimizer=sgd, options=(), compile_=None, own_weights=False, **how):
    net = Net(batch)
    net.classes(4)
    net.dense(net.tanh(net.dense(net.input(6), 6, 16)), 16, 4)
    own = net.constant(np.linspace(0.5, 2, batch, dtype=np.float32).reshape(batch, 1)) if own_weights else None
    rate = {} if reduction is MEAN else {"rate": 0.05 / batch}
    return net.compile(device, loss(reduction=reduction, own=own), optimizer(**rate, **how), options, **compile_ or {})


def of_loss(device, kind, reduction):
    """Predictions and labels that every kind of loss takes: between 0 and 1, those of a sample adding up to 1."""
    net = Net(5)
    net.classes(3)
    x = net.dense(net.input(4), 4, 3)
    net.add(mlc.MLCSoftmaxLayer(operation=mlc.MLCSoftmaxOperation.softmax, dimension=1), x)
    return net.compile(device, loss(kind, reduction), sgd())


def weighted(device):
    net = Net(7)
    net.targets(3)
    net.fed("weights", "w", (7, 1), lambda: net.draw.random((7, 1), np.float32))
    net.dense(net.tanh(net.dense(net.input(5), 5, 8)), 8, 3)
    return net.compile(device, loss(LOSS.huber), sgd())


def convolutional(device, batch=6, norm=None, optimizer=adam, **how):
    net = Net(batch)
    net.classes(4)
    x = net.convolution(net.input(2, 8, 8), 2, 4)
    if norm is not None:
        x = norm(net, x)
    x = net.pool(net.relu(x))
    net.dense(net.reshape(x, batch, 64), 64, 4)
    return net.compile(device, loss(), optimizer(**how))


def batch_norm(net, x):
    return net.norm(mlc.MLCBatchNormalizationLayer, x, 4)


def instance_norm(net, x):
    return net.norm(mlc.MLCInstanceNormalizationLayer, x, 4)


def group_norm(net, x):
    return net.norm(mlc.MLCGroupNormalizationLayer, x, 4, statistics=False, groupCount=2)


def recurrent(device, **how):
    net = Net(5)
    net.classes(4)
    x = net.lstm(net.input(7, 3), inputs=3, hidden=6, **how)
    x = net.reshape(net.add(mlc.MLCSliceLayer(start=[0, 6, 0], end=[5, 7, 6], stride=None), x), 5, 6)
    net.dense(x, 6, 4)
    return net.compile(device, loss(), sgd())


def time_first(device):
    """Sequences of different lengths with initial states, samples along dimension 1; dropout between layers."""
    net, batch, time = Net(5), 5, 4
    shape = (time, batch, 3)
    x = net.fed("inputs", "x", shape)
    h = net.fed("inputs", "h", (2, 1, batch, 6))
    c = net.constant(net.numbers(2, 1, batch, 6))
    lengths = net.constant(np.array([4, 4, 3, 2, 1], np.int32), mlc.MLCDataType.int32)
    net.fed("labels", "t", (batch, time, 2))
    x = net.lstm(x, h, c, lengths, inputs=3, hidden=6, layers=2, batchFirst=False, dropout=0.3)
    x = net.dense(x, 6, 2)
    net.add(mlc.MLCTransposeLayer(dimensions=[1, 0, 2]), x)
    return net.compile(device, loss(LOSS.meanSquaredError), sgd())


def attending(device):
    net, batch = Net(5), 5
    mask = np.zeros((batch, 4), bool)
    mask[1, 2:] = mask[4, 1:] = True
    mask_tensor = net.constant(mask, mlc.MLCDataType.boolean)
    shape = (batch, 4)
    indices = net.fed("inputs", "x", shape, lambda: net.draw.integers(0, 9, shape, np.int32), mlc.MLCDataType.int32)
    d = mlc.MLCEmbeddingDescriptor(embeddingCount=9, embeddingDimension=8)
    x = net.add(mlc.MLCEmbeddingLayer(descriptor=d, weights=net.parameter(9, 8, scale=1.0)), indices)
    x = net.plus(x, net.attention(x, 8, mask_tensor))
    net.classes(4)
    net.dense(net.reshape(x, batch, 32), 32, 4)
    return net.compile(device, loss(), adam(decay=0.01))


def dropping(device, seed=0, options=()):
    net = Net(7)
    net.classes(4)
    net.dense(net.dropout(net.tanh(net.dense(net.input(6), 6, 16)), seed), 16, 4)
    return net.compile(device, loss(), sgd(clip=True), options)


def several_losses(device):
    """A mean, a sum and an unreduced loss of one trunk, with weights of their own."""
    net = Net(7)
    trunk = net.tanh(net.dense(net.input(6), 6, 12))
    first = net.fed("labels", "first", (7, 3))
    second = net.fed("labels", "second", (7, 2))
    net.add(loss(LOSS.meanSquaredError, SUM, weight=0.1), net.dense(trunk, 12, 3), lossLabels=[first])
    net.add(loss(LOSS.meanAbsoluteError, NONE, weight=0.05), net.dense(trunk, 12, 2), lossLabels=[second])
    net.classes(4)
    net.dense(trunk, 12, 4)
    return net.compile(device, loss(), sgd())


def steered(device):
    """A stopped gradient, a frozen layer, a layer that is never updated, a constant row for each sample."""
    net = Net(6)
    x = net.input(6)
    stopped = net.dense(x, 6, 8)
    net.stopped.append(stopped)
    frozen = net.dense(x, 6, 8)
    never = net.dense(x, 6, 8, disableUpdate=True)
    own = net.constant(net.numbers(6, 8))
    net.classes(4)
    net.dense(net.tanh(net.plus(net.plus(stopped, frozen), net.plus(never, own))), 8, 4)
    layer = net.graph.layers[1]
    layer.weightsParameter.isUpdatable = False
    return net.compile(device, loss(), sgd())


def trained_tensors(device):
    """Tensors that are trained for themselves: one with a row for each sample, one for all."""
    net = Net(6)
    rows, shift = net.parameter(6, 8), net.parameter(1, 8)
    net.training_tensors = [mlc.MLCTensorParameter(tensor=rows), mlc.MLCTensorParameter(tensor=shift)]
    net.classes(4)
    net.dense(net.tanh(net.plus(net.plus(net.dense(net.input(6), 6, 8), rows), shift)), 8, 4)
    return net.compile(device, loss(), sgd())


def yolo(device):
    net, classes, anchors = Net(5), 2, 2
    channels, grid = anchors * (5 + classes), 3
    boxes = struct.pack("4f", 1.0, 1.5, 2.0, 1.0)
    d = mlc.MLCYOLOLossDescriptor(anchorBoxes=boxes, anchorBoxCount=anchors)

    def labels() -> np.ndarray:
        made = np.zeros((5, anchors, 5 + classes, grid, grid), np.float32)
        for sample in range(5):
            for _ in range(sample % 3 + 1):
                a, y, x = net.draw.integers(0, anchors), *net.draw.integers(0, grid, 2)
                made[sample, a, :4, y, x] = net.draw.random(4) + 0.2
                made[sample, a, 4, y, x] = 1
                made[sample, a, 5 + net.draw.integers(0, classes), y, x] = 1
        return made.reshape(5, channels, grid, grid)

    net.fed("labels", "t", (5, channels, grid, grid), labels)
    net.convolution(net.input(2, grid, grid), 2, channels)
    return net.compile(device, unwrap(mlc.MLCYOLOLossLayer(descriptor=d)), sgd(rate=0.01))


def given_gradient(device):
    """No loss: a gradient comes from outside."""
    net = Net(6)
    y = net.dense(net.tanh(net.dense(net.input(5), 5, 8)), 8, 3)
    net.result = y
    net.device = device
    net.training = mlc.MLCTrainingGraph(graphObjects=[net.graph], lossLayer=None, optimizer=sgd())
    assert net.training.addInputs(net.inputs, lossLabels=None)
    gradient = unwrap(net.training.allocateUserGradient(for_=y))
    assert net.training.compile(options=[], device=device), mlc.last_refusal()
    values = net.numbers(6, 3)
    assert gradient.bindAndWriteData(data(values), to=device)
    return net
