"""Ctrl-C whose traceback somebody keeps, as a notebook does: Python ends a block that was struck as it was left only when that
traceback goes. By then the program has gone on, and nothing of what it did since may be taken back."""

from __future__ import annotations

import gc

import torch

from tests.disturbance.disturbing import Lines, lines_of
from tests.disturbance.subjects import NETWORKS, Pair


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
