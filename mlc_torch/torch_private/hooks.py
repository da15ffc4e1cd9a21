"""The hooks that torch calls for every module, and a way past them."""

from __future__ import annotations

from typing import Any

import torch


def hooks_on_every_module() -> tuple[dict[Any, Any], ...]:
    """Where torch keeps the hooks that it calls for every module, in the order of a module's own: of the forward pass, before it,
    and the same of the backward pass. (``register_module_forward_hook`` and its relatives fill them.)"""
    home = torch.nn.modules.module
    names = ("forward_hooks", "forward_pre_hooks", "backward_hooks", "backward_pre_hooks")
    return tuple(getattr(home, f"_global_{name}", {}) for name in names)


def call_past_hooks_on_every_module(module: torch.nn.Module) -> None:
    """From now on a call of this module, or of one inside it, calls no such hook. Those with hooks of their own stay as they
    are."""
    for m in module.modules():
        own = m._forward_hooks or m._forward_pre_hooks or m._backward_hooks or m._backward_pre_hooks
        if not own and not isinstance(m, torch.jit.ScriptModule):
            vars(m).update(_compiled_call_impl=m.forward)  # what ``Module.compile`` sets, and a call looks at first
