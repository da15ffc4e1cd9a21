"""Ctrl-C whose traceback somebody keeps, as a notebook does: Python ends a block that was struck as it was left only when that
traceback goes. By then the program has gone on, and nothing of what it did since may be taken back."""

from __future__ import annotations

import gc

import pytest
import torch

from mlc_torch.device import randomness
from mlc_torch.testing import seeded
from tests.disturbance.disturbing import Lines, lines_of
from tests.disturbance.subjects import NETWORKS, Pair

pytestmark = pytest.mark.usefixtures("only_what_is_new")


def test_of_a_seeded_block_gone_after_more_numbers():
    """Wherever it strikes, the numbers are those from before the block, or begin again at its seed; later nothing moves them."""
    stream = randomness.stream(torch.device("cpu"))

    def block() -> None:
        with seeded(1):
            torch.rand(2, generator=stream)

    block()  # what only a first time does
    whole = lines_of(block)
    came_back = 0
    for at in range(1, whole.count + 1):
        randomness.reseed(5)
        torch.rand(3, generator=stream)
        before, kept = stream.get_state(), []
        try:
            with Lines(at):
                block()
        except KeyboardInterrupt as struck:
            kept.append(struck)
        assert kept
        assert randomness.seed in (5, 1)
        came_back += randomness.seed == 5
        assert (randomness.seed == 5) == torch.equal(stream.get_state(), before), "all of it came back, or nothing"
        torch.rand(1, generator=stream)
        now = stream.get_state()
        kept.clear()
        gc.collect()
        assert torch.equal(stream.get_state(), now)
    randomness.reseed(None)
    assert came_back > whole.count * 0.8


def test_of_compile_gone_in_the_middle_of_the_next():
    """The dropout of the next recording is still that recording's own."""
    pair = Pair(NETWORKS["normalized"])
    subject = pair.subject
    whole = lines_of(subject.compile)
    drawn = min(whole.of_file("noise.py"))
    struck = 0
    for at in whole.of_file("contextlib.py")[::2]:
        first = Lines(at)
        kept = [pair.answer_of(subject.compile, first)]

        def let_go(kept: list[object] = kept) -> None:
            kept.clear()
            gc.collect()

        with Lines(drawn, error=let_go) as second:
            assert subject.compile()
        struck += bool(first.where and second.where.startswith("noise.py"))
        assert subject.training.summary().gear == "planned", f"interrupted at {first.where}, gone at {second.where}"
    assert struck > 5


def test_of_a_late_look_gone_after_more_steps():
    """A late result is computed with the dropout of its pass; the streams go back to where they were at once."""

    def begun() -> Pair:
        pair = Pair(NETWORKS["normalized"])
        for one in pair.both():
            assert one.bind(pair.step) and one.forward(pair.step)
        return pair

    def look(pair: Pair) -> bool:
        (tensor,) = pair.subject.training.resultTensors(for_=pair.subject.graph.layers[1])
        return tensor is not None

    look(begun())  # what only a first time does
    counted = begun()
    whole = lines_of(lambda: look(counted))
    struck = set()
    for at in range(max(whole.of_file("plain.py")), max(whole.of_file("undo.py")) + 3):
        pair = begun()
        lines = Lines(at)
        kept = [pair.answer_of(lambda pair=pair: look(pair), lines)]
        struck.add(lines.where)
        assert torch.is_grad_enabled(), f"interrupted at {lines.where}"
        for one in pair.both():
            assert one.gradient(pair.step) and one.update(pair.step)
        pair.step += 1
        try:
            pair.agree()
            pair.together()
            kept.clear()
            gc.collect()
            pair.agree()
            pair.together()
        except AssertionError as error:
            error.add_note(f"interrupted at {lines.where}")
            raise
    assert len(struck) > 5
