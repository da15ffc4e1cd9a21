"""Little results of a phase on the CPU that are written where the last pass has written them.

Finding memory for a result takes .6 of the 2 to 4 µs that a small operation of torch's takes, and looking at it in another
shape 1.6, which is done once where the result stands. (A step without and with it, µs, x86, one thread: a perceptron of 100
layers 6,100 and 4,500, 200 tiny layers 1,190 and 1,050, one layer of 4 by 10 134 and 113; an inference of one sample 30.2 and
29.2.) Nothing that a program can be given stands there, but for gradients: who hands one out makes it ``lasting``.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

import torch
from torch import fx

from mlc_torch.device import queueing
from mlc_torch.engine.in_place import WRITE_NOTHING
from mlc_torch.engine.trace import Recording
from mlc_torch.engine.views import bytes_of, is_view, may_keep, written_by
from mlc_torch.tensor.addresses import LITTLE

aten = torch.ops.aten

_MOST = 64 << 10
"""Bytes of a result. Of more, torch's part is so large that finding memory does not count."""
_MOST_GRADIENT = LITTLE
"""Bytes of a gradient, which is copied when somebody asks for it: as a tensor by ``lasting``, as bytes by ``host_bytes``."""
_ALL = 1 << 20
"""Bytes of all that stands in a plan: they are there as long as the plan is."""

TOLD_WHERE = frozenset(
    {
        *(operation.Tensor for operation in (aten.add, aten.sub, aten.mul, aten.div)),
        *(operation.Tensor for operation in (aten.eq, aten.ne, aten.lt, aten.le, aten.gt, aten.ge)),
        *(operation.Scalar for operation in (aten.eq, aten.ne, aten.lt, aten.le, aten.gt, aten.ge)),
        *(aten.pow.Tensor_Scalar, aten.pow.Tensor_Tensor, aten.where.self, aten.sum.dim_IntList, aten.mean.dim),
        *(
            operation.default
            for operation in (
                *(aten.mm, aten.addmm, aten._addmm_activation, aten.bmm, aten.baddbmm, aten.cat, aten.index_select),
                *(aten.tanh, aten.sigmoid, aten.gelu, aten.silu, aten.hardtanh, aten.elu, aten.leaky_relu),
                *(aten.softplus, aten.hardsigmoid, aten.hardswish, aten.mish, aten.clamp, aten.clamp_min),
                *(aten._softmax, aten._log_softmax, aten._log_softmax_backward_data, aten.addcmul, aten.amax),
                *(aten.maximum, aten.minimum, aten.neg, aten.abs, aten.sgn, aten.sign, aten.reciprocal, aten.square),
                *(aten.exp, aten.exp2, aten.expm1, aten.log, aten.log1p, aten.sqrt, aten.rsqrt, aten.erf),
                *(aten.sin, aten.cos, aten.tan, aten.asin, aten.acos, aten.atan, aten.sinh, aten.cosh),
                *(aten.floor, aten.ceil, aten.round, aten.logical_and, aten.logical_or, aten.logical_not),
            )
        ),
    }
)
"""Operations whose binding in Python takes ``out``, and computes the same with it. (``linear`` does not: of three dimensions
and with a bias it goes another way then.)"""


def standing_results(recording: Recording, gradients_too: bool) -> Collection[fx.Node]:
    """Which results are written into memory of theirs that stays. ``gradients_too``: those by parameters among them."""
    given = {n for n in (*recording.readable, *recording.wanted) if n is not None}
    gradients = {n for n in recording.gradients if n is not None}
    found: dict[fx.Node, None] = {}
    room = _ALL
    for phase, outside in (
        (recording.forward, given | gradients),
        (recording.backward, given if gradients_too else given | gradients),
    ):
        for node in phase:
            if not _is_told_where(node):
                continue
            places = _all_that_is(node)
            if places is None or not outside.isdisjoint(places):
                continue
            size = bytes_of(node)
            if size <= (_MOST if gradients.isdisjoint(places) else _MOST_GRADIENT) and size <= room:
                found[node] = None
                room -= size
    return found


def _is_told_where(node: fx.Node) -> bool:
    return node.target in TOLD_WHERE and "out" not in node.kwargs and "lies" in node.meta and bytes_of(node) > 0


def _all_that_is(node: fx.Node) -> Sequence[fx.Node] | None:
    """The nodes whose value lies in the memory of this one's; ``None`` where a function gets it that may do anything with it."""
    found = [node]
    for known in found:  # which grows on the way
        for user in known.users:
            written = written_by(user)
            is_unknown = written is None and user.target not in WRITE_NOTHING
            if user.op != "output" and (is_unknown or may_keep(user)):
                return None
            if is_view(user) or (written and known in written):
                found.append(user)
    return found


Lies = tuple[Sequence[int], Sequence[int], torch.dtype]
"""Shape, strides and type."""


def memory(shape: Sequence[int], strides: Sequence[int], dtype: torch.dtype) -> torch.Tensor:
    """Where a result stands."""
    return torch.empty_strided(shape, strides, dtype=dtype, device="cpu")


def lasting(gradient: torch.Tensor) -> torch.Tensor:
    """A gradient that no later pass changes: a copy, if those may write into the same memory. (A recorded GPU's always do.)"""
    if gradient.is_cuda:
        with queueing(gradient.device):
            return gradient.clone()
    return gradient.clone() if gradient.untyped_storage().nbytes() <= _MOST_GRADIENT else gradient
