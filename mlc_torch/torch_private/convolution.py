"""torch's own convolution, whatever library it would choose."""

from __future__ import annotations

from typing import Any

import torch
from torch.nn import grad as grad_of

from mlc_torch.torch_private import available


def own_conv_forward(
    x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None, stride: Any, padding: Any
) -> torch.Tensor:
    """A plain convolution by torch's own kernel, whatever library it would choose."""
    if not available["own_conv"]:
        return torch.conv2d(x, weight, bias, stride, padding)
    return torch.ops.aten._slow_conv2d_forward(x, weight, weight.shape[2:], bias, stride, padding)


def own_conv_backward(
    grad: torch.Tensor, x: torch.Tensor, weight: torch.Tensor, stride: Any, padding: Any, by_x: bool, by_weight: bool
) -> tuple[torch.Tensor | None, torch.Tensor | None]:
    """The gradients of a plain convolution by torch's own kernel."""
    if not available["own_conv"]:
        found = [
            grad_of.conv2d_input(x.shape, weight, grad, stride, padding) if by_x else None,
            grad_of.conv2d_weight(x, weight.shape, grad, stride, padding) if by_weight else None,
        ]
        return found[0], found[1]
    own, size = torch.ops.aten._slow_conv2d_backward, weight.shape[2:]
    columns = x.element_size() * len(x) * weight.shape[1:].numel() * grad.shape[2:].numel()
    if not (by_x and by_weight and len(x) > 1 and _MANY < columns < _TOO_MANY):
        return own.output_mask(grad, x, weight, size, stride, padding, [by_x, by_weight, False])[:2]
    by_source, by_weights = torch.empty_like(x), [torch.empty_like(weight) for _ in range(2)]
    for images, part in zip((slice(0, len(x) // 2), slice(len(x) // 2, None)), by_weights, strict=True):
        into = {"grad_input": by_source[images], "grad_weight": part, "grad_bias": grad.new_empty(0)}
        own.grad_input(grad[images], x[images], weight, size, stride, padding, **into)
    return by_source, by_weights[0].add_(by_weights[1])


_MANY, _TOO_MANY = 1 << 20, 19 << 20
"""Bytes of the matrix that has every window of every image as a column. In between it is made for half of the images at a
time: that takes 4 % longer, and the gradient of a network's last layers, which comes while everything of its forward pass
is still there, needs less. A ResNet-20's step takes 1.04 of the memory that it does by hand, and not 1.09.
"""
