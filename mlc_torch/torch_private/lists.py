"""Work on many tensors in one call."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from operator import call
from typing import Any

import torch

from mlc_torch.torch_private import available
from mlc_torch.torch_private.modes import is_written_out

Tensors = list[torch.Tensor]
Call = Callable[[], Any]


def at_once(calls: Sequence[Call]) -> None:
    """Make these calls one behind the other from C: where all of them are written in C, no Ctrl-C comes between them."""
    deque(map(call, calls), 0)


def copy_all(targets: Tensors, sources: Tensors) -> None:
    """Copy each source into its target, in one call where torch has one. None at all is well, too; torch refuses that."""
    if not targets:
        return
    with torch.no_grad():
        if available["foreach"] and not is_written_out():  # functionalization loses what this one wrote
            torch._foreach_copy_(targets, sources)
        else:  # one behind the other from C, so that no Ctrl-C comes between them
            deque(map(torch.Tensor.copy_, targets, sources), 0)


_ON_ONE: dict[str, Callable[..., torch.Tensor]] = {
    "norm": torch.linalg.vector_norm,
}
"""Where a tensor's own method has another name, or there is none."""


def foreach(name: str, *args: Any, **kw: Any) -> Tensors:
    """``torch._foreach_<name>``: one call over a list of tensors, or the same call on each."""
    if available["foreach"]:
        return getattr(torch, f"_foreach_{name}")(*args, **kw)
    tensors = args[0]
    lists = [a if isinstance(a, (list, tuple)) else [a] * len(tensors) for a in args]
    method = _ON_ONE.get(name) or getattr(torch.Tensor, name)
    return [method(*each, **kw) for each in zip(*lists, strict=True)]
