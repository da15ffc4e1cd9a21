"""``TorchOptimizer``: torch.optim in the update phase, held to the same optimizer in a plain PyTorch loop."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import mlc_torch as mlc
from mlc_torch.interop import TorchOptimizer
from mlc_torch.running.state import Variant
from tests.interop.programs import (
    BATCH,
    CLASSES,
    INPUTS,
    Classifier,
    data,
    dense,
    device,
    empty,
    numbers,
    squared_error,
)


class Program:
    """dense1, tanh, dense2, trained by a torch optimizer."""

    def __init__(self, make, options=()) -> None:
        self.x, self.y = empty(BATCH, INPUTS), empty(BATCH, CLASSES)
        graph = mlc.MLCGraph()
        hidden = graph.node(dense(INPUTS, 4, "dense1", 0), source=self.x)
        graph.node(dense(4, CLASSES, "dense2", 1), source=graph.node(mlc.MLCActivationLayer.tanh, source=hidden))
        self.module = graph.to_module()
        self.reference = copy.deepcopy(self.module)
        self.rule = TorchOptimizer(make(self.module))
        self.theirs = make(self.reference)
        self.training = mlc.MLCTrainingGraph(graphObjects=[graph], lossLayer=squared_error(), optimizer=self.rule)
        self.training.addInputs({"x": self.x}, lossLabels={"y": self.y})
        assert self.training.compile(options=list(options), device=device()), mlc.last_refusal()

    def step(self, number: int) -> bool:
        x, y = numbers(BATCH, INPUTS, seed=number), numbers(BATCH, CLASSES, seed=50 + number)
        self.theirs.zero_grad()
        ((self.reference(torch.from_numpy(x)) - torch.from_numpy(y)) ** 2).mean().backward()
        self.theirs.step()
        return self.training.execute(
            inputsData={"x": data(x)}, lossLabelsData={"y": data(y)}, lossLabelWeightsData=None, batchSize=BATCH
        )

    def agree(self) -> None:
        for name, value in self.reference.state_dict().items():
            torch.testing.assert_close(self.module.state_dict()[name], value, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    "make",
    [
        lambda m: torch.optim.SGD(m.parameters(), lr=0.1, momentum=0.9, nesterov=True),
        lambda m: torch.optim.AdamW(m.parameters(), lr=0.01, amsgrad=True),
        lambda m: torch.optim.Adagrad(m.parameters(), lr=0.01),
        lambda m: torch.optim.Rprop(m.parameters(), lr=0.01),
        lambda m: torch.optim.RAdam(m.parameters(), lr=torch.tensor(0.01)),
        lambda m: torch.optim.SGD(
            [{"params": m.dense1.parameters(), "lr": 0.5}, {"params": m.dense2.parameters(), "weight_decay": 0.1}],
            lr=0.1,
        ),
    ],
    ids=["SGD", "AdamW", "Adagrad", "Rprop", "RAdam", "groups"],
)
def test_it_steps_as_in_torch(make):
    program = Program(make)
    for number in range(4):
        assert program.step(number)
    program.agree()
    assert program.rule.timeStep == 5
    assert program.training._runs.sessions[Variant.whole].gear.name == "planned"
    assert all(p.grad is None for p in program.module.parameters())


def test_a_scheduler_and_the_learning_rate():
    program = Program(lambda m: torch.optim.SGD(m.parameters(), lr=0.4))
    schedules = [torch.optim.lr_scheduler.StepLR(o, 1, 0.5) for o in (program.rule.optimizer, program.theirs)]
    for number in range(3):
        assert program.step(number)
        for schedule in schedules:
            schedule.step()
    program.agree()
    assert program.rule.learningRate == pytest.approx(0.05)
    program.rule.learningRate = 0.0
    before = copy.deepcopy(program.module.state_dict())
    program.step(3)
    assert all(torch.equal(v, before[n]) for n, v in program.module.state_dict().items())


def test_in_three_phases():
    program = Program(lambda m: torch.optim.Adam(m.parameters(), lr=0.01))
    x, y = numbers(BATCH, INPUTS, seed=1), numbers(BATCH, CLASSES, seed=51)
    bound = {"x": data(x), "y": data(y)}
    tensors = {"x": program.x, "y": program.y}
    assert program.training.bindAndWriteData(bound, forInputs=tensors, to=device(), synchronous=True)
    assert program.training.executeForward(batchSize=BATCH)
    assert program.training.executeGradient(batchSize=BATCH)
    assert program.training.executeOptimizerUpdate()
    ((program.reference(torch.from_numpy(x)) - torch.from_numpy(y)) ** 2).mean().backward()
    program.theirs.step()
    program.agree()


def test_gradients_of_the_torch_side_are_left_alone():
    program = Program(lambda m: torch.optim.SGD(m.parameters(), lr=0.1))
    mine = torch.ones_like(program.module.dense1.weights)
    program.module.dense1.weights.grad = mine
    program.step(0)
    assert program.module.dense1.weights.grad is mine


def test_parameters_left_out_are_not_updated():
    program = Program(lambda m: torch.optim.SGD(m.dense2.parameters(), lr=0.1))
    before = program.module.dense1.weights.detach().clone()
    program.step(0)
    assert torch.equal(program.module.dense1.weights, before)
    program.agree()


def test_an_optimizer_over_other_parameters_is_refused():
    program = Program(lambda m: torch.optim.SGD(copy.deepcopy(m).parameters(), lr=0.1))
    assert not program.step(0)
    assert "none of the graph's parameters" in str(mlc.last_refusal())


def test_the_state_follows_new_memory():
    """A tensor bound anew is another memory, and its momentum goes on."""
    program = Program(lambda m: torch.optim.SGD(m.parameters(), lr=0.1, momentum=0.9))
    program.step(0)
    weights = program.training.layers[0].weights
    copied = np.array(weights.numpy())
    assert weights.bindAndWriteData(data(copied), to=device())
    assert program.step(1) and program.step(2)
    program.agree()


def test_updates_are_not_recorded_for_replay():
    """Of the captured gear only the update phase is given up: torch's optimizers decide on the host."""
    program = Program(lambda m: torch.optim.SGD(m.parameters(), lr=0.1, momentum=0.9))
    assert not program.rule._replayable
    assert mlc.MLCSGDOptimizer._replayable
    program.step(0)
    program.agree()


@pytest.mark.parametrize("wrong", [None, 3, torch.optim.SGD, mlc.MLCSGDOptimizer])
def test_what_is_no_optimizer_is_a_type_error(wrong):
    with pytest.raises(TypeError, match=r"torch\.optim\.Optimizer"):
        TorchOptimizer(wrong)


def test_an_optimizer_that_calls_the_network_itself_is_refused():
    assert TorchOptimizer(torch.optim.LBFGS(nn.Linear(2, 2).parameters())) is None
    assert "LBFGS calls the network several times" in str(mlc.last_refusal())


class Halving(torch.optim.Optimizer):
    """The program's own, whose groups have a learning rate or not."""

    def __init__(self, params: Any, **defaults: float) -> None:
        super().__init__(params, defaults)

    @torch.no_grad()
    def step(self, closure: None = None) -> None:
        for group in self.param_groups:
            for p in group["params"]:
                p.mul_(0.5)


def test_an_optimizer_without_a_learning_rate_is_refused():
    """It would train, and then neither be shown nor saved."""
    weights = list(nn.Linear(2, 2).parameters())
    assert TorchOptimizer(Halving(weights)) is None
    assert "Halving has groups without a learning rate" in str(mlc.last_refusal())
    assert TorchOptimizer(Halving([{"params": weights[:1], "lr": 0.5}, {"params": weights[1:]}])) is None
    assert repr(TorchOptimizer(Halving(weights, lr=0.5))) == "TorchOptimizer(Halving, learningRate=0.5)"


def test_its_repr_is_short():
    rule = TorchOptimizer(torch.optim.AdamW(nn.Linear(2, 2).parameters(), lr=0.25))
    assert repr(rule) == "TorchOptimizer(AdamW, learningRate=0.25)"


def test_with_statistics_and_dropout():
    program = Classifier("torch AdamW").compiled()
    losses = program.train(0, 40)
    assert np.isfinite(losses).all()
