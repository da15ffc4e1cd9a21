"""An LSTM's plain recurrence with its gradient written out, for the CPU.

Autograd would repeat the small product for the recurrent weights' gradient at every step and record a dozen nodes for
each; here each weight gradient is one product over all steps. The loops over time are operations of their own, so that
whoever records a network sees two of them and not thousands.
"""

from __future__ import annotations

import torch
from torch import Tensor

from mlc_torch.layers.lstm_loop import gradient_by_loop, loop_sequence, project
from mlc_torch.layers.lstm_rule import is_differentiated, recurrent_factor
from mlc_torch.operations import operation
from mlc_torch.torch_private.scripts import scripted

# The loops. TorchScript reads the same text, so they keep to what both languages have.


@scripted
def loop_keeping_all(
    projected: Tensor, recurrent: Tensor, h0: Tensor, c0: Tensor, reverse: bool
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Every h and c (the initial ones too), every gate and tanh(c)."""
    time, hidden = projected.size(0), h0.size(1)
    before, after = (1, 0) if reverse else (0, 1)
    gates = projected.clone()
    hs = torch.empty([time + 1, h0.size(0), hidden], dtype=h0.dtype, device=h0.device)
    cs, squashed = torch.empty_like(hs), torch.empty_like(hs[1:])
    gate, h, c, tanh_c = gates.unbind(0), hs.unbind(0), cs.unbind(0), squashed.unbind(0)
    h[time * before].copy_(h0)
    c[time * before].copy_(c0)
    for n in range(time):
        t = time - 1 - n if reverse else n
        both, g, o = gate[t].addmm_(h[t + before], recurrent).split([2 * hidden, hidden, hidden], 1)
        both.sigmoid_()
        g.tanh_()
        o.sigmoid_()
        i, f = both.split(hidden, 1)
        torch.mul(i, g, out=c[t + after]).addcmul_(f, c[t + before])
        torch.tanh(c[t + after], out=tanh_c[t])
        torch.mul(o, tanh_c[t], out=h[t + after])
    return hs, cs, gates, squashed


@scripted
def loop_keeping_nothing(
    projected: Tensor, recurrent: Tensor, h: Tensor, c: Tensor, reverse: bool
) -> tuple[Tensor, Tensor, Tensor]:
    """The outputs and the last h and c."""
    steps = projected.unbind(0)
    made: list[Tensor] = []
    for n in range(len(steps)):
        i, f, g, o = torch.addmm(steps[len(steps) - 1 - n if reverse else n], h, recurrent).chunk(4, 1)
        c = torch.addcmul(f.sigmoid_() * c, i.sigmoid_(), g.tanh_())
        h = o.sigmoid_() * torch.tanh(c)
        made.append(h)
    if reverse:
        made.reverse()
    return torch.stack(made), h, c


@scripted
def loop_back(
    grad_outputs: Tensor,
    grad_h: Tensor,
    grad_c: Tensor,
    wh: Tensor,
    cs: Tensor,
    gates: Tensor,
    squashed: Tensor,
    reverse: bool,
) -> tuple[Tensor, Tensor, Tensor]:
    """The gradients of the gates' sums and of the initial states."""
    time, batch, hidden = squashed.size(0), squashed.size(1), squashed.size(2)
    i, f, g, o = gates.split(hidden, 2)
    c = cs[1:] if reverse else cs[:-1]
    # How much the sums inside the gates move what they act on: c' for i, f and g, h' for o.
    by_c = torch.stack([g * i * (1 - i), c * f * (1 - f), i * (1 - g * g)], 2).unbind(0)
    by_h = (squashed * o * (1 - o)).unbind(0)
    h_by_c = (o * (1 - squashed * squashed)).unbind(0)
    sums = torch.empty([time, batch, 4 * hidden], dtype=gates.dtype, device=gates.device)
    of_c = sums.view([time, batch, 4, hidden])[:, :, :3].unbind(0)
    of_h = sums[:, :, 3 * hidden :].unbind(0)
    whole, kept, given = sums.unbind(0), f.unbind(0), grad_outputs.unbind(0)
    for n in range(time):
        t = n if reverse else time - 1 - n
        grad_h = grad_h + given[t]
        grad_c = torch.addcmul(grad_c, grad_h, h_by_c[t])
        torch.mul(by_c[t], grad_c.unsqueeze(1), out=of_c[t])
        torch.mul(by_h[t], grad_h, out=of_h[t])
        grad_h, grad_c = torch.mm(whole[t], wh), grad_c * kept[t]
    return sums, grad_h, grad_c


# The operations


def _like_forward(projected: Tensor, wh: Tensor, h0: Tensor, c0: Tensor, reverse: bool) -> tuple[Tensor, ...]:
    time, (batch, hidden) = projected.shape[0], h0.shape
    hs = projected.new_empty(time + 1, batch, hidden)
    return hs, torch.empty_like(hs), torch.empty_like(projected), projected.new_empty(time, batch, hidden)


def _like_inference(projected: Tensor, wh: Tensor, h0: Tensor, c0: Tensor, reverse: bool) -> tuple[Tensor, ...]:
    return projected.new_empty(projected.shape[0], *h0.shape), torch.empty_like(h0), torch.empty_like(c0)


def _like_backward(
    grad_outputs: Tensor, grad_h: Tensor, grad_c: Tensor, wh: Tensor, cs: Tensor, gates: Tensor, squashed: Tensor,
    reverse: bool,
) -> tuple[Tensor, ...]:  # fmt: skip
    return torch.empty_like(gates), torch.empty_like(grad_h), torch.empty_like(grad_c)


@operation(
    "lstm_forward(Tensor projected, Tensor wh, Tensor h0, Tensor c0, bool reverse) -> (Tensor, Tensor, Tensor, Tensor)",
    _like_forward,
)
def run_forward(projected: Tensor, wh: Tensor, h0: Tensor, c0: Tensor, reverse: bool) -> tuple[Tensor, ...]:
    """From the projected inputs [time, batch, 4·hidden] to all that the gradient needs."""
    return loop_keeping_all(projected, recurrent_factor(wh, projected.shape), h0, c0, reverse)


@operation(
    "lstm_inference(Tensor projected, Tensor wh, Tensor h0, Tensor c0, bool reverse) -> (Tensor, Tensor, Tensor)",
    _like_inference,
)
def run_inference(projected: Tensor, wh: Tensor, h0: Tensor, c0: Tensor, reverse: bool) -> tuple[Tensor, ...]:
    return loop_keeping_nothing(projected, recurrent_factor(wh, projected.shape), h0, c0, reverse)


@operation(
    "lstm_backward(Tensor grad_outputs, Tensor grad_h, Tensor grad_c, Tensor wh, Tensor cs, Tensor gates, "
    "Tensor squashed, bool reverse) -> (Tensor, Tensor, Tensor)",
    _like_backward,
)
def run_backward(
    grad_outputs: Tensor, grad_h: Tensor, grad_c: Tensor, wh: Tensor, cs: Tensor, gates: Tensor, squashed: Tensor,
    reverse: bool,
) -> tuple[Tensor, ...]:  # fmt: skip
    return loop_back(grad_outputs, grad_h, grad_c, wh, cs, gates, squashed, reverse)


class OwnSequence(torch.autograd.Function):
    """(x, wi, wh, b, h0, c0, reverse) -> (outputs, h, c), as ``lstm_sequence`` without other options."""

    @staticmethod
    def forward(ctx, x, wi, wh, b, h0, c0, reverse):
        hs, cs, gates, squashed = torch.ops.mlc_torch.lstm_forward(project(x, wi, b), wh, h0, c0, reverse)
        # States that need no gradient are numbers, which hs and cs hold already; their owner may write the next ones into them.
        states = [state if needs else None for state, needs in zip((h0, c0), ctx.needs_input_grad[4:6], strict=True)]
        ctx.save_for_backward(x, wi, wh, b, *states, hs, cs, gates, squashed)
        ctx.reverse = reverse
        if reverse:
            return hs[:-1], hs[0].clone(), cs[0].clone()
        return hs[1:], hs[-1].clone(), cs[-1].clone()

    @staticmethod
    def backward(ctx, *gradients):
        x, wi, wh, b, h0, c0, hs, cs, gates, squashed = ctx.saved_tensors
        if torch.is_grad_enabled():
            first = -1 if ctx.reverse else 0
            states = hs[first] if h0 is None else h0, cs[first] if c0 is None else c0
            return gradient_by_loop(loop_sequence, (x, wi, wh, b, *states, ctx.reverse), gradients)
        sums, grad_h, grad_c = torch.ops.mlc_torch.lstm_backward(*gradients, wh, cs, gates, squashed, ctx.reverse)
        sums, h = sums.flatten(0, 1), hs[1:] if ctx.reverse else hs[:-1]
        needs = ctx.needs_input_grad
        return (
            (sums @ wi).view(x.shape) if needs[0] else None,
            sums.t() @ x.flatten(0, 1) if needs[1] else None,
            sums.t() @ h.flatten(0, 1) if needs[2] else None,
            sums.sum(0) if b is not None else None,
            grad_h,
            grad_c,
            None,
        )


def own_sequence(
    x: Tensor, wi: Tensor, wh: Tensor, b: Tensor | None, h0: Tensor, c0: Tensor, reverse: bool
) -> tuple[Tensor, Tensor, Tensor]:
    if is_differentiated(x, wi, wh, b, h0, c0):
        return OwnSequence.apply(x, wi, wh, b, h0, c0, reverse)
    return torch.ops.mlc_torch.lstm_inference(project(x, wi, b), wh, h0, c0, reverse)
