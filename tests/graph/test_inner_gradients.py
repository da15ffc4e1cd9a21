"""The gradient of a tensor inside the graph is its own, whatever lies behind it, hands it on or writes to it."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from mlc_torch import (
    MLCActivationDescriptor,
    MLCActivationLayer,
    MLCActivationType,
    MLCArithmeticLayer,
    MLCArithmeticOperation,
    MLCBatchNormalizationLayer,
    MLCComparisonLayer,
    MLCComparisonOperation,
    MLCDropoutLayer,
    MLCGraph,
    MLCGraphCompilationOptions,
    MLCSelectionLayer,
    MLCTrainingGraph,
)
from mlc_torch.interop import TorchLayer
from tests.graph.programs import (
    Program,
    array,
    close,
    dense,
    loss,
    placeholder,
    sgd,
    tensor,
    values,
)

ALL = MLCGraphCompilationOptions.computeAllGradients


@pytest.mark.parametrize("options", [[], [MLCGraphCompilationOptions.disableLayerFusion]], ids=["planned", "plain"])
@pytest.mark.parametrize("asked", ["before", "after", "hooked"])
@pytest.mark.parametrize("behind", ["an activation", "a node that is not updated"])
def test_nothing_trained_has_to_lie_behind_a_tensor(behind, asked, options):
    graph, x, t, second = MLCGraph(), placeholder(4, 6), placeholder(4, 3), dense(6, 3, seed=10)
    if behind == "an activation":
        h = graph.node(MLCActivationLayer.tanh, source=x)
    else:
        h = graph.node(dense(6, 6), sources=[x], disableUpdate=True)
    graph.node(second, source=h)
    training = MLCTrainingGraph(graphObjects=[graph], lossLayer=loss(), optimizer=sgd())
    assert training.addInputs({"x": x}, lossLabels={"t": t})
    program = Program(training, graph, {"x": x}, {"t": t}, {"x": values(4, 6, seed=5), "t": values(4, 3, seed=6)})
    seen: list[torch.Tensor] = []
    if asked == "hooked":
        training.register_gradient_hook(h, seen.append)
    assert program.compile(options)
    if asked == "before":
        assert training.sourceGradientTensors(for_=second)[0].data is None
    for _ in range(3):
        assert program.phases()
        made = torch.from_numpy(h.numpy().copy()).requires_grad_()
        weights, biases = second.weights.torch.clone().view(3, 6), second.biases.torch.clone().view(3)
        wanted = torch.nn.functional.linear(made, weights, biases)
        torch.nn.functional.mse_loss(wanted, torch.from_numpy(program.given["t"])).backward()
        found = seen.pop() if asked == "hooked" else array(training.sourceGradientTensors(for_=second)[0])
        close(found, made.grad)
        assert program.update()


class Twice(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        y = x * 2
        return y, y


HANDED_ON = {
    "no activation": lambda: MLCActivationLayer(descriptor=MLCActivationDescriptor(type=MLCActivationType.none)),
    "no dropout": lambda: MLCDropoutLayer(rate=0.0, seed=1),
    "nn.Identity": lambda: TorchLayer(torch.nn.Identity()),
    "the same twice": lambda: TorchLayer(Twice()),
}


@pytest.mark.parametrize("options", [[], [MLCGraphCompilationOptions.disableLayerFusion]], ids=["planned", "plain"])
@pytest.mark.parametrize("asked", ["gradient", "hook"])
@pytest.mark.parametrize("name", HANDED_ON)
def test_what_a_layer_hands_on_has_a_gradient_of_its_own(name, asked, options):
    """h goes two ways, one of them through the layer: 3 r + h, or of two equal results 3 a + b."""
    graph, x, t, first = MLCGraph(), placeholder(4, 6), placeholder(4, 3), dense(6, 3)
    h = graph.node(first, source=x)
    layer = HANDED_ON[name]()
    r = graph.node(layer, source=h)
    results = graph.resultTensors(for_=layer)
    triple = MLCActivationLayer(descriptor=MLCActivationDescriptor(type=MLCActivationType.linear, a=3.0, b=0.0))
    add = MLCArithmeticLayer(operation=MLCArithmeticOperation.add)
    y = graph.node(add, sources=[graph.node(triple, source=r), results[1] if len(results) > 1 else h])
    training = MLCTrainingGraph(graphObjects=[graph], lossLayer=loss(), optimizer=sgd())
    assert training.addInputs({"x": x}, lossLabels={"t": t}) and training.addOutputs({"y": y})
    if asked == "hook":
        training.register_gradient_hook(r, lambda gradient: gradient * 0)
    given = {"x": values(4, 6, seed=5), "t": values(4, 3, seed=6)}
    program = Program(training, graph, {"x": x}, {"t": t}, given, [first])
    assert program.compile(options)
    for _ in range(2):
        assert program.phases()
        upstream = 2 * (y.numpy() - given["t"]) / 12
        if asked == "gradient":
            close(array(training.resultGradientTensors(for_=layer)[0]), 3 * upstream)
        through = (0 if asked == "hook" else 3 * upstream) + upstream
        want = (2 * through if len(results) > 1 else through).T @ given["x"]
        close(program.gradient_of(first.weights, first).reshape(3, 6), want)
        assert program.update()


@pytest.mark.parametrize("options", [[], [MLCGraphCompilationOptions.disableLayerFusion]], ids=["planned", "plain"])
@pytest.mark.parametrize("trained", [False, True], ids=["nothing trained behind it", "trained"])
def test_the_gradient_of_what_a_module_writes_to(trained, options):
    graph, x, t, last = MLCGraph(), placeholder(4, 6), placeholder(4, 3), dense(6, 3)
    first = dense(6, 6, seed=7) if trained else MLCActivationLayer.tanh
    h = graph.node(first, source=x)
    graph.node(last, source=graph.node(TorchLayer(torch.nn.ReLU(inplace=True)), source=h))
    training = MLCTrainingGraph(graphObjects=[graph], lossLayer=loss(), optimizer=sgd())
    assert training.addInputs({"x": x}, lossLabels={"t": t})
    given = {"x": values(4, 6, seed=5), "t": values(4, 3, seed=6)}
    program = Program(training, graph, {"x": x}, {"t": t}, given)
    assert program.compile(options)
    training.resultGradientTensors(for_=first)
    for _ in range(2):
        before = given["x"] @ first.weights.numpy().reshape(6, 6).T + first.biases.numpy().ravel() if trained else None
        before = np.tanh(given["x"]) if before is None else before
        assert program.phases()
        upstream = 2 * (predictions_of(last, np.maximum(before, 0)) - given["t"]) / 12
        want = upstream @ last.weights.numpy().reshape(3, 6) * (before > 0)
        close(array(training.resultGradientTensors(for_=first)[0]), want)
        assert program.update()


@pytest.mark.parametrize("options", [[], [MLCGraphCompilationOptions.disableLayerFusion]], ids=["planned", "plain"])
def test_a_result_that_is_read_between_the_phases_costs_no_gradient(options):
    """A batch norm's statistics move when the pass is run again for the result, and go back."""
    starts = {"mean": 0, "variance": 1, "beta": 0, "gamma": 1}
    numbers = {name: tensor(np.full(3, start, np.float32), [1, 3, 1, 1]) for name, start in starts.items()}
    layer = MLCBatchNormalizationLayer(featureChannelCount=3, **numbers, varianceEpsilon=1e-3, momentum=0.5)
    graph, x, t = MLCGraph(), placeholder(4, 3, 2, 2), placeholder(4, 3, 2, 2)
    bent = MLCActivationLayer.relu
    graph.node(MLCActivationLayer.tanh, source=graph.node(bent, source=graph.node(layer, source=x)))
    training = MLCTrainingGraph(graphObjects=[graph], lossLayer=loss(), optimizer=sgd())
    assert training.addInputs({"x": x}, lossLabels={"t": t})
    given = {"x": values(4, 3, 2, 2, seed=5), "t": values(4, 3, 2, 2, seed=6)}
    program = Program(training, graph, {"x": x}, {"t": t}, given)
    assert program.compile([*options, ALL]) and program.bind() and program.forward()
    read = array(training.resultTensors(for_=bent)[0])
    assert program.gradient()
    source = torch.from_numpy(given["x"]).requires_grad_()
    made = torch.relu(torch.nn.functional.batch_norm(source, None, None, training=True, eps=1e-3))
    torch.nn.functional.mse_loss(torch.tanh(made), torch.from_numpy(given["t"])).backward()
    close(read, made.detach())
    close(array(training.gradientTensor(forInput=x)), source.grad)
    close(array(layer.mean).ravel(), 0.5 * given["x"].mean((0, 2, 3)))
    close(array(layer.variance).ravel(), 0.5 + 0.5 * given["x"].var((0, 2, 3)))


@pytest.mark.parametrize("options", [[], [MLCGraphCompilationOptions.disableLayerFusion]], ids=["planned", "plain"])
def test_what_is_true_or_false_has_no_gradient_however_often_one_asks(options):
    graph, x, t = MLCGraph(), placeholder(4, 5), placeholder(4, 3)
    first, last = dense(5, 5), dense(5, 3)
    compares, selects = MLCComparisonLayer(operation=MLCComparisonOperation.less), MLCSelectionLayer()
    h = graph.node(first, source=x)
    graph.node(last, source=graph.node(selects, sources=[graph.node(compares, sources=[x, h]), x, h]))
    training = MLCTrainingGraph(graphObjects=[graph], lossLayer=loss(), optimizer=sgd())
    assert training.addInputs({"x": x}, lossLabels={"t": t})
    program = Program(training, graph, {"x": x}, {"t": t}, {"x": values(4, 5, seed=5), "t": values(4, 3, seed=6)})
    assert program.compile(options)
    for _ in range(4):
        assert program.phases()
        training.resultGradientTensors(for_=compares)
        condition, _, chosen = training.sourceGradientTensors(for_=selects)
        assert condition.data is None or not np.frombuffer(condition.data, np.uint8).any()
        y = predictions_of(last, np.where(x.numpy() < h.numpy(), x.numpy(), h.numpy()))
        dz = 2 * (y - program.given["t"]) / 12 @ last.weights.numpy().reshape(3, 5)
        close(array(chosen), np.where(x.numpy() < h.numpy(), 0, dz))
        assert program.update()


def predictions_of(layer, source):
    outputs = layer.biases.numpy().ravel()
    return source @ layer.weights.numpy().reshape(len(outputs), -1).T + outputs
