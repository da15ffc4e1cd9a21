"""What was recorded of a graph goes on running where a weight's memory has moved, or another one is to be updated."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch.nn import functional as F

import mlc_torch as mlc
from mlc_torch.engine import planned
from tests.interop.programs import data, dense, device, empty, numbers, squared_error

RATE = 0.1


class Program:
    """Two dense layers trained by SGD with momentum, and the same by hand."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.recorded = 0
        record = planned.record

        def counting(*args):
            self.recorded += 1
            return record(*args)

        monkeypatch.setattr(planned, "record", counting)
        graph, self.x, self.t = mlc.MLCGraph(), empty(4, 5), empty(4, 3)
        self.layers = [dense(5, 6, "first", 0), dense(6, 3, "second", 10)]
        self.hidden = graph.node(mlc.MLCActivationLayer.tanh, source=graph.node(self.layers[0], source=self.x))
        self.layer = graph.layers[-1]
        graph.node(self.layers[1], source=self.hidden)
        del self.hidden
        rule = mlc.MLCSGDOptimizer(
            descriptor=mlc.MLCOptimizerDescriptor(
                learningRate=RATE,
                gradientRescale=1,
                regularizationType=mlc.MLCRegularizationType.none,
                regularizationScale=0,
            ),
            momentumScale=0.9,
            usesNesterovMomentum=False,
        )
        self.training = mlc.MLCTrainingGraph(graphObjects=[graph], lossLayer=squared_error(), optimizer=rule)
        assert self.training.addInputs({"x": self.x}, lossLabels={"t": self.t})
        assert self.training.compile(options=[], device=device())
        self.twin = [t.torch.detach().reshape(-1).clone().requires_grad_() for t in self.tensors()]
        self.frozen: set[int] = set()
        self.optimizer = torch.optim.SGD(self.twin, lr=RATE, momentum=0.9)
        self.number = 0

    def tensors(self) -> list[mlc.MLCTensor]:
        return [t for layer in self.layers for t in (layer.weights, layer.biases)]

    def step(self) -> None:
        x, t = (numbers(*s, seed=self.number + k) for s, k in (((4, 5), 100), ((4, 3), 200)))
        self.number += 1
        assert self.training.execute(
            inputsData={"x": data(x)}, lossLabelsData={"t": data(t)}, lossLabelWeightsData=None, batchSize=4
        )
        w1, b1, w2, b2 = self.twin
        hidden = torch.tanh(F.linear(torch.from_numpy(x), w1.view(6, 5), b1))
        self.optimizer.zero_grad()
        F.mse_loss(F.linear(hidden, w2.view(3, 6), b2), torch.from_numpy(t)).backward()
        for n in self.frozen:
            self.twin[n].grad = None
        self.optimizer.step()
        for mine, other in zip(self.tensors(), self.twin, strict=True):
            np.testing.assert_allclose(mine.numpy().reshape(-1), other.detach().numpy(), rtol=1e-5, atol=1e-6)

    def bind(self, number: int) -> None:
        tensor = self.tensors()[number]
        values = numbers(*tensor.descriptor.shape, seed=1000 + self.number)
        assert tensor.bindAndWriteData(data(values), to=device())
        with torch.no_grad():
            self.twin[number].copy_(torch.from_numpy(values.reshape(-1)))


def test_a_weight_that_is_bound_anew(monkeypatch):
    program = Program(monkeypatch)
    program.step()
    before = program.recorded
    for number in (0, 1, 2, 0, 3):
        program.bind(number)
        program.step()
        program.step()
    assert program.recorded == before


def test_weights_that_are_frozen_and_thawed(monkeypatch):
    program = Program(monkeypatch)
    program.step()
    before = program.recorded
    for frozen in ({0}, {0, 1}, set(), {2}, set()):
        program.frozen = frozen
        for number, layer in enumerate(program.layers):
            layer.weightsParameter.isUpdatable = 2 * number not in frozen
            layer.biasesParameter.isUpdatable = 2 * number + 1 not in frozen
        program.step()
        program.step()
    assert program.recorded == before


def test_another_plan_is_recorded(monkeypatch):
    """Somebody asks for a result that was not kept: the old recording has no place for it."""
    program = Program(monkeypatch)
    program.step()
    before = program.recorded
    program.bind(0)
    (hidden,) = program.training.resultTensors(for_=program.layer)
    x = numbers(4, 5, seed=program.number + 100)
    w, b = (t.detach().clone() for t in program.twin[:2])
    program.step()
    assert program.recorded > before
    expected = torch.tanh(F.linear(torch.from_numpy(x), w.view(6, 5), b))
    np.testing.assert_allclose(hidden.numpy().reshape(4, 6), expected.numpy(), rtol=1e-5, atol=1e-6)


def test_a_compile_records(monkeypatch):
    """What a program changes of its modules counts from there on."""
    program = Program(monkeypatch)
    program.step()
    before = program.recorded
    assert program.training.compile(options=[], device=device())
    program.step()
    assert program.recorded > before
