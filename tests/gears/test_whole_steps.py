"""A training step is one recording until its phases are called one by one; the numbers are those of a loop by hand, and of the
plain gear, whatever is called in between."""

from __future__ import annotations

from contextlib import nullcontext
from functools import partial

import numpy as np
import pytest
import torch
from torch.nn import functional as F

from mlc_torch import (
    MLCArithmeticLayer,
    MLCArithmeticOperation,
    MLCDevice,
    MLCExecutionOptions,
    MLCGraph,
    MLCTrainingGraph,
    unwrap,
)
from mlc_torch.engine import recording
from mlc_torch.engine.captured import Captured
from mlc_torch.engine.mode import Phase
from mlc_torch.engine.staging import Block
from mlc_torch.interop import TorchOptimizer
from mlc_torch.running.state import Variant
from tests.gears import recordings
from tests.gears.plans import mlc_device
from tests.gears.recordings import stand_in
from tests.gears.training import (
    BATCH,
    CLASSES,
    GRAPHS,
    PLAIN,
    batch,
    bind,
    optimizer,
    perceptron,
    step,
    training_graph,
    with_dropout,
    with_dropouts,
)
from tests.graph.programs import array, data, dense, loss, placeholder, sgd, values
from tests.graph.reference_optimizers import SGD, Adam, Settings


@pytest.fixture
def device(torch_device, monkeypatch) -> MLCDevice:
    """A GPU, or what stands in for one."""
    if torch_device.type == "mps":
        pytest.skip("nothing is recorded on MPS")
    if torch_device.type == "cpu":
        stand_in(monkeypatch)
    return mlc_device(torch_device)


class Program:
    """The same calls to a graph that is recorded and to one that is not."""

    def __init__(self, make, device: MLCDevice, kind: str = "adam") -> None:
        self.device, self.networks = device, [make(), make()]
        self.graphs = [
            training_graph(network, device, options, kind)
            for network, options in zip(self.networks, ((), PLAIN), strict=True)
        ]
        self.number = 0

    @property
    def gear(self) -> Captured:
        gear = self.graphs[0]._runs.sessions[Variant.whole].gear
        assert isinstance(gear, Captured)
        return gear

    def execute(self, times: int = 1, samples: int = BATCH) -> None:
        for _ in range(times):
            for graph, network in zip(self.graphs, self.networks, strict=True):
                step(graph, batch(network, self.number), samples)
            self.number += 1
            self.compare()

    def phases(self, times: int = 1) -> None:
        for _ in range(times):
            for graph, network in zip(self.graphs, self.networks, strict=True):
                bind(graph, network, self.number, self.device)
                assert graph.executeForward(batchSize=BATCH, options=[])
                assert graph.executeGradient(batchSize=BATCH, options=[])
                assert graph.executeOptimizerUpdate(options=[])
            self.number += 1
            self.compare()

    def compare(self) -> None:
        for recorded, plain in zip(*(n.parameters + n.statistics for n in self.networks), strict=True):
            torch.testing.assert_close(recorded.torch.cpu(), plain.torch.cpu(), rtol=2e-4, atol=2e-5)


@pytest.mark.parametrize("kind", ["adam", "sgd"])
@pytest.mark.parametrize("make", [*GRAPHS, with_dropouts])
def test_a_step_is_one_recording(make, kind, device):
    program = Program(make, device, kind)
    program.execute(4)
    assert program.gear._step is not None and program.gear._forward is None
    assert [g._runs.sessions[Variant.whole].updater.step for g in program.graphs] == [5, 5]


@pytest.mark.parametrize("kind", ["adam", "sgd"])
def test_steps_and_phases_do_what_a_loop_by_hand_does(kind, device):
    """Gradients by plain torch in 64 bits, updates by NumPy: neither knows of gears."""
    program = Program(perceptron, device, kind)
    start = [p.torch.cpu().double().numpy() for p in program.networks[0].parameters]
    settings = Settings(lr=0.001, regularization="l2", scale=0.001)
    twin = Adam(start, settings) if kind == "adam" else SGD(start, settings, momentum=0.9)
    for graph in program.graphs:
        graph.optimizer.learningRate = 0.001

    def gradients() -> list[np.ndarray]:
        given = batch(program.networks[0], program.number)
        x, y = (torch.from_numpy(np.frombuffer(given[n].bytes, np.float32)).double().view(BATCH, -1) for n in "xy")
        w1, b1, w2, b2, w3, b3 = leaves = [torch.tensor(p, requires_grad=True) for p in twin.params]
        scores = torch.tanh(F.relu(x @ w1.T + b1) @ w2.T + b2) @ w3.T + b3
        return [g.numpy() for g in torch.autograd.grad(F.cross_entropy(scores, y), leaves)]

    for manner in ("execute", "execute", "phases", "execute", "phases"):
        twin.step(gradients())
        getattr(program, manner)()
        for ours, theirs in zip(program.networks[0].parameters, twin.params, strict=True):
            np.testing.assert_allclose(ours.torch.cpu().numpy(), theirs, rtol=0, atol=2e-6)


@pytest.mark.parametrize("make", [perceptron, with_dropout, with_dropouts])
def test_phases_one_by_one_are_recorded_by_themselves_from_then_on(make, device, monkeypatch):
    program = Program(make, device)
    program.execute(2)
    gear = program.gear
    program.phases(2)
    assert gear._step is None and gear._forward is not None
    monkeypatch.setattr(recording, "recorded", None)  # nothing is recorded any more
    program.execute(2)
    program.phases(1)
    assert program.gear is gear and gear._step is None


@pytest.mark.parametrize("manner", ["execute", "phases"])
def test_a_recording_that_fails_is_tried_again(manner, device, monkeypatch):
    """Too little memory when a step is to be recorded anew, or its phases one by one: the next call runs."""
    program = Program(perceptron, device)
    program.execute(2)
    for graph in program.graphs:
        graph.optimizer.appliesGradientClipping = True
    recorded, left = recording.recorded, [1]

    def fail_once(*call):
        if left and left.pop():
            raise torch.OutOfMemoryError("no memory")
        return recorded(*call)

    monkeypatch.setattr(recording, "recorded", fail_once)
    graph, network = program.graphs[0], program.networks[0]
    given = batch(network, program.number)
    if manner == "execute":
        assert not graph.execute(
            inputsData={"x": given["x"]},
            lossLabelsData={"y": given["y"]},
            lossLabelWeightsData=None,
            batchSize=BATCH,
        )
    else:
        bind(graph, network, program.number, device)
        assert not graph.executeForward(batchSize=BATCH, options=[])
    assert not left
    getattr(program, manner)(2)


def test_what_an_optimizer_changes_counts_in_the_next_step(device):
    program = Program(perceptron, device)
    program.execute(2)
    for graph in program.graphs:
        graph.optimizer.learningRate = 0.005
    program.execute(2)
    first = program.gear._step
    for graph in program.graphs:
        graph.optimizer.appliesGradientClipping = True
    program.execute(2)
    assert program.gear._step is not None and program.gear._step is not first


def test_short_batches_have_recordings_of_their_own(device):
    """And each reads the optimizer's numbers, Adam's powers among them, where they are written for it."""
    program = Program(perceptron, device)
    program.execute(2)
    whole = program.gear
    program.execute(3, samples=4)
    assert program.gear is not whole and program.gear._step is not None
    program.execute(2)
    assert program.gear is whole
    program.phases(3)
    program.execute(2, samples=4)
    for graph in program.graphs:
        graph.optimizer.learningRate = 0.005
    program.execute(2, samples=4)
    program.phases(2)


def test_the_gradients_of_a_step_can_be_applied_again(device):
    program = Program(perceptron, device)
    program.execute(2)
    for graph in program.graphs:
        assert graph.executeOptimizerUpdate(options=[])
    program.compare()
    program.execute(2)


@pytest.mark.parametrize("manner", ["execute", "phases"])
def test_an_update_reads_the_gradients_where_they_are_now(manner, device):
    """Not where they were when another update was recorded."""
    program = Program(perceptron, device, "sgd")
    program.execute(2)
    for clips in (False, True, False):
        for graph in program.graphs:
            graph.optimizer.appliesGradientClipping = clips
        if clips:
            getattr(program, manner)(1)
        else:
            for graph in program.graphs:
                assert graph.executeOptimizerUpdate(options=[])
            program.compare()


def test_an_update_that_breaks_off_while_it_is_tried_changes_nothing(device, monkeypatch):
    program = Program(perceptron, device, "sgd")
    program.execute(2)
    graph, rule = program.graphs[0], type(program.graphs[0].optimizer)
    update = rule._update

    def break_off(self, *call, **more):
        update(self, *call, **more)
        raise torch.OutOfMemoryError("no memory")

    monkeypatch.setattr(rule, "_update", break_off)
    assert not graph.executeOptimizerUpdate(options=[])
    monkeypatch.setattr(rule, "_update", update)
    program.compare()
    program.execute(2)


def test_a_recording_that_another_thread_ends_is_made_again(device, monkeypatch):
    program = Program(perceptron, device)
    recorded, left = recording.recorded, [1, 1]

    def ended(*call):
        if left:
            left.pop()
            raise RuntimeError("operation failed due to a previous error during capture")
        return recorded(*call)

    monkeypatch.setattr(torch.cuda, "synchronize", lambda device=None: None)
    monkeypatch.setattr(recording, "recorded", ended)
    program.phases(2)
    assert not left


def test_numbers_that_do_not_travel_with_the_inputs(device, monkeypatch):
    """Where the inputs are on the device already, say."""

    def fill(block, feeds, numbers):
        block.take(feeds)
        return False

    program = Program(perceptron, device)
    monkeypatch.setattr(Block, "fill", fill)
    program.execute(2)
    for graph in program.graphs:
        graph.optimizer.learningRate = 0.005
    program.execute(2)


@pytest.mark.parametrize("kind", ["adam", "sgd"])
@pytest.mark.parametrize("again", [False, True])
def test_another_optimizer(kind, again, device):
    """It begins without what the one before has counted, even if it is of the same kind."""
    program = Program(perceptron, device)
    program.execute(2)
    for graph in program.graphs:
        assert graph.compileOptimizer(optimizer(kind))
        assert not again or graph.executeOptimizerUpdate(options=[])
    program.compare()
    program.execute(2)
    program.phases(2)
    program.execute(1)


def test_the_optimizer_of_torch_decides_on_the_host(device):
    program = Program(perceptron, device)
    for graph in program.graphs:
        assert graph.compileOptimizer(TorchOptimizer(torch.optim.AdamW(graph.to_module().parameters(), lr=0.01)))
    program.execute(3)
    assert program.gear._step is None


def test_gradients_that_somebody_holds_are_filled_by_a_step(device):
    program = Program(perceptron, device)
    asked = []
    for graph, network in zip(program.graphs, program.networks, strict=True):
        (gradient,) = graph.resultGradientTensors(for_=network.graph.layers[0])
        asked.append(gradient)
    program.execute(1)
    recorded, plain = (gradient.torch.cpu() for gradient in asked)
    assert plain.any()
    torch.testing.assert_close(recorded, plain, rtol=2e-4, atol=2e-5)
    assert program.graphs[0]._runs.last.phase is Phase.updated
    assert not program.graphs[0].executeGradient(batchSize=BATCH, options=[])


def test_steps_by_gradients_from_outside(device):
    """Without a loss: what comes back is what the program says."""
    networks, graphs, outside = [perceptron(), perceptron()], [], []
    for network, options in zip(networks, ((), PLAIN), strict=True):
        graph = MLCTrainingGraph(graphObjects=[network.graph], lossLayer=None, optimizer=optimizer())
        assert graph.addInputs({"x": network.source}, lossLabels=None)
        outside.append(unwrap(graph.allocateUserGradient(for_=network.result)))
        assert graph.compile(options=list(options), device=device)
        graphs.append(graph)
    for number in range(4):
        for network, graph, gradient in zip(networks, graphs, outside, strict=True):
            given = data(values(BATCH, CLASSES, seed=number))
            assert graph.bindAndWriteData(
                {"g": given}, forInputs={"g": gradient}, to=device, batchSize=BATCH, synchronous=True
            )
            assert graph.execute(
                inputsData={"x": batch(network, number)["x"]},
                lossLabelsData=None,
                lossLabelWeightsData=None,
                batchSize=BATCH,
            )
        for recorded, plain in zip(*(n.parameters for n in networks), strict=True):
            torch.testing.assert_close(recorded.torch.cpu(), plain.torch.cpu(), rtol=2e-4, atol=2e-5)
    gear = graphs[0]._runs.sessions[Variant.whole].gear
    assert isinstance(gear, Captured) and gear._step is not None


def test_inferences_between_steps(device):
    program = Program(with_dropout, device)
    for _ in range(2):
        program.execute(2)
        seen = []
        for graph, network in zip(program.graphs, program.networks, strict=True):
            options = [MLCExecutionOptions.forwardForInference, MLCExecutionOptions.synchronous]
            given = {"x": batch(network, 7)["x"]}
            assert graph.execute(
                inputsData=given,
                lossLabelsData=None,
                lossLabelWeightsData=None,
                batchSize=BATCH,
                options=options,
                completionHandler=lambda result, *_, seen=seen: seen.append(result.torch.cpu().clone()),
            )
        torch.testing.assert_close(*seen, rtol=1e-4, atol=1e-5)


def test_a_recording_changes_nothing(device):
    """Neither parameters nor statistics, whatever ran to get it."""
    network = with_dropouts()
    before = [t.torch.clone() for t in network.parameters + network.statistics]
    graph = training_graph(network, device)
    assert isinstance(graph._runs.sessions[Variant.whole].prepared, Captured)
    for tensor, old in zip(network.parameters + network.statistics, before, strict=True):
        assert torch.equal(tensor.torch.cpu(), old.cpu())


def test_constants_are_read_where_they_were_bound_last(device):
    """What is no input lies elsewhere each time that it is bound. Gradients by plain torch in 64 bits, updates by NumPy."""
    graph, x, t, c = MLCGraph(), *(placeholder(BATCH, size) for size in (5, 3, 3))
    layer, add = dense(5, 3), MLCArithmeticLayer(operation=MLCArithmeticOperation.add)
    twin = SGD([array(w).astype(np.float64).reshape(3, -1) for w in (layer.weights, layer.biases)], Settings(lr=0.1))
    assert graph.node(add, sources=[graph.node(layer, source=x), c])
    training = MLCTrainingGraph(graphObjects=[graph], lossLayer=loss(), optimizer=sgd(0.1))
    assert training.addInputs({"x": x}, lossLabels={"t": t})
    for number in range(5):
        given, wanted, shift = (values(BATCH, n, seed=20 * n + number) for n in (5, 3, 3))
        shift = shift[::-1].copy()
        assert training.bindAndWriteData({"c": data(shift)}, forInputs={"c": c}, to=device, synchronous=True)
        assert number or training.compile(options=[], device=device)
        assert training.execute(
            inputsData={"x": data(given)}, lossLabelsData={"t": data(wanted)}, lossLabelWeightsData=None,
            batchSize=BATCH,
        )  # fmt: skip
        w, b = leaves = [torch.tensor(p, requires_grad=True) for p in twin.params]
        given, wanted, shift = (torch.from_numpy(a).double() for a in (given, wanted, shift))
        lost = F.mse_loss(given @ w.T + b[:, 0] + shift, wanted)
        twin.step([g.numpy() for g in torch.autograd.grad(lost, leaves)])
        for ours, theirs in zip((layer.weights, layer.biases), twin.params, strict=True):
            np.testing.assert_allclose(ours.torch.cpu().numpy().ravel(), theirs.ravel(), rtol=0, atol=2e-6)
    gear = training._runs.sessions[Variant.whole].gear
    assert isinstance(gear, Captured) and gear._step is not None and gear._constants


def test_a_step_waits_for_copies_out_of_the_program_s_memory(device, monkeypatch):
    program, waited = Program(perceptron, device), []
    program.execute()
    monkeypatch.setattr(Block, "wait_for_inputs", lambda block: waited.append(block))
    program.execute()
    assert waited == [program.gear._block]


class Ranks:
    """An exchange with nobody else: what is sent comes back."""

    def __init__(self) -> None:
        self.sent, self.late = 0, self

    def start_all(self, gradients) -> None:
        self.sent += 1

    def conclude(self) -> None:
        pass

    def reduced(self, gradients):
        return gradients

    def recording(self):
        return nullcontext()

    def opening(self, values) -> None:
        pass

    def unless_refused(self, touched, update) -> None:
        update()


def test_phases_of_processes_that_share_a_batch_are_recorded_one_by_one(monkeypatch):
    """Between the gradient and the update the others' gradients come in."""
    ranks = Ranks()
    stand_in(monkeypatch)
    monkeypatch.setattr(recordings, "Captured", partial(Captured, exchange=ranks))
    program = Program(perceptron, MLCDevice.cpu())
    program.execute(3)
    assert program.gear._step is None and program.gear._backward is not None
    assert ranks.sent >= 3
