"""Locks that a forked process can take, though a thread of its parent held them: that thread is not here to let go of them."""

from __future__ import annotations

import os
import threading
import weakref
from typing import Any

_locks: weakref.WeakSet[Any] = weakref.WeakSet()


def free_in_child_lock() -> Any:
    """A lock that its thread may take again, as a signal handler in the middle of a block does, and that a fork sets free.

    Unless the thread that holds it is the one that forked, and lets go of it itself.
    """
    lock = threading.RLock()
    _locks.add(lock)
    return lock


def _free() -> None:
    for lock in _locks:
        if not lock._is_owned():
            lock._at_fork_reinit()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_free)
