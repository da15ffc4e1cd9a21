"""Small ML Compute programs that the tests of this folder train, save and take apart."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

import mlc_torch as mlc
from mlc_torch.interop import TorchOptimizer

BATCH, INPUTS, HIDDEN, CLASSES = 8, 5, 6, 3
DEVICES = [
    "cpu",
    *(["cuda"] if torch.cuda.is_available() else []),
    *(["mps"] if torch.backends.mps.is_available() else []),
]


def numbers(*shape: int, seed: int = 0, low: float = -1.0, high: float = 1.0) -> np.ndarray:
    return np.random.default_rng([seed, *shape]).uniform(low, high, shape).astype(np.float32)


def holding(array: np.ndarray) -> mlc.MLCTensor:
    """A tensor over a copy of ``array``."""
    return mlc.MLCTensor.from_torch(torch.from_numpy(np.array(array)))


def empty(*shape: int, type: mlc.MLCDataType = mlc.MLCDataType.float32) -> mlc.MLCTensor:
    return mlc.MLCTensor(shape=shape, dataType=type)


def data(array: np.ndarray) -> mlc.MLCTensorData:
    return mlc.MLCTensorData(bytesNoCopy=array, length=array.nbytes)


def dense(inputs: int, outputs: int, label: str, seed: int) -> mlc.MLCFullyConnectedLayer:
    layer = mlc.MLCFullyConnectedLayer(
        weights=holding(numbers(1, inputs * outputs, 1, 1, seed=seed)),
        biases=holding(numbers(1, outputs, 1, 1, seed=seed + 1)),
        descriptor=mlc.MLCConvolutionDescriptor(
            kernelSizes=(1, 1), inputFeatureChannelCount=inputs, outputFeatureChannelCount=outputs
        ),
    )
    layer.label = label
    return layer


def normalization(channels: int) -> mlc.MLCBatchNormalizationLayer:
    shape = (1, channels, 1, 1)
    return mlc.MLCBatchNormalizationLayer(
        featureChannelCount=channels,
        mean=holding(np.zeros(shape, np.float32)),
        variance=holding(np.ones(shape, np.float32)),
        beta=holding(np.zeros(shape, np.float32)),
        gamma=holding(np.ones(shape, np.float32)),
        varianceEpsilon=1e-5,
        momentum=0.9,
    )


def settings(rate: float = 0.1, **more: Any) -> mlc.MLCOptimizerDescriptor:
    return mlc.MLCOptimizerDescriptor(
        learningRate=rate,
        gradientRescale=1.0,
        regularizationType=mlc.MLCRegularizationType.none,
        regularizationScale=0.0,
        **more,
    )


def squared_error() -> mlc.MLCLossLayer:
    kind = mlc.MLCLossDescriptor(type=mlc.MLCLossType.meanSquaredError, reductionType=mlc.MLCReductionType.mean)
    return mlc.MLCLossLayer(descriptor=kind)


def device(name: str = "cpu") -> mlc.MLCDevice:
    return mlc.MLCDevice.cpu() if name == "cpu" else mlc.unwrap(mlc.MLCDevice(gpuDevices=[name]))


MakeOptimizer = Callable[[mlc.MLCGraph], mlc.MLCOptimizer]
OPTIMIZERS: dict[str, MakeOptimizer] = {
    "SGD": lambda g: mlc.MLCSGDOptimizer(descriptor=settings()),
    "momentum": lambda g: mlc.MLCSGDOptimizer(descriptor=settings(), momentumScale=0.9, usesNesterovMomentum=False),
    "Nesterov": lambda g: mlc.MLCSGDOptimizer(descriptor=settings(), momentumScale=0.9, usesNesterovMomentum=True),
    "Adam": lambda g: mlc.MLCAdamOptimizer(descriptor=settings(0.01)),
    "AMSGrad": lambda g: mlc.MLCAdamOptimizer(
        descriptor=settings(0.01), beta1=0.8, beta2=0.99, epsilon=1e-7, usesAMSGrad=True, timeStep=1
    ),
    "AdamW": lambda g: mlc.MLCAdamWOptimizer(descriptor=settings(0.01)),
    "RMSProp": lambda g: mlc.MLCRMSPropOptimizer(
        descriptor=settings(0.01), momentumScale=0.5, alpha=0.9, epsilon=1e-7, isCentered=True
    ),
    "torch AdamW": lambda g: TorchOptimizer(torch.optim.AdamW(g.to_module().parameters(), lr=0.01)),
    "torch SGD": lambda g: TorchOptimizer(torch.optim.SGD(g.to_module().parameters(), lr=0.1, momentum=0.9)),
}


def by_torch(kind: Any, order: Callable[[list[Any]], Any] = list, **settings: Any) -> MakeOptimizer:
    """A torch optimizer over the graph's parameters."""
    return lambda g: TorchOptimizer(
        kind(order(list(g.to_module().parameters())), **{"lr": 0.01, **copy.deepcopy(settings)})
    )


@dataclass
class Classifier:
    """dense1, normalization, tanh, two dropouts, dense2, trained on random numbers."""

    optimizer: str | MakeOptimizer = "Adam"
    seed: int = 0
    where: str = "cpu"
    hidden: int = HIDDEN
    inference: mlc.MLCInferenceGraph | None = None

    def __post_init__(self) -> None:
        self.image, self.target = empty(BATCH, INPUTS), empty(BATCH, CLASSES)
        self.graph = g = mlc.MLCGraph()
        self.dense1 = dense(INPUTS, self.hidden, "dense1", self.seed)
        x = g.node(self.dense1, source=self.image)
        x = g.node(normalization(self.hidden), source=x)
        x = g.node(mlc.MLCActivationLayer.tanh, source=x)
        x = g.node(mlc.MLCDropoutLayer(rate=0.2, seed=0), source=x)
        x = g.node(mlc.MLCDropoutLayer(rate=0.1, seed=7), source=x)
        self.dense2 = dense(self.hidden, CLASSES, "dense2", self.seed + 10)
        self.result = g.node(self.dense2, source=x)
        make = OPTIMIZERS[self.optimizer] if isinstance(self.optimizer, str) else self.optimizer
        self.rule = make(g)
        self.training = mlc.MLCTrainingGraph(graphObjects=[g], lossLayer=squared_error(), optimizer=self.rule)
        assert self.training.addInputs({"image": self.image}, lossLabels={"target": self.target})

    def compiled(self) -> Classifier:
        assert self.training.compile(options=[], device=device(self.where)), mlc.last_refusal()
        return self

    def train(self, first: int, last: int) -> list[float]:
        """The losses of these steps; each has data of its own."""
        made: list[float] = []
        for step in range(first, last):
            image, target = numbers(BATCH, INPUTS, seed=100 + step), numbers(BATCH, CLASSES, seed=500 + step)
            assert self.training.execute(
                inputsData={"image": data(image)},
                lossLabelsData={"target": data(target)},
                lossLabelWeightsData=None,
                batchSize=BATCH,
                options=[mlc.MLCExecutionOptions.synchronous],
                completionHandler=lambda result, error, seconds: made.append(float(result.numpy()[0])),
            ), mlc.last_refusal()
        return made

    def state(self) -> dict[str, np.ndarray]:
        """Every weight and statistic, as copies."""
        return {name: value.cpu().numpy().copy() for name, value in self.training.to_module().state_dict().items()}

    def predict(self, image: np.ndarray) -> np.ndarray:
        """By an inference graph that is compiled once."""
        if self.inference is None:
            self.inference = mlc.MLCInferenceGraph(graphObjects=[self.graph])
            self.inference.addInputs({"image": self.image})
            assert self.inference.compile(options=[], device=device(self.where))
        found: list[np.ndarray] = []
        assert self.inference.execute(
            inputsData={"image": data(image)},
            batchSize=len(image),
            options=[mlc.MLCExecutionOptions.synchronous],
            completionHandler=lambda result, error, seconds: found.append(result.numpy()[: len(image)].copy()),
        )
        return found[0]


def same(a: dict[str, np.ndarray], b: dict[str, np.ndarray]) -> bool:
    """Whether two states agree bit for bit."""
    return a.keys() == b.keys() and all(a[n].tobytes() == b[n].tobytes() for n in a)
