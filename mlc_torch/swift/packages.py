"""SwiftPM packages, built and tested with their Package.swift untouched."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from mlc_torch.swift.compiling import compile_swift
from mlc_torch.swift.libpython import libpython
from mlc_torch.swift.modules import build_modules
from mlc_torch.swift.processes import become, none_left_behind
from mlc_torch.swift.programs import environment
from mlc_torch.swift.saying import SwiftTrouble
from mlc_torch.swift.toolchain import Toolchain, toolchain

_NO_TESTS_FOUND = 69
"""How a Swift Testing product ends that has no test to run (EX_UNAVAILABLE)."""

_OLDER_THAN_SWIFT_TESTING = 'Invalid option "--testing-library"'
"""What a product of Swift 5.10 says, which knows XCTest alone."""


@dataclass(frozen=True)
class Package:
    folder: Path
    neighbours: tuple[str, ...]
    configuration: str = "debug"
    further: tuple[str, ...] = ()
    """Arguments for ``swift build``."""

    def __post_init__(self) -> None:
        if not (self.folder / "Package.swift").is_file():
            raise SwiftTrouble(f"{self.folder} has no Package.swift", 2)

    def build(self, *, tests: bool) -> Toolchain:
        tools = toolchain()
        modules = build_modules(tools, self.neighbours)
        flags = [word for flag in modules.compiler_flags() for word in ("-Xswiftc", flag)]
        for folder in modules.folders:
            flags += ["-Xlinker", f"-L{folder}", "-Xlinker", "-rpath", "-Xlinker", str(folder)]
        compile_swift(self._swift_build(tools, *(["--build-tests"] if tests else []), *flags), self.folder)
        return tools

    def _swift_build(self, tools: Toolchain, *more: str) -> list[str | Path]:
        return [tools.swift, "build", "-c", self.configuration, *more, *self.further]

    def products(self, tools: Toolchain) -> Path:
        """The folder that holds what was built."""
        return Path(_answer(self._swift_build(tools, "--show-bin-path"), self.folder).strip().splitlines()[-1])

    def description(self, tools: Toolchain) -> dict:
        text = _answer([tools.swift, "package", "dump-package"], self.folder)
        return json.loads(text[text.index("{") :])

    def test(self, filters: Sequence[str]) -> int:
        """Build and run the tests; the exit status of the first library that has a failure."""
        for filter_ in filters:
            _check_expression(filter_)  # before building, which takes minutes
        tools = toolchain()
        about = self.description(tools)
        if not any(target["type"] == "test" for target in about["targets"]):
            raise SwiftTrouble(f"{about['name']} has no tests")
        if not libpython():
            raise SwiftTrouble(
                f"{sys.executable} has no shared library (libpython), which tests need; use a Python that has one"
            )
        self.build(tests=True)
        product = self.products(tools) / f"{about['name']}PackageTests.xctest"
        ran, status = False, 0
        for library in (_XCTest(product), _SwiftTesting(product)):
            ended = library.run(filters)
            if ended is not None:
                ran, status = True, status or ended
        if not ran:
            raise SwiftTrouble(
                f"no test of {about['name']} fits {' or '.join(filters)}"
                if filters
                else f"{about['name']} has no tests"
            )
        return status


def _check_expression(text: str) -> None:
    try:
        re.compile(text)
    except re.error as error:
        raise SwiftTrouble(f"--filter {text} is no regular expression: {error}", 2) from None


def _answer(command: list[str | Path], cwd: Path) -> str:
    with none_left_behind():
        done = subprocess.run(command, cwd=cwd, stdin=subprocess.DEVNULL, capture_output=True, text=True)
    if done.returncode:
        sys.stderr.write(done.stdout + done.stderr)
        raise SwiftTrouble(f"{' '.join(map(str, command[1:3]))} failed (see above)")
    return done.stdout


@dataclass(frozen=True)
class _XCTest:
    product: Path

    def run(self, filters: Sequence[str]) -> int | None:
        """The status, or ``None`` where there was nothing to run. The product knows names, not expressions."""
        with none_left_behind():
            listed = subprocess.run([self.product, "--list-tests"], env=environment(), capture_output=True, text=True)
        names = re.findall(r"^(\w+\.\w+/\w+)$", listed.stdout, re.MULTILINE)
        if listed.returncode and not names:
            sys.stderr.write(listed.stdout + listed.stderr)
            return become(listed.returncode)
        chosen = [name for name in names if not filters or any(re.search(f, name) for f in filters)]
        if not chosen:
            return None
        return _run([self.product, *([",".join(chosen)] if filters else [])])


@dataclass(frozen=True)
class _SwiftTesting:
    product: Path

    def run(self, filters: Sequence[str]) -> int | None:
        """As :meth:`_XCTest.run`. The product is asked whether it has such tests: an import of Testing has many spellings."""
        command: list[str | Path] = [self.product, "--testing-library", "swift-testing"]
        with none_left_behind():
            listed = subprocess.run([*command, "--list-tests"], env=environment(), capture_output=True, text=True)
        if listed.returncode == _NO_TESTS_FOUND or _OLDER_THAN_SWIFT_TESTING in listed.stderr:
            return None
        if listed.returncode:
            sys.stderr.write(listed.stdout + listed.stderr)
            return become(listed.returncode)
        status = _run([*command, *(word for f in filters for word in ("--filter", f))])
        return None if status == _NO_TESTS_FOUND else status


def _run(command: list[str | Path]) -> int:
    sys.stdout.flush()
    with none_left_behind():
        return become(subprocess.run(command, env=environment()).returncode)
