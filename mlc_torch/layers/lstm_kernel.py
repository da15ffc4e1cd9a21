"""An LSTM's plain recurrence with its gradient written out, for the CPU.

Autograd would repeat the small product for the recurrent weights' gradient at every step and record a dozen nodes for
each; here each weight gradient is one product over all steps. Nothing is written in place, so that a trace of it is a
plain program too.
"""

from __future__ import annotations

import torch
from torch.autograd.function import once_differentiable
from torch.nn import functional as F


class PlainSequence(torch.autograd.Function):
    """(x, wi, wh, b, h0, c0) -> (outputs, h, c), as ``lstm_sequence`` without any option."""

    @staticmethod
    def forward(ctx, x, wi, wh, b, h, c):
        hidden, recurrent = h.shape[1], wh.t().contiguous()
        steps = []
        for projected in F.linear(x, wi, b).unbind(0):
            both, g, o = torch.addmm(projected, h, recurrent).split([2 * hidden, hidden, hidden], 1)
            both, g, o = torch.sigmoid(both), torch.tanh(g), torch.sigmoid(o)
            i, f = both.chunk(2, 1)
            new_c = torch.addcmul(f * c, i, g)
            squashed = torch.tanh(new_c)
            new_h = o * squashed
            steps.append((h, c, both, g, o, squashed, new_h))
            h, c = new_h, new_c
        *kept, outputs = (torch.stack(values) for values in zip(*steps, strict=True))
        ctx.save_for_backward(x, wi, wh, *kept)
        ctx.biased = b is not None
        return outputs, h, c

    @staticmethod
    @once_differentiable
    def backward(ctx, grad_outputs, grad_h, grad_c):
        x, wi, wh, hs, cs, both, g, o, squashed = ctx.saved_tensors
        i, f = both.chunk(2, 2)
        # How much the sums inside the gates move what they act on: c' for i, f and g, h' for o.
        slopes = torch.stack([g * i * (1 - i), cs * f * (1 - f), i * (1 - g * g), squashed * o * (1 - o)], 2)
        h_by_c = o * (1 - squashed * squashed)
        backwards = (reversed(values.unbind(0)) for values in (grad_outputs, h_by_c, slopes, f))
        steps = []
        for grad_output, h_by_new_c, slope, kept in zip(*backwards, strict=True):
            grad_h = grad_h + grad_output
            grad_c = torch.addcmul(grad_c, grad_h, h_by_new_c)
            steps.append((slope * torch.stack([grad_c, grad_c, grad_c, grad_h], 1)).flatten(1))
            grad_h, grad_c = steps[-1] @ wh, grad_c * kept
        sums = torch.cat(steps[::-1])
        needs = ctx.needs_input_grad
        return (
            (sums @ wi).view(x.shape) if needs[0] else None,
            sums.t() @ x.flatten(0, 1) if needs[1] else None,
            sums.t() @ hs.flatten(0, 1) if needs[2] else None,
            sums.sum(0) if ctx.biased else None,
            grad_h,
            grad_c,
        )
