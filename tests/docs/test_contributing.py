"""The recipes of CONTRIBUTING.md, followed to the letter in a copy of the project."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.docs.pages import ROOT

PAGE = ROOT / "CONTRIBUTING.md"
RECIPES = ["A new layer", "A new optimizer", "A new command"]

_BLOCK = re.compile(r"^( *)```(python|sh)\n(.*?)^\1```$", re.DOTALL | re.MULTILINE)
_COPIED = ["mlc_torch", "tests", "tools", "_mlc_torch_pytest.py", "pyproject.toml"]


def section(title: str) -> str:
    (found,) = re.findall(
        rf"^## {re.escape(title)}\n(.*?)(?=^## |\Z)", PAGE.read_text("utf-8"), re.DOTALL | re.MULTILINE
    )
    return found


def blocks(title: str) -> list[tuple[str, str]]:
    """Language and text of the blocks of a section, those inside a list brought to the margin."""
    return [
        (language, re.sub(rf"^{indent}", "", text, flags=re.MULTILINE))
        for indent, language, text in _BLOCK.findall(section(title))
    ]


def follow(text: str, project: Path) -> None:
    """Do what the first line of a block says with the rest of it."""
    head, _, body = text.partition("\n")
    if head.startswith("# new file: "):
        path = project / head.removeprefix("# new file: ")
        assert not path.exists(), f"{path.name} is there already"
        path.write_text(body, encoding="utf-8")
        return
    named = re.fullmatch(r"# in (\S+), after: (.*)", head)
    assert named is not None, f"a block must say which file it belongs to: {head}"
    path, line = project / named[1], named[2]
    lines = path.read_text("utf-8").splitlines()
    assert lines.count(line) == 1, f"{named[1]} must have this line once: {line}"
    lines[lines.index(line) + 1 : lines.index(line) + 1] = body.splitlines()
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")


@pytest.fixture
def project(tmp_path):
    for name in _COPIED:
        source = ROOT / name
        if source.is_dir():
            shutil.copytree(source, tmp_path / name, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(source, tmp_path / name)
    return tmp_path


def run(command: str, project: Path) -> subprocess.CompletedProcess[str]:
    words = [sys.executable if w == "python" else w for w in shlex.split(command)]
    # The copy comes first, whether or not the package is installed; one thread, since other tests run beside this one.
    around = os.environ | {
        "PYTHONPATH": str(project),
        "OMP_NUM_THREADS": "1",
        "PYTHONDONTWRITEBYTECODE": "1",
        "PYTEST_ADDOPTS": "-p no:benchmark",
    }
    return subprocess.run(words, cwd=project, env=around, capture_output=True, text=True, timeout=300)


def recipe(title: str, project: Path, leave_out: str = "") -> list[subprocess.CompletedProcess[str]]:
    """Follow a recipe; gives what its commands answered."""
    answers = []
    for language, text in blocks(title):
        if language == "python" and not (leave_out and leave_out in text.partition("\n")[0]):
            follow(text, project)
        elif language == "sh":
            answers += [run(command, project) for command in text.splitlines()]
    return answers


@pytest.mark.parametrize("title", RECIPES)
def test_a_recipe_works_as_it_stands(title, project):
    answers = recipe(title, project)
    for answer in answers:
        assert answer.returncode == 0, f"{answer.args}\n{answer.stdout[-3000:]}\n{answer.stderr[-3000:]}"
    assert re.search(r"\b[1-9]\d* passed", answers[-1].stdout)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("title", "left_out", "complaint"),
    [
        ("A new layer", "valve_records.py", "makes MLCValveLayer by"),
        ("A new optimizer", "optimizer_bench.py, after:     Kind", "test_every_optimizer_has_a_twin"),
    ],
)
def test_a_step_that_was_forgotten_is_noticed(title, left_out, complaint, project):
    answer = recipe(title, project, leave_out=left_out)[-1]
    assert answer.returncode == 1 and complaint in answer.stdout


@pytest.mark.parametrize("title", RECIPES)
def test_no_line_of_the_code_is_too_long(title):
    """So that who copies it has nothing to change."""
    bodies = [text.partition("\n")[2] for language, text in blocks(title) if language == "python"]
    assert bodies and all(len(line) <= 120 for body in bodies for line in body.splitlines())
