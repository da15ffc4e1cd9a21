"""Gradients and results that are asked for after the run, inside torch's contexts: the same numbers, then and afterwards."""

from __future__ import annotations

import pytest
import torch

import mlc_torch as mlc
from mlc_torch import MLCActivationLayer, MLCGraph, MLCGraphCompilationOptions, MLCTrainingGraph
from tests.disturbance.contexts import HARMLESS, UNREAL
from tests.graph.programs import Program, close, dense, loss, placeholder, sgd, values

gears = pytest.mark.parametrize(
    "options", [[], [MLCGraphCompilationOptions.disableLayerFusion]], ids=["planned", "plain"]
)


class Ran:
    """A perceptron after its gradient phase, and what plain torch says of it."""

    def __init__(self, options):
        self.graph, x, t = MLCGraph(), placeholder(4, 5), placeholder(4, 2)
        self.first, self.second = dense(5, 6), dense(6, 2, seed=10)
        h = self.graph.node(self.first, source=x)
        self.graph.node(self.second, source=self.graph.node(MLCActivationLayer.tanh, source=h))
        self.training = MLCTrainingGraph(graphObjects=[self.graph], lossLayer=loss(), optimizer=sgd())
        assert self.training.addInputs({"x": x}, lossLabels={"t": t})
        given = {"x": values(4, 5, seed=5), "t": values(4, 2, seed=6)}
        self.program = Program(self.training, self.graph, {"x": x}, {"t": t}, given)
        assert self.program.compile(options) and self.program.phases()
        weights = [(d.weights.torch.clone(), d.biases.torch.clone().flatten()) for d in (self.first, self.second)]
        (w1, b1), (w2, b2) = weights
        self.made = torch.nn.functional.linear(torch.from_numpy(given["x"]), w1.view(6, 5), b1).requires_grad_()
        self.through = torch.tanh(self.made)
        y = torch.nn.functional.linear(self.through, w2.view(2, 6), b2)
        error = torch.nn.functional.mse_loss(y, torch.from_numpy(given["t"]))
        self.gradients = torch.autograd.grad(error, (self.through, self.made))

    def late_gradients(self):
        training = self.training
        return [*training.sourceGradientTensors(for_=self.second), *training.resultGradientTensors(for_=self.first)]

    def late_results(self):
        return self.training.resultTensors(for_=self.first)

    def agrees(self, gradients, results):
        for got, want in zip(gradients, self.gradients, strict=True):
            assert got.torch.dtype == torch.float32
            close(got.numpy(), want)
        (result,) = results
        close(result.numpy(), self.made.detach())


@pytest.mark.parametrize("context", HARMLESS.values(), ids=HARMLESS.keys())
@gears
def test_inside_and_afterwards(options, context):
    ran = Ran(options)
    with context():
        gradients, results = ran.late_gradients(), ran.late_results()
    ran.agrees(gradients, results)
    ran.agrees(ran.late_gradients(), ran.late_results())
    assert ran.program.phases()
    ran.agrees(ran.late_gradients(), ran.late_results())


@pytest.mark.parametrize("inside", UNREAL.values(), ids=UNREAL.keys())
@gears
def test_unreal_ones_are_refused_and_nothing_is_lost(options, inside):
    ran = Ran(options)
    for ask in (ran.late_gradients, ran.late_results):
        assert inside(ask) == []
        assert "cannot be run inside" in str(mlc.last_refusal())
    ran.agrees(ran.late_gradients(), ran.late_results())
