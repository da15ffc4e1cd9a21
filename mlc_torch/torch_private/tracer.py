"""torch's ``make_fx`` for one thread, while others go on.

``make_fx`` works by dispatch modes, which are the thread's. Around them it calls ``fx.Tracer.trace``, which is made for
symbolic tracing: it replaces ``nn.Module.__call__`` and sets a flag, both for the whole process. A tracer of tensors needs
neither. Meanwhile every function of ``torch.compile`` would refuse to run, in all threads and in the traced modules.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from typing import Any

import torch
from torch import fx
from torch.fx.experimental import proxy_tensor

from mlc_torch.torch_private import available

_BASE: Any = getattr(proxy_tensor, "_MakefxTracer", object)
_USED = ("_MakefxTracer", "_set_make_fx_tracer", "decompose", "disable_autocast_cache", "wrap_key")
_FAKE = getattr(_BASE, "_convert_args_to_fake", None)
_FAKES_BY = [] if _FAKE is None else [*inspect.signature(_FAKE).parameters][1:]
"""What the method takes that makes tensors without data."""
_KNOWN = all(hasattr(proxy_tensor, name) for name in _USED) and _FAKES_BY in (["args"], ["f", "args"])
"""Whether its tracer is made as that of torch 2.13 or 2.15; that of 2.11 is not."""


class _Tracer(_BASE):
    """torch's own, modes and all, but for the step that calls ``fx.Tracer.trace``."""

    def _trace_inner(self, f: Callable[..., Any], *args: Any) -> fx.GraphModule:
        tracer = self.fx_tracer
        given = self._convert_args_to_fake(*[{"f": f, "args": args}[name] for name in _FAKES_BY])
        # What ``fx.Tracer.trace`` begins with.
        tracer.root, tracer.graph, tracer.tensor_attrs = torch.nn.Module(), fx.Graph(tracer_cls=type(tracer)), {}
        places = [tracer.create_proxy("placeholder", f"in{n}", (), {}) for n in range(len(args))]
        with ExitStack() as stack:
            for mode in (self.fake_tensor_mode, self.torch_fn_metadata_mode, self.proxy_mode):
                stack.enter_context(mode)
            stack.enter_context(proxy_tensor.decompose(self.decomposition_table))  # asks for the mode before it
            stack.enter_context(proxy_tensor.disable_autocast_cache())
            stack.enter_context(proxy_tensor._set_make_fx_tracer(self))  # for operations that have graphs of their own
            made = proxy_tensor.wrap_key(f, given, tracer, False)(*places)
            tracer.create_node("output", "output", (tracer.create_arg(made),), {})
        return fx.GraphModule(tracer.root, tracer.graph)


def traced(function: Callable[..., Any], given: Sequence[torch.Tensor], table: Mapping[Any, Any]) -> fx.GraphModule:
    """The operations of ``function``, found without data; those in ``table`` as what that makes of them."""
    if not (available["quiet_tracer"] and _KNOWN):
        return proxy_tensor.make_fx(
            function, decomposition_table=dict(table), tracing_mode="fake", _allow_non_fake_inputs=True
        )(*given)
    tracer = _Tracer(
        decomposition_table=table,
        tracing_mode="fake",
        _allow_non_fake_inputs=True,
        pre_dispatch=False,
        record_module_stack=False,
        _allow_fake_constant=False,
        _error_on_data_dependent_ops=True,
    )
    return tracer.trace(function, *given)
