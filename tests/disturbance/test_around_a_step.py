"""Ctrl-C at every line of the calls around a step: what they change is changed for everybody, or for nobody."""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch.fx.experimental.proxy_tensor import make_fx

import mlc_torch as mlc
from tests.disturbance.disturbing import Lines, lines_of
from tests.disturbance.subjects import BATCH, NETWORKS, Pair
from tests.interop.programs import data, dense, device, empty, numbers, settings, squared_error


def interrupt(call: Callable[[], object], lines: Lines) -> None:
    try:
        with lines:
            call()
    except KeyboardInterrupt:
        return


def test_binding_a_weight():
    """What the graph shows is what it computes with; the tensor lies in the old memory or in the new."""
    pair = Pair(NETWORKS["perceptron"])
    subject = pair.subject
    weights = subject.parameters[0]

    def bind(values: np.ndarray) -> bool:
        given = {"w": data(values)}
        return subject.training.bindAndWriteData(given, forInputs={"w": weights}, to=device(), synchronous=True)

    bind(weights.numpy().copy())
    whole = lines_of(lambda: bind(weights.numpy().copy()))
    for at in range(1, whole.count + 1):
        before = weights.numpy().copy()
        lines = Lines(at)
        interrupt(lambda values=before * 0.5: bind(values), lines)
        now = weights.numpy().copy()
        assert np.array_equal(now, before) or np.array_equal(now, before * 0.5), lines.where
        w1, b1, w2, b2 = (t.numpy().astype(np.float64).reshape(-1) for t in subject.parameters)
        x = np.frombuffer(subject.given(at)[0]["x"]._bytes, np.float32).reshape(BATCH, 5).astype(np.float64)
        expected = np.tanh(x @ w1.reshape(6, 5).T + b1) @ w2.reshape(3, 6).T + b2
        np.testing.assert_allclose(subject.predictions(at), expected, rtol=1e-4, atol=1e-5, err_msg=lines.where)
        assert subject.execute(at), mlc.last_refusal()
        assert not np.array_equal(weights.numpy(), now), f"interrupted at {lines.where}, nothing is learned any more"
        with torch.no_grad():
            weights.torch.copy_(torch.from_numpy(numbers(*weights.descriptor.shape)))


def test_binding_an_optimizer_s_state():
    """It counts from the next step on, or never."""

    def learned(at: int | None, binds: bool = True) -> list[bytes]:
        subject = NETWORKS["perceptron"]("momentum")
        assert subject.compile() and all(subject.execute(step) for step in range(2))
        tensor = subject.parameters[0]
        given = [data(np.full(tensor.descriptor.shape, 0.5, np.float32))]
        if binds:
            lines = Lines(at)
            interrupt(lambda: subject.training.bindOptimizerData(given, deviceData=None, with_=tensor), lines)
            counted.append(lines)
        found = []
        for step in (2, 3):
            assert subject.execute(step)
            found.append(tensor.numpy().tobytes())
        assert subject.compile() and subject.execute(4)
        return [*found, tensor.numpy().tobytes()]

    counted: list[Lines] = []
    learned(None)  # what only a first time does
    bound, never = learned(None), learned(None, binds=False)
    assert bound != never
    for at in counted[1].of_file("state.py"):
        assert learned(at) in (bound, never), f"interrupted at {counted[-1].where}"
        assert counted[-1].where


def test_linking():
    """Both graphs know of the other, or neither does: then the lower one has nothing to differentiate, and says so."""

    def linked(at: int | None) -> tuple[list[bool], bool, Lines]:
        lower, upper = mlc.MLCGraph(), mlc.MLCGraph()
        first, second = dense(3, 4, "first", 0), dense(4, 2, "second", 1)
        x, t = empty(BATCH, 3), empty(BATCH, 2)
        upper.node(second, source=lower.node(first, source=x))
        rules = [mlc.MLCSGDOptimizer(descriptor=settings()) for _ in range(2)]
        one = mlc.MLCTrainingGraph(graphObjects=[lower], lossLayer=None, optimizer=rules[0])
        two = mlc.MLCTrainingGraph(graphObjects=[upper], lossLayer=squared_error(), optimizer=rules[1])
        assert one.addInputs({"x": x}, lossLabels=None) and two.addInputs({}, lossLabels={"t": t})
        for graph in (one, two):
            assert graph.compile(options=[mlc.MLCGraphCompilationOptions.linkGraphs], device=device())
        lines = Lines(at)
        interrupt(lambda: one.link(with_=[two]), lines)
        for graph, name, tensor in ((one, "x", x), (two, "t", t)):
            given = {name: data(numbers(*tensor.descriptor.shape))}
            assert graph.bindAndWriteData(given, forInputs={name: tensor}, to=device(), synchronous=True)
        before = first.weights.numpy().copy()
        said = [one.executeForward(batchSize=0), two.executeForward(batchSize=0), two.executeGradient(batchSize=0)]
        said += [one.executeGradient(batchSize=0), one.executeOptimizerUpdate(), two.executeOptimizerUpdate()]
        return said, not np.array_equal(before, first.weights.numpy()), lines

    linked(None)  # what only a first time does
    said, learned, whole = linked(None)
    assert all(said) and learned
    for at in range(1, whole.count + 1, 3):
        said, learned, lines = linked(at)
        assert all(said) == learned, f"interrupted at {lines.where}: {said}, and the lower graph learned: {learned}"


def test_linking_one_more():
    """Two graphs that are linked stay so, and a third is linked with both or with neither."""

    def linked(at: int | None) -> tuple[list[set[int]], Lines]:
        graphs = [mlc.MLCInferenceGraph(graphObjects=[mlc.MLCGraph()]) for _ in range(3)]
        assert graphs[0].link(with_=[graphs[1]])
        lines = Lines(at)
        interrupt(lambda: graphs[0].link(with_=[graphs[2]]), lines)
        return [{graphs.index(other) for other in graph._linked} for graph in graphs], lines

    before, after = [{1}, {0}, set()], [{1, 2}, {0, 2}, {0, 1}]
    found, whole = linked(None)
    assert found == after
    for at in range(1, whole.count + 1):
        found, lines = linked(at)
        assert found in (before, after), f"interrupted at {lines.where}: {found}"


@pytest.mark.filterwarnings("ignore")
@pytest.mark.usefixtures("only_what_is_new")
def test_profiling():
    """The graph runs as before, and can be profiled again."""
    pair = Pair(NETWORKS["perceptron"])
    training = pair.subject.training

    def profile() -> None:
        with training.profile():
            pass

    profile()
    whole = lines_of(profile)
    ours = sorted({*whole.of_file("profile.py"), *whole.of_file("declaring.py")})
    for at in ours[4:34:2]:  # as the block is entered and left; behind that, only what it saw is added up
        lines = Lines(at)
        interrupt(profile, lines)
        gc.collect()  # struck before its end could do anything, a profile ends when it is gone
        assert training._runs.forced_options == 0, f"interrupted at {lines.where}"
        with training.profile() as report:
            assert pair.subject.execute(pair.step) and pair.twin.execute(pair.step)
        assert report.layers
        pair.step += 1


@pytest.mark.filterwarnings("ignore:.torch.jit.trace")
def test_in_code_that_torch_writes_down():
    """Refused before anything is done: torch would end the process, or a step would be made and called refused."""
    pair = Pair(NETWORKS["perceptron"])
    before = pair.subject.learned()
    said: list[bool] = []

    def stepping(x: torch.Tensor) -> torch.Tensor:
        said.append(pair.subject.execute(pair.step))
        return x + 1

    make_fx(stepping)(torch.ones(2))
    assert said == [False] and "make_fx" in mlc.last_refusal().reason
    assert pair.subject.learned() == before

    def compiling(x: torch.Tensor) -> torch.Tensor:
        said.append(pair.subject.training.compile(options=[], device=device()))
        return x + 1

    torch.jit.trace(compiling, torch.ones(2), check_trace=False)
    assert said == [False, False] and "torch.jit.trace" in mlc.last_refusal().reason
    pair.together()


def test_too_deep_a_recursion_is_the_program_s_own():
    pair = Pair(NETWORKS["perceptron"])

    def deep(left: int) -> bool:
        return deep(left - 1) if left else pair.subject.execute(pair.step)

    ends = []
    limit = sys.getrecursionlimit()
    depth, frame = 0, sys._getframe()
    while frame is not None:
        depth, frame = depth + 1, frame.f_back
    try:
        sys.setrecursionlimit(depth + 120)
        for left in range(60, 120):
            try:
                ends.append(deep(left))
            except RecursionError:
                ends.append(None)
    finally:
        sys.setrecursionlimit(limit)
    assert True in ends and None in ends and False not in ends
