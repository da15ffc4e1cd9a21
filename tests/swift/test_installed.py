"""The Swift commands from an installed wheel, where the checkout is not seen."""

from __future__ import annotations

import filecmp
import subprocess
import sys
import sysconfig
import venv
from pathlib import Path

import pytest

from tests.swift.toolbox import HERE, environment, swift, written

pytestmark = pytest.mark.swift

ROOT = HERE.parents[1]
MANIFEST = """// swift-tools-version: 5.9
import PackageDescription
let package = Package(name: "Sums", targets: [
    .target(name: "Sums"), .executableTarget(name: "tool", dependencies: ["Sums"]),
    .testTarget(name: "SumsTests", dependencies: ["Sums"]),
])
"""
SUMS = """import MLCompute
public func elements(_ shape: [Int]) -> Int { MLCTensor(shape: shape).descriptor.shape.reduce(1, *) }
"""
TESTS = """import XCTest
import Sums
final class SumsTests: XCTestCase { func testElements() { XCTAssertEqual(elements([2, 3]), 6) } }
"""


@pytest.fixture(scope="module")
def installed(tmp_path_factory) -> Path:
    """The ``mlc-torch`` of a fresh environment that has the wheel. torch and NumPy are lent by this one."""
    folder = tmp_path_factory.mktemp("installed")
    build = [sys.executable, "-m", "build", "-q", "--wheel", "--no-isolation", "--outdir", folder, ROOT]
    subprocess.run(build, check=True)
    venv.create(folder / "venv")
    python = folder / "venv" / "bin" / "python"
    install = [sys.executable, "-m", "pip", "--python", python, "install", "-q", "--no-deps", "--no-index"]
    subprocess.run([*install, *folder.glob("*.whl")], check=True)
    (packages,) = (folder / "venv").glob("lib/python*/site-packages")
    lent = {sysconfig.get_path("purelib"), sysconfig.get_path("platlib")}
    (packages / "lent.pth").write_text("".join(f"{path}\n" for path in lent), "utf-8")
    return python.with_name("mlc-torch")


def test_every_command_works(installed, tmp_path):
    def command(*words: str | Path) -> subprocess.CompletedProcess[str]:
        alone = environment() | {"PYTHONPATH": ""}
        return subprocess.run([installed, "swift", *words], cwd=tmp_path, env=alone, capture_output=True, text=True)

    done = command("doctor")
    assert done.returncode == 0, done.stderr
    about = dict(line.split(maxsplit=1) for line in done.stdout.splitlines() if not line.startswith(" "))
    assert str(installed.parents[1]) in about["mlc_torch"] and str(installed.parent) in about["Python"]

    package = written(tmp_path / "sums", Sources__Sums__Sums=SUMS, Tests__SumsTests__SumsTests=TESTS, Package=MANIFEST)
    written(package, Sources__tool__main="import Sums\nprint(elements([4, 5]))\n")
    main = "import MLCompute\nprint(MLCTensor(shape: [7]), CommandLine.arguments.dropFirst())\n"
    done = command("run", written(tmp_path, program=main) / "program.swift", "--", "x")
    assert (done.returncode, done.stdout[:10]) == (0, "MLCTensor("), done.stderr
    assert done.stdout.endswith(' ["x"]\n')

    done = command("build", package)
    assert done.returncode == 0, done.stderr
    tool = subprocess.run(
        [package / ".build" / "debug" / "tool"],
        env=environment(MLC_TORCH_PYTHON=str(installed.with_name("python"))) | {"PYTHONPATH": ""},
        capture_output=True,
        text=True,
    )
    assert tool.stdout == "20\n", tool.stderr
    done = command("test", package)
    assert done.returncode == 0, done.stderr
    assert "Executed 1 test, with 0 failures" in done.stdout

    assert command("package", tmp_path / "theirs").returncode == 0
    assert swift("package", tmp_path / "ours", cwd=tmp_path).returncode == 0
    files = [str(path.relative_to(tmp_path / "ours")) for path in (tmp_path / "ours" / "Sources").rglob("*.swift")]
    _, different, missing = filecmp.cmpfiles(tmp_path / "ours", tmp_path / "theirs", files, shallow=False)
    assert files and (different, missing) == ([], [])
