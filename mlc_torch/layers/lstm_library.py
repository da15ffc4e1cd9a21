"""An LSTM's plain recurrence by torch's own library for the CPU, oneDNN: a whole layer in one call, as in ``nn.LSTM``."""

from __future__ import annotations

import torch
from torch import Tensor

from mlc_torch.layers.lstm_loop import Result, gradient_by_loop, loop_sequence
from mlc_torch.layers.lstm_rule import is_differentiated
from mlc_torch.operations import operation
from mlc_torch.torch_private.lstm import library_lstm, library_lstm_backward

_GIVEN = "Tensor x, Tensor wi, Tensor wh, Tensor b, Tensor zeros, Tensor h0, Tensor c0"
"""``zeros`` are a second bias: torch has two where ML Compute has one."""


def _like_inference(
    x: Tensor, wi: Tensor, wh: Tensor, b: Tensor, zeros: Tensor, h0: Tensor, c0: Tensor, reverse: bool
) -> tuple[Tensor, ...]:
    return x.new_empty(x.shape[0], *h0.shape), torch.empty_like(h0), torch.empty_like(c0)


def _like_forward(
    x: Tensor, wi: Tensor, wh: Tensor, b: Tensor, zeros: Tensor, h0: Tensor, c0: Tensor, reverse: bool
) -> tuple[Tensor, ...]:
    # How much the library keeps for the gradient is known to it alone.
    kept = x.new_empty(0, dtype=torch.uint8)
    return *_like_inference(x, wi, wh, b, zeros, h0, c0, reverse), kept


def _like_backward(
    x: Tensor, wi: Tensor, wh: Tensor, b: Tensor, zeros: Tensor, h0: Tensor, c0: Tensor, outputs: Tensor, h: Tensor,
    c: Tensor, kept: Tensor, grad_outputs: Tensor | None, grad_h: Tensor | None, grad_c: Tensor | None, reverse: bool,
) -> tuple[Tensor, ...]:  # fmt: skip
    return tuple(torch.empty_like(t) for t in (x, wi, wh, b, zeros, h0, c0))


@operation(f"lstm_library_inference({_GIVEN}, bool reverse) -> (Tensor, Tensor, Tensor)", _like_inference)
def run_inference(
    x: Tensor, wi: Tensor, wh: Tensor, b: Tensor, zeros: Tensor, h0: Tensor, c0: Tensor, reverse: bool
) -> tuple[Tensor, ...]:
    return library_lstm(x, wi, wh, b, zeros, h0, c0, reverse, False)[:3]


@operation(f"lstm_library_forward({_GIVEN}, bool reverse) -> (Tensor, Tensor, Tensor, Tensor)", _like_forward)
def run_forward(
    x: Tensor, wi: Tensor, wh: Tensor, b: Tensor, zeros: Tensor, h0: Tensor, c0: Tensor, reverse: bool
) -> tuple[Tensor, ...]:
    """The outputs, h and c, and what the gradient needs, whatever torch's mode is."""
    return library_lstm(x, wi, wh, b, zeros, h0, c0, reverse, True)


@operation(
    f"lstm_library_backward({_GIVEN}, Tensor outputs, Tensor h, Tensor c, Tensor kept, Tensor? grad_outputs, "
    "Tensor? grad_h, Tensor? grad_c, bool reverse) -> (Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor)",
    _like_backward,
)
def run_backward(
    x: Tensor, wi: Tensor, wh: Tensor, b: Tensor, zeros: Tensor, h0: Tensor, c0: Tensor, outputs: Tensor, h: Tensor,
    c: Tensor, kept: Tensor, grad_outputs: Tensor | None, grad_h: Tensor | None, grad_c: Tensor | None, reverse: bool,
) -> tuple[Tensor, ...]:  # fmt: skip
    return library_lstm_backward(
        x, wi, wh, b, zeros, h0, c0, outputs, h, c, kept, grad_outputs, grad_h, grad_c, reverse
    )


def _by_loop(
    x: Tensor, wi: Tensor, wh: Tensor, b: Tensor, zeros: Tensor, h0: Tensor, c0: Tensor, reverse: bool
) -> Result:
    return loop_sequence(x, wi, wh, b, h0, c0, reverse)


class LibrarySequence(torch.autograd.Function):
    """(x, wi, wh, b, zeros, h0, c0, reverse) -> (outputs, h, c), as ``lstm_sequence`` without other options."""

    @staticmethod
    def forward(ctx, *given_and_reverse):
        *given, reverse = given_and_reverse
        # torch keeps for the gradient only in a mode in which it would also follow what is done here.
        outputs, h, c, kept = torch.ops.mlc_torch.lstm_library_forward(*(t.detach() for t in given), reverse)
        ctx.save_for_backward(*given, outputs, h, c, kept)
        ctx.reverse = reverse
        ctx.set_materialize_grads(False)
        return outputs, h, c

    @staticmethod
    def backward(ctx, *gradients):
        if torch.is_grad_enabled():
            return gradient_by_loop(_by_loop, (*ctx.saved_tensors[:7], ctx.reverse), gradients)
        found = torch.ops.mlc_torch.lstm_library_backward(*ctx.saved_tensors, *gradients, ctx.reverse)
        return *found, None


def library_sequence(
    x: Tensor, wi: Tensor, wh: Tensor, b: Tensor | None, zeros: Tensor, h0: Tensor, c0: Tensor, reverse: bool
) -> tuple[Tensor, Tensor, Tensor]:
    """``zeros`` stand for a bias that is not there, [4·hidden]."""
    # The library takes other layouts without a word, and reads them wrongly.
    given = (x.contiguous(), wi, wh, zeros if b is None else b, zeros, h0.contiguous(), c0.contiguous())
    if is_differentiated(*given):
        return LibrarySequence.apply(*given, reverse)
    return torch.ops.mlc_torch.lstm_library_inference(*given, reverse)
