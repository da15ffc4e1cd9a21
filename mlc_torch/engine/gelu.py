"""GELU and its slope, written with operations that torch computes fast where its own kernels are slow.

GELU is x·s(x). Its form "none" has s = Φ(x), the normal distribution's; its form "tanh" s = ½(1 + tanh u) = σ(2u), with
u = √(2/π)·(x + 0.044715·x³). Below, s is the share of x, and s + x·s′ is the slope. Where a gradient is to follow, the slope is
made together with GELU, from the same share, and kept in place of x: the gradient is a product then, and no more memory is
kept unless something else needs x as well. The data is gone through in pieces: working memory is no larger than one, and a
small piece stays in the processor's cache from one operation to the next.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Protocol

import torch
from torch import Tensor

TWICE, CUBE = 2 * math.sqrt(2 / math.pi), 0.044715
"""2u is ``TWICE`` · (x + ``CUBE`` · x³)."""

aten = torch.ops.aten

_sigmoid_backward = aten.sigmoid_backward.grad_input._op


class _Form(Protocol):
    """What is done with a piece. Numbers that torch only adds as tensors are made once for all pieces."""

    def __init__(self) -> None: ...

    def share(self, x: Tensor, made: Tensor) -> None:
        """Write the share of ``x`` into ``made``."""

    def slope(self, x: Tensor, share: Tensor, spare: Tensor, made: Tensor) -> None:
        """Write the slope into ``made``, which may be ``x`` or ``share``."""


class _BySigmoid:
    def __init__(self) -> None:
        self._twice = _number(TWICE)

    def share(self, x: Tensor, made: Tensor) -> None:
        torch.addcmul(self._twice, x, x, value=TWICE * CUBE, out=made)
        made.mul_(x).sigmoid_()

    def slope(self, x: Tensor, share: Tensor, spare: Tensor, made: Tensor) -> None:
        torch.addcmul(self._twice, x, x, value=3 * TWICE * CUBE, out=spare)
        _sigmoid_backward(spare, share, grad_input=spare)  # 0 for large x, before x³ can overflow
        torch.addcmul(share, spare, x, out=made)


class _ByErf:
    def __init__(self) -> None:
        self._half, self._zero = _number(0.5), _number(0)

    def share(self, x: Tensor, made: Tensor) -> None:
        torch.mul(x, math.sqrt(0.5), out=made)
        made.erf_()
        torch.add(self._half, made, alpha=0.5, out=made)

    def slope(self, x: Tensor, share: Tensor, spare: Tensor, made: Tensor) -> None:
        torch.addcmul(self._zero, x, x, value=-0.5, out=spare)
        torch.addcmul(share, spare.exp_(), x, value=1 / math.sqrt(2 * math.pi), out=made)


_FORMS: dict[str, type[_Form]] = {"tanh": _BySigmoid, "none": _ByErf}


def gelu_in_pieces(x: Tensor, count: int) -> Tensor:
    """GELU, in its form "tanh", of 32-bit numbers that lie one behind the other, in so many pieces."""
    form, made = _BySigmoid(), torch.empty_like(x)
    for part, share in _pieces(count, 0, x, made):
        form.share(part, share)
        share.mul_(part)
    return made


def gelu_in_pieces_(x: Tensor, count: int) -> Tensor:
    """The same in place."""
    form = _BySigmoid()
    for part, share in _pieces(count, 1, x):
        form.share(part, share)
        part.mul_(share)
    return x


def gelu_as_it_lies(x: Tensor, approximate: str) -> Tensor:
    """torch's own GELU of elements that lie one behind the other, in whatever order of the dimensions."""
    return aten.gelu(_flat(x), approximate=approximate).as_strided(x.shape, x.stride())


def gelu_as_it_lies_(x: Tensor, approximate: str) -> Tensor:
    """The same in place."""
    aten.gelu_(_flat(x), approximate=approximate)
    return x


def gelu_with_slope(x: Tensor, approximate: str, count: int) -> tuple[Tensor, Tensor]:
    """GELU and its slope, each in memory of its own."""
    form, made, slope = _FORMS[approximate](), torch.empty_like(x), torch.empty_like(x)
    for part, value, share, spare in _pieces(count, 1, x, made, slope):
        form.share(part, share)
        torch.mul(part, share, out=value)
        form.slope(part, share, spare, share)
    return made, slope


def gelu_with_slope_(x: Tensor, approximate: str, count: int) -> tuple[Tensor, Tensor]:
    """The same with the slope in the memory of ``x``."""
    form, made = _FORMS[approximate](), torch.empty_like(x)
    for part, value, share, spare in _pieces(count, 2, x, made):
        form.share(part, share)
        torch.mul(part, share, out=value)
        form.slope(part, share, spare, part)
    return made, x


IN_PLACE = {
    gelu_as_it_lies: gelu_as_it_lies_,
    gelu_in_pieces: gelu_in_pieces_,
    gelu_with_slope: gelu_with_slope_,
}
"""What to call in place of each where the memory of the source may be written over."""


def gelu_gradient_by_slope(grad: Tensor, slope: Tensor, *, grad_input: Tensor | None = None) -> Tensor:
    """The gradient, in memory of its own, or where ``grad_input`` is given, which is ``grad``, in that."""
    return torch.mul(grad, slope, out=grad_input)


def _pieces(count: int, more: int, *tensors: Tensor) -> Iterator[tuple[Tensor, ...]]:
    """For each piece its part of each of the tensors, and so many tensors more to work with."""
    if count == 1:
        yield *tensors, *(torch.empty_like(tensors[0]) for _ in range(more))
        return
    parts = [_flat(t).chunk(count) for t in tensors]  # of one size, but for a smaller one at the end
    memory = [torch.empty_like(parts[0][0]) for _ in range(more)]
    for part in zip(*parts, strict=True):
        length = len(part[0])
        yield *part, *(m if len(m) == length else m.narrow(0, 0, length) for m in memory)


def _flat(x: Tensor) -> Tensor:
    """The elements as they lie in memory."""
    return x.as_strided((x.numel(),), (1,))


def _number(value: float) -> Tensor:
    return torch.scalar_tensor(value, dtype=torch.float32, device="cpu")
