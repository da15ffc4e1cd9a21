"""A bench for optimizers: free parameters, gradients given from outside, and every optimizer beside its twin in NumPy."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from mlc_torch import (
    MLCAdamOptimizer,
    MLCAdamWOptimizer,
    MLCArithmeticLayer,
    MLCArithmeticOperation,
    MLCGradientClippingType,
    MLCGraph,
    MLCOptimizerDescriptor,
    MLCRegularizationType,
    MLCRMSPropOptimizer,
    MLCSGDOptimizer,
    MLCTensorParameter,
    MLCTrainingGraph,
)
from tests.graph import reference_optimizers as reference
from tests.graph.programs import array, cpu, data, tensor, values
from tests.graph.reference_optimizers import Settings

SHAPES = ((3, 4), (5,), (1, 2, 2, 2))
STEPS = 20


def gradients(step: int) -> list[np.ndarray]:
    """Some large, some small, none zero."""
    return [values(*shape, seed=1000 + step) * scale for shape, scale in zip(SHAPES, (1.0, 0.01, 10.0), strict=True)]


class Bench:
    """Free parameters whose gradients are given from outside, so that the optimizer alone is on trial."""

    def __init__(self, optimizer, device=None, starts=None) -> None:
        self.device = device or cpu()
        graph = MLCGraph()
        starts = starts or [values(*shape, seed=i) for i, shape in enumerate(SHAPES)]
        self.params = [tensor(start) for start in starts]
        add = MLCArithmeticOperation.add
        results = [
            graph.node(MLCArithmeticLayer(operation=add), sources=[p, tensor(np.zeros(p.descriptor.shape, np.float32))])
            for p in self.params
        ]
        self.training = MLCTrainingGraph(graphObjects=[graph], lossLayer=None, optimizer=optimizer)
        self.training.setTrainingTensorParameters([MLCTensorParameter(tensor=p) for p in self.params])
        self.outside = {f"g{i}": self.training.allocateUserGradient(for_=y) for i, y in enumerate(results)}
        self.optimizer = optimizer

    def compile(self) -> Bench:
        assert self.training.compile(options=[], device=self.device)
        return self

    def step(self, number: int, times: float = 1.0) -> None:
        given = {f"g{i}": data(g * np.float32(times)) for i, g in enumerate(gradients(number))}
        assert self.training.bindAndWriteData(given, forInputs=self.outside, to=self.device, synchronous=True)
        assert self.training.executeForward(batchSize=0) and self.training.executeGradient(batchSize=0)
        assert self.training.executeOptimizerUpdate()

    def weights(self) -> list[np.ndarray]:
        self.training.synchronizeUpdates()
        return [array(p) for p in self.params]


CLIPPING = {
    "value": MLCGradientClippingType.byValue,
    "norm": MLCGradientClippingType.byNorm,
    "global": MLCGradientClippingType.byGlobalNorm,
    None: MLCGradientClippingType.byValue,
}


def descriptor(s: Settings) -> MLCOptimizerDescriptor:
    return MLCOptimizerDescriptor(
        learningRate=s.lr,
        gradientRescale=s.rescale,
        appliesGradientClipping=s.clips is not None,
        gradientClippingType=CLIPPING[s.clips],
        gradientClipMax=s.clip_max,
        gradientClipMin=s.clip_min,
        maximumClippingNorm=s.max_norm,
        customGlobalNorm=s.custom_norm,
        regularizationType=MLCRegularizationType[s.regularization],
        regularizationScale=s.scale,
    )


@dataclass(frozen=True)
class Kind:
    """An optimizer of ours and its twin in NumPy."""

    name: str
    make: object
    twin: object


def adam(cls, amsgrad: bool, decoupled: bool, epsilon: float = 1e-8, t: int = 1):
    return (
        lambda d: cls(descriptor=d, beta1=0.9, beta2=0.99, epsilon=epsilon, usesAMSGrad=amsgrad, timeStep=t),
        lambda p, s: reference.Adam(p, s, decoupled, beta2=0.99, epsilon=epsilon, amsgrad=amsgrad, t=t),
    )


def rmsprop(momentum: float, centered: bool):
    return (
        lambda d: MLCRMSPropOptimizer(
            descriptor=d, momentumScale=momentum, alpha=0.9, epsilon=1e-4, isCentered=centered
        ),
        lambda p, s: reference.RMSProp(p, s, momentum=momentum, alpha=0.9, epsilon=1e-4, centered=centered),
    )


def sgd(momentum: float, nesterov: bool):
    return (
        lambda d: MLCSGDOptimizer(descriptor=d, momentumScale=momentum, usesNesterovMomentum=nesterov),
        lambda p, s: reference.SGD(p, s, momentum=momentum, nesterov=nesterov),
    )


KINDS = [
    Kind("sgd", *sgd(0.0, False)),
    Kind("sgd momentum", *sgd(0.9, False)),
    Kind("sgd nesterov", *sgd(0.9, True)),
    Kind("adam", *adam(MLCAdamOptimizer, False, False)),
    Kind("adam amsgrad", *adam(MLCAdamOptimizer, True, False)),
    Kind("adam large epsilon, step 7", *adam(MLCAdamOptimizer, False, False, 0.1, 7)),
    Kind("adamw", *adam(MLCAdamWOptimizer, False, True)),
    Kind("adamw amsgrad", *adam(MLCAdamWOptimizer, True, True)),
    Kind("rmsprop", *rmsprop(0.0, False)),
    Kind("rmsprop centered", *rmsprop(0.0, True)),
    Kind("rmsprop momentum", *rmsprop(0.9, False)),
    Kind("rmsprop centered momentum", *rmsprop(0.9, True)),
]

PREPARATIONS = {
    "plain": Settings(),
    "rescale": Settings(rescale=0.25),
    "by value": Settings(clips="value", clip_max=0.5, clip_min=-0.25),
    "by norm": Settings(clips="norm", max_norm=0.7),
    "by global norm": Settings(clips="global", max_norm=0.7, custom_norm=0.0),
    "by custom global norm": Settings(clips="global", max_norm=0.7, custom_norm=2.0),
    "by a custom global norm below the maximum": Settings(clips="global", max_norm=2.0, custom_norm=0.5),
    "by a norm of 0": Settings(clips="norm", max_norm=0.0),
    "by a global norm of 0": Settings(clips="global", max_norm=0.0, custom_norm=0.0),
    "l1": Settings(regularization="l1", scale=0.1),
    "l2": Settings(regularization="l2", scale=0.1),
    "a scale without a kind": Settings(scale=0.1),
    "clip, rescale and regularize": Settings(
        clips="value", clip_max=0.5, clip_min=-0.5, rescale=3.0, regularization="l2", scale=0.2
    ),
}


def starts() -> list[np.ndarray]:
    return [values(*shape, seed=i).astype(np.float64) for i, shape in enumerate(SHAPES)]
