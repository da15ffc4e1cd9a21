"""Running the compiler: its words pass through, and one line of ours follows where something of Apple's is missing."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TextIO

from mlc_torch.swift.hints import hints
from mlc_torch.swift.saying import SwiftTrouble, say


def compile_swift(command: Sequence[str | Path], cwd: Path | None = None, shown: TextIO | None = None) -> None:
    """Run a compiler whose output goes to ``shown`` (standard error); where it fails, our hints come after its words."""
    shown = shown or sys.stderr
    words = []
    with subprocess.Popen(
        list(command),
        cwd=cwd,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
    ) as running:
        assert running.stdout is not None
        try:
            for line in running.stdout:
                words.append(line)
                shown.write(line)
                shown.flush()
        except KeyboardInterrupt:
            running.kill()
            raise
    if running.returncode:
        for hint in hints("".join(words)):
            say(hint)
        raise SwiftTrouble(status=running.returncode if running.returncode > 0 else 1)


def compile_quietly(what: str, command: Sequence[str | Path], cwd: Path | None = None) -> None:
    """Compile something of our own: its output is of interest only where it fails."""
    done = subprocess.run(
        list(command),
        cwd=cwd,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
    )
    if done.returncode:
        sys.stderr.write(done.stdout)
        raise SwiftTrouble(f"{what} does not compile with {command[0]} (its errors stand above)")
