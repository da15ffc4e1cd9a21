"""Calls that a program makes in the middle of another one, from a signal handler, a hook or a module: refused, or harmless.

The step that they struck is the twin's, which was left alone.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch

import mlc_torch as mlc
from mlc_torch.interop import TorchLayer, load_checkpoint, save_checkpoint
from mlc_torch.refusals import MLCRefusal
from tests.disturbance.disturbing import Lines, lines_of
from tests.disturbance.subjects import BATCH, NETWORKS, RULES, Pair, Subject, perceptron
from tests.disturbance.test_interruptions import ALL, SOME
from tests.interop.programs import device, empty, numbers

points = pytest.mark.parametrize("points", [SOME, pytest.param(ALL, marks=pytest.mark.slow)], ids=["some", "all"])
MIDST = "this thread is in the middle of MLCTrainingGraph.execute"


def executed(subject: Subject) -> None:
    assert subject.execute(7) is False
    assert MIDST in str(mlc.last_refusal())


def evaluated(subject: Subject) -> None:
    with pytest.raises(MLCRefusal, match=MIDST):
        subject.training.evaluate([subject.given(8)])


def compiled(subject: Subject) -> None:
    assert subject.training.compile(options=[], device=device()) is False


def given_another_rule(subject: Subject) -> None:
    assert subject.training.compileOptimizer(RULES["SGD"](subject.graph)) is False


def saved(subject: Subject, path: Path) -> None:
    with pytest.raises(MLCRefusal, match=MIDST):
        save_checkpoint(subject.training, path)
    with pytest.raises(MLCRefusal, match=MIDST):
        save_checkpoint(subject.inference, path)
    with pytest.raises(MLCRefusal, match=MIDST):
        load_checkpoint(subject.training, path)


def inferred(subject: Subject) -> None:
    assert subject.infer(9)


CALLS: dict[str, Callable[[Subject], None]] = {
    "execute": executed,
    "evaluate": evaluated,
    "compile": compiled,
    "compileOptimizer": given_another_rule,
    "save and load": partial(saved, path=Path("nowhere")),
    "another graph": inferred,
}


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS.keys())
def test_from_a_hook(call):
    pair = Pair(perceptron)
    seen = []

    def hook(gradient: torch.Tensor) -> None:
        call(pair.subject)
        seen.append(gradient)

    handle = pair.subject.training.register_gradient_hook(pair.subject.y, hook)
    pair.twin.training.register_gradient_hook(pair.twin.y, lambda gradient: None)
    pair.together()
    pair.together()
    assert len(seen) == 2
    handle.remove()
    pair.together()


def state_of(subject: Subject) -> tuple[Any, ...]:
    """Everything that a checkpoint holds."""
    return subject.learned(), [value.numpy().tobytes() for value in subject.moved()]


@pytest.mark.parametrize("network", NETWORKS)
@pytest.mark.parametrize("what", ["evaluate", "save"])
@points
def test_from_a_signal_handler(what, network, points, tmp_path):
    """It may strike at any line, also before and after the step itself, where nothing speaks against the call."""
    pair, path, probe = Pair(NETWORKS[network]), tmp_path / "a", NETWORKS[network]()
    assert probe.compile() and probe.execute(0)
    pair.together()
    pair.together()
    whole, _ = (lines_of(partial(Subject.execute, one, pair.step)) for one in (pair.subject, pair.twin))
    pair.step += 1
    subject = pair.subject

    def handler() -> None:
        try:
            if what == "save":
                save_checkpoint(subject.training, path)
            else:
                subject.training.evaluate([subject.given(8)])
        except MLCRefusal as why:
            assert MIDST in str(why)  # noqa: PT017 - anything else it raises comes out of the call

    for at in sorted({*whole.points(points), *whole.of_file("updater.py")}):  # where a step is half made
        path.unlink(missing_ok=True)
        before, lines = state_of(subject), Lines(at, handler)
        try:
            assert pair.answer_of(lambda: subject.execute(pair.step), lines) is True
            pair.others_can_call()
            assert pair.twin.execute(pair.step)
            pair.step += 1
            pair.agree()
            if path.exists():
                load_checkpoint(probe.training, path)
                assert state_of(probe) in (before, state_of(subject))
        except BaseException as error:
            error.add_note(f"struck at line {at}: {lines.where}")
            raise


def test_what_a_signal_handler_is_refused_may_end_the_step():
    """Not caught, the refusal comes out of the step that it struck, which was not made; the next one is the twin's."""
    pair = Pair(perceptron)
    whole, _ = (lines_of(partial(Subject.execute, one, pair.step)) for one in (pair.subject, pair.twin))
    pair.step += 1

    def handler() -> None:
        pair.subject.training.evaluate([pair.subject.given(8)])

    answers = [pair.disturb(Subject.execute, Lines(at, handler)) for at in whole.points(SOME)]
    assert not all(answer is True for answer in answers)


class Calling(torch.nn.Module):
    """Runs the graph that runs it."""

    graph: Any = None

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.graph is not None:
            assert self.graph.execute(inputsData={"x": numbers(BATCH, 5)}, batchSize=BATCH, options=[]) is False
            assert "in the middle of MLCInferenceGraph.execute" in str(mlc.last_refusal())
        return x * 2


@pytest.mark.parametrize("awaits", [False, True])
def test_a_module_that_calls_its_own_graph(awaits):
    module, x, graph = Calling(), empty(BATCH, 5), mlc.MLCGraph()
    y = graph.node(TorchLayer(module), source=x)
    inference = mlc.MLCInferenceGraph(graphObjects=[graph])
    assert inference.addInputs({"x": x})
    assert inference.compile(options=[mlc.MLCGraphCompilationOptions.debugLayers], device=device())
    given = numbers(BATCH, 5, seed=3)
    for module.graph in (None, inference, inference):
        if awaits:
            asyncio.run(inference.executeAsync(inputsData={"x": given}, batchSize=BATCH))
        else:
            assert inference.execute(inputsData={"x": given}, batchSize=BATCH, options=[])
        assert (y.numpy() == given * 2).all()


def test_a_graph_that_is_made_while_another_one_meets_a_thread():
    """No lock is held there that a signal handler could wait for."""
    subject = perceptron()
    assert subject.compile()
    users = subject.inference._users
    made = []
    count = lines_of(users.add).count
    assert count > 3
    for at in range(1, count + 1):
        with Lines(at, lambda: made.append(mlc.MLCInferenceGraph(graphObjects=[subject.graph]))):
            users.add()
    assert len(made) == count
