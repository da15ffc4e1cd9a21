"""An LSTM's plain recurrence with its gradient written out, for the CPU.

Autograd would repeat the small product for the recurrent weights' gradient at every step and record a dozen nodes for
each; here each weight gradient is one product over all steps. The two loops over time are operations of their own, so
that whoever records a network sees two of them and not thousands.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn import functional as F

from mlc_torch.operations import operation


def _like_forward(projected: Tensor, wh: Tensor, h0: Tensor, c0: Tensor) -> tuple[Tensor, ...]:
    time, (batch, hidden) = projected.shape[0], h0.shape
    hs = projected.new_empty(time + 1, batch, hidden)
    return hs, torch.empty_like(hs), torch.empty_like(projected), projected.new_empty(time, batch, hidden)


def _like_backward(
    grad_outputs: Tensor, grad_h: Tensor, grad_c: Tensor, wh: Tensor, cs: Tensor, gates: Tensor, squashed: Tensor
) -> tuple[Tensor, ...]:
    return torch.empty_like(gates), torch.empty_like(grad_h), torch.empty_like(grad_c)


@operation(
    "lstm_forward(Tensor projected, Tensor wh, Tensor h0, Tensor c0) -> (Tensor, Tensor, Tensor, Tensor)", _like_forward
)
def run_forward(projected: Tensor, wh: Tensor, h0: Tensor, c0: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """From the projected inputs [time, batch, 4·hidden] to every h and c (the initial ones first), every gate and tanh(c)."""
    time, batch, hidden = projected.shape[0], *h0.shape
    gates, recurrent = projected.clone(), wh.t().contiguous()  # half the time of a transposed product for small batches
    hs, cs = (torch.empty(time + 1, batch, hidden, dtype=h0.dtype, device=h0.device) for _ in range(2))
    squashed = torch.empty_like(hs[1:])
    hs[0], cs[0] = h0, c0
    steps = zip(gates.unbind(0), hs.unbind(0), cs.unbind(0), squashed.unbind(0), strict=False)
    next_h, next_c = hs[1:].unbind(0), cs[1:].unbind(0)
    for t, (gate, h, c, tanh_c) in enumerate(steps):
        gate.addmm_(h, recurrent)
        both, g, o = gate.split([2 * hidden, hidden, hidden], 1)
        both.sigmoid_()
        g.tanh_()
        o.sigmoid_()
        i, f = both.split(hidden, 1)
        torch.mul(i, g, out=next_c[t]).addcmul_(f, c)
        torch.tanh(next_c[t], out=tanh_c)
        torch.mul(o, tanh_c, out=next_h[t])
    return hs, cs, gates, squashed


@operation(
    "lstm_backward(Tensor grad_outputs, Tensor grad_h, Tensor grad_c, Tensor wh, Tensor cs, Tensor gates, "
    "Tensor squashed) -> (Tensor, Tensor, Tensor)",
    _like_backward,
)
def run_backward(
    grad_outputs: Tensor, grad_h: Tensor, grad_c: Tensor, wh: Tensor, cs: Tensor, gates: Tensor, squashed: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """From the gradients of the outputs and final states to those of the gates' sums and of the initial states."""
    time, batch, hidden = squashed.shape
    i, f, g, o = gates.split(hidden, 2)
    # How much the sums inside the gates move what they act on: c' for i, f and g, h' for o.
    by_c = torch.stack([g * i * (1 - i), cs[:-1] * f * (1 - f), i * (1 - g * g)], 2).unbind(0)
    by_h = (squashed * o * (1 - o)).unbind(0)
    h_by_c = (o * (1 - squashed * squashed)).unbind(0)
    sums = torch.empty(time, batch, 4 * hidden, dtype=gates.dtype, device=gates.device)
    of_c = sums.view(time, batch, 4, hidden)[:, :, :3].unbind(0)
    of_h = sums[:, :, 3 * hidden :].unbind(0)
    whole, kept, given = sums.unbind(0), f.unbind(0), grad_outputs.unbind(0)
    for t in range(time - 1, -1, -1):
        grad_h = grad_h + given[t]
        grad_c = torch.addcmul(grad_c, grad_h, h_by_c[t])
        torch.mul(by_c[t], grad_c.unsqueeze(1), out=of_c[t])
        torch.mul(by_h[t], grad_h, out=of_h[t])
        grad_h, grad_c = torch.mm(whole[t], wh), grad_c * kept[t]
    return sums, grad_h, grad_c


class PlainSequence(torch.autograd.Function):
    """(x, wi, wh, b, h0, c0) -> (outputs, h, c), as ``lstm_sequence`` without any option."""

    @staticmethod
    def forward(ctx, x, wi, wh, b, h0, c0):
        hs, cs, gates, squashed = torch.ops.mlc_torch.lstm_forward(F.linear(x, wi, b), wh, h0, c0)
        ctx.save_for_backward(x, wi, wh, hs, cs, gates, squashed)
        ctx.biased = b is not None
        return hs[1:], hs[-1].clone(), cs[-1].clone()

    @staticmethod
    @once_differentiable
    def backward(ctx, grad_outputs, grad_h, grad_c):
        x, wi, wh, hs, cs, gates, squashed = ctx.saved_tensors
        sums, grad_h, grad_c = torch.ops.mlc_torch.lstm_backward(grad_outputs, grad_h, grad_c, wh, cs, gates, squashed)
        sums = sums.flatten(0, 1)
        needs = ctx.needs_input_grad
        return (
            (sums @ wi).view(x.shape) if needs[0] else None,
            sums.t() @ x.flatten(0, 1) if needs[1] else None,
            sums.t() @ hs[:-1].flatten(0, 1) if needs[2] else None,
            sums.sum(0) if ctx.biased else None,
            grad_h,
            grad_c,
        )
