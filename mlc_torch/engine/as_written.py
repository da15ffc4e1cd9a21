"""What ``torch.compile`` made of a program's modules is recorded as it was written."""

from __future__ import annotations

import sys
import threading
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch

from mlc_torch.engine.plan import Plan, is_known


class _AsWritten:
    """While somebody records, what ``torch.compile`` made is called as it was written: nobody sees what compiled code does.

    torch has one such switch for all threads. The first that comes turns it, and the last turns it back.
    """

    def __init__(self) -> None:
        self._lock, self._inside, self._stance = threading.Lock(), 0, None

    def __enter__(self) -> None:
        with self._lock:
            self._inside += 1
            if self._inside == 1:
                self._stance = torch.compiler.set_stance("force_eager")

    def __exit__(self, *error: object) -> None:
        with self._lock:
            self._inside -= 1
            if not self._inside and self._stance is not None:
                self._stance.__exit__(None, None, None)


_as_written = _AsWritten()


def uncompiled(plan: Plan) -> AbstractContextManager[Any]:
    """For a plan with modules of the program's own. Who compiles one has loaded torch's compiler; nobody else waits for that."""
    if "torch._dynamo" not in sys.modules or all(map(is_known, (m for root in plan.modules for m in root.modules()))):
        return nullcontext()
    return _as_written
