"""Autograd's engine, called directly, and a way past autograd."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import Any

import torch

from mlc_torch.torch_private import available


def past_autograd() -> type[AbstractContextManager[Any]] | None:
    """What leads operations past autograd's part of torch's dispatcher, which even without a gradient asks each tensor for one.

    It holds for the thread that enters it. Left by a Ctrl-C between the block and its ``__exit__``, it ends as it is freed.
    """
    return torch._C._AutoDispatchBelowAutograd if available["below_autograd"] else None


def backward(
    roots: Sequence[torch.Tensor], gradients: Sequence[torch.Tensor], inputs: Sequence[torch.Tensor]
) -> tuple[torch.Tensor | None, ...]:
    """The gradients of ``inputs``, ``None`` where a root does not depend on one. Calling the engine saves half the time."""
    if available["engine"]:
        return torch.autograd.Variable._execution_engine.run_backward(
            tuple(roots), tuple(gradients), False, False, tuple(inputs), allow_unreachable=True, accumulate_grad=False
        )
    return torch.autograd.grad(roots, inputs, gradients, allow_unused=True)


@functools.cache
def wake_autograd(device: torch.device) -> None:
    """Let autograd's thread for a GPU use it once: torch warns where the first thing it does there is a product."""
    with torch.enable_grad():
        x = torch.zeros((), device=device, requires_grad=True)
        torch.autograd.grad(x * 2, x)
