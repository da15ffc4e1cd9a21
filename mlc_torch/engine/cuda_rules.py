"""Which kernels compute what on a GPU, where it was measured: one kind of GPU, known by its number."""

from __future__ import annotations

import functools
from typing import Any

import torch
from torch import fx

from mlc_torch.engine.product_rules import multiplies_in_full
from mlc_torch.engine.replacements import Replacement, bias_gradient, product_then_bias
from mlc_torch.engine.views import lies_in_order

aten = torch.ops.aten

_FEW_ROWS = 8
_LITTLE = 2**21
_DEEP = 1024
BIAS_APART = (
    "H200, torch 2.11, float32, microseconds in a recording by torch's addmm, which asks cuBLASLt for both, and so; rows x depth "
    "x columns: 32x128x10 12.8 and 7.7 (and 6 for a pause before it), 64x84x10 15.3 and 7.7, 32x784x64 18.7 and 10.2, "
    "256x128x50 14.4 and 11.1, 64x64x128 13.3 and 11.2; where it finds better kernels, 256x128x64 4.5 and 11.3, 1024x128x100 4.8 "
    "and 6.5; up to 8 rows 8x128x10 2.4 and 6.4; deep ones 64x2048x128 20 and 10, 1024x2048x1000 122 and 103."
)


@functools.cache
def is_measured(device: torch.device) -> bool:
    """Whether it is a GPU of the kind that these rules were found on."""
    if device.type != "cuda" or torch.version.hip:
        return False
    return torch.cuda.get_device_capability(device) == (9, 0)


def adds_bias_apart(rows: int, depth: int, columns: int, dtype: torch.dtype) -> bool:
    """Whether a product and a sum take less time than torch's one call for both."""
    if dtype != torch.float32 or rows <= _FEW_ROWS or columns == 1 or not multiplies_in_full():
        return False
    return depth >= _DEEP or rows * depth * columns < _LITTLE


def bias_apart(node: fx.Node) -> Replacement | None:
    of_bias, (rows, depth), (_, columns) = node.meta["shapes"]
    if node.kwargs or of_bias != (columns,) or not adds_bias_apart(rows, depth, columns, node.meta["dtype"]):
        return None
    bias, x, other = node.args
    return product_then_bias, (x, other, bias)


PIXELS = (
    "H200, torch 2.11, microseconds by torch's sum over images and pixels, and so; images x channels x pixels: 64x16x10x10 28 "
    "and 5.4, 64x6x28x28 16 and 5.6, 64x50x8x8 19 and 5.2, 64x32x28x28 16 and 7.1, 16x64x56x56 16 and 12. Beside the other "
    "gradients, which do not wait for it."
)


def bias_by_itself(node: fx.Node) -> Replacement | None:
    """The gradients of a convolution, with that of its bias as an operation of its own."""
    given: Any = node.args
    grad, *rest, (by_x, by_weight, by_bias) = given
    shape, strides, dtype = grad.meta["lies"]
    if not (by_bias and (by_x or by_weight)) or dtype != torch.float32 or len(shape) != 4 or shape[0] == 1:
        return None
    if not lies_in_order(shape, strides):
        return None
    for user in node.users:
        if user.args[1] == 2:
            user.target, user.args = bias_gradient, (grad,)
    return aten.convolution_backward.default, (grad, *rest, [by_x, by_weight, False])
