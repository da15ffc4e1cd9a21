"""What surrounds a call: modes, contexts and transformations of torch's, of which it documents no way to ask cheaply."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, ParamSpec, TypeVar

import torch

_writes_out: ContextVar[bool] = ContextVar("_writes_out", default=False)
is_written_out = _writes_out.get
"""Whether a compiler looks on, that wants to see into everything."""


@contextmanager
def written_out() -> Iterator[None]:
    """Inside, fused kernels are written out operation by operation, for a compiler to see into."""
    token = _writes_out.set(True)
    try:
        yield
    finally:
        _writes_out.reset(token)


# What surrounds a call, as functions of torch's core: each is asked in every call of a graph.
inference_mode = torch.is_inference_mode_enabled
any_autocast = getattr(
    torch._C, "_is_any_autocast_enabled", lambda: any(map(torch.is_autocast_enabled, ("cpu", "cuda")))
)
function_modes = torch._C._len_torch_function_stack
records_gradients = torch.is_grad_enabled
dispatch_modes = torch._C._len_torch_dispatch_stack
push_mode = torch._C._push_on_torch_dispatch_stack
"""Enters a mode of ours for this thread. torch's own way also sets flags of the whole process, and takes them back to what they
were before, which goes wrong among threads: in torch 2.6 ``torch.compile`` compiles nothing from then on, and does not say so."""
transformations: Callable[[], bool] = getattr(  # in a third of the time that it takes to be told which one it is
    torch._C, "_are_functorch_transforms_active", lambda: torch._C._functorch.peek_interpreter_stack() is not None
)
is_traced: Callable[[], bool] = torch._C._is_tracing
"""Whether ``torch.jit.trace`` writes down what is done."""
SURROUNDINGS: dict[str, Callable[[], Any]] = {
    "inference_mode": inference_mode,
    "any_autocast": any_autocast,
    "function_modes": function_modes,
    "dispatch_modes": dispatch_modes,
    "transformations": transformations,
    "is_traced": is_traced,
}
"""What tells of a context of torch's around the caller that would change what a graph computes."""
DISTURBED = " or ".join(f"{name}()" for name in SURROUNDINGS)
"""Whether there is one, for generated code: six calls from where they are needed, and none around them."""
is_disturbed: Callable[[], Any] = eval(
    f"lambda: {DISTURBED}", dict(SURROUNDINGS)
)  # which eval adds Python's own names to

Ambience = tuple[int, int, bool]
"""How many modes surround the caller, and whether autograd records."""


def pop_mode() -> None:
    """Leaves the mode that was entered last."""
    torch._C._pop_torch_dispatch_stack(None)


def ambience() -> Ambience:
    return dispatch_modes(), function_modes(), torch.is_grad_enabled()


def restore_ambience(before: Ambience) -> None:
    """Take away what a Ctrl-C left behind that struck between a ``with`` block and the ``__exit__`` that ends it.

    Only modes of ours and of torch's: one that the program has entered meanwhile is the program's to end.
    """
    dispatch, function, grad = before
    while dispatch_modes() > dispatch and _is_internal(torch._C._get_dispatch_stack_at(dispatch_modes() - 1)):
        pop_mode()
    while function_modes() > function and _is_internal(torch._C._get_function_stack_at(function_modes() - 1)):
        torch._C._pop_torch_function_stack()
    torch._C._set_grad_enabled(grad)
    _writes_out.set(False)


def _is_internal(mode: object) -> bool:
    return type(mode).__module__.partition(".")[0] in ("mlc_torch", "torch")


def unreal_context() -> str | None:
    """The name of a context around the caller in which nothing real is computed, if there is one.

    Tracing computes, but writes everything down, what has no place in its graph too, and ends the process where one of torch's
    errors is caught and the trace goes on.
    """
    if is_traced():
        return "torch.jit.trace"
    if torch._C._functorch.peek_interpreter_stack() is not None:
        return "a transformation of torch.func (vmap, grad and the like)"
    if torch._C._len_torch_dispatch_stack():
        from torch._subclasses.fake_tensor import FakeTensorMode  # loaded already by whoever uses it

        modes = [torch._C._get_dispatch_stack_at(i) for i in range(torch._C._len_torch_dispatch_stack())]
        if any(isinstance(mode, FakeTensorMode) for mode in modes):
            return "FakeTensorMode"
        if any(type(mode).__name__ == "ProxyTorchDispatchMode" for mode in modes):
            return "make_fx"
    return None


P = ParamSpec("P")
T = TypeVar("T")


@contextmanager
def _outside() -> Iterator[None]:
    from torch._functorch.pyfunctorch import temporarily_clear_interpreter_stack  # loaded by whoever uses one
    from torch.utils._python_dispatch import _disable_current_modes

    with torch.inference_mode(False), temporarily_clear_interpreter_stack(), _disable_current_modes():
        yield


def really(work: Callable[P, T]) -> Callable[P, T]:
    """``work``, done as if no inference mode, no dispatch mode and no transformation of torch's were around the caller.

    For what makes or reads the memory of tensors: a tensor that FakeTensorMode made in its place would be no memory, for good.
    """

    @functools.wraps(work)
    def call(*given: P.args, **named: P.kwargs) -> T:
        if dispatch_modes() or transformations() or inference_mode():
            with _outside():
                return work(*given, **named)
        return work(*given, **named)

    return call
