"""A graph of one ``TorchLayer``, trained, and the plain PyTorch loop that it is held to."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from torch import nn

import mlc_torch as mlc
from mlc_torch.interop import TorchLayer
from mlc_torch.running.state import Variant
from tests.interop.programs import data, device, empty, numbers, settings, squared_error

RATE = 0.1
PLAIN = mlc.MLCGraphCompilationOptions.disableLayerFusion


def made(build: Callable[[], nn.Module]) -> nn.Module:
    """A module with the same random weights every time, torch's generator left as it was."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(3)
        return build()


def perceptron() -> nn.Module:
    return nn.Sequential(nn.Linear(3, 8), nn.Tanh(), nn.Linear(8, 2))


class Trained:
    """A graph of one TorchLayer, trained by MLC's gradient descent."""

    def __init__(self, module, inputs, labels, where="cpu", options=(), optimizer=None) -> None:
        self.inputs, self.labels = inputs, labels
        self.x, self.y = empty(*inputs), empty(*labels)
        self.graph, self.layer = mlc.MLCGraph(), TorchLayer(module, label="net")
        self.result = self.graph.node(self.layer, source=self.x)
        assert self.result is not None, mlc.last_refusal()
        optimizer = optimizer or mlc.MLCSGDOptimizer(descriptor=settings(RATE))
        self.training = mlc.MLCTrainingGraph(graphObjects=[self.graph], lossLayer=squared_error(), optimizer=optimizer)
        self.training.addInputs({"x": self.x}, lossLabels={"y": self.y})
        assert self.training.compile(options=list(options), device=device(where)), mlc.last_refusal()

    def batch(self, step: int) -> tuple[np.ndarray, np.ndarray]:
        return numbers(*self.inputs, seed=step), numbers(*self.labels, seed=50 + step)

    def train(self, steps: int) -> list[float]:
        losses: list[float] = []
        for step in range(steps):
            x, y = self.batch(step)
            assert self.training.execute(
                inputsData={"x": data(x)},
                lossLabelsData={"y": data(y)},
                lossLabelWeightsData=None,
                batchSize=self.inputs[0],
                options=[mlc.MLCExecutionOptions.synchronous],
                completionHandler=lambda result, error, seconds: losses.append(float(result.numpy()[0])),
            ), mlc.last_refusal()
        return losses

    def gear(self) -> str:
        return self.training._runs.sessions[Variant.whole].gear.name


def first(result):
    while not isinstance(result, torch.Tensor):
        result = next(iter(result.values())) if isinstance(result, dict) else result[0]
    return result


def plain_loop(net: nn.Module, inputs, labels, steps: int) -> list[float]:
    optimizer = torch.optim.SGD([p for p in net.parameters() if p.requires_grad], lr=RATE)
    losses = []
    for step in range(steps):
        x, y = torch.from_numpy(numbers(*inputs, seed=step)), torch.from_numpy(numbers(*labels, seed=50 + step))
        optimizer.zero_grad()
        loss = ((first(net(x)) - y) ** 2).mean()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses
