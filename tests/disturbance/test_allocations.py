"""Memory that runs out in the middle of a call: a refusal, nothing half updated, and the next step is the twin's."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch

from tests.disturbance.disturbing import OUT_OF_MEMORY, FailingOperation, entered_inside, spread
from tests.disturbance.subjects import NETWORKS, PHASES, RULES, Pair, Subject, normalized, perceptron
from tests.interop.test_checkpoint_on_disk import environment

CALLS = {"execute": Subject.execute, "a short batch": Subject.short, "phases": Subject.phases}
networks = pytest.mark.parametrize("network", NETWORKS)
SOME = 12
points = pytest.mark.parametrize("points", [SOME, pytest.param(None, marks=pytest.mark.slow)], ids=["some", "all"])


def operations_of(work: Callable[[], Any]) -> int:
    with entered_inside(FailingOperation()) as mode:
        work()
    assert mode.count
    return mode.count


def refused(pair: Pair, mode: FailingOperation, answer: Any) -> None:
    assert mode.fired, f"the call makes only {mode.count} operations"
    assert answer is False, f"{mode.fired} failed, and the call gave {answer!r}"
    assert "there is not enough memory" in pair.why


@points
@networks
@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS.keys())
@pytest.mark.parametrize("kind", OUT_OF_MEMORY)
def test_a_step(kind, call, network, points):
    """Each operation of it fails once, in turn."""
    pair = Pair(NETWORKS[network])
    pair.together(call)
    pair.together(call)
    count, _ = (operations_of(partial(call, one, pair.step)) for one in (pair.subject, pair.twin))
    pair.step += 1
    pair.agree()
    for at in spread(count, points):
        mode = FailingOperation(at, OUT_OF_MEMORY[kind]())
        try:
            refused(pair, mode, pair.disturb(call, entered_inside(mode)))
        except BaseException as error:
            error.add_note(f"operation {at} failed: {mode.fired}")
            raise


@networks
@pytest.mark.parametrize("number", range(1, len(PHASES)), ids=[phase.__name__ for phase in PHASES[1:]])
def test_a_phase(number, network):
    pair = Pair(NETWORKS[network])
    pair.together(Subject.phases)
    counts = [
        [operations_of(partial(p, one, pair.step)) for p in PHASES[1:]] for one in pair.both() if one.bind(pair.step)
    ]
    pair.step += 1
    for at in spread(counts[0][number - 1], SOME):
        mode = FailingOperation(at, torch.OutOfMemoryError("out of memory"))
        try:
            refused(pair, mode, pair.disturb_phase(number, entered_inside(mode)))
        except BaseException as error:
            error.add_note(f"operation {at} failed: {mode.fired}")
            raise


@pytest.mark.parametrize("rule", RULES)
def test_no_optimizer_updates_by_halves(rule):
    """Each operation of an update fails once, and each line of it is interrupted once by the tests beside this one."""
    pair = Pair(partial(perceptron, rule))
    pair.together(Subject.phases)
    for one in pair.both():
        for phase in PHASES[:3]:
            assert phase(one, pair.step)
    count, _ = (operations_of(partial(Subject.update, one, pair.step)) for one in pair.both())
    pair.step += 1
    for at in range(1, count + 1):
        mode = FailingOperation(at, MemoryError())
        refused(pair, mode, pair.disturb_phase(3, entered_inside(mode)))


class Own(Exception):
    """Nothing that torch would raise."""


@networks
def test_any_other_exception_is_raised_as_it_is(network):
    pair = Pair(NETWORKS[network])
    count, _ = (operations_of(partial(Subject.execute, one, pair.step)) for one in pair.both())
    pair.step += 1
    for at in spread(count, SOME):
        raised = Own("as it is")
        mode = FailingOperation(at, raised)
        assert pair.disturb(Subject.execute, entered_inside(mode)) is raised, f"operation {at} failed: {mode.fired}"


def test_handlers_learn_of_it():
    pair, told = Pair(normalized), []

    def execute(one: Subject, step: int) -> bool:
        return one.execute(step, completionHandler=lambda *given: told.append(given))

    for at in (1, 5):
        told.clear()
        mode = FailingOperation(at, MemoryError())
        refused(pair, mode, pair.disturb(execute, entered_inside(mode)))
        result, error, seconds = told[0]
        assert result is None and seconds == 0.0 and "memory" in str(error)


@pytest.mark.parametrize("points", [10, pytest.param(150, marks=pytest.mark.slow)], ids=["some", "many"])
@networks
def test_compiling(network, points):
    """Refused, or compiled in a way that needs less; the graph can be compiled again and then trains as its twin."""
    pair = Pair(NETWORKS[network])
    count, _ = (operations_of(one.compile) for one in pair.both())
    for at in spread(count, points):
        mode = FailingOperation(at, MemoryError())
        answer = pair.answer_of(pair.subject.compile, entered_inside(mode))
        assert mode.fired and answer in (True, False), f"operation {at} failed: {mode.fired}; it gave {answer!r}"
        pair.others_can_call()
        assert pair.subject.compile() and pair.twin.compile()
        pair.together()


LIMITED = """
    import resource
    import numpy as np
    import torch
    import mlc_torch as mlc
    from mlc_torch.torch_private.memory import lacks_memory
    from tests.disturbance.subjects import Pair, perceptron
    from tests.interop.programs import data, dense, device, empty

    pair = Pair(perceptron)
    x, graph = empty(64, 1), mlc.MLCGraph()
    y = graph.node(dense(1, 2**18, "wide", 0), source=x)  # 64 MiB for each of its results
    y = graph.node(mlc.MLCActivationLayer.tanh, source=y)
    large = mlc.MLCInferenceGraph(graphObjects=[graph])
    assert large.addInputs({"x": x}) and large.addOutputs({"y": y})
    assert large.compile(options=[], device=device()), mlc.last_refusal()
    used = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used, resource.RLIM_INFINITY))
    hoard = []  # what the allocator keeps in reserve
    try:
        while True:
            hoard.append(torch.empty(2**21))
    except RuntimeError as error:
        assert lacks_memory(error), error
    given = data(np.zeros((64, 1), np.float32))
    print(large.execute(inputsData={"x": given}, batchSize=64), "not enough memory" in str(mlc.last_refusal()))
    pair.together()
    hoard.clear()
    resource.setrlimit(resource.RLIMIT_AS, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    print(large.execute(inputsData={"x": given}, batchSize=64))
    pair.together()
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="limits of address space are kept on Linux")
def test_for_real():
    """A process with a limit on its memory: the large graph is refused, the small one goes on; then the limit is lifted."""
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", textwrap.dedent(LIMITED)],
        env=environment() | {"OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.stdout.split() == ["False", "True", "True"] and done.returncode == 0, done.stdout + done.stderr
