"""Random training programs, each twice: as a graph of the library, and in plain PyTorch, in double precision.

``python -m tests.disturbance.random_programs 10000`` runs as many, from a seed that it prints; a second number is the seed.

The twin knows nothing of the library: it is made of torch's functions and autograd, and of the optimizers that
``tests/graph/reference_optimizers.py`` writes out in NumPy. A program is decided by its seed alone.
"""

from __future__ import annotations

import secrets
import sys
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch.nn import functional as F

import mlc_torch as mlc
from tests.graph import reference_optimizers as reference
from tests.graph.programs import data, loss, placeholder
from tests.layers.records import tensor

Values = list[torch.Tensor]
Formula = Callable[[Values, Values, bool], torch.Tensor]
"""A value from those before it and from all parameters, in training or not."""

EPSILON, MOMENTUM = 1e-2, 0.9
RATE = 0.05
DIVERGED = 1e3


@dataclass
class Program:
    """Random choices, made one after the other."""

    seed: int
    graph: mlc.MLCGraph = field(default_factory=mlc.MLCGraph)
    held: list[mlc.MLCTensor] = field(default_factory=list)
    """The library's parameters."""
    views: list[tuple[int, ...]] = field(default_factory=list)
    """The shapes in which the twin reads them."""
    formulas: list[Formula] = field(default_factory=list)
    made: list[mlc.MLCTensor] = field(default_factory=list)
    statistics: list[torch.Tensor] = field(default_factory=list)
    """The twin's running means and variances, in turn."""
    words: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.chance = np.random.default_rng(self.seed)
        self.batch = int(self.chance.integers(2, 5))
        images = bool(self.chance.integers(2))
        sizes = [int(n) for n in self.chance.integers(2, 6, 3)]
        self.shape = [self.batch, *(sizes if images else sizes[:1])]
        self.made.append(placeholder(*self.shape))
        self.formulas.append(lambda before, parameters, training: before[0])
        for _ in range(int(self.chance.integers(2, 8))):
            self.grow()
        self.finish()

    # Choices

    def number(self, *shape: int) -> np.ndarray:
        return self.chance.uniform(-0.7, 0.7, shape).astype(np.float32)

    def pick(self, things: Any) -> Any:
        return things[int(self.chance.integers(len(things)))]

    def parameter(
        self, *view: int, like: tuple[int, ...] | None = None, around: float = 0.0
    ) -> tuple[mlc.MLCTensor, int]:
        """A tensor of the library in the shape ``like``, which the twin sees as ``view``; and its number."""
        self.held.append(tensor(self.number(*(like or view)) + np.float32(around)))
        self.views.append(view)
        return self.held[-1], len(self.held) - 1

    def add(self, layer: Any, sources: list[int], formula: Formula, word: str) -> None:
        made = self.graph.node(layer, sources=[self.made[s] for s in sources])
        assert made is not None, f"{word}: {mlc.last_refusal()}"
        self.made.append(made)
        self.formulas.append(formula)
        self.words.append(f"{word} of {sources} gives {made.descriptor.shape}")

    def grow(self) -> None:
        batched = [k for k, t in enumerate(self.made) if t.descriptor.shape[0] == self.batch]
        at = batched[-1] if self.chance.integers(4) else self.pick(batched)
        shape = self.made[at].descriptor.shape
        kinds = [self.dense, self.activation, self.arithmetic, self.constant, self.layer_norm, self.softmax]
        kinds += [self.join, self.transposed, self.clipped]
        if len(shape) == 4:
            kinds += [self.convolution, self.pooling, self.batch_norm, self.instance_norm, self.flat, self.padding]
        self.pick(kinds)(at, shape)

    # Layers

    def dense(self, at: int, shape: list[int]) -> None:
        if len(shape) != 2:
            return self.flat(at, shape)
        inputs, outputs = shape[1], int(self.chance.integers(1, 6))
        weights, w = self.parameter(outputs, inputs, like=(1, inputs * outputs, 1, 1))
        biases, b = self.parameter(outputs, like=(1, outputs, 1, 1))
        descriptor = mlc.MLCConvolutionDescriptor(
            kernelSizes=(1, 1), inputFeatureChannelCount=inputs, outputFeatureChannelCount=outputs
        )
        layer = mlc.MLCFullyConnectedLayer(weights=weights, biases=biases, descriptor=descriptor)
        self.add(layer, [at], lambda v, p, _: v[at] @ p[w].T + p[b], "dense")

    def convolution(self, at: int, shape: list[int]) -> None:
        inputs, outputs = shape[1], int(self.chance.integers(1, 4))
        size = self.pick([k for k in (1, 2, 3) if k <= min(shape[2:])])
        stride = int(self.chance.integers(1, 3))
        weights, w = self.parameter(outputs, inputs, size, size, like=(1, inputs * outputs, size, size))
        biases, b = self.parameter(outputs, like=(1, outputs, 1, 1))
        descriptor = mlc.MLCConvolutionDescriptor(
            kernelSizes=(size, size),
            inputFeatureChannelCount=inputs,
            outputFeatureChannelCount=outputs,
            strides=(stride, stride),
            paddingPolicy=mlc.MLCPaddingPolicy.valid,
        )
        layer = mlc.MLCConvolutionLayer(weights=weights, biases=biases, descriptor=descriptor)
        self.add(layer, [at], lambda v, p, _: F.conv2d(v[at], p[w], p[b], stride), "convolution")

    def pooling(self, at: int, shape: list[int]) -> None:
        size = self.pick([k for k in (1, 2, 3) if k <= min(shape[2:])])
        stride = int(self.chance.integers(1, 3))
        largest = bool(self.chance.integers(2))
        kind = mlc.MLCPoolingType.max if largest else mlc.MLCPoolingType.average(countIncludesPadding=True)
        descriptor = mlc.MLCPoolingDescriptor(
            type=kind,
            kernelSizes=(size, size),
            strides=(stride, stride),
            paddingPolicy=mlc.MLCPaddingPolicy.valid,
        )
        function = F.max_pool2d if largest else F.avg_pool2d
        self.add(
            mlc.MLCPoolingLayer(descriptor=descriptor), [at], lambda v, p, _: function(v[at], size, stride), "pooling"
        )

    def activation(self, at: int, shape: list[int]) -> None:
        name = self.pick(list(ACTIVATIONS))
        layer, function = ACTIVATIONS[name]
        self.add(layer(), [at], lambda v, p, _: function(v[at]), name)

    def arithmetic(self, at: int, shape: list[int]) -> None:
        others = [k for k, t in enumerate(self.made) if t.descriptor.shape == shape]
        other, name = self.pick(others), self.pick(list(OPERATIONS))
        layer = mlc.MLCArithmeticLayer(operation=getattr(mlc.MLCArithmeticOperation, name))
        self.add(layer, [at, other], lambda v, p, _: OPERATIONS[name](v[at], v[other]), name)

    def constant(self, at: int, shape: list[int]) -> None:
        """A tensor with data that is no parameter; broadcast."""
        value = self.number(1, *shape[1:])
        self.made.append(tensor(value))
        self.formulas.append(lambda v, p, _: torch.from_numpy(value).double())
        self.words.append("a constant")
        other, name = len(self.made) - 1, self.pick(list(OPERATIONS))
        layer = mlc.MLCArithmeticLayer(operation=getattr(mlc.MLCArithmeticOperation, name))
        self.add(layer, [at, other], lambda v, p, _: OPERATIONS[name](v[at], v[other]), name)

    def layer_norm(self, at: int, shape: list[int]) -> None:
        normalized = tuple(shape[1:])
        if np.prod(normalized) < 3:
            return
        gamma, g = self.parameter(*normalized, around=1.0)
        beta, b = self.parameter(*normalized)
        layer = mlc.MLCLayerNormalizationLayer(
            normalizedShape=list(normalized), beta=beta, gamma=gamma, varianceEpsilon=EPSILON
        )
        self.add(layer, [at], lambda v, p, _: F.layer_norm(v[at], normalized, p[g], p[b], EPSILON), "layer norm")

    def instance_norm(self, at: int, shape: list[int]) -> None:
        if shape[2] * shape[3] < 3:
            return
        gamma, g = self.parameter(shape[1], like=(1, shape[1], 1, 1), around=1.0)
        beta, b = self.parameter(shape[1], like=(1, shape[1], 1, 1))
        layer = mlc.MLCInstanceNormalizationLayer(
            featureChannelCount=shape[1], beta=beta, gamma=gamma, varianceEpsilon=EPSILON
        )

        def formula(v: Values, p: Values, training: bool) -> torch.Tensor:
            x = v[at]
            mean, variance = x.mean((2, 3), keepdim=True), x.var((2, 3), unbiased=False, keepdim=True)
            return (x - mean) / (variance + EPSILON).sqrt() * p[g].view(1, -1, 1, 1) + p[b].view(1, -1, 1, 1)

        self.add(layer, [at], formula, "instance norm")

    def batch_norm(self, at: int, shape: list[int]) -> None:
        if shape[0] * shape[2] * shape[3] < 4:
            return
        channels = shape[1]
        gamma, g = self.parameter(channels, like=(1, channels, 1, 1), around=1.0)
        beta, b = self.parameter(channels, like=(1, channels, 1, 1))
        mean, variance = (tensor(np.full((1, channels, 1, 1), k, np.float32)) for k in (0, 1))
        layer = mlc.MLCBatchNormalizationLayer(
            featureChannelCount=channels,
            mean=mean,
            variance=variance,
            beta=beta,
            gamma=gamma,
            varianceEpsilon=EPSILON,
            momentum=MOMENTUM,
        )
        place = len(self.statistics)
        self.statistics += [torch.zeros(channels).double(), torch.ones(channels).double()]

        def formula(v: Values, p: Values, training: bool) -> torch.Tensor:
            x = v[at]
            kept = self.statistics[place : place + 2]
            if training:
                average, spread = x.mean((0, 2, 3)), x.var((0, 2, 3), unbiased=False)
                self.statistics[place] = MOMENTUM * kept[0] + (1 - MOMENTUM) * average.detach()
                self.statistics[place + 1] = MOMENTUM * kept[1] + (1 - MOMENTUM) * spread.detach()
            else:
                average, spread = kept
            scaled = (x - average.view(1, -1, 1, 1)) / (spread.view(1, -1, 1, 1) + EPSILON).sqrt()
            return scaled * p[g].view(1, -1, 1, 1) + p[b].view(1, -1, 1, 1)

        self.add(layer, [at], formula, "batch norm")

    def softmax(self, at: int, shape: list[int]) -> None:
        dimension = int(self.chance.integers(1, len(shape)))
        log = bool(self.chance.integers(2))
        operation = mlc.MLCSoftmaxOperation.logSoftmax if log else mlc.MLCSoftmaxOperation.softmax
        function = torch.log_softmax if log else torch.softmax
        layer = mlc.MLCSoftmaxLayer(operation=operation, dimension=dimension)
        self.add(layer, [at], lambda v, p, _: function(v[at], dimension), "log softmax" if log else "softmax")

    def join(self, at: int, shape: list[int]) -> None:
        others = [
            k for k, t in enumerate(self.made) if t.descriptor.shape[0] == shape[0] and t.descriptor.shape == shape
        ]
        other, dimension = self.pick(others), int(self.chance.integers(1, len(shape)))
        layer = mlc.MLCConcatenationLayer(dimension=dimension)
        self.add(layer, [at, other], lambda v, p, _: torch.cat([v[at], v[other]], dimension), "concatenation")

    def flat(self, at: int, shape: list[int]) -> None:
        target = [shape[0], int(np.prod(shape[1:]))]
        layer = mlc.MLCReshapeLayer(shape=target)
        self.add(layer, [at], lambda v, p, _: v[at].reshape(v[at].shape[0], -1), "reshape")

    def transposed(self, at: int, shape: list[int]) -> None:
        order = [0, *(1 + int(k) for k in self.chance.permutation(len(shape) - 1))]
        self.add(mlc.MLCTransposeLayer(dimensions=order), [at], lambda v, p, _: v[at].permute(order), "transpose")

    def padding(self, at: int, shape: list[int]) -> None:
        top, bottom, left, right = (int(n) for n in self.chance.integers(0, 3, 4))
        layer = mlc.MLCPaddingLayer(zeroPadding=[top, bottom, left, right])
        self.add(layer, [at], lambda v, p, _: F.pad(v[at], (left, right, top, bottom)), "padding")

    def clipped(self, at: int, shape: list[int]) -> None:
        layer = mlc.MLCActivationLayer.clamp(min=-0.5, max=0.75)
        self.add(layer, [at], lambda v, p, _: v[at].clamp(-0.5, 0.75), "clamp")

    # The end: a dense layer, so that there is something to train, a loss, an optimizer

    def finish(self) -> None:
        at = len(self.made) - 1
        if len(self.made[at].descriptor.shape) != 2:
            self.flat(at, self.made[at].descriptor.shape)
        self.dense(len(self.made) - 1, self.made[-1].descriptor.shape)
        width = self.made[-1].descriptor.shape[1]
        name = self.pick(list(LOSSES))
        kind, self.loss = LOSSES[name]
        self.label = placeholder(self.batch, width)
        self.one_hot = name == "softmax cross-entropy"
        self.rule, twin = self.optimizer()
        self.words += [name, type(self.rule).__name__]
        self.training = mlc.MLCTrainingGraph(graphObjects=[self.graph], lossLayer=loss(kind), optimizer=self.rule)
        assert self.training.addInputs({"x": self.made[0]}, lossLabels={"t": self.label})
        self.plain = bool(self.chance.integers(4) == 0)
        options = [mlc.MLCGraphCompilationOptions.disableLayerFusion] if self.plain else []
        assert self.training.compile(options=options, device=mlc.MLCDevice.cpu()), mlc.last_refusal()
        self.twin = twin([t.numpy().reshape(view).astype(float) for t, view in zip(self.held, self.views, strict=True)])

    def optimizer(self) -> tuple[Any, Callable[[list[np.ndarray]], reference.Reference]]:
        """Their ε is large, or the rounding of a gradient of nothing would count as much as a gradient."""
        settings = reference.Settings(lr=RATE)
        descriptor = mlc.MLCOptimizerDescriptor(
            learningRate=RATE,
            gradientRescale=1.0,
            regularizationType=mlc.MLCRegularizationType.none,
            regularizationScale=0.0,
        )
        kind = int(self.chance.integers(4))
        if kind < 2:
            momentum, nesterov = self.pick([0.0, 0.9]), bool(kind)
            made = mlc.MLCSGDOptimizer(descriptor=descriptor, momentumScale=momentum, usesNesterovMomentum=nesterov)
            return made, lambda start: reference.SGD(start, settings, momentum=momentum, nesterov=nesterov)
        if kind == 2:
            amsgrad = bool(self.chance.integers(2))
            made = mlc.MLCAdamOptimizer(
                descriptor=descriptor, beta1=0.8, beta2=0.9, epsilon=0.1, usesAMSGrad=amsgrad, timeStep=1
            )
            return made, lambda start: reference.Adam(
                start, settings, beta1=0.8, beta2=0.9, epsilon=0.1, amsgrad=amsgrad
            )
        centered = bool(self.chance.integers(2))
        made = mlc.MLCRMSPropOptimizer(
            descriptor=descriptor, momentumScale=0.5, alpha=0.9, epsilon=0.1, isCentered=centered
        )
        return made, lambda start: reference.RMSProp(
            start, settings, momentum=0.5, alpha=0.9, epsilon=0.1, centered=centered
        )

    # Running both

    def run(self, steps: int = 3) -> None:
        for number in range(steps):
            batch = (
                self.batch
                if number != 1 or not self.chance.integers(2)
                else int(self.chance.integers(2, self.batch + 1))
            )
            x, t = self.number(*self.shape), self.number(*self.label.descriptor.shape)
            if self.one_hot:
                t = np.eye(t.shape[1], dtype=np.float32)[self.chance.integers(0, t.shape[1], len(t))]
            phases = bool(self.chance.integers(2))
            # From the same state each time: a network may amplify the rounding of the steps before.
            self.twin.params = [a.numpy().reshape(v).astype(float) for a, v in zip(self.held, self.views, strict=True)]
            got = self.step(x, t, batch, phases)
            want, gradients = self.plain_step(x[:batch], t[:batch])
            if not abs(want) < DIVERGED:
                return  # a network that squares its values and learns too fast
            self.compare(got, want, f"loss of step {number}")
            self.twin.step(gradients)
            for place, (held, param) in enumerate(zip(self.held, self.twin.params, strict=True)):
                self.compare(held.numpy().reshape(param.shape), param, f"parameter {place} after step {number}")
            self.words.append(f"step of {batch} {'in phases' if phases else 'at once'}")
        self.infer(self.number(*self.shape))

    def compare(self, got: Any, want: Any, what: str) -> None:
        scale = float(np.abs(want).max(initial=1e-3))
        np.testing.assert_allclose(got, want, rtol=2e-4, atol=2e-4 * max(scale, 0.1), err_msg=f"{self}: {what}")

    def step(self, x: np.ndarray, t: np.ndarray, batch: int, phases: bool) -> float:
        found: list[float] = []

        def handler(result: Any, error: Any, seconds: float) -> None:
            assert error is None, error
            found.append(float(result.numpy().ravel()[0]))

        if phases:
            tensors = {"x": self.made[0], "t": self.label}
            given = {"x": data(x), "t": data(t)}
            assert self.training.bindAndWriteData(given, forInputs=tensors, to=mlc.MLCDevice.cpu(), synchronous=True)
            assert self.training.executeForward(batchSize=batch, completionHandler=handler), mlc.last_refusal()
            assert self.training.executeGradient(batchSize=batch), mlc.last_refusal()
            assert self.training.executeOptimizerUpdate(), mlc.last_refusal()
        else:
            assert self.training.execute(
                inputsData={"x": data(x)},
                lossLabelsData={"t": data(t)},
                lossLabelWeightsData=None,
                batchSize=batch,
                completionHandler=handler,
            ), mlc.last_refusal()
        return found[0]

    def values(self, x: np.ndarray, parameters: Values, training: bool) -> Values:
        values = [torch.from_numpy(x).double()]
        for formula in self.formulas[1:]:
            values.append(formula(values, parameters, training))
        return values

    def plain_step(self, x: np.ndarray, t: np.ndarray) -> tuple[float, list[np.ndarray]]:
        parameters = [torch.from_numpy(p).double().requires_grad_() for p in self.twin.params]
        scored = self.loss(self.values(x, parameters, True)[-1], torch.from_numpy(t).double())
        found = torch.autograd.grad(scored, parameters, allow_unused=True)
        return float(scored.detach()), [
            np.zeros(p.shape) if g is None else g.numpy() for p, g in zip(parameters, found, strict=True)
        ]

    def infer(self, x: np.ndarray) -> None:
        inference = mlc.MLCInferenceGraph(graphObjects=[self.graph])
        result = self.made[-1]
        assert inference.addInputs({"x": self.made[0]}) and inference.addOutputs({"y": result})
        assert inference.compile(options=[], device=mlc.MLCDevice.cpu()), mlc.last_refusal()
        assert inference.execute(inputsData={"x": data(x)}, batchSize=self.batch), mlc.last_refusal()
        parameters = [
            torch.from_numpy(a.numpy().reshape(v).astype(float)) for a, v in zip(self.held, self.views, strict=True)
        ]
        self.compare(result.numpy(), self.values(x, parameters, False)[-1].numpy(), "inference")

    def __str__(self) -> str:
        return f"random program {self.seed} ({'; '.join(self.words)})"


ACTIVATIONS: dict[str, tuple[Callable[[], Any], Callable[[torch.Tensor], torch.Tensor]]] = {
    "relu": (lambda: mlc.MLCActivationLayer.relu, torch.relu),
    "tanh": (lambda: mlc.MLCActivationLayer.tanh, torch.tanh),
    "sigmoid": (lambda: mlc.MLCActivationLayer.sigmoid, torch.sigmoid),
    "absolute": (lambda: mlc.MLCActivationLayer.absolute, torch.abs),
    "leaky relu": (
        lambda: mlc.MLCActivationLayer.leakyReLU(negativeSlope=0.2),
        lambda x: torch.where(x > 0, x, 0.2 * x),
    ),
    "elu": (
        lambda: mlc.MLCActivationLayer.elu(a=0.7),
        lambda x: torch.where(x > 0, x, 0.7 * (torch.exp(x.clamp(max=0)) - 1)),
    ),
    "gelu": (
        lambda: mlc.MLCActivationLayer.gelu,  # the approximation (evidence.md C1)
        lambda x: 0.5 * x * (1 + torch.tanh((2 / torch.pi) ** 0.5 * (x + 0.044715 * x**3))),
    ),
    "soft sign": (lambda: mlc.MLCActivationLayer.softSign, lambda x: x / (1 + x.abs())),
}
OPERATIONS: dict[str, Callable[[torch.Tensor, torch.Tensor], torch.Tensor]] = {
    "add": torch.add,
    "subtract": torch.sub,
    "multiply": torch.mul,
    "min": torch.minimum,
    "max": torch.maximum,
}
LOSSES: dict[str, tuple[Any, Callable[[torch.Tensor, torch.Tensor], torch.Tensor]]] = {
    "mean squared error": (mlc.MLCLossType.meanSquaredError, lambda y, t: ((y - t) ** 2).mean()),
    "mean absolute error": (mlc.MLCLossType.meanAbsoluteError, lambda y, t: (y - t).abs().mean()),
    "softmax cross-entropy": (
        mlc.MLCLossType.softmaxCrossEntropy,
        lambda y, t: -(t * torch.log_softmax(y, 1)).sum() / len(y),
    ),
}


def check(seed: int) -> None:
    """Run one program; what goes wrong names it."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", mlc.MLCTrainingWarning)
        try:
            Program(seed).run()
        except Exception as error:
            error.add_note(f"again: python -m tests.disturbance.random_programs 1 {seed}")
            raise


if __name__ == "__main__":
    count, *given = map(int, sys.argv[1:])
    first = given[0] if given else secrets.randbelow(2**40)
    print(f"{count} random programs from seed {first}")  # noqa: T201
    for number in range(count):
        check(first + number)
        if (number + 1) % 1000 == 0:
            print(f"{number + 1} agree with their twins")  # noqa: T201
