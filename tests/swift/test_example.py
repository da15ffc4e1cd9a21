"""The Swift example, as the documentation tells to run it."""

from __future__ import annotations

import re

import pytest

from tests.swift.toolbox import HERE, complaints, run

ROOT = HERE.parents[1]
PROGRAM = "examples/swift/linear_regression.swift"


def test_the_page_shows_the_command():
    page = (ROOT / "docs" / "swift.md").read_text("utf-8")
    assert f"mlc-torch swift run {PROGRAM}" in page and PROGRAM in (ROOT / "README.md").read_text("utf-8")


@pytest.mark.swift
def test_the_example_prints_what_the_page_says():
    done = run(PROGRAM, cwd=ROOT)
    assert (done.returncode, complaints(done)) == (0, [])
    page = (ROOT / "docs" / "swift.md").read_text("utf-8")
    shown = re.search(rf"swift run {PROGRAM}\n```\n+```text\n(.*?)```", page, re.DOTALL)
    assert shown and done.stdout == shown[1]
    # The line that was asked for, whatever the page says.
    weight, bias = map(float, re.search(r"weight ([\d.]+), bias ([\d.]+)", done.stdout).groups())
    assert (weight, bias) == (pytest.approx(2, abs=1e-3), pytest.approx(5, abs=1e-3))
