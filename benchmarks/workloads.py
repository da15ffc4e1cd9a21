"""What is measured: a network, its data, its loss and its optimizer, as hand-written PyTorch and as ML Compute."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F

from benchmarks import graphs, networks
from mlc_torch import (
    MLCAdamOptimizer,
    MLCAdamWOptimizer,
    MLCDevice,
    MLCInferenceGraph,
    MLCLossDescriptor,
    MLCLossLayer,
    MLCLossType,
    MLCOptimizerDescriptor,
    MLCReductionType,
    MLCRegularizationType,
    MLCSGDOptimizer,
    MLCTensor,
    MLCTensorData,
    MLCTensorParameter,
    MLCTrainingGraph,
    unwrap,
)

BATCHES = 4
"""How many different batches take turns."""
HAND_WRITTEN, ONE_CALL, DETERMINISTIC = "hand-written", "mlc_torch, one call", "mlc_torch, deterministic"
"""What the two main contenders are called in every report."""


@dataclass(frozen=True)
class Workload:
    name: str
    network: Callable[[], nn.Module]
    build: Callable[..., MLCTensor]
    shape: tuple[int, ...]
    optimizer: str = "adam"
    classes: int = 10
    trains: bool = True

    def module(self, device: torch.device) -> nn.Module:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            return self.network().to(device).train(self.trains)

    def batches(self) -> list[tuple[np.ndarray, np.ndarray]]:
        """Inputs and labels: class numbers, or zeros of the result's shape where there are no classes."""
        draw = np.random.default_rng(1)
        made = []
        for _ in range(BATCHES):
            x = draw.standard_normal(self.shape, np.float32)
            y = draw.integers(0, self.classes, self.shape[0]) if self.classes else np.zeros(self.shape, np.float32)
            made.append((x, y))
        return made


WORKLOADS = {
    w.name: w
    for w in (
        Workload("perceptron", networks.Perceptron, graphs.perceptron, (32, 784)),
        Workload("LeNet", networks.LeNet, graphs.lenet, (64, 1, 28, 28), "sgd"),
        Workload("LSTM", networks.Recurrent, graphs.recurrent, (32, 32, 64)),
        Workload("transformer", networks.TransformerBlock, graphs.transformer, (16, 64, 128), "adamw"),
        Workload("ResNet-20", networks.ResNet20, graphs.resnet20, (64, 3, 32, 32)),
        Workload("200 tiny", networks.TinyLayers, graphs.tiny_layers, (4, 4), "sgd", classes=0),
        Workload("inference 1", networks.Perceptron, graphs.perceptron, (1, 784), trains=False),
        Workload("inference 256", networks.Perceptron, graphs.perceptron, (256, 784), trains=False),
    )
}

_TORCH_OPTIMIZERS: dict[str, tuple[Any, dict[str, float]]] = {
    "adam": (torch.optim.Adam, {"lr": 1e-3}),
    "adamw": (torch.optim.AdamW, {"lr": 1e-3, "weight_decay": 0.01}),
    "sgd": (torch.optim.SGD, {"lr": 0.01, "momentum": 0.9}),
}


class HandWritten:
    """A training loop as the PyTorch documentation teaches it."""

    def __init__(
        self, workload: Workload, device: torch.device, *, fused: bool = False, compiled: bool = False
    ) -> None:
        self.workload, self.device = workload, device
        self.network = workload.module(device)
        pin = (lambda t: t.pin_memory()) if device.type == "cuda" else (lambda t: t)
        self.batches = [(pin(torch.from_numpy(x)), pin(torch.from_numpy(y))) for x, y in workload.batches()]
        call = self._loss if workload.trains else self.network
        self.call = torch.compile(call) if compiled else call
        if workload.trains:
            made, settings = _TORCH_OPTIMIZERS[workload.optimizer]
            self.optimizer = made(self.network.parameters(), **settings, **({"fused": True} if fused else {}))

    def _loss(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        result = self.network(x)
        return F.cross_entropy(result, y) if self.workload.classes else F.l1_loss(result, y)

    def step(self, number: int) -> torch.Tensor:
        x, y = self.batches[number % BATCHES]
        x = x.to(self.device, non_blocking=True)
        if not self.workload.trains:
            with torch.no_grad():
                return self.call(x)
        y = y.to(self.device, non_blocking=True)
        self.optimizer.zero_grad()
        loss = self.call(x, y)
        loss.backward()
        self.optimizer.step()
        return loss.detach()


class MLCompute:
    """The same through mlc_torch: one call a step, or three phases."""

    def __init__(
        self, workload: Workload, device: torch.device, *, phases: bool = False, inductor: bool = False
    ) -> None:
        self.workload, self.phases = workload, phases
        self.device = unwrap(MLCDevice.cpu() if device.type == "cpu" else MLCDevice.gpu())
        build = graphs.Builder()
        self.batch = workload.shape[0]
        self.x = unwrap(MLCTensor(shape=list(workload.shape)))
        result = workload.build(build, self.x, workload.module(torch.device("cpu")))
        self.arrays = [(x, one_hot(y, workload.classes) if workload.classes else y) for x, y in workload.batches()]
        self.data = [tuple(MLCTensorData(bytesNoCopy=a, length=a.nbytes) for a in pair) for pair in self.arrays]
        more = {"use_inductor": True} if inductor else {}
        if not workload.trains:
            self.graph = MLCInferenceGraph(graphObjects=[build.graph])
            self.graph.addInputs({"x": self.x})
            assert self.graph.compile(options=[], device=self.device, **more)
            self.result = result  # a graph computes its results into memory only as long as somebody holds them
            return
        self.y = unwrap(MLCTensor(shape=list(self.arrays[0][1].shape)))
        self.graph = MLCTrainingGraph(
            graphObjects=[build.graph], lossLayer=self._loss(), optimizer=_optimizer(workload.optimizer)
        )
        self.graph.addInputs({"x": self.x}, lossLabels={"y": self.y})
        self.graph.setTrainingTensorParameters([MLCTensorParameter(tensor=t) for t in build.trained])
        assert self.graph.compile(options=[], device=self.device, **more)

    def _loss(self) -> MLCLossLayer:
        kind = MLCLossType.softmaxCrossEntropy if self.workload.classes else MLCLossType.meanAbsoluteError
        return MLCLossLayer(descriptor=MLCLossDescriptor(type=kind, reductionType=MLCReductionType.mean))

    def step(self, number: int) -> Any:
        if not self.workload.trains:
            return self.graph.execute(
                inputsData={"x": self.data[number % BATCHES][0]}, batchSize=self.batch, options=[]
            )
        x, y = self.data[number % BATCHES]
        if not self.phases:
            return self.graph.execute(
                inputsData={"x": x},
                lossLabelsData={"y": y},
                lossLabelWeightsData=None,
                batchSize=self.batch,
                options=[],
            )
        self.graph.bindAndWriteData(
            {"x": x, "y": y}, forInputs={"x": self.x, "y": self.y}, to=self.device, synchronous=False
        )
        self.graph.executeForward(batchSize=self.batch, options=[])
        self.graph.executeGradient(batchSize=self.batch, options=[])
        return self.graph.executeOptimizerUpdate(options=[])


def one_hot(labels: np.ndarray, classes: int) -> np.ndarray:
    return np.eye(classes, dtype=np.float32)[labels]


def _optimizer(name: str) -> Any:
    _, settings = _TORCH_OPTIMIZERS[name]
    decay = settings.get("weight_decay", 0.0)
    descriptor = MLCOptimizerDescriptor(
        learningRate=settings["lr"],
        gradientRescale=1.0,
        regularizationType=MLCRegularizationType.l2 if decay else MLCRegularizationType.none,
        regularizationScale=decay,
    )
    if name == "sgd":
        return MLCSGDOptimizer(descriptor=descriptor, momentumScale=settings["momentum"], usesNesterovMomentum=False)
    return (MLCAdamWOptimizer if name == "adamw" else MLCAdamOptimizer)(descriptor=descriptor)
