"""Ctrl-C at every line of the library's part of a call: the graph answers, and its numbers are those of a twin."""

from __future__ import annotations

import signal
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import mlc_torch as mlc
from mlc_torch.interop.checkpoint_file import read_file
from mlc_torch.refusals import is_strict
from tests.disturbance.disturbing import AROUND, TORCH_S_OPTIMIZERS, Lines, lines_of, spread
from tests.disturbance.subjects import BATCH, NETWORKS, PHASES, RULES, Pair, Subject, perceptron

SOME, ALL = 24, None
points = pytest.mark.parametrize("points", [SOME, pytest.param(ALL, marks=pytest.mark.slow)], ids=["some", "all"])
networks = pytest.mark.parametrize("network", NETWORKS)
CALLS = {"execute": Subject.execute, "a short batch": Subject.short, "phases": Subject.phases}


def interrupted(lines: Lines, answer: object, kind: type[BaseException] = KeyboardInterrupt) -> None:
    if not lines.where and answer is True:
        # A file's parser, or Python's own library, may do with a few lines fewer than when they were counted.
        assert lines.count > 0.95 * lines.at, f"the call has only {lines.count} lines"
        return
    assert isinstance(answer, kind), f"interrupted at {lines.where}, it gave {answer!r}"


def strike(at: int, disturb: Callable[[Lines], object], others: tuple[str, ...] = AROUND) -> None:
    """Interrupt at a line, and tell which one it was if something goes wrong."""
    lines = Lines(at, others=others)
    try:
        interrupted(lines, disturb(lines))
    except BaseException as error:
        error.add_note(f"interrupted at line {at}: {lines.where}")
        raise


@points
@networks
@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS.keys())
def test_a_step(call, network, points):
    pair = Pair(NETWORKS[network])
    pair.together(call)
    pair.together(call)
    whole, _ = (lines_of(partial(call, one, pair.step)) for one in (pair.subject, pair.twin))
    pair.step += 1
    for at in whole.points(points):
        strike(at, partial(pair.disturb, call))


@points
@networks
@pytest.mark.parametrize("number", range(len(PHASES)), ids=[phase.__name__ for phase in PHASES])
def test_a_phase(number, network, points):
    pair = Pair(NETWORKS[network])
    pair.together(Subject.phases)
    pair.together(Subject.phases)
    wholes = [[lines_of(partial(phase, one, pair.step)) for phase in PHASES] for one in (pair.subject, pair.twin)]
    pair.step += 1
    for at in wholes[0][number].points(points):
        strike(at, partial(pair.disturb_phase, number))


@pytest.mark.parametrize("points", [10, pytest.param(ALL, marks=pytest.mark.slow)], ids=["some", "all"])
@networks
def test_a_first_step(network, points):
    """The first after ``compile`` makes what later ones find. Interrupted are some of its lines, and all of the update's."""
    pair = Pair(NETWORKS[network])

    def anew() -> None:
        assert pair.subject.compile() and pair.twin.compile()

    anew()
    whole, _ = (lines_of(partial(Subject.execute, one, pair.step)) for one in (pair.subject, pair.twin))
    pair.step += 1
    for at in sorted({*whole.points(points), *whole.of_file("updater.py")}):
        anew()
        strike(at, partial(pair.disturb, Subject.execute))


def test_behind_it_refusals_are_answers_again():
    """``step`` asks for exceptions in place of answers: no Ctrl-C leaves it at that."""
    pair = Pair(perceptron)
    training, given = pair.subject.training, pair.subject.given(0)
    training.step(*given)
    whole = lines_of(lambda: training.step(*given))
    # Python looks for signals when a call returns or begins: between the last one and this line's own there is no place for one.
    ends = "strictness.set(before)"
    for at in sorted({*whole.of_file("fit.py", but=ends), *whole.of_file("refusals.py", but=ends)}):
        lines = Lines(at)
        answer = pair.answer_of(lambda: bool(training.step(*given)), lines)
        interrupted(lines, answer)
        assert not is_strict(), f"interrupted at {lines.where}"
    assert not training.execute(inputsData={}, lossLabelsData={}, lossLabelWeightsData=None, batchSize=BATCH)


def twice(at: int, points: int | None, disturb: Callable[[Lines], object]) -> None:
    """Interrupt at a line, and again at each line, or some, that runs because of that."""
    counted = Lines(at, again=sys.maxsize)
    interrupted(counted, disturb(counted))
    for again in spread(counted.since, points):
        lines = Lines(at, again=again)
        try:
            interrupted(lines, disturb(lines))
        except BaseException as error:
            error.add_note(f"interrupted at line {at} and at the {again}. behind it: {lines.where}")
            raise


FEW = (3, 6)
seconds = pytest.mark.parametrize(
    ("points", "behind"), [FEW, pytest.param(60, None, marks=pytest.mark.slow)], ids=["some", "all"]
)


@seconds
@networks
def test_a_second_one(network, points, behind):
    """Ctrl-C while the graph recovers from one."""
    pair = Pair(NETWORKS[network])
    whole, _ = (lines_of(partial(Subject.execute, one, pair.step)) for one in (pair.subject, pair.twin))
    pair.step += 1
    for at in whole.points(points):
        twice(at, behind, partial(pair.disturb, Subject.execute))


@seconds
@pytest.mark.parametrize("rule", RULES)
def test_a_second_one_in_an_update(rule, points, behind):
    pair = Pair(partial(perceptron, rule))
    pair.together(Subject.phases)
    wholes = [[lines_of(partial(phase, one, pair.step)) for phase in PHASES] for one in (pair.subject, pair.twin)]
    pair.step += 1
    for at in wholes[0][-1].points(points):
        twice(at, behind, partial(pair.disturb_phase, len(PHASES) - 1))


@points
@pytest.mark.parametrize("rule", [name for name in RULES if name.startswith("torch")])
def test_a_step_of_torch_s_optimizer(rule, points):
    """It goes from parameter to parameter; interrupted between two, the step is undone."""
    pair, others = Pair(partial(perceptron, rule)), (*AROUND, TORCH_S_OPTIMIZERS)
    whole, _ = (lines_of(partial(Subject.execute, one, pair.step), others) for one in (pair.subject, pair.twin))
    pair.step += 1
    for at in whole.points(points):
        strike(at, partial(pair.disturb, Subject.execute), others)


@points
def test_inference(points):
    pair = Pair(perceptron)
    want = pair.twin.predictions(7)
    for step in range(3):
        pair.subject.predictions(step)
    whole = lines_of(partial(pair.subject.infer, 7))
    for at in whole.points(points):
        lines = Lines(at)
        answer = pair.answer_of(lambda: pair.subject.infer(8), lines)
        interrupted(lines, answer)
        pair.others_can_call()
        assert pair.subject.predictions(7).tobytes() == want.tobytes(), f"interrupted at {lines.where}"
    pair.together()


@pytest.mark.parametrize("points", [8, pytest.param(ALL, marks=pytest.mark.slow)], ids=["some", "all"])
@networks
def test_compiling(network, points):
    """Interrupted, the graph refuses until it is compiled again, or is compiled; then it trains as the twin does.

    Some lines run ten thousand times; interrupted is the last one of them.
    """
    pair = Pair(NETWORKS[network])
    whole = lines_of(pair.subject.compile)
    pair.twin.compile()
    for at in whole.each_once() if points is ALL else whole.points(points):
        lines = Lines(at)
        answer = pair.answer_of(pair.subject.compile, lines)
        try:
            interrupted(lines, answer)
            pair.others_can_call()
            subject, before, moved = pair.subject, pair.subject.learned(), pair.subject.moved()
            answered = subject.execute(pair.step)  # as compiled before, or refused
            assert pair.twin.execute(pair.step)
            assert subject.learned() == (pair.twin.learned() if answered else before)
            assert subject.compile() and pair.twin.compile()
            if not answered:
                subject.move_back(moved)
                assert subject.execute(pair.step), mlc.last_refusal()
            pair.step += 1
            pair.agree()
            pair.together()
        except BaseException as error:
            error.add_note(f"interrupted at line {at}: {lines.where}")
            raise


class OutOfTime(Exception):
    """What a program's own signal handler raises."""


@networks
def test_a_signal_handler_s_own_exception(network):
    """It comes out of compile, and does not pass for a reason why the graph cannot be recorded."""

    def handler(*_: object) -> None:
        raise OutOfTime

    def ring() -> BaseException:
        signal.raise_signal(signal.SIGINT)
        return AssertionError("the handler was not called")

    pair, before = Pair(NETWORKS[network]), signal.signal(signal.SIGINT, handler)
    try:
        whole = lines_of(pair.subject.compile)
        pair.twin.compile()
        for at in spread(whole.count, 12):
            lines = Lines(at, ring)
            answer = pair.answer_of(pair.subject.compile, lines)
            interrupted(lines, answer, OutOfTime)
            assert pair.subject.compile() and pair.twin.compile()
    finally:
        signal.signal(signal.SIGINT, before)
    pair.together()


def contents(path: Path) -> dict[str, Any]:
    """What a checkpoint holds; its bytes depend on the order in which the library puts them."""
    tensors, about = read_file(path)
    return about | {name: tensor.numpy().tobytes() for name, tensor in tensors.items()}


@points
@networks
def test_saving(network, points, tmp_path):
    """The file is the old one or the new one; what is left beside it goes with the next save."""
    pair, path = Pair(NETWORKS[network]), tmp_path / "a"
    pair.subject.save(path)
    whole = lines_of(partial(pair.subject.save, path))
    for at in whole.points(points):
        pair.together()
        old, lines = contents(path), Lines(at)
        answer = pair.answer_of(partial(pair.subject.save, path), lines)
        interrupted(lines, answer)
        pair.others_can_call()
        written = contents(path)
        pair.subject.save(path)
        assert written in (old, contents(path)), f"interrupted at {lines.where}"
        assert [p.name for p in tmp_path.iterdir()] == ["a"], f"interrupted at {lines.where}"
        pair.agree()


@points
@networks
def test_loading(network, points, tmp_path):
    """Everything is as it was, or as in the file."""
    pair, path = Pair(NETWORKS[network]), tmp_path / "a"
    pair.twin.save(path)
    saved, moved_then = pair.twin.learned(), pair.twin.moved()
    pair.together()
    whole = lines_of(partial(pair.subject.load, path))
    pair.twin.load(path)
    pair.together()
    for at in whole.points(points):
        before, moved, lines = pair.subject.learned(), pair.subject.moved(), Lines(at)
        answer = pair.answer_of(partial(pair.subject.load, path), lines)
        try:
            interrupted(lines, answer)
            pair.others_can_call()
            now = pair.subject.learned()
            assert now in (before, saved)
            want = moved if now == before else moved_then
            assert all(a.equal(b) for a, b in zip(pair.subject.moved(), want, strict=True))
            if now == saved:
                pair.twin.load(path)
            pair.agree()
            pair.together()
        except BaseException as error:
            error.add_note(f"interrupted at line {at}: {lines.where}")
            raise
