"""The wheel and the source archive: what is in them, and that they install where nothing else is."""

from __future__ import annotations

import email
import json
import os
import subprocess
import sys
import sysconfig
import tarfile
import venv
import zipfile
from pathlib import Path

import pytest

import mlc_torch

for _needed in ("build", "hatchling", "twine"):
    pytest.importorskip(_needed, reason=f"{_needed} makes or checks release files, and is not installed")

ROOT = Path(__file__).parents[2]

TRY = """
import json, sys
import mlc_torch
from mlc_torch import *
x = MLCTensor(shape=[2, 2], fillWithData=-3, dataType=MLCDataType.float32)
graph = MLCGraph()
y = graph.node(MLCActivationLayer.absolute, source=x)
inference = MLCInferenceGraph(graphObjects=[graph])
assert inference.addInputs({}) and inference.compile(options=[], device=MLCDevice.cpu())
assert inference.execute(inputsData={}, batchSize=0, options=[MLCExecutionOptions.synchronous])
print(json.dumps([mlc_torch.__version__, mlc_torch.__file__, y.numpy().tolist()]), flush=True)
sys.argv = ["mlc-torch", "--version"]
__name__ = "__main__"
exec(open(sys.executable.removesuffix("python") + "mlc-torch").read())  # the console script, in this process
"""


def run(*command: object, **more: object) -> str:
    found = subprocess.run([*map(str, command)], capture_output=True, text=True, check=False, **more)  # type: ignore[call-overload]
    assert found.returncode == 0, found.stdout + found.stderr
    return found.stdout


@pytest.fixture(scope="module")
def built(tmp_path_factory) -> Path:
    """A folder with both archives, built without asking an index for anything."""
    folder = tmp_path_factory.mktemp("dist")
    run(sys.executable, "-m", "build", "--no-isolation", "--outdir", folder, ROOT)
    return folder


def wheel_of(built: Path) -> Path:
    return next(built.glob("*.whl"))


def test_twine_accepts_both(built):
    text = run(sys.executable, "-m", "twine", "check", "--strict", *built.iterdir())
    assert text.count("PASSED") == 2


def test_the_wheel_holds_the_package_and_nothing_else(built):
    with zipfile.ZipFile(wheel_of(built)) as archive:
        names = archive.namelist()
    beside = {"_mlc_torch_command.py", "_mlc_torch_pytest.py"}  # what loads without torch
    assert {name.partition("/")[0].partition("-")[0] for name in names} == {"mlc_torch", *beside}
    assert not [
        name for name in names if "test_" in Path(name).name or name.startswith(("tools", "docs", "benchmarks"))
    ]
    assert {"mlc_torch/py.typed", "mlc_torch/__init__.pyi", "mlc_torch/coverage/mlcompute.json"} <= set(names)


def test_the_source_archive_can_be_tested(built):
    with tarfile.open(next(built.glob("*.tar.gz"))) as archive:
        inside = {name.partition("/")[2] for name in archive.getnames()}
    wanted = {"pyproject.toml", "tox.ini", "constraints.txt", "LICENSE", "CHANGELOG.md", "CITATION.cff", "docs/conf.py"}
    assert wanted <= inside and any(name.startswith("tests/api/test_") for name in inside)


def test_the_metadata_name_the_version_the_licence_and_addresses(built):
    with zipfile.ZipFile(wheel_of(built)) as archive:
        text = archive.read(next(n for n in archive.namelist() if n.endswith("/METADATA"))).decode("utf-8")
    about = email.message_from_string(text)
    assert about["Version"] == mlc_torch.__version__ and about["License-Expression"] == "MIT"
    urls = dict(url.split(", ", 1) for url in about.get_all("Project-URL"))
    assert {"Homepage", "Documentation", "Changelog", "Issues"} <= set(urls)


def test_the_wheel_installs_into_an_empty_environment(built, tmp_path):
    """torch and NumPy are lent by this environment; nothing else of it is seen."""
    python = empty_environment(tmp_path)
    run(sys.executable, "-m", "pip", "--python", python, "install", "-q", "--no-deps", "--no-index", wheel_of(built))
    packages = next(tmp_path.glob("lib/python*/site-packages"))
    for path in {sysconfig.get_path("purelib"), sysconfig.get_path("platlib")}:
        (packages / "lent.pth").write_text(f"{path}\n", "utf-8")
    check(python, tmp_path)


@pytest.mark.slow
def test_the_wheel_installs_with_what_it_asks_for(built, tmp_path):
    python = empty_environment(tmp_path)
    run(
        sys.executable,
        "-m",
        "pip",
        "--python",
        python,
        "install",
        "-q",
        "-c",
        ROOT / "constraints.txt",
        wheel_of(built),
    )
    check(python, tmp_path)


def empty_environment(folder: Path) -> Path:
    venv.create(folder, with_pip=False)
    return folder / "bin" / "python"


def check(python: Path, folder: Path) -> None:
    alone = {k: v for k, v in os.environ.items() if k not in ("PYTHONPATH", "MLC_TORCH_STRICT")}
    first, second = run(python, "-c", TRY, cwd=folder, env=alone).splitlines()
    version, home, values = json.loads(first)
    assert version == mlc_torch.__version__ and Path(home).is_relative_to(folder)
    assert values == [[3.0, 3.0], [3.0, 3.0]]
    assert second.startswith(f"mlc_torch {mlc_torch.__version__}, torch ")
