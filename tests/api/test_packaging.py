"""What is installed, and that the files which say the same thing agree."""

from __future__ import annotations

import importlib.metadata
import os
import re
import subprocess
import sys
import tomllib
from importlib import resources
from pathlib import Path

import pytest

import mlc_torch
from mlc_torch.extras import EXTRAS

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]


def test_the_version_is_said_once():
    """In ``mlc_torch/__init__.py``, where hatch reads it; what must repeat it is held to it here."""
    assert PROJECT["dynamic"] == ["version"] and "version" not in PROJECT
    said = {
        "CITATION.cff": re.search(r"^version: (.*)$", _text("CITATION.cff"), re.MULTILINE),
        "packaging/conda/recipe.yaml": re.search(
            r"^  version: \"(.*)\"$", _text("packaging/conda/recipe.yaml"), re.MULTILINE
        ),
        "CHANGELOG.md": re.search(r"^## (\d.*?)( \(.*\))?$", _text("CHANGELOG.md"), re.MULTILINE),
    }
    assert {name: found and found[1] for name, found in said.items()} == dict.fromkeys(said, mlc_torch.__version__)


def _text(name: str) -> str:
    return (ROOT / name).read_text("utf-8")


def test_extras_are_those_that_hints_name():
    listed = {name: tuple(packages) for name, packages in PROJECT["optional-dependencies"].items()}
    assert listed == EXTRAS


def test_the_conda_recipe_asks_for_what_the_wheel_asks_for():
    recipe = _text("packaging/conda/recipe.yaml")
    renamed = {"torch": "pytorch"}
    for requirement in [*PROJECT["dependencies"], f"python{PROJECT['requires-python']}"]:
        name, least = requirement.split(">=")
        assert f"    - {renamed.get(name, name)} >={least}\n" in recipe


def test_the_package_carries_its_data_and_its_types():
    files = resources.files(mlc_torch)
    for name in ("py.typed", "__init__.pyi", "interop/__init__.pyi", "coverage/mlcompute.json"):
        assert files.joinpath(name).is_file()


def test_requirements_have_no_upper_bounds():
    every = [*PROJECT["dependencies"], *(r for extra in PROJECT["optional-dependencies"].values() for r in extra)]
    assert not [r for r in every if re.search(r"<|==|~=", r)]
    assert "<" not in PROJECT["requires-python"]


def test_what_tox_installs_is_pinned():
    pins = {line.partition("==")[0].lower() for line in (ROOT / "constraints.txt").read_text("utf-8").splitlines()}
    wanted = [r for extra in PROJECT["optional-dependencies"].values() for r in extra] + PROJECT["dependencies"]
    listed = re.findall(r"^deps =\n((?:    .+\n)+)", (ROOT / "tox.ini").read_text("utf-8"), re.MULTILINE)
    wanted += [line for block in listed for line in block.split("\n") if line.strip()]
    names = {re.split(r"[\[=><]", name.strip())[0].lower() for name in wanted}
    assert {name for name in names if name and "{" not in name} - pins == set()


def test_ci_runs_the_readmes_test_command():
    script = ROOT / ".ci" / "run"
    command = script.read_text("utf-8").strip().splitlines()[-1]
    assert f"```sh\n{command}\n```" in (ROOT / "README.md").read_text("utf-8")
    assert os.access(script, os.X_OK)


def test_the_console_script_is_the_module():
    scripts = importlib.metadata.entry_points(group="console_scripts", name="mlc-torch")
    assert PROJECT["scripts"] == {"mlc-torch": "_mlc_torch_command:main"}
    for script in scripts:  # none where the tests run from a checkout
        assert callable(script.load())


def test_the_swift_sources_are_in_the_package():
    files = resources.files(mlc_torch).joinpath("swift", "sources")
    assert files.joinpath("MLCompute", "Runtime.swift").is_file() and files.joinpath("Metal", "Metal.swift").is_file()


def test_the_pytest_plugin_is_announced():
    assert PROJECT["entry-points"]["pytest11"] == {"mlc_torch": "_mlc_torch_pytest"}
    assert (ROOT / "_mlc_torch_pytest.py").is_file()


@pytest.mark.parametrize(("missing", "is_told"), [("torch", True), ("mlc_torch.descriptors", False)])
@pytest.mark.parametrize(
    "run", ["import mlc_torch", "import runpy; runpy.run_module('mlc_torch', run_name='__main__')"]
)
def test_who_has_no_torch_is_told_where_it_comes_from(missing, is_told, run):
    """And not where something else is missing."""
    text = f"import sys; sys.modules[{missing!r}] = None; {run}"
    done = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, timeout=60)
    assert done.returncode and "ModuleNotFoundError" in done.stderr
    assert ("pip install ." in done.stderr.splitlines()[-1]) == is_told
