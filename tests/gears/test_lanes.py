"""The second lane of a backward pass: what goes there, and that nothing it still reads is written over."""

from __future__ import annotations

from collections import deque

import pytest
import torch

from mlc_torch import MLCDevice, MLCGraph, MLCLossType, MLCTrainingGraph
from mlc_torch.engine import in_place, lanes, planned
from mlc_torch.engine.lanes import Laned
from mlc_torch.engine.mode import Mode
from mlc_torch.engine.plain import Plain
from mlc_torch.interop import TorchLayer
from mlc_torch.running.state import Variant
from tests.gears.training import GRAPHS, batch, convolutional, perceptron, residual, step, training_graph, with_dropout
from tests.graph.programs import loss, placeholder, sgd


class Slow:
    """A lane whose work may begin as late as a lane's can: until then, what it reads must stay as it is."""

    def __init__(self, device):
        self.running = deque()
        self.begun = []

    def run(self, function, args, kwargs):
        made = function(*args, **kwargs)
        self.begun.append(function)
        given = [a for a in (*args, *kwargs.values()) if isinstance(a, torch.Tensor)]
        self.running.append([(tensor, tensor.clone()) for tensor in given])
        if len(self.running) > lanes._AHEAD:
            self.end()
        return made

    def end(self):
        for tensor, before in self.running.popleft():
            assert torch.equal(tensor, before)

    def begin(self):
        assert not self.running

    def join(self):
        while self.running:
            self.end()


@pytest.fixture(autouse=True)
def on_the_cpu(monkeypatch):
    """As on a GPU: torch's own kernels, and gradients in place whatever their size."""
    monkeypatch.setattr(lanes, "Lane", Slow)
    monkeypatch.setattr(planned, "choose_kernels", lambda recording, *how: recording)
    monkeypatch.setattr(in_place, "_LITTLE_GRADIENT", 0)


def _session(make):
    network = make()
    graph = training_graph(network, MLCDevice.cpu())
    step(graph, batch(network, 0))
    session = graph._session(Variant.whole)
    feeds = [torch.randn(c.shape) for c in session.plan.cells[: session.plan.fed_count]]
    return graph, session.plan, feeds


@pytest.mark.parametrize("make", [g for g in GRAPHS if g is not with_dropout], ids=lambda g: g.__name__)
def test_the_gradients_are_those_of_autograd(make):
    _graph, plan, feeds = _session(make)
    plain, laned = Plain(plan, Mode.train), Laned(plan, feeds, (), (), Mode.train)
    for _ in range(3):
        wants, _ = (plain.forward(feeds, ()), plain.gradient(()))[1]
        gots, _ = (laned.forward(feeds, ()), laned.gradient(()))[1]
        for got, want in zip(gots, wants, strict=True):
            torch.testing.assert_close(got, want, rtol=1e-5, atol=1e-6)
    assert laned._lane.begun


def test_gradients_of_weights_go_aside_and_the_chain_stays():
    graph, plan, feeds = _session(perceptron)
    laned = Laned(plan, feeds, (), (), Mode.train)
    laned.forward(feeds, ())
    laned.gradient(())
    # Three layers: a product and a sum for each one's weights and biases, of which the chain does the last.
    assert len(laned._lane.begun) == 5
    assert {f._schema.name for f in laned._lane.begun} <= {"aten::mm", "aten::sum"}


def test_the_gradients_of_a_convolution_are_parted():
    graph, plan, feeds = _session(convolutional)
    laned = Laned(plan, feeds, (), (), Mode.train)
    laned.forward(feeds, ())
    laned.gradient(())
    assert "aten::convolution_backward" in {f._schema.name for f in laned._lane.begun}


def test_gradients_that_are_added_up_wait_for_each_other():
    """A layer that is used twice: the products are added on the chain, and only the sum's end hangs off it."""
    graph, plan, feeds = _session(residual)
    laned = Laned(plan, feeds, (), (), Mode.train)
    laned.forward(feeds, ())
    laned.gradient(())
    names = [f._schema.name for f in laned._lane.begun]
    assert any(name.startswith("aten::add") for name in names)


def test_a_pass_with_nothing_beside_it_stays_in_one_lane():
    _graph, plan, feeds = _session(perceptron)
    laned = Laned(plan, feeds, (), (), Mode.infer)
    laned.forward(feeds, ())
    assert not laned._lane.begun


class Assigns(torch.nn.Module):
    """torch's gradient of an assignment to a part writes zeros into the gradient that came."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = torch.nn.Linear(6, 5), torch.nn.Linear(5, 4)

    def forward(self, x):
        y = self.first(x) * 1
        y[:, 0] = 0
        return self.second(torch.tanh(y))


class Residual(torch.nn.Module):
    """The gradient of a normalization, one of its three results, is added to in place."""

    def __init__(self) -> None:
        super().__init__()
        self.norms = torch.nn.ModuleList([torch.nn.LayerNorm(6), torch.nn.LayerNorm(6)])
        self.layers = torch.nn.ModuleList([torch.nn.Linear(6, 6), torch.nn.Linear(6, 6)])
        self.last = torch.nn.Linear(6, 4)

    def forward(self, x):
        for norm, layer in zip(self.norms, self.layers, strict=True):
            x = x + torch.relu(layer(norm(x)))
        return self.last(x)


@pytest.mark.parametrize(("module", "count"), [(Assigns, 0), (Residual, 7)])
def test_a_pass_that_writes_into_what_others_see_stays_in_one_lane(module, count):
    graph, x, t = MLCGraph(), placeholder(3, 6), placeholder(3, 4)
    graph.node(TorchLayer(module()), source=x)
    training = MLCTrainingGraph(graphObjects=[graph], lossLayer=loss(MLCLossType.meanSquaredError), optimizer=sgd(0.1))
    assert training.addInputs({"x": x}, lossLabels={"t": t}) and training.compile(options=[], device=MLCDevice.cpu())
    plan = training._session(Variant.whole).plan
    feeds = [torch.randn(c.shape) for c in plan.cells[: plan.fed_count]]
    plain, laned = Plain(plan, Mode.train), Laned(plan, feeds, (), (), Mode.train)
    wants, _ = (plain.forward(feeds, ()), plain.gradient(()))[1]
    gots, _ = (laned.forward(feeds, ()), laned.gradient(()))[1]
    assert len(laned._lane.begun) == count
    for got, want in zip(gots, wants, strict=True):
        torch.testing.assert_close(got, want, rtol=1e-5, atol=1e-6)
