"""TorchInductor, called directly, and the lock under which torch compiles."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any, TypeVar

import torch
from torch import fx

from mlc_torch.forks import free_in_child_lock
from mlc_torch.torch_private import available

T = TypeVar("T")


_own_compilations = free_in_child_lock()


def _compilations() -> AbstractContextManager[Any]:
    """The lock under which ``torch.compile`` compiles, in every thread; where this torch has none, one of ours.

    One of ours would keep our compilations apart, but not from those of ``torch.compile`` in other threads: Inductor's
    settings, the tracer that is at work and the warnings that are ignored are the process's.
    """
    from torch._dynamo import convert_frame

    return getattr(convert_frame, "compile_lock", _own_compilations)


def compile_alone(work: Callable[[], T]) -> T:
    """What ``work`` gives, while nobody else in the process compiles.

    A thread may hold graphs' locks and that of CUDA's queue when it comes here, and takes none of those inside, so that no
    two wait for each other. The lock's own ``with``, and on one line: for Ctrl-C, as in ``graph.locks``.
    """
    with _compilations(): return work()  # noqa: E701  # fmt: skip


def compile_graph(graph: fx.GraphModule) -> Callable[[list[torch.Tensor]], Sequence[Any]]:
    """TorchInductor's code for a functional graph, called with a list of tensors.

    Called directly it spares the guards and wrappers of ``torch.compile``, which cost more than a small network.
    """
    if not available["inductor"]:
        compiled = torch.compile(graph, fullgraph=True, dynamic=False)
        return lambda given: compiled(*given)
    from torch import _guards
    from torch._dynamo.utils import get_metrics_context
    from torch._inductor import config
    from torch._inductor.compile_fx import compile_fx_inner
    from torch._inductor.virtualized import V

    examples = [n.meta["val"] for n in graph.graph.nodes if n.op == "placeholder"]
    if not examples:
        return lambda given: graph()  # there is nothing to compute with
    (output,) = [n for n in graph.graph.nodes if n.op == "output"]
    # Otherwise Inductor may give a result another layout than was traced, and the other phase would read it wrongly.
    output.meta["user_visible_output_idxs"] = list(range(len(output.args[0])))
    fake = next(e.fake_mode for e in examples if hasattr(e, "fake_mode"))
    # Inductor itself calls fx's tracer for moments, whose flag, the process's, keeps functions of torch.compile from running in
    # all threads, unless torch is told that somebody compiles. torch.compile of 2.13 tells it so, that of 2.11 does not.
    session = getattr(torch.compiler, "_compile_session_context", nullcontext)
    with (
        session(),
        V.set_fake_mode(fake),
        _guards.tracing(_guards.TracingContext(fake)),
        torch.no_grad(),
        config.patch(layout_optimization=False, size_asserts=False),
        get_metrics_context(),  # torch 2.6 counts inside of it and nowhere else
    ):
        compiled = compile_fx_inner(graph, examples)
    return getattr(compiled, "current_callable", None) or compiled
