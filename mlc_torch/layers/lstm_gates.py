"""The gates of an LSTM layer, which are tensors of their own in ML Compute, side by side."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from mlc_torch.torch_private.modes import transformations

Gates = Sequence[Tensor]
"""The gates i, f, g, o of one layer in one direction, or one tensor of all four."""


def joined(parts: Sequence[Tensor]) -> Tensor:
    """Several tensors as one, along their first dimension: the gates of a layer, so that one product serves all of them."""
    if torch.is_grad_enabled() and not (torch.compiler.is_compiling() or transformations()):
        return _Joined.apply(*parts)
    return torch.cat(list(parts))


class _Joined(torch.autograd.Function):
    """Concatenation, whose gradient comes apart in one call and not in one for each part."""

    @staticmethod
    def forward(ctx, *parts):
        ctx.sizes = [len(part) for part in parts]
        return torch.cat(parts)

    @staticmethod
    def backward(ctx, grad):
        return torch.split_with_sizes(grad, ctx.sizes)
