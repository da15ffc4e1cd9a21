"""Recording CUDA graphs beside other threads.

A recording forbids certain calls while it lasts. CUDA's modes differ in whom: *global* forbids them to every thread, so
that an allocation elsewhere ends the recording and fails itself; *thread-local* forbids them to the recording thread alone;
*relaxed* forbids nothing, and a module that waits for the device while it is recorded would do so silently. Thread-local
is what is wanted: other graphs run on, and mistakes of the recorded work are still told.

Whatever the mode, nobody may wait for the whole device while one of its streams is recorded, and torch waits for it when a
recording begins; and with cuDNN's LSTM in it a recording takes in streams that the default stream is ordered with. So
recordings run one after the other under one lock, which everything of ours that gives a CUDA device work takes for that
moment. A program's own torch code on the default stream cannot be held back: let it not run while an LSTM is compiled.

Python's collector rests meanwhile. What it lets go of while a recording thread computes may be another recording, and CUDA
refuses to destroy one there and ends the one that is made ("operation not permitted when stream is capturing", pytorch pull
request 161037; torch up to 2.8 collected beforehand, torch 2.9 does not).
"""

from __future__ import annotations

import gc
import warnings
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import cuda

from mlc_torch.device import QUEUEING

LOCK = QUEUEING
"""Held while a graph is recorded, a device is waited for, or work is given to one."""


_unused: dict[torch.device, list[cuda.Stream]] = {}
"""Streams that recordings were made on which are gone."""


def stream_for(owner: Any, device: torch.device) -> cuda.Stream:
    """A stream to record on, the owner's alone as long as it lives.

    cuBLAS keeps working memory for each stream it ever saw (32 MiB on an H200), and recorded products go on using it. So
    two graphs that may be replayed side by side need streams of their own, and those of graphs that are gone serve again.
    """
    unused = _unused.setdefault(device, [])
    try:
        stream = unused.pop()
    except IndexError:
        stream = cuda.Stream(device)
    weakref.finalize(owner, unused.append, stream)
    return stream


def recorded(work: Callable[[], Any], pool: Any, stream: cuda.Stream) -> tuple[cuda.CUDAGraph | None, Any]:
    """The recorded work and what it gives; no graph where the work only looks at memory another way."""
    graph = cuda.CUDAGraph()
    with LOCK, _collector_at_rest(), warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        # Where a recording fails torch leaves the thread on its stream (torch.cuda.graph ends the recording, which raises,
        # before it puts the stream back), and all later work of the thread would go there.
        with (
            cuda.stream(cuda.current_stream(stream.device)),
            cuda.graph(graph, pool=pool, stream=stream, capture_error_mode="thread_local"),
        ):
            made = work()
    release(stream.device)
    others = [w for w in told if "graph is empty" not in str(w.message).lower()]
    for other in others:  # of another thread, or of a module's own
        warnings.warn_explicit(other.message, other.category, other.filename, other.lineno)
    return None if len(others) < len(told) else graph, made


@contextmanager
def _collector_at_rest() -> Iterator[None]:
    """Inside, nothing is collected by itself. Only one thread is here at a time."""
    worked = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if worked:
            gc.enable()


def synchronize(device: torch.device) -> None:
    """Wait for everything that is queued on the device, at a moment when nothing is recorded."""
    with LOCK:
        cuda.synchronize(device)


_unreleased: dict[int, tuple[torch.device, list[Any]]] = {}
"""Pinned memory of things that are gone, which copies still queued may read, by the list's ``id``."""


def release_later(memory: list[Any], device: torch.device) -> None:
    """Give pinned memory back once the device has read it, and empty the list. Never waits for another thread: finalizers call
    this.

    Under the lock, since torch, when it gets back what it has copied from, notes that on the stream of the copy.
    """
    _unreleased[id(memory)] = device, memory
    release(device)


def release(device: torch.device) -> None:
    """Give back what waits for it, unless a recording is under way; the recording does so at its end.

    While the device is waited for, and whenever a list is emptied, Python may collect what calls this again: each list is taken
    out by whoever comes first.
    """
    if not _unreleased or not LOCK.acquire(blocking=False):
        return
    try:
        if not cuda.is_current_stream_capturing():
            ready = [key for key, (where, _) in _unreleased.copy().items() if where == device]
            cuda.synchronize(device)
            for key in ready:
                _, memory = _unreleased.pop(key, (device, []))
                memory.clear()
    finally:
        LOCK.release()
