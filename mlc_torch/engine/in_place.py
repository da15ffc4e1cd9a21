"""Recorded operations that write where they may: into memory that nobody else wants any more. They change no number."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Any

import torch
from torch import fx
from torch.nn import functional as F

from mlc_torch.engine import gelu
from mlc_torch.engine.batch_norm import batch_norm_backward
from mlc_torch.engine.replacements import (
    bias_gradient,
    convolution_backward,
    convolution_of_one_channel,
    depthwise_backward,
    depthwise_backward_contiguous,
    product_then_bias,
    product_turned,
    product_with_transposed_source,
    product_with_transposed_weight,
)
from mlc_torch.engine.views import STATISTICS, bytes_of, is_view, may_keep, may_write

aten = torch.ops.aten


def work_in_place(node: fx.Node) -> None:
    """Whatever of it applies to a node, in the order in which it may come about."""
    _surround(node)
    _add_in_place(node)
    _activate_in_place(node)


def _surround(node: fx.Node) -> None:
    """The gradient of a slice, or of a slice of a slice, laid out another way or not: zeros once, what came inside."""
    given: Any = node.args
    if node.target is aten.slice_backward.default:
        part, _, *where = given
        slices: tuple[Any, ...] = (tuple(where),)
    elif node.target is aten.clone.default:
        part, slices = given[0], ()
    else:
        return
    if part.target is zeros_around:
        part, *_, inside = part.args
        slices += inside
    if slices:
        shape, strides, _ = node.meta["lies"]
        node.target, node.args, node.kwargs = zeros_around, (part, shape, strides, slices), {}


def _add_in_place(node: fx.Node) -> None:
    """A sum in the memory of what is not needed any more; where that is a slice's gradient, without its zeros."""
    if node.target is not aten.add.Tensor or node.kwargs:
        return
    given: Any = node.args
    spare = [(a, b) for a, b in (given, given[::-1]) if isinstance(a, fx.Node) and _is_to_spare(a, node)]
    for total, other in spare:
        if isinstance(other, fx.Node) and other.target is zeros_around:
            part, *_, slices = other.args
            node.target, node.args = add_into_slice, (total, part, slices)
            return
    if spare:
        node.target, node.args = aten.add_.Tensor, spare[0]
        node.meta[_FOUND_OWN] = True


_IN_PLACE: dict[Any, Any] = {
    aten.relu.default: aten.relu_.default,
    aten.sigmoid.default: aten.sigmoid_.default,
    aten.tanh.default: aten.tanh_.default,
    aten.hardtanh.default: aten.hardtanh_.default,
    aten.hardsigmoid.default: aten.hardsigmoid_.default,
    aten.leaky_relu.default: aten.leaky_relu_.default,
    aten.elu.default: aten.elu_.default,
    aten.silu.default: aten.silu_.default,
    aten.gelu.default: aten.gelu_.default,
    **gelu.IN_PLACE,
}


_WRITES = frozenset(_IN_PLACE.values())
_FOUND_OWN = "in memory of its own"
"""Marks what was made to write into such memory, so that a chain of these is not followed to its beginning for each of them."""

_GRADIENT_IN_PLACE: dict[Any, Any] = {
    operation.default: operation.grad_input
    for operation in (
        *(aten.threshold_backward, aten.sigmoid_backward, aten.tanh_backward, aten.hardtanh_backward),
        *(aten.leaky_relu_backward, aten.elu_backward, aten.silu_backward, aten.gelu_backward),
    )
} | {gelu.gelu_gradient_by_slope: gelu.gelu_gradient_by_slope}


_LITTLE_GRADIENT = 64 << 10
"""Bytes. Operations that are told where to write take 1 to 3 µs longer to call; 16 KiB of a ReLU's gradient take 10.2 µs on a
Neoverse-N1 and 10.7 in place, 1 MiB 134 and 119."""


def _activate_in_place(node: fx.Node) -> None:
    """An activation, or its gradient, in the memory of what it is given first, where nobody needs that any more.

    (ReLU over 64 images of 16 channels of 32x32, two threads of an x86: 0.72 and 0.17 ms.)
    """
    given: Any = node.args
    if node.target in _IN_PLACE and _is_to_spare(given[0], node):
        node.target = _IN_PLACE[node.target]
        node.meta[_FOUND_OWN] = True
    elif node.target in _GRADIENT_IN_PLACE and bytes_of(node) > _LITTLE_GRADIENT and _is_to_spare(given[0], node):
        node.target, node.kwargs = _GRADIENT_IN_PLACE[node.target], {**node.kwargs, "grad_input": given[0]}


def _is_to_spare(node: fx.Node, user: fx.Node) -> bool:
    """Whether a value has memory of its own, laid out as ``user``'s result, and nobody else wants it."""
    return list(node.users) == [user] and node.meta.get("lies") == user.meta["lies"] and _has_own_memory(node)


def _has_own_memory(node: fx.Node) -> bool:
    """Whether a value lies where nothing else does; or is all that looks at such a value, in another shape.

    Not by calling itself: a chain of a thousand activations is longer than Python lets calls nest.
    """
    while True:
        maker: Any = node.args[0] if node.target is operator.getitem else node
        if maker.meta.get(_FOUND_OWN):
            return True
        if node.target is aten.view.default:
            maker = node
        elif (
            maker.target is not aten.add_.Tensor and maker.target not in _WRITES
        ):  # a module's own may write into anything
            is_made = maker.target in _MAKE_MEMORY or not (may_write(maker) or may_keep(maker))
            return not is_view(node) and is_made and maker.op == "call_function"
        source = maker.args[0]
        if list(source.users) != [maker]:
            return False
        node = source


Slices = Sequence[tuple[int, ...]]
"""Each has a dimension, a start, an end and a step, and is a slice of the one before."""


def _sliced(whole: torch.Tensor, slices: Slices) -> torch.Tensor:
    for dimension, start, end, step in slices:
        whole = aten.slice.Tensor(whole, dimension, start, end, step)
    return whole


def zeros_around(part: torch.Tensor, shape: Sequence[int], strides: Sequence[int], slices: Slices) -> torch.Tensor:
    """Zeros, and in the slice ``part``."""
    whole = part.new_empty_strided(shape, strides).zero_()
    _sliced(whole, slices).copy_(part)
    return whole


def add_into_slice(total: torch.Tensor, part: torch.Tensor, slices: Slices) -> torch.Tensor:
    """``total``, to whose slice ``part`` was added."""
    _sliced(total, slices).add_(part)
    return total


WRITE_NOTHING = frozenset(
    {
        *(F.linear, product_with_transposed_source, product_with_transposed_weight, convolution_of_one_channel),
        *(convolution_backward, depthwise_backward, depthwise_backward_contiguous, batch_norm_backward),
        *(product_then_bias, product_turned, bias_gradient, zeros_around),
    }
)
"""Functions that write into nothing they are given, keep nothing of it (which may be written over in the next pass), and whose
results are memory that nobody else has."""
_MAKE_MEMORY = WRITE_NOTHING.union(
    (add_into_slice, aten.add_.Tensor), gelu.IN_PLACE, _WRITES, _GRADIENT_IN_PLACE.values(), STATISTICS
)
"""Whose results are memory that nobody else has, although torch does not say so."""
