"""What ``torch.compile`` made of a program's modules is recorded as it was written."""

from __future__ import annotations

import os
import sys
import threading
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch

from mlc_torch.engine.plan import Plan, all_known
from mlc_torch.forks import free_in_child_lock


class _AsWritten:
    """While somebody records, what ``torch.compile`` made is called as it was written: nobody sees what compiled code does.

    torch has one such switch for all threads. The first that comes turns it, and the last turns it back.
    """

    def __init__(self) -> None:
        self._lock = free_in_child_lock()
        self._inside: dict[int, int] = {}
        """How often each thread is."""
        self._stance: Any = None
        """What turns the switch back, while it is turned."""

    def __enter__(self) -> None:
        with self._lock:
            if self._stance is None:
                self._stance = torch.compiler.set_stance("force_eager")
            self._inside[threading.get_ident()] = self.depth() + 1

    def __exit__(self, *error: object) -> None:
        self.settle(self.depth() - 1)

    def depth(self) -> int:
        """How often this thread is inside."""
        return self._inside.get(threading.get_ident(), 0)

    def settle(self, depth: int) -> None:
        """This thread is inside so often and no more, whatever it was interrupted in. It can be repeated."""
        with self._lock:
            self._inside[threading.get_ident()] = depth
            if depth <= 0:
                self._inside.pop(threading.get_ident(), None)
            self._turn_back()

    def begin_in_child(self) -> None:
        """After a fork: the parent's other threads are not here to leave."""
        depth = self.depth()
        self._inside = {threading.get_ident(): depth} if depth else {}
        self._turn_back()

    def _turn_back(self) -> None:
        stance = self._stance
        if not self._inside and stance is not None:
            # Twice where a signal handler came and went in between, which changes nothing.
            stance.__exit__(None, None, None)
            self._stance = None


as_written = _AsWritten()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=as_written.begin_in_child)


def uncompiled(plan: Plan) -> AbstractContextManager[Any]:
    """For a plan with modules of the program's own. Who compiles one has loaded torch's compiler; nobody else waits for that."""
    if "torch._dynamo" not in sys.modules or all_known(plan):
        return nullcontext()
    return as_written
