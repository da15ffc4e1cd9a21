"""The compiled gear: one small graph in every run, every graph and record on request (``tox run -e slow``)."""

from __future__ import annotations

import logging

import numpy as np
import pytest
import torch

from mlc_torch import (
    MLCActivationLayer,
    MLCDataType,
    MLCDevice,
    MLCEmbeddingDescriptor,
    MLCEmbeddingLayer,
    MLCGraph,
    MLCInferenceGraph,
    MLCLossLayer,
    MLCReductionType,
    MLCTensor,
    MLCTrainingGraph,
)
from mlc_torch.engine.captured import Captured
from mlc_torch.engine.compiled import Compiled
from mlc_torch.engine.gear import Gear
from mlc_torch.engine.plain import Plain
from mlc_torch.interop import TorchLayer
from mlc_torch.running.state import Variant
from mlc_torch.torch_private import available
from tests.gears.plans import case_of, hold_to_plain, in_float64, mlc_device, mode_of, outcome
from tests.gears.training import GRAPHS, PLAIN, batch, convolutional, perceptron, step, train, training_graph
from tests.graph.programs import array, data, dense, placeholder
from tests.layers.test_every_layer import records


def test_one_small_graph_trains_as_plainly(caplog):
    caplog.set_level(logging.INFO, "mlc_torch")
    compiled = train(perceptron, 5, kind="sgd", use_inductor=True)
    assert "TorchInductor compiles" in caplog.text
    for mine, theirs in zip(compiled, train(perceptron, 5, PLAIN, kind="sgd"), strict=True):
        torch.testing.assert_close(mine, theirs, rtol=1e-5, atol=1e-5)


@pytest.fixture(autouse=True)
def no_silent_fallback(request, caplog):
    """A comparison of the plain gear with itself would always agree."""
    yield
    if "all_the_same" not in request.node.name:
        assert "could not compile" not in caplog.text


def test_three_phases_and_the_summary():
    network = perceptron()
    graph = training_graph(network, MLCDevice.cpu(), use_inductor=True)
    assert graph._session(Variant.whole).prepared.name == "compiled"
    assert "compiled" in str(graph.summary())
    step(graph, batch(network, 0))


def test_without_a_compiler_the_graph_runs_all_the_same(caplog, monkeypatch):
    def no_compiler(graph):
        raise RuntimeError("no C++ compiler was found")

    monkeypatch.setattr("mlc_torch.engine.compiled.compile_graph", no_compiler)
    network = perceptron()
    graph = training_graph(network, MLCDevice.cpu(), use_inductor=True)
    step(graph, batch(network, 0))
    assert graph._runs.last.gear.name == "planned"
    assert "no C++ compiler" in graph._runs.last.gear.why
    assert "no C++ compiler" in caplog.text


def test_the_reason_is_named_where_cudnn_cannot_be_traced_all_the_same(monkeypatch):
    def no_shapes(*_):
        try:
            raise NotImplementedError("aten::_cudnn_rnn_backward: there was no fake impl or Meta kernel registered")
        except NotImplementedError:
            raise RuntimeError("cuDNN error: CUDNN_STATUS_BAD_PARAM")  # noqa: B904 - as torch does it

    monkeypatch.setattr("mlc_torch.engine.compiled._traced", no_shapes)
    network = perceptron()
    graph = training_graph(network, MLCDevice.cpu(), use_inductor=True)
    step(graph, batch(network, 0))
    assert "cannot trace cuDNN's LSTM" in graph._runs.last.gear.why


@pytest.mark.parametrize("layers", [1, 2])
def test_an_inference_with_nothing_to_fuse_is_left_as_it_is(layers, monkeypatch):
    monkeypatch.setattr("mlc_torch.engine.compiled.compile_graph", lambda graph: lambda given: graph(*given))
    base, x, layer = MLCGraph(), placeholder(2, 3), dense(3, 4)
    y = base.node(layer, source=x)
    for _ in range(layers):
        y = base.node(MLCActivationLayer.tanh, source=y)
    values = np.arange(6, dtype=np.float32).reshape(2, 3) / 7
    want = values @ array(layer.weights).reshape(4, 3).T + array(layer.biases).ravel()
    for _ in range(layers):
        want = np.tanh(want)
    graph = MLCInferenceGraph(graphObjects=[base])
    graph.addInputs({"x": x})
    assert graph.compile(options=[], device=MLCDevice.cpu(), use_inductor=True)
    for _ in range(3):
        assert graph.execute(inputsData={"x": data(values)}, batchSize=2)
        np.testing.assert_allclose(array(y), want, rtol=1e-5)
    gear = graph._session(Variant.whole).prepared
    assert (gear.name, gear.why) == (
        ("compiled", "") if layers == 2 else ("planned", "TorchInductor would have nothing to fuse")
    )


class Counting(torch.nn.Module):
    """Has a buffer that changes in inference too, and one that never does."""

    def __init__(self):
        super().__init__()
        self.register_buffer("count", torch.zeros(3))
        self.register_buffer("scale", torch.full((3,), 2.0))

    def forward(self, x):
        self.count += 1
        return torch.tanh(x * self.scale) * 0 + self.count


def test_a_buffer_that_changes_in_inference_goes_on_changing(monkeypatch):
    monkeypatch.setattr("mlc_torch.engine.compiled.compile_graph", lambda graph: lambda given: graph(*given))
    base, x, module = MLCGraph(), placeholder(2, 3), Counting()
    y = base.node(TorchLayer(module), source=x)
    graph = MLCInferenceGraph(graphObjects=[base])
    assert graph.addInputs({"x": x}) and graph.compile(options=[], device=MLCDevice.cpu(), use_inductor=True)
    assert graph._session(Variant.whole).prepared.name == "compiled"
    for number in range(1, 5):
        assert graph.execute(inputsData={"x": data(np.ones((2, 3), np.float32))}, batchSize=2)
        np.testing.assert_array_equal(array(y), np.full((2, 3), number))
    assert module.count.tolist() == [4, 4, 4] and module.scale.tolist() == [2, 2, 2]


class Clamped(torch.nn.Module):
    """Keeps its weight within bounds, in training and in inference."""

    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.tensor([2.0, -3.0, 0.5]))

    def forward(self, x):
        with torch.no_grad():
            self.weight.clamp_(-1, 1)
        return torch.tanh(x * self.weight)


def run_compiled(layer, source, values, how):
    """The layer, and something to fuse, in the compiled gear: in inference, a training step, or the forward phase of one."""
    base = MLCGraph()
    y = base.node(MLCActivationLayer.softSign, source=base.node(layer, source=source))
    shape = tuple(y.descriptor.shape)
    label, labels = placeholder(*shape), np.zeros(shape, np.float32)
    if how == "inference":
        graph = MLCInferenceGraph(graphObjects=[base])
        assert graph.addInputs({"x": source})
    else:
        loss = MLCLossLayer.meanSquaredError(reductionType=MLCReductionType.mean, weight=1.0)
        graph = MLCTrainingGraph(graphObjects=[base], lossLayer=loss, optimizer=None)
        assert graph.addInputs({"x": source}, lossLabels={"y": label})
    assert graph.compile(options=[], device=MLCDevice.cpu(), use_inductor=True)
    assert graph._session(Variant.whole).prepared.name == "compiled"
    if how == "inference":
        assert graph.execute(inputsData={"x": data(values)}, batchSize=2)
    elif how == "step":
        step(graph, {"x": data(values), "y": data(labels)}, samples=2)
    else:
        bound, tensors = {"x": data(values), "y": data(labels)}, {"x": source, "y": label}
        assert graph.bindAndWriteData(bound, forInputs=tensors, to=MLCDevice.cpu(), synchronous=True)
        assert graph.executeForward(batchSize=2)


HOW = ["inference", "step", "phase"]


@pytest.mark.parametrize("how", HOW)
def test_rows_that_an_embedding_shortens_are_shortened_in_its_weights(how, monkeypatch):
    monkeypatch.setattr("mlc_torch.engine.compiled.compile_graph", lambda graph: lambda given: graph(*given))
    weights, indices = np.full((4, 3), 2, np.float32), np.array([[0, 1], [1, 3]], np.int32)
    kind = MLCEmbeddingDescriptor(
        embeddingCount=4,
        embeddingDimension=3,
        paddingIndex=None,
        maximumNorm=1.0,
        pNorm=2.0,
        scalesGradientByFrequency=False,
    )
    layer = MLCEmbeddingLayer(descriptor=kind, weights=MLCTensor.from_numpy(weights))
    want = np.full((4, 3), 2.0)
    want[[0, 1, 3]] /= np.linalg.norm(want[0])
    run_compiled(layer, MLCTensor(shape=[2, 2], dataType=MLCDataType.int32), indices, how)
    np.testing.assert_allclose(weights, want, rtol=1e-6)


@pytest.mark.parametrize("how", HOW)
def test_what_a_module_writes_into_its_weight_is_there(how, monkeypatch):
    monkeypatch.setattr("mlc_torch.engine.compiled.compile_graph", lambda graph: lambda given: graph(*given))
    module = Clamped()
    run_compiled(TorchLayer(module), placeholder(2, 3), np.ones((2, 3), np.float32), how)
    assert module.weight.tolist() == [1, -1, 0.5]


@pytest.mark.slow
def test_the_public_way_gives_the_same(monkeypatch):
    private = train(perceptron, 3, use_inductor=True)
    monkeypatch.setitem(available, "inductor", False)
    for mine, theirs in zip(train(perceptron, 3, use_inductor=True), private, strict=True):
        torch.testing.assert_close(mine, theirs, rtol=1e-5, atol=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize("make", [g for g in GRAPHS if g is not convolutional], ids=lambda g: g.__name__)
def test_free_running_trajectories_agree(make, torch_device):
    device = mlc_device(torch_device)
    compiled = train(make, 20, device=device, kind="sgd", use_inductor=True)
    for mine, theirs in zip(compiled, train(make, 20, PLAIN, device, kind="sgd"), strict=True):
        torch.testing.assert_close(mine, theirs, rtol=1e-5, atol=1e-5)


@pytest.mark.slow
def test_batch_norm_s_statistics_follow(torch_device):
    device = mlc_device(torch_device)
    compiled = train(convolutional, 1, device=device, kind="sgd", use_inductor=True)
    for mine, theirs in zip(compiled, train(convolutional, 1, PLAIN, device, kind="sgd"), strict=True):
        torch.testing.assert_close(mine, theirs, rtol=1e-5, atol=1e-6)


_NOT_FOR_TRITON = ("cuDNN's LSTM", "atomic_add does not support")
"""What it is told of an LSTM, and of sums of 8-bit numbers; such a plan is captured as it is."""


@pytest.mark.slow
@records()
def test_records_agree_with_the_plain_gear(record, torch_device):
    case = case_of(record, torch_device)
    plan, feeds, differentiates = case.plan, case.feeds, case.differentiates
    exact = in_float64(case, record.training)
    plain = Plain(plan, mode_of(record.training, differentiates))
    gear: Gear
    try:
        gear = inner = Compiled(plan, feeds, (), (), mode_of(record.training, differentiates))
    except Exception as error:
        if torch_device.type != "cuda" or not any(words in str(error) for words in _NOT_FOR_TRITON):
            raise
        inner = Plain(plan, mode_of(record.training, differentiates))
    if torch_device.type == "cuda":
        gear = Captured(plan, feeds, (), (), inner, None)
    hold_to_plain(outcome(case, gear), outcome(case, plain), exact, rtol=1e-5)
