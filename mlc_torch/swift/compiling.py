"""Running the compiler: its words pass through, and one line of ours follows where something of Apple's is missing."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from mlc_torch.swift.hints import hints
from mlc_torch.swift.processes import none_left_behind
from mlc_torch.swift.saying import SwiftTrouble, say


def compile_swift(command: Sequence[str | Path], cwd: Path | None = None) -> None:
    """Run a compiler whose words go to standard error as they come; where it fails, our hints come after them."""
    status, words = _compile(command, cwd, shown=True)
    if status:
        for hint in hints(words):
            say(hint)
        raise SwiftTrouble(status=max(status, 1))  # negative: a signal ended it


def compile_quietly(what: str, command: Sequence[str | Path], cwd: Path | None = None) -> None:
    """Compile something of our own: its words are of interest only where it fails."""
    status, words = _compile(command, cwd, shown=False)
    if status:
        sys.stderr.write(words)
        raise SwiftTrouble(f"{what} does not compile with {command[0]} (its errors stand above)")


def compiles(command: Sequence[str | Path]) -> bool:
    """Whether the compiler has nothing against it."""
    return _compile(command, None, shown=False)[0] == 0


def _compile(command: Sequence[str | Path], cwd: Path | None, *, shown: bool) -> tuple[int, str]:
    words = []
    with (
        none_left_behind(),
        subprocess.Popen(
            list(command),
            cwd=cwd,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
        ) as running,
    ):
        assert running.stdout is not None
        for line in running.stdout:
            words.append(line)
            if shown:
                sys.stderr.write(line)
                sys.stderr.flush()
    return running.returncode, "".join(words)
