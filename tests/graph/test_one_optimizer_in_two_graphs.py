"""One optimizer object in several training graphs: its state is the parameters', and so is the number of the next step."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
import torch
from torch.nn import functional as F

import mlc_torch as mlc
from mlc_torch.interop import load_checkpoint, save_checkpoint
from tests.interop.programs import dense, device, empty, numbers, settings, squared_error


class Program:
    """A dense layer that some training graphs share, and the same in torch."""

    def __init__(self, rule: mlc.MLCOptimizer, seed: int, graphs: int) -> None:
        self.layer, self.graph = dense(5, 3, "dense", seed), mlc.MLCGraph()
        self.x, self.t = empty(4, 5), empty(4, 3)
        self.graph.node(self.layer, source=self.x)
        self.graphs = [self._trained(rule) for _ in range(graphs)]
        self.linear = torch.nn.Linear(5, 3)
        with torch.no_grad():
            self.linear.weight.copy_(torch.from_numpy(self.layer.weights.numpy().reshape(3, 5)))
            self.linear.bias.copy_(torch.from_numpy(self.layer.biases.numpy().ravel()))
        self.optimizer = torch.optim.Adam(self.linear.parameters(), lr=0.05)

    def _trained(self, rule: mlc.MLCOptimizer) -> mlc.MLCTrainingGraph:
        made = mlc.MLCTrainingGraph(graphObjects=[self.graph], lossLayer=squared_error(), optimizer=rule)
        assert made.addInputs({"x": self.x}, lossLabels={"t": self.t})
        assert made.compile(options=[], device=device())
        return made

    def step(self, number: int, seed: int) -> None:
        x, t = numbers(4, 5, seed=seed), numbers(4, 3, seed=50 + seed)
        self.graphs[number].step(x, t)
        self.optimizer.zero_grad()
        F.mse_loss(self.linear(torch.from_numpy(x)), torch.from_numpy(t)).backward()
        self.optimizer.step()

    def agrees(self) -> None:
        want = self.linear.weight.detach().numpy()
        np.testing.assert_allclose(self.layer.weights.numpy().reshape(3, 5), want, rtol=1e-4, atol=1e-6)


def adam() -> mlc.MLCAdamOptimizer:
    return mlc.MLCAdamOptimizer(descriptor=settings(0.05))


@pytest.mark.parametrize("order", [(0, 0, 0, 0, 1, 1, 0), (0, 1, 0, 1)])
def test_over_the_same_layers(order: Sequence[int]):
    rule = adam()
    program = Program(rule, 0, graphs=2)
    for seed, number in enumerate(order):
        program.step(number, seed)
        assert rule.timeStep == seed + 2
        program.agrees()


def test_over_layers_of_their_own():
    """As torch's, which counts for each parameter by itself."""
    rule = adam()
    programs = [Program(rule, seed, graphs=1) for seed in (0, 30)]
    for seed, number in enumerate((0, 0, 0, 1, 0, 1, 1)):
        programs[number].step(0, seed)
        for program in programs:
            program.agrees()


def test_a_checkpoint_that_one_of_them_loads_counts_for_the_other(tmp_path):
    rule = adam()
    program = Program(rule, 0, graphs=2)
    for seed in range(3):
        program.step(0, seed)
    save_checkpoint(program.graphs[0], tmp_path / "a")
    for seed in range(3, 7):
        program.graphs[seed % 2].step(numbers(4, 5, seed=seed), numbers(4, 3))
    load_checkpoint(program.graphs[0], tmp_path / "a")
    assert rule.timeStep == 4
    for seed in range(3, 7):
        program.step(1, seed)
        program.agrees()
