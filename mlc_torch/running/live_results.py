"""Results that handlers are reading when another thread comes to the graph.

Where one thread alone uses a graph, its handlers are given the graph's own tensor, which is the fastest. From a second
thread's first call on, each handler is given a tensor that keeps the result of its call. A handler that runs at the moment of
that first call has the graph's own tensor; it goes on seeing its result there. Nothing is noted for this in ordinary calls:
who is in a handler now can be seen from the threads' stacks.
"""

from __future__ import annotations

import sys
from threading import get_ident
from types import FrameType
from typing import Any

from mlc_torch.tensor import MLCTensor, TensorState
from mlc_torch.tensor.held import hold


def keep_what_handlers_read(graph: Any) -> None:
    """For the first call of a thread, while it holds the graph's locks: other threads are inside of no call's work then."""
    own = get_ident()
    for thread, top in sys._current_frames().items():
        if thread == own:
            continue
        call, result = _outermost(graph, top)
        if call is not None and result is not None and result.value is not None and not result.is_frozen:
            hold(result, thread, call)


def _outermost(graph: object, frame: FrameType | None) -> tuple[FrameType | None, TensorState | None]:
    """The call of the graph, among those on a thread's stack, that the others were made in, with what its handler was given."""
    call, result = None, None
    while frame is not None:
        if frame.f_code.co_name in _CALLS:
            here = frame.f_locals
            if here.get("graph") is graph and here.get("handler") is not None and here.get("done") is not None:
                call, result = frame, _result(here["done"])
        frame = frame.f_back
    return call, result


def _result(done: Any) -> TensorState | None:
    """Of what stands under ``done`` in a call that has its result."""
    if isinstance(done, MLCTensor):
        return done._cell
    return done[0] if isinstance(done, tuple) else None


_CALLS = {"travel", "usual"}
"""The functions that call handlers. Each has the graph, the handler and ``done`` under these names."""
