"""Programs that end while other threads compute: with their own status, and without a word."""

from __future__ import annotations

import pytest

from tests.swift.toolbox import HERE, complaints, run

pytestmark = pytest.mark.swift


def ended(*words: str) -> tuple[int, list[str], list[str]]:
    done = run(HERE / "behaviour" / "ending.swift", "--", *words)
    return done.returncode, done.stdout.splitlines(), complaints(done)


@pytest.mark.parametrize(("how", "status"), [("exit", 3), ("return", 0), ("exit on another thread", 4)])
def test_while_others_compute(how, status):
    for _ in range(5):
        assert ended(how) == (status, ["leaving", "ordered late", "ordered early"], [])


def test_while_torch_is_imported():
    for milliseconds in range(200, 2200, 200):
        assert ended("start", str(milliseconds)) == (3, ["leaving", "ordered early"], [])


def test_a_long_call_is_not_waited_for():
    status, lines, errors = ended("long")
    assert (status, lines[:2], errors) == (3, ["leaving", "ordered late"], [])
