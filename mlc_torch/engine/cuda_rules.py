"""Which kernels compute what on a GPU of one kind, known by its number (compute capability 9.0).

All times are microseconds of an H200 with torch 2.11 and float32 numbers, inside of a recording. An H100 and a GH200 have that
number and the same kernels; there nobody has measured.
"""

from __future__ import annotations

import functools
from typing import Any

import torch
from torch import fx

from mlc_torch.engine.product_rules import multiplies_in_full
from mlc_torch.engine.replacements import Replacement, bias_gradient, product_turned
from mlc_torch.engine.standing import MadeOnce, made_once
from mlc_torch.engine.views import lies_in_order

aten = torch.ops.aten


@functools.cache
def is_measured(device: torch.device) -> bool:
    """Whether it is a GPU of the kind that these rules were found on, by its number."""
    if device.type != "cuda" or torch.version.hip:
        return False
    return torch.cuda.get_device_capability(device) == (9, 0)


_FEW_ROWS = 16
"""Up to so many cuBLASLt, which torch asks for a product and a bias, has kernels that take 2 to 4; cuBLAS, which it asks for a
product alone, has not."""

BIAS_APART = (
    "By torch's addmm, which asks cuBLASLt for both, and so; rows x depth x columns: 32x128x10 12.8 and 7.7, and 6 for a pause "
    "that is gone, 17x64x64 11.8 and 7.2, 64x84x10 15.3 and 7.7, 32x784x64 18.7 and 10.2, 64x64x128 13.3 and 11.2, 256x128x50 "
    "14.4 and 11.1; from 2 million multiplications on it has better ones, 256x128x64 4.5 and 11.3, 64x256x128 7.6 and 9.0, "
    "1024x128x100 4.8 and 6.5; but not for much depth, 128x512x512 20 and 12, 64x1568x128 19 and 13, 512x900x512 23 and 21; "
    "1024x784x1000 40 and 44."
)


def adds_bias_apart(rows: int, depth: int, columns: int, dtype: torch.dtype) -> bool:
    """Whether a product and a sum take less time than torch's one call for both."""
    if dtype != torch.float32 or rows <= _FEW_ROWS or columns == 1 or not multiplies_in_full():
        return False
    results = rows * columns
    return results * depth < 2**21 or (depth >= 512 and results <= 2**16) or (depth >= 768 and results < 2**19)


WITH_ZEROS = (
    "By torch's mm and so; rows x depth x columns, by a matrix: 8x128x128 52 and 3.9, 16x256x128 52 and 4.2, 2x100x64 5.1 and "
    "3.7, 8x128x400 5.6 and 3.9, 8x10x64 2.4 and 2.5; by a transposed one 8x128x100 52 and 2.5, 16x400x256 31 and 4.3, 2x128x10 "
    "5.1 and 2.0, 8x16x10 2.1 and 2.1; 8x2048x64 7.9 and 11. Wide results by a matrix: 8x128x784 3.3 and "
    "4.1, 16x128x784 9.6 and 4.2."
)


class WithZeros(MadeOnce):
    """A product as one with a bias of zeros, for which torch asks cuBLASLt."""

    def __init__(self, weight: torch.Tensor, columns: int) -> None:
        self._zeros = weight.new_zeros(columns)

    def __call__(self, x: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
        return torch.addmm(self._zeros, x, other)


def with_zeros(node: fx.Node) -> Replacement | None:
    """A few rows by a parameter, or by its transpose."""
    given: Any = node.args
    x, other = given
    (rows, depth), (_, columns) = node.meta["shapes"]
    weight = other
    while weight.target is aten.t.default:  # autograd transposes what is transposed
        weight = weight.args[0]
    if not weight.meta.get("stands") or not lies_in_order(*x.meta["lies"][:2]) or not 1 < rows <= _FEW_ROWS:
        return None
    if columns > 512 and rows <= _FEW_ROWS // 2:
        return None
    if depth >= 1024 or columns == 1 or node.meta["dtype"] != torch.float32 or not multiplies_in_full():
        return None
    return made_once(node, WithZeros, (weight, columns), (x, other))


TURNED = (
    "The gradient of few classes' weights, by torch's mm and so; samples x classes x inputs: 96x10x128 51 and 5.3, 128x7x128 52 "
    "and 5.9, 256x16x128 52 and 8.1, 1024x12x128 52 and 8.0; others take 3.4 to 6 by mm: 64x10x128 3.4 and 4.7, 128x10x64 5.2 "
    "and 6.0, 128x10x256 5.1 and 6.2, 128x17x128 4.5 and 6.0, 4096x10x128 8.8 and 11."
)


def turned(node: fx.Node) -> Replacement | None:
    """A transposed matrix by another one, where cuBLAS has chosen badly."""
    given: Any = node.args
    x, other = given
    (rows, depth), (_, columns) = node.meta["shapes"]
    if not (7 <= rows <= 16 and 64 < columns <= 128 and 96 <= depth <= 2048) or x.target is not aten.t.default:
        return None
    if node.meta["dtype"] != torch.float32 or not multiplies_in_full() or not lies_in_order(*other.meta["lies"][:2]):
        return None
    return product_turned, (x, other)


PIXELS = (
    "By torch's sum over images and pixels, and so; images x channels x pixels: 64x16x10x10 28 and 5.4, 64x6x28x28 16 and 5.6, "
    "64x50x8x8 19 and 5.2, 64x32x28x28 16 and 7.1, 64x64x56x56 32 and 23, 128x512x7x7 29 and 6.6, 256x6x28x28 9.9 and 8.0; "
    "32x8x64x64 8.6 and 9.2, 8x64x32x32 4.7 and 6.6. And nobody waits for it, as they do inside of torch's gradient."
)


def bias_by_itself(node: fx.Node) -> Replacement | None:
    """The gradients of a convolution, with that of its bias as an operation of its own."""
    given: Any = node.args
    grad, *rest, (by_x, by_weight, by_bias) = given
    shape, strides, dtype = grad.meta["lies"]
    if not (by_bias and (by_x or by_weight)) or dtype != torch.float32 or len(shape) != 4 or shape[0] < 64:
        return None
    if not lies_in_order(shape, strides):
        return None
    for user in list(node.users):
        if user.args[1] == 2:
            user.target, user.args = bias_gradient, (grad,)
    return aten.convolution_backward.default, (grad, *rest, [by_x, by_weight, False])
