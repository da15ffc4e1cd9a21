"""What the Swift commands tell: on standard error, since standard output belongs to the program."""

from __future__ import annotations

import sys


def say(text: str) -> None:
    sys.stderr.write(f"mlc-torch: {text}\n")
    sys.stderr.flush()


class SwiftTrouble(Exception):
    """A command cannot do what it was asked; the text says why, and what helps. ``status`` is the exit status."""

    def __init__(self, text: str = "", status: int = 1) -> None:
        super().__init__(text)
        self.status = status
