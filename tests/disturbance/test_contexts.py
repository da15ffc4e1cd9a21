"""Torch's contexts around a call change nothing of what a graph computes, then and afterwards; unreal ones are refused."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import mlc_torch as mlc
from mlc_torch.running.road import _drive
from mlc_torch.torch_private.modes import SURROUNDINGS
from tests.disturbance.contexts import HARMLESS, UNREAL, quiet_anomalies
from tests.disturbance.subjects import NETWORKS, PHASES, Pair, Subject, normalized, perceptron
from tests.graph.programs import hyper
from tests.interop.programs import data

around = pytest.mark.parametrize("context", HARMLESS.values(), ids=HARMLESS.keys())
networks = pytest.mark.parametrize("network", NETWORKS)
CALLS = {"execute": Subject.execute, "a short batch": Subject.short, "phases": Subject.phases}


def close(pair: Pair) -> None:
    for a, b in zip(pair.subject.parameters, pair.twin.parameters, strict=True):
        np.testing.assert_allclose(a.numpy(), b.numpy(), rtol=1e-5, atol=1e-6)


def steps_inside(context, pair, call):
    """Three, since a batch size gets a plan of its own when it comes again; then one outside."""
    for _ in range(3):
        with context():
            assert call(pair.subject, pair.step), mlc.last_refusal()
        assert call(pair.twin, pair.step)
        pair.step += 1
        close(pair)
    pair.subject.load_from(pair.twin)
    pair.together(call)


@around
@networks
@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS.keys())
def test_a_step(call, network, context):
    pair = Pair(NETWORKS[network])
    steps_inside(context, pair, call)
    pair.together()


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS.keys())
def test_anomaly_detection(call):
    """It changes the order of sums, which only a network that does not amplify rounding can be compared with."""
    pair = Pair(perceptron)
    steps_inside(quiet_anomalies, pair, call)


def test_what_detects_anomalies_finds_them_and_a_graph_compiled_inside_is_fast_outside(capfd):
    """Recorded code has no autograd that could be looked into; and to record it inside filled the terminal with traces."""
    pair = Pair(perceptron, steps=0)
    training = pair.subject.training
    with quiet_anomalies():
        assert pair.subject.compile() and pair.subject.execute(0)
        assert training.summary().why == "torch.autograd.detect_anomaly looks into each module's gradient"
        assert "Error" not in "".join(capfd.readouterr())
        pair.subject.parameters[0].torch.fill_(float("inf"))
        assert not pair.subject.execute(1) and "MseLossBackward0' returned nan values" in str(mlc.last_refusal())
    pair.subject.load_from(pair.twin)
    assert pair.subject.execute(2) and pair.subject.execute(3)
    assert training.summary().gear == "planned"


def test_an_anomaly_is_found_where_a_constant_alone_is_trained():
    """The root of a negative number; no module has a parameter, and the graph was compiled and run before."""
    graph, held = mlc.MLCGraph(), mlc.MLCTensor.from_numpy(np.full((4, 3), 2, np.float32))
    graph.node(mlc.MLCArithmeticLayer(operation=mlc.MLCArithmeticOperation.sqrt), sources=[held])
    optimizer = mlc.MLCSGDOptimizer(descriptor=hyper(0.1))
    error = mlc.MLCLossLayer.meanSquaredError(reductionType=mlc.MLCReductionType.mean, weight=1)
    training = mlc.MLCTrainingGraph(graphObjects=[graph], lossLayer=error, optimizer=optimizer)
    t = mlc.MLCTensor(shape=[4, 3])
    assert training.addInputs({}, lossLabels={"t": t})
    assert training.setTrainingTensorParameters([mlc.MLCTensorParameter(tensor=held)])
    assert training.compile(options=[], device=mlc.MLCDevice.cpu())
    assert training.step((), np.ones((4, 3), np.float32)) > 0
    held.torch.fill_(-1)
    with quiet_anomalies(), pytest.raises(mlc.MLCRefusal, match="returned nan values"):
        training.step((), np.ones((4, 3), np.float32))


@around
@networks
def test_everything_inside(network, context):
    """Made, compiled and run inside, then run outside: plans do not keep what was around when they were made."""
    with context():
        pair = Pair(NETWORKS[network], steps=0)
        pair.twin = NETWORKS[network]()
        for step in range(2):
            if not step:
                assert pair.subject.compile(), mlc.last_refusal()
            assert pair.subject.execute(step) and pair.subject.phases(step) and pair.subject.short(step)
            inside = pair.subject.predictions(step)
    assert pair.twin.compile()
    for step in range(2):
        assert pair.twin.execute(step) and pair.twin.phases(step) and pair.twin.short(step)
    assert inside.dtype == np.float32
    close(pair)
    np.testing.assert_allclose(inside, pair.twin.predictions(1), rtol=1e-4, atol=1e-5)
    pair.step = 2
    pair.subject.load_from(pair.twin)
    for call in (Subject.execute, Subject.short, Subject.phases):
        pair.together(call)


@around
def test_results_have_the_type_of_their_tensors(context):
    """Bytes of the caller's buffer are all written, by an inference and by a training graph."""
    subject, twin = normalized(), normalized()
    assert subject.compile() and twin.compile()
    wanted = twin.predictions(3)
    got = np.full(wanted.shape, np.nan, np.float32)
    with context():
        assert subject.infer(3, outputsData={"y": data(got)}), mlc.last_refusal()
        assert subject.y.data.nbytes == wanted.nbytes
    np.testing.assert_allclose(got, wanted, rtol=1e-5, atol=1e-6)


@around
def test_modules_and_checkpoints(context, tmp_path):
    pair = Pair(normalized)
    with context():
        pair.subject.save(tmp_path / "a")
        module = pair.subject.graph.to_module()
    pair.together()
    with context():
        pair.subject.load(tmp_path / "a")
    pair.twin.load(tmp_path / "a")
    pair.agree()
    pair.together()
    x = torch.from_numpy(np.ones(tuple(pair.subject.x.descriptor.shape), np.float32))
    want = pair.twin.graph.to_module().eval()(x)
    torch.testing.assert_close(module.eval()(x), want)


@pytest.mark.parametrize("inside", UNREAL.values(), ids=UNREAL.keys())
@networks
@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS.keys())
def test_unreal_ones_are_refused(call, network, inside):
    pair = Pair(NETWORKS[network])
    before = pair.subject.learned()
    for phase in (call, Subject.compile, *PHASES):
        assert inside(lambda phase=phase: phase(pair.subject, pair.step)) is False
        assert "cannot be run inside" in str(mlc.last_refusal())
        assert pair.subject.learned() == before
    pair.others_can_call()
    pair.together(call)
    pair.together()


@pytest.mark.parametrize("inside", UNREAL.values(), ids=UNREAL.keys())
def test_unreal_ones_around_an_inference(inside):
    pair = Pair(normalized)
    assert inside(lambda: pair.subject.infer(1)) is False
    assert pair.subject.predictions(1).tobytes() == pair.twin.predictions(1).tobytes()
    pair.together()


def test_the_road_asks_for_all_that_may_surround_a_call():
    """It spells the questions out, to save a call; the list of them holds nothing else."""
    assert SURROUNDINGS.keys() <= set(_drive.__code__.co_names)
    assert "__builtins__" not in SURROUNDINGS and all(not ask() for ask in SURROUNDINGS.values())
