"""The processes that a command starts: Ctrl-C ends all of them, and how the last one ended is how we end."""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

_PR_SET_CHILD_SUBREAPER = 36


@contextlib.contextmanager
def none_left_behind() -> Iterator[None]:
    """Whatever is started within this is gone when a Ctrl-C leaves it.

    ``swift build`` gives each compiler a process group of its own, which no Ctrl-C reaches but through ``swift build``.
    """
    others = _children()
    _adopt(True)
    try:
        yield
    except KeyboardInterrupt:
        _end_all_but(others)
        raise
    finally:
        _adopt(False)  # a program that takes our place would inherit it


def become(status: int) -> int:
    """The exit status of a process whose place this one takes: what a signal ended ends this by the same signal."""
    if status < 0:
        signal.signal(-status, signal.SIG_DFL)
        os.kill(os.getpid(), -status)
    return status


def _adopt(wanted: bool) -> None:
    """Whether a process whose parent has ended becomes our child, so that none can hide from :func:`_children`."""
    ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, int(wanted), 0, 0, 0)


def _children() -> set[int]:
    """Those that have not ended."""
    found = set()
    for entry in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):  # it has ended meanwhile
            state, parent = entry.read_text("utf-8", "replace").rpartition(")")[2].split()[:2]
            if int(parent) == os.getpid() and state != "Z":
                found.add(int(entry.parent.name))
    return found


def _end_all_but(others: set[int]) -> None:
    """The children of one that ends are ours next. They had their time: Python waits a quarter of a second for the first."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # a second Ctrl-C must not come between
    last = time.monotonic() + 0.5
    while (ours := _children() - others) and time.monotonic() < last:
        for child in ours:
            with contextlib.suppress(ProcessLookupError):
                os.kill(child, signal.SIGKILL)
        time.sleep(0.01)
