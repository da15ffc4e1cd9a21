"""Calling modules over images on the CPU: convolutions by the rules of ``layouts``, gradients that lie as their images do."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from mlc_torch.engine.following import Next, holds_convolutions, is_odd
from mlc_torch.engine.image_layout import lay_out_gradient
from mlc_torch.engine.layouts import called, convolve, laid_out_for_pooling
from mlc_torch.engine.plan import is_known
from mlc_torch.layers.normalization_modules import safe_for_group_norm


def call_over_images(
    module: nn.Module, own: dict[str, torch.Tensor], sources: list[torch.Tensor], following: Next = Next.OTHER
) -> Any:
    """What a module gives with ``own`` in place of its tensors. ``following``: what becomes of the result."""
    if holds_convolutions(module):
        made = convolve(module, own, sources, following)
    else:
        made = called(module, own, _laid_out_for(module, sources))
    if following is Next.POOLED:
        made = laid_out_for_pooling(made)
    for value in made if isinstance(made, (tuple, list)) else (made,):
        if isinstance(value, torch.Tensor) and value.dim() == 4:
            lay_out_gradient(value)
    return made


def _laid_out_for(module: nn.Module, sources: list[torch.Tensor]) -> list[torch.Tensor]:
    """What a module is given: contiguous where channels last might end the process, or take long.

    torch's gradient of group normalization does the former over an image with channels last that needs no gradient itself: it
    lies behind a stopped gradient, or behind weights that are not trained, or the program brings it so. Both passes do the latter
    for groups of channels that its vectors do not divide. Two convolutions and norms of 6 and 10 channels in 2 groups, 32 images
    of 28x28, relative to by hand: x86 with 1, 2 and 8 threads trained 2.2, 1.8 and 1.1, inference 2.5, 2.2 and 1.8; 12 and 20
    channels 1.5, 1.4 and .9, 1.8, 1.6 and 1.3; ARM, one thread, inference 1.5 and 1.2.
    """
    normalizing = [part for part in module.modules() if _may_normalize_groups(part)]
    if any(isinstance(part, nn.GroupNorm) and is_odd(part) for part in normalizing):
        return [s.contiguous() for s in sources]
    if not normalizing or not torch.is_grad_enabled():
        return sources
    return [safe_for_group_norm(s) if s.dim() > 1 else s for s in sources]


def _may_normalize_groups(module: nn.Module) -> bool:
    return isinstance(module, nn.GroupNorm) or not is_known(module)
