"""A call that is made again and again does little. What is different about one of them must still be seen."""

from __future__ import annotations

import gc
import threading
import time
import weakref
from contextlib import nullcontext

import numpy as np
import pytest
import torch

from mlc_torch import (
    MLCActivationLayer,
    MLCAdamOptimizer,
    MLCDevice,
    MLCExecutionOptions,
    MLCGraph,
    MLCGraphCompilationOptions,
    MLCInferenceGraph,
    MLCOptimizerDescriptor,
    MLCRegularizationType,
    MLCSGDOptimizer,
    MLCTensorData,
    MLCTrainingGraph,
    last_refusal,
)
from mlc_torch.interop import TorchLayer
from tests.gears.training import BATCH, batch, perceptron, step, training_graph
from tests.graph.programs import array, cpu, data, hyper, loss, on, placeholder, regression, sgd, values


@pytest.fixture
def running():
    """A training graph that has run, and a twin that is made anew before each call."""
    network, other = perceptron(), perceptron()
    graph, plain = (training_graph(n, MLCDevice.cpu()) for n in (network, other))
    step(graph, batch(network, 0))
    _anew(plain, batch(other, 0))
    return graph, network, plain, other


def _anew(graph, data):
    graph._runs.sessions.clear()
    step(graph, data)


def _same(network, other):
    return all(torch.equal(a.torch, b.torch) for a, b in zip(network.parameters, other.parameters, strict=True))


def test_the_numbers_are_those_of_a_first_call(running):
    graph, network, plain, other = running
    for number in range(1, 6):
        step(graph, batch(network, number))
        _anew(plain, batch(other, number))
    assert _same(network, other)


def _tensors(graph, network):
    return {"x": network.source, "y": type(network.source)._of(next(iter(graph._declared.labels.values())))}


def test_binding_too(running):
    graph, network, *_ = running
    tensors, given = _tensors(graph, network), batch(network, 7)
    for _ in range(2):
        assert graph.bindAndWriteData(given, forInputs=tensors, to=graph.device, synchronous=True)
    np.testing.assert_array_equal(array(network.source).ravel(), np.frombuffer(given["x"].bytes, np.float32))


@pytest.mark.parametrize("spoil", ["short", "name", "type", "device", "flag"])
def test_what_cannot_be_bound_is_told_at_the_door(running, spoil):
    graph, network, *_ = running
    given, tensors = dict(batch(network, 1)), _tensors(graph, network)
    assert graph.bindAndWriteData(batch(network, 0), forInputs=tensors, to=graph.device, synchronous=True)
    before = array(network.source)
    if spoil == "short":
        given["x"] = data(values(1))
    elif spoil == "name":
        given["z"] = given.pop("x")
    elif spoil == "type":
        given["x"] = 5
    device, flag = (None if spoil == "device" else graph.device), ("no" if spoil == "flag" else True)
    if spoil in ("type", "device", "flag"):
        with pytest.raises(TypeError):
            graph.bindAndWriteData(given, forInputs=tensors, to=device, synchronous=flag)
    else:
        with pytest.warns(UserWarning, match="no tensor for the data named 'z'") if spoil == "name" else nullcontext():
            assert graph.bindAndWriteData(given, forInputs=tensors, to=device, synchronous=flag) is (spoil == "name")
    np.testing.assert_array_equal(array(network.source), before)


def test_the_phases_too(running):
    graph, network, plain, other = running
    for made, its in ((graph, network), (plain, other)):
        tensors = _tensors(made, its)
        for number in range(3):
            if made is plain:
                made._runs.sessions.clear()
            assert made.bindAndWriteData(batch(its, number), forInputs=tensors, to=made.device, synchronous=True)
            assert made.executeForward(batchSize=0)
            assert made.executeGradient(batchSize=0)
            gradient = made.gradientData(forParameter=its.parameters[0], layer=made.layers[0])
            assert np.frombuffer(gradient, np.float32).any()
            assert made.executeOptimizerUpdate()
    assert _same(network, other)


def test_handlers_get_the_loss(running):
    graph, network, *_ = running
    data, seen = batch(network, 1), []
    assert graph.execute(
        inputsData={"x": data["x"]},
        lossLabelsData={"y": data["y"]},
        lossLabelWeightsData=None,
        batchSize=BATCH,
        options=[MLCExecutionOptions.synchronous],
        completionHandler=lambda result, error, seconds: seen.append((float(result.numpy()[0]), error, seconds)),
    )
    ((loss, error, seconds),) = seen
    assert loss > 0 and error is None and seconds == 0.0


@pytest.mark.parametrize(
    ("labels", "kind"),
    [
        ({"batchSize": BATCH - 2}, True),
        ({"options": [MLCExecutionOptions.profiling]}, True),
        ({"batchSize": BATCH + 1}, False),
        ({"batchSize": -1}, False),
        ({"inputsData": {}}, True),  # the input still holds what was bound, or is refused with a reason
        ({"batchSize": True}, TypeError),
        ({"inputsData": 3}, TypeError),
        ({"nonsense": 1}, TypeError),
        ({"inputsData": {"x": "text"}}, TypeError),
        ({"completionHandler": 7}, TypeError),
        ({"options": None}, TypeError),
        ({"lossLabelWeightsData": 0}, TypeError),
        ({"lossLabelWeightsData": np.ones(2)}, TypeError),
        ({"inputsData": {"x": 5, "junk": 5}}, TypeError),
    ],
    ids=str,
)
def test_whatever_is_special_goes_through_the_door(running, labels, kind):
    graph, network, *_ = running
    data = batch(network, 1)
    given = {
        "inputsData": {"x": data["x"]},
        "lossLabelsData": {"y": data["y"]},
        "lossLabelWeightsData": None,
        "batchSize": BATCH,
    } | labels
    if kind is TypeError:
        with pytest.raises(TypeError):
            graph.execute(**given)
    else:
        answered = graph.execute(**given)
        assert answered is kind or (answered is False and "no data for the input 'x'" in str(last_refusal()))
    step(graph, data)


def test_a_label_that_is_left_out_is_missed_every_time(running):
    graph, network, *_ = running
    given = batch(network, 1)
    for _ in range(2):
        with pytest.raises(TypeError, match="does not exist"):
            graph.execute(inputsData={"x": given["x"]}, lossLabelsData={"y": given["y"]}, batchSize=BATCH)
        step(graph, given)


def _call(x: torch.Tensor) -> torch.Tensor:
    if Slow.during is not None:
        during, Slow.during = Slow.during, None
        during()
        time.sleep(0.2)  # so that the other call has come to the lock
    return x * 2


class Slow(torch.nn.Module):
    """Does something while it computes, once; as an operation of its own, so that a recording does it too."""

    during = None
    _library = torch.library.Library("mlc_torch_tests", "FRAGMENT")
    _library.define("call(Tensor x) -> Tensor")
    _library.impl("call", _call, "CompositeExplicitAutograd")

    def forward(self, x):
        return torch.ops.mlc_torch_tests.call(x)


class Picked(torch.nn.Module):
    """Fails where its input holds what is no index."""

    def forward(self, x):
        return torch.take(torch.arange(9.0), x.long())


def test_a_handler_that_is_told_of_a_failure_holds_nobody_up():
    base, x = MLCGraph(), placeholder(1, 3)
    base.node(TorchLayer(Picked()), source=x)
    graph = MLCInferenceGraph(graphObjects=[base])
    assert graph.addInputs({"x": x}) and graph.compile(device=cpu())
    good, bad = ({"x": data(np.full((1, 3), n, np.float32))} for n in (1, 99))
    assert graph.execute(inputsData=good, batchSize=1)
    told = []

    def handler(result, error, seconds):
        done = threading.Event()
        threading.Thread(target=lambda: graph.execute(inputsData=good, batchSize=1) and done.set(), daemon=True).start()
        told.append((type(error).__name__, done.wait(60)))

    assert not graph.execute(inputsData=bad, batchSize=1, completionHandler=handler)
    assert told == [("MLCRefusal", True)]


def test_a_call_that_waited_sees_what_happened_meanwhile():
    program = regression(widths=(6, 5, 3))
    assert program.compile()
    graph, ready, go, waits = program.training, *(threading.Event() for _ in range(3))

    def work():
        program.execute()
        ready.set()
        go.wait(60)
        waits.set()
        program.execute()

    thread = threading.Thread(target=work)
    thread.start()
    assert ready.wait(60)

    def change():
        go.set()
        assert waits.wait(60)
        time.sleep(0.1)  # from there it is a few lines to the lock
        assert graph.compileOptimizer(sgd(0.0))
        return array(program.layers[0].weights)

    before = graph._lock.holding(change)
    thread.join()
    np.testing.assert_array_equal(array(program.layers[0].weights), before)


def test_a_result_is_that_of_the_handler_s_own_call():
    """Another thread comes for the first time while the graph computes, and waits."""
    base, x, own, others = MLCGraph(), placeholder(1, 3), [], []
    base.node(TorchLayer(Slow()), source=x)
    graph = MLCInferenceGraph(graphObjects=[base])
    assert graph.addInputs({"x": x}) and graph.compile(device=cpu())
    mine, theirs = ({"x": data(np.full((1, 3), n, np.float32))} for n in (1, 2))
    assert graph.execute(inputsData=mine, batchSize=1)
    second = threading.Thread(target=lambda: others.append(graph.execute(inputsData=theirs, batchSize=1)))

    def handler(result, error, seconds):
        second.join()
        own.append(result.numpy().tolist())

    Slow.during = second.start
    assert graph.execute(inputsData=mine, batchSize=1, completionHandler=handler)
    assert own == [[[2, 2, 2]]] and others == [True]


def test_optimizers_stay_live_across_an_inference(torch_device):
    descriptor = MLCOptimizerDescriptor(
        learningRate=0.01,
        gradientRescale=1.0,
        appliesGradientClipping=False,
        gradientClipMax=0.001,
        gradientClipMin=-0.001,
        regularizationType=MLCRegularizationType.none,
        regularizationScale=0.0,
    )
    made = [regression(MLCSGDOptimizer(descriptor=descriptor), widths=(6, 5, 3), device=on(torch_device)) for _ in "ab"]
    fast, plain = made
    assert fast.compile() and plain.compile(options=MLCGraphCompilationOptions.disableLayerFusion)
    for program in made:
        assert program.execute() and program.execute()
        assert program.execute(options=[MLCExecutionOptions.forwardForInference, MLCExecutionOptions.synchronous])
        program.training.optimizer.appliesGradientClipping = True
        program.training.optimizer.learningRate = 0.05
        assert program.execute() and program.execute()
        program.training.synchronizeUpdates()
    for mine, theirs in zip(fast.layers, plain.layers, strict=True):
        np.testing.assert_allclose(array(mine.weights), array(theirs.weights), rtol=1e-4, atol=1e-6)


def test_short_data_is_refused(running):
    graph, network, *_ = running
    data = batch(network, 1)
    short = MLCTensorData(bytesNoCopy=bytearray(8), length=8)
    assert not graph.execute(
        inputsData={"x": short}, lossLabelsData={"y": data["y"]}, lossLabelWeightsData=None, batchSize=BATCH
    )
    assert "8 bytes" in str(last_refusal())


def test_a_hook_registered_later_fires(running):
    graph, network, *_ = running
    calls = []
    handle = graph.layers[0].module.register_forward_hook(lambda *a: calls.append(1))
    step(graph, batch(network, 1))
    assert calls == [1]
    handle.remove()
    step(graph, batch(network, 2))
    assert calls == [1]


def test_weights_bound_anew_are_used(running):
    graph, network, plain, other = running
    for its in (network, other):
        weights = its.parameters[0]
        array = np.full(weights.descriptor.shape, 0.01, np.float32)
        assert weights.bindAndWriteData(MLCTensorData(bytesNoCopy=array, length=array.nbytes), to=MLCDevice.cpu())
    step(graph, batch(network, 1))
    _anew(plain, batch(other, 1))
    assert _same(network, other)


def test_phases_out_of_order_are_still_refused(running):
    graph, network, *_ = running
    step(graph, batch(network, 1))
    assert not graph.executeGradient(batchSize=0)
    assert "executeForward" in str(last_refusal())


def test_a_result_that_is_held_for_a_while_does_not_set_the_step_back():
    """Holding it renews the graph's plan; once it is let go, the plan before it must not be taken up again."""
    programs = [regression(MLCAdamOptimizer(descriptor=hyper(0.01)), widths=(6, 5, 3)) for _ in range(2)]
    for program in programs:
        program.result = None
        assert program.compile()
    watched, left_alone = programs
    for number in range(9):
        held = watched.training.resultTensors(for_=watched.layers[0]) if number in (3, 4) else None
        assert watched.execute() and left_alone.execute()
        assert held is None or held[0].data is not None
        del held
    assert watched.training.optimizer.timeStep == left_alone.training.optimizer.timeStep == 10
    for mine, theirs in zip(watched.layers, left_alone.layers, strict=True):
        np.testing.assert_array_equal(array(mine.weights), array(theirs.weights))


def test_labels_that_were_not_declared_are_still_refused():
    program = regression()
    inference = MLCInferenceGraph(graphObjects=[program.graph])
    assert inference.addInputs(program.inputs) and inference.compile(device=cpu())
    for _ in range(2):
        assert inference.execute(inputsData=program.inputs_data(), batchSize=0)
        assert not inference.execute(
            inputsData=program.inputs_data(),
            lossLabelsData=program.labels_data(),
            lossLabelWeightsData=None,
            batchSize=0,
        )
        assert "declared no loss labels" in str(last_refusal())


def test_gradients_of_inputs_are_new_in_a_graph_without_parameters():
    x, t, graph = placeholder(4, 3), placeholder(4, 3), MLCGraph()
    graph.node(MLCActivationLayer.tanh, source=x)
    training = MLCTrainingGraph(graphObjects=[graph], lossLayer=loss(), optimizer=None)
    assert training.addInputs({"x": x}, lossLabels={"t": t})
    assert training.compile(options=MLCGraphCompilationOptions.computeAllGradients, device=cpu())
    for seed in range(3):
        a, b = values(4, 3, seed=seed), values(4, 3, seed=seed + 10)
        assert training.execute(
            inputsData={"x": data(a)}, lossLabelsData={"t": data(b)}, lossLabelWeightsData=None, batchSize=0
        )
        y = np.tanh(a)
        np.testing.assert_allclose(
            array(training.gradientTensor(forInput=x)), 2 * (y - b) * (1 - y**2) / 12, rtol=1e-5, atol=1e-6
        )


def test_a_gradient_tensor_that_waits_is_filled():
    program = regression(widths=(6, 5, 3))
    assert program.compile() and program.execute() and program.phases()
    assert program.training.resultGradientTensors(for_=program.layers[0])
    assert program.execute() and program.bind() and program.forward()
    (waiting,) = program.training.resultGradientTensors(for_=program.layers[0])
    assert waiting.data is None
    assert program.execute()
    assert array(waiting).any()


def test_a_scalar_of_a_program_s_own_module_keeps_its_shape():
    class Total(torch.nn.Module):
        def forward(self, x):
            return x.sum()

    graph, x = MLCGraph(), placeholder(2, 3)
    y = graph.node(TorchLayer(Total()), source=x)
    inference = MLCInferenceGraph(graphObjects=[graph])
    assert inference.addInputs({"x": x}) and inference.compile(device=cpu())
    for scale in (1, 2, 3):
        a = values(2, 3) * scale
        assert inference.execute(inputsData={"x": data(a)}, batchSize=0)
        assert y.numpy().shape == (1,) and y.numpy()[0] == pytest.approx(a.sum(), rel=1e-5)


def test_a_graph_that_is_let_go_goes_at_once():
    program = regression()
    assert program.compile() and program.execute() and program.execute()
    gone = weakref.ref(program.training)
    gc.collect()
    gc.disable()
    try:
        del program
        assert gone() is None
    finally:
        gc.enable()
