"""Shows the library's warnings on standard error in programs that have not set up ``logging``.

Python itself would do that for a logger without handlers, but would repeat a refusal in a loop thousands of times.
"""

from __future__ import annotations

import atexit
import logging
import os
import sys
from typing import TextIO

_REMEMBERED = 1000
"""How many different lines are known again; what comes after them is always shown."""


def standard_error() -> TextIO | None:
    """Where lines for people go; ``None`` where nobody can read them: under pythonw, in services, when it was closed."""
    there: TextIO | None = sys.stderr  # its type says that it is always there
    return None if there is None or getattr(there, "closed", False) else there


class EachLineOnce(logging.Handler):
    """Prints each line once, behind ``name``, and at the end of the program how often it came again."""

    def __init__(self, name: str) -> None:
        super().__init__(logging.WARNING)
        self._name = name
        self._repeated: dict[str, int] = {}
        atexit.register(self.count_repetitions)
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(after_in_child=self._repeated.clear)  # the parent tells of what was before

    def emit(self, record: logging.LogRecord) -> None:
        try:
            self.show(self.format(record))
        except Exception:  # noqa: BLE001 - logging's own rule: what goes wrong here must not reach the program
            self.handleError(record)

    def show(self, line: str) -> None:
        """Print a line, or count it if it was printed before."""
        if line in self._repeated:
            self._repeated[line] += 1
            return
        if len(self._repeated) < _REMEMBERED:
            self._repeated[line] = 0
        self._print(line)

    def count_repetitions(self) -> None:
        """Called at the end of the program."""
        for line, times in self._repeated.items():
            if times:
                self._print(f"{line} (and {times} more time{'s' * (times > 1)})")
        self._repeated.clear()

    def _print(self, line: str) -> None:
        there = standard_error()
        if there is not None:
            there.write(f"{self._name}: {line}\n")


class ShownByDefault(EachLineOnce):
    """Prints what ``logger`` is given.

    Silent as soon as the program has a handler of its own, there or at a logger above: that one gets every record.
    """

    def __init__(self, logger: logging.Logger) -> None:
        super().__init__(logger.name)
        self._logger = logger

    def emit(self, record: logging.LogRecord) -> None:
        if not self._program_listens():
            super().emit(record)

    def _program_listens(self) -> bool:
        place: logging.Logger | None = self._logger
        while place is not None:
            if any(handler is not self for handler in place.handlers):
                return True
            place = place.parent if place.propagate else None
        return False
