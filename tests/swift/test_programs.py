"""Swift programs whose output equals that of the same program in Python, digit for digit."""

from __future__ import annotations

import subprocess

import pytest

from tests.swift.toolbox import HERE, PATHS, environment, host, run

pytestmark = pytest.mark.swift

PROGRAMS = HERE / "programs"
NAMES = sorted(path.parent.name for path in PROGRAMS.glob("*/main.swift"))


def test_there_are_eight():
    assert len(NAMES) >= 8


@pytest.mark.parametrize("how", [["-swift-version", "5"], ["-O", "-swift-version", "6"]], ids=["5-Onone", "6-O"])
@pytest.mark.parametrize("name", NAMES)
def test_a_program_and_its_twin(name, how):
    files = [PROGRAMS / name / "main.swift", PROGRAMS / "Helpers.swift"]
    found = run(*files, *(f"--swiftc={flag}" for flag in [*how, "-warnings-as-errors"]))
    assert found.returncode == 0, found.stderr
    twin = subprocess.run(
        [*host(), PROGRAMS / name / "twin.py"],
        env=environment() | {"PYTHONPATH": f"{PROGRAMS}:{PATHS}"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert found.stdout == twin.stdout and len(found.stdout.splitlines()) > 4
