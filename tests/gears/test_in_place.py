"""Activations in the memory of what they are given: what somebody still needs of it is not written over."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch.nn import functional as F

from mlc_torch import (
    MLCActivationLayer,
    MLCArithmeticLayer,
    MLCArithmeticOperation,
    MLCGraph,
    MLCGraphCompilationOptions,
    MLCInferenceGraph,
    MLCLossType,
    MLCTrainingGraph,
)
from mlc_torch.engine import in_place
from mlc_torch.interop import TorchLayer
from tests.gears.plans import Formula
from tests.graph.programs import array, cpu, data, dense, loss, placeholder, sgd, values

ROWS, INPUTS, HIDDEN = 4, 6, 5
RATE = 0.1
KINDS: dict[str, tuple[Callable[[], Any], Callable[[torch.Tensor], torch.Tensor]]] = {
    "relu": (lambda: MLCActivationLayer.relu, F.relu),
    "relu6": (lambda: MLCActivationLayer.relu6, F.relu6),
    "leaky relu": (lambda: MLCActivationLayer.leakyReLU, lambda x: F.leaky_relu(x, 0.01)),
    "tanh": (lambda: MLCActivationLayer.tanh, torch.tanh),
    "sigmoid": (lambda: MLCActivationLayer.sigmoid, torch.sigmoid),
    "gelu": (lambda: MLCActivationLayer.gelu, lambda x: F.gelu(x, approximate="tanh")),
}


@pytest.fixture
def rewritten(monkeypatch):
    """The operations that were pointed to one that works in place."""
    found, look = [], in_place._activate_in_place

    def listen(node):
        before = node.target
        look(node)
        if node.target is not before:
            found.append(node.target)

    monkeypatch.setattr(in_place, "_activate_in_place", listen)
    return found


@pytest.mark.parametrize("reshaped", [False, True])
@pytest.mark.parametrize("reader", ["nobody else", "the program", "another layer"])
@pytest.mark.parametrize("kind", KINDS)
def test_an_activation_leaves_what_is_read_again(kind, reader, reshaped, rewritten):
    """At once, or looked at in another shape."""
    make, formula = KINDS[kind]
    graph, x = MLCGraph(), placeholder(ROWS, INPUTS)
    layer = dense(INPUTS, HIDDEN)
    before = graph.node(layer, source=x)
    shape = [ROWS, 1, HIDDEN] if reshaped else [ROWS, HIDDEN]
    looked = graph.reshape(shape=shape, source=before) if reshaped else before
    after = graph.node(make(), source=looked)
    if reader == "another layer":
        again = graph.reshape(shape=shape, source=before) if reshaped else before
        after = graph.node(MLCArithmeticLayer(operation=MLCArithmeticOperation.add), sources=[after, again])
        del again
    held = before if reader == "the program" else None
    del before, looked
    inference = MLCInferenceGraph(graphObjects=[graph])
    assert inference.addInputs({"x": x}) and inference.compile(options=[], device=cpu())
    numbers = values(ROWS, INPUTS, seed=3)
    want = F.linear(*map(torch.from_numpy, (numbers, _weights(layer), array(layer.biases).ravel())))
    for _ in range(3):
        assert inference.execute(inputsData={"x": data(numbers)}, batchSize=ROWS)
        made = formula(want) + want if reader == "another layer" else formula(want)
        np.testing.assert_allclose(array(after), made.reshape(shape).numpy(), rtol=1e-5, atol=1e-6)
        if held is not None:
            np.testing.assert_allclose(array(held), want.numpy(), rtol=1e-5, atol=1e-6)
    together = kind == "relu" and not reshaped  # with its product in one operation, so that there is nothing to rewrite
    assert bool(rewritten) == (reader == "nobody else" and not together)


def _weights(layer):
    return array(layer.weights).reshape(HIDDEN, INPUTS)


@pytest.mark.parametrize("between", [(), (3,)])
@pytest.mark.parametrize("kind", KINDS)
def test_gradients_in_place(kind, between, rewritten, monkeypatch):
    """Two layers behind each other, so that one's gradient is another's to spare; the update by hand.

    Over three dimensions that gradient is a product, looked at in their shape.
    """
    monkeypatch.setattr(in_place, "_LITTLE_GRADIENT", 0)
    make, formula = KINDS[kind]
    graph, x, t = MLCGraph(), placeholder(ROWS, *between, INPUTS), placeholder(ROWS, *between, 3)
    layers = [dense(INPUTS, HIDDEN, seed=1), dense(HIDDEN, 3, seed=5)]
    result = graph.node(layers[1], source=graph.node(make(), source=graph.node(layers[0], source=x)))
    training = MLCTrainingGraph(graphObjects=[graph], lossLayer=loss(MLCLossType.meanSquaredError), optimizer=sgd(RATE))
    assert training.addInputs({"x": x}, lossLabels={"t": t}) and training.compile(options=[], device=cpu())
    by_hand = [torch.tensor(_matrix(layer), requires_grad=True) for layer in layers]
    biases = [torch.tensor(array(layer.biases).ravel(), requires_grad=True) for layer in layers]
    numbers, targets = values(ROWS, *between, INPUTS, seed=2), values(ROWS, *between, 3, seed=9)
    for _ in range(3):
        assert training.execute(
            inputsData={"x": data(numbers)}, lossLabelsData={"t": data(targets)}, lossLabelWeightsData=None,
            batchSize=ROWS, options=[],
        )  # fmt: skip
        hidden = formula(F.linear(torch.from_numpy(numbers), by_hand[0], biases[0]))
        error = F.mse_loss(F.linear(hidden, by_hand[1], biases[1]), torch.from_numpy(targets))
        slopes = torch.autograd.grad(error, [*by_hand, *biases])
        with torch.no_grad():
            for parameter, slope in zip([*by_hand, *biases], slopes, strict=True):
                parameter -= RATE * slope
        for layer, want in zip(layers, by_hand, strict=True):
            np.testing.assert_allclose(_matrix(layer), want.detach().numpy(), rtol=1e-4, atol=1e-6)
    assert any(operation._overloadname == "grad_input" for operation in rewritten) and result is not None


def _matrix(layer):
    descriptor = layer.descriptor
    return array(layer.weights).reshape(descriptor.outputFeatureChannelCount, descriptor.inputFeatureChannelCount)


class _Sum(torch.nn.Module):
    """A product whose bias has a shape of its own."""

    def __init__(self, *shape: int) -> None:
        super().__init__()
        self.bias, self.weight = (torch.nn.Parameter(torch.randn(s)) for s in (shape, (INPUTS, HIDDEN)))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.addmm(self.bias, x, self.weight)


@pytest.mark.parametrize("shape", [(HIDDEN,), (1, HIDDEN), (1, 1), (1,)], ids=str)
def test_a_bias_of_any_shape(shape):
    graph, x, module = MLCGraph(), placeholder(1, INPUTS), _Sum(*shape)
    result = graph.node(TorchLayer(module), source=x)
    inference = MLCInferenceGraph(graphObjects=[graph])
    assert inference.addInputs({"x": x}) and inference.compile(options=[], device=cpu())
    numbers = values(1, INPUTS, seed=3)
    with torch.no_grad():
        want = module(torch.from_numpy(numbers)).numpy()
    for _ in range(3):
        assert inference.execute(inputsData={"x": data(numbers)}, batchSize=1)
        np.testing.assert_allclose(array(result), want, rtol=1e-5, atol=1e-6)
    assert inference.summary().gear == "planned"


@pytest.mark.parametrize("bias", [True, False])
def test_a_product_of_one_row(bias):
    """Its bias is looked at as a row; weights that change are seen."""
    graph, x = MLCGraph(), placeholder(1, INPUTS)
    layer = dense(INPUTS, HIDDEN, bias=bias)
    result = graph.node(layer, source=x)
    inference = MLCInferenceGraph(graphObjects=[graph])
    assert inference.addInputs({"x": x}) and inference.compile(options=[], device=cpu())
    numbers = values(1, INPUTS, seed=3)
    for _ in range(3):
        assert inference.execute(inputsData={"x": data(numbers)}, batchSize=1)
        want = numbers @ _matrix(layer).T + (array(layer.biases).ravel() if bias else 0)
        np.testing.assert_allclose(array(result), want, rtol=1e-5, atol=1e-6)
        layer.weights.torch.mul_(2)
        if bias:
            layer.biases.torch.add_(1)


def _slice_written(x):
    h = x + x
    a = h[1:].add_(1)
    return torch.cat([h[:1], torch.sigmoid(a.reshape(-1)).view(ROWS - 1, INPUTS)]) * h


def _view_written(x):
    h = (x + x).view(ROWS * INPUTS)
    a = h.view(ROWS, INPUTS).add_(1)
    return torch.sigmoid(a) * h.view(ROWS, INPUTS)


@pytest.mark.parametrize("compute", [_slice_written, _view_written])
def test_what_a_module_writes_itself_may_be_seen_elsewhere(compute):
    graph, x = MLCGraph(), placeholder(ROWS, INPUTS)
    y = graph.node(TorchLayer(Formula(compute)), source=x)
    inference = MLCInferenceGraph(graphObjects=[graph])
    assert inference.addInputs({"x": x}) and inference.compile(options=[], device=cpu())
    for seed in range(2):
        numbers = values(ROWS, INPUTS, seed=seed)
        assert inference.execute(inputsData={"x": data(numbers)}, batchSize=ROWS)
        np.testing.assert_allclose(array(y), compute(torch.from_numpy(numbers)).numpy(), rtol=1e-5, atol=1e-6)


class _Delay(torch.nn.Module):
    """Writes into what a product has read before the product is looked at."""

    def __init__(self, *between: int) -> None:
        super().__init__()
        self.dense = torch.nn.Linear(INPUTS, HIDDEN)
        self.register_buffer("before", torch.zeros(ROWS, *between, INPUTS))

    def forward(self, x):
        made = self.dense(self.before)
        self.before.copy_(x)
        return torch.relu(made)


class _Emptied(torch.nn.Module):
    """The same between a product and the view that gives it three dimensions."""

    def __init__(self) -> None:
        super().__init__()
        self.dense = torch.nn.Linear(INPUTS, HIDDEN)

    def forward(self, x):
        read = x * 2
        made = torch.addmm(self.dense.bias, read.view(-1, INPUTS), self.dense.weight.t())
        read.zero_()
        return made.view(ROWS, 3, HIDDEN)


class _Chunk(torch.nn.Module):
    """Looks at a part of a product by an operation that does not say so, beside the whole."""

    def __init__(self) -> None:
        super().__init__()
        self.dense = torch.nn.Linear(INPUTS, HIDDEN)

    def forward(self, x):
        made = self.dense(x)
        part, _ = torch.unsafe_chunk(made, 2)
        return torch.relu(part) + made[: ROWS // 2]


@pytest.mark.parametrize(("make", "between"), [(_Delay, ()), (lambda: _Delay(3), (3,)), (_Emptied, (3,)), (_Chunk, ())])
def test_a_product_is_computed_where_the_module_computes_it(make, between):
    module, graph, x = make(), MLCGraph(), placeholder(ROWS, *between, INPUTS)
    twin = copy.deepcopy(module)
    result = graph.node(TorchLayer(module), source=x)
    inference = MLCInferenceGraph(graphObjects=[graph])
    assert inference.addInputs({"x": x}) and inference.compile(options=[], device=cpu())
    for seed in range(4):
        numbers = values(ROWS, *between, INPUTS, seed=seed)
        assert inference.execute(inputsData={"x": data(numbers)}, batchSize=ROWS)
        with torch.no_grad():
            want = twin(torch.from_numpy(numbers)).numpy()
        np.testing.assert_allclose(array(result), want, rtol=1e-5, atol=1e-6)


LAYERS = 1100
"""More than Python lets calls nest."""


def test_a_chain_longer_than_calls_may_nest():
    graph, x = MLCGraph(), placeholder(ROWS, INPUTS)
    made = x
    for _ in range(LAYERS):
        made = graph.node(MLCActivationLayer.tanh, source=made)
    inference = MLCInferenceGraph(graphObjects=[graph])
    assert inference.addInputs({"x": x})
    assert inference.compile(options=[], device=cpu())
    assert inference.summary().gear == "planned", inference.summary().why
    given = values(ROWS, INPUTS, seed=3)
    assert inference.execute(inputsData={"x": data(given)}, batchSize=ROWS)
    expected = given.astype(np.float64)
    for _ in range(LAYERS):
        expected = np.tanh(expected)
    np.testing.assert_allclose(array(made), expected, rtol=1e-4)


def test_a_gradient_that_is_added_up_more_often_than_calls_may_nest():
    """Every sum adds x itself, so that its gradient has as many parts."""
    graph, x, label = MLCGraph(), placeholder(ROWS, INPUTS), placeholder(ROWS, INPUTS)
    made = [x] * (LAYERS + 1)
    while len(made) > 1:
        pairs = list(zip(made[::2], made[1::2], strict=False))
        rest = made[2 * len(pairs) :]
        add = MLCArithmeticOperation.add
        made = [graph.node(MLCArithmeticLayer(operation=add), sources=list(pair)) for pair in pairs] + rest
    training = MLCTrainingGraph(graphObjects=[graph], lossLayer=loss(MLCLossType.meanSquaredError), optimizer=None)
    assert training.addInputs({"x": x}, lossLabels={"y": label})
    assert training.compile(options=[MLCGraphCompilationOptions.computeAllGradients], device=cpu())
    assert training.summary().gear == "planned", training.summary().why
    given, wanted = values(ROWS, INPUTS, seed=4), values(ROWS, INPUTS, seed=5)
    assert training.bindAndWriteData(
        {"x": data(given), "y": data(wanted)},
        forInputs={"x": x, "y": label},
        to=cpu(),
        batchSize=ROWS,
        synchronous=True,
    )
    assert training.executeForward(batchSize=ROWS)
    assert training.executeGradient(batchSize=ROWS)
    expected = 2 * (LAYERS + 1) * ((LAYERS + 1) * given.astype(np.float64) - wanted) / given.size
    np.testing.assert_allclose(array(training.gradientTensor(forInput=x)), expected, rtol=1e-4)
