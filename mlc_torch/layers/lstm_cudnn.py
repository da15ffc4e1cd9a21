"""An LSTM's plain recurrence by cuDNN: a whole stack of layers, in one direction or both, in one call."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from mlc_torch.layers.lstm_gates import Gates, joined
from mlc_torch.layers.lstm_loop import Result, gradient_by_loop, loop_sequence
from mlc_torch.operations import operation
from mlc_torch.torch_private import available
from mlc_torch.torch_private.lstm import cudnn_lstm, cudnn_lstm_backward, lstm_views
from mlc_torch.torch_private.modes import transformations

_GIVEN = "Tensor x, Tensor memory, Tensor h0, Tensor c0, int directions"
_BACK = f"{_GIVEN}, Tensor outputs, Tensor kept, Tensor grad_outputs, Tensor grad_h, Tensor grad_c"


def has_cudnn_lstm(x: Tensor) -> bool:
    """Whether cuDNN computes whole stacks of plain layers over such a source."""
    # torch.version.hip: AMD's library stands behind the same device name, and takes other arguments. A program that is exported,
    # compiled or traced has torch's own operations, and so has one that torch.func transforms.
    if not x.is_cuda or torch.version.hip or not available["cudnn_lstm"]:
        return False
    if torch.compiler.is_compiling() or torch.jit.is_tracing() or transformations():  # type: ignore[attr-defined]
        return False
    return bool(x.numel() and torch.backends.cudnn.enabled) and torch.backends.cudnn.is_available()


def cudnn_stack(
    x: Tensor, weights: Sequence[tuple[Gates, Gates, Gates | None]], h0: Tensor, c0: Tensor, directions: int
) -> tuple[Tensor, Tensor, Tensor]:
    """A stack of plain layers over ``x`` [time, batch, input]: the outputs, and h and c as the states are given.

    ``weights`` are those of layer 0 forward, layer 0 backward, layer 1 forward and so on; the states have the shape
    [layers·directions, batch, hidden]. torch has two biases where ML Compute has one; the second is zero.
    """
    zeros = h0.new_zeros(4 * h0.shape[2])
    matrices = [gate for wi, wh, _ in weights for gate in (*wi, *wh)]
    biases = [gate for *_, b in weights for gate in (*([zeros] if b is None else b), zeros)]
    # One piece of memory, as cuDNN reads it: the matrices of all layers, then the biases.
    memory = joined([part.flatten() for part in (*matrices, *biases)])
    # What a recording keeps of the source is then what the library reads.
    given = (x.contiguous(), memory, h0.contiguous(), c0.contiguous())
    # Autocast does not know our operation, and would change what is inside of it.
    if torch.is_autocast_enabled(x.device.type):
        shorter = torch.get_autocast_dtype(x.device.type)
        with torch.autocast(x.device.type, enabled=False):
            return _called([t.to(shorter) for t in given], directions)
    return _called(given, directions)


def _called(given: Sequence[Tensor], directions: int) -> tuple[Tensor, Tensor, Tensor]:
    if torch.is_grad_enabled() and any(t.requires_grad for t in given):
        return CudnnStack.apply(*given, directions)
    return torch.ops.mlc_torch.lstm_cudnn_inference(*given, directions)


def _like_inference(x: Tensor, memory: Tensor, h0: Tensor, c0: Tensor, directions: int) -> tuple[Tensor, ...]:
    outputs = x.new_empty(*x.shape[:2], directions * h0.shape[2])
    return outputs, torch.empty_like(h0), torch.empty_like(c0)


def _like_forward(x: Tensor, memory: Tensor, h0: Tensor, c0: Tensor, directions: int) -> tuple[Tensor, ...]:
    raise RuntimeError("how much cuDNN's LSTM keeps for the gradient is known to it alone")


def _like_backward(x: Tensor, memory: Tensor, h0: Tensor, c0: Tensor, *_: object) -> tuple[Tensor, ...]:
    return tuple(torch.empty_like(t) for t in (x, h0, c0, memory))


def _like_backward_frozen(x: Tensor, memory: Tensor, h0: Tensor, c0: Tensor, *_: object) -> tuple[Tensor, ...]:
    return tuple(torch.empty_like(t) for t in (x, h0, c0))


@operation(f"lstm_cudnn_inference({_GIVEN}) -> (Tensor, Tensor, Tensor)", _like_inference)
def run_inference(x: Tensor, memory: Tensor, h0: Tensor, c0: Tensor, directions: int) -> tuple[Tensor, ...]:
    return cudnn_lstm(x, memory, h0, c0, directions, keeps=False)[:3]


@operation(f"lstm_cudnn_forward({_GIVEN}) -> (Tensor, Tensor, Tensor, Tensor)", _like_forward)
def run_forward(x: Tensor, memory: Tensor, h0: Tensor, c0: Tensor, directions: int) -> tuple[Tensor, ...]:
    """The outputs, h and c, and what the gradient needs."""
    return cudnn_lstm(x, memory, h0, c0, directions, keeps=True)


@operation(f"lstm_cudnn_backward({_BACK}) -> (Tensor, Tensor, Tensor, Tensor)", _like_backward)
def run_backward(
    x: Tensor, memory: Tensor, h0: Tensor, c0: Tensor, directions: int, outputs: Tensor, kept: Tensor,
    grad_outputs: Tensor, grad_h: Tensor, grad_c: Tensor,
) -> tuple[Tensor, ...]:  # fmt: skip
    return cudnn_lstm_backward(x, memory, h0, c0, directions, outputs, kept, grad_outputs, grad_h, grad_c, trained=True)


@operation(f"lstm_cudnn_backward_frozen({_BACK}) -> (Tensor, Tensor, Tensor)", _like_backward_frozen)
def run_backward_frozen(
    x: Tensor, memory: Tensor, h0: Tensor, c0: Tensor, directions: int, outputs: Tensor, kept: Tensor,
    grad_outputs: Tensor, grad_h: Tensor, grad_c: Tensor,
) -> tuple[Tensor, ...]:  # fmt: skip
    return cudnn_lstm_backward(
        x, memory, h0, c0, directions, outputs, kept, grad_outputs, grad_h, grad_c, trained=False
    )


def _by_loop(x: Tensor, memory: Tensor, h0: Tensor, c0: Tensor, directions: int) -> Result:
    """The stack of ``cudnn_stack``, layer by layer, direction by direction."""
    weights = iter(lstm_views(memory, x.shape[2], h0.shape, directions))
    hs: list[Tensor] = []
    cs: list[Tensor] = []
    for _ in range(len(h0) // directions):
        outputs = []
        for direction in range(directions):
            wi, wh, b, second_b = (next(weights) for _ in range(4))
            output, h, c = loop_sequence(x, wi, wh, b + second_b, h0[len(hs)], c0[len(cs)], direction == 1)
            outputs.append(output)
            hs.append(h)
            cs.append(c)
        x = torch.cat(outputs, 2)
    return x, torch.stack(hs), torch.stack(cs)


class CudnnStack(torch.autograd.Function):
    """(x, memory, h0, c0, directions) -> (outputs, h, c) by cuDNN.

    A recording sees one operation over one piece of memory: views of it, of which torch makes cuDNN's weights, would be
    copies of their own in it, and no longer lie side by side.
    """

    @staticmethod
    def forward(ctx, x, memory, h0, c0, directions):
        outputs, h, c, kept = torch.ops.mlc_torch.lstm_cudnn_forward(x, memory, h0, c0, directions)
        ctx.save_for_backward(x, memory, h0, c0, outputs, kept)
        ctx.directions, ctx.is_spent = directions, False
        ctx.set_materialize_grads(False)
        return outputs, h, c

    @staticmethod
    def backward(ctx, *gradients):
        x, memory, h0, c0, outputs, kept = ctx.saved_tensors
        if torch.is_grad_enabled():
            return gradient_by_loop(_by_loop, (x, memory, h0, c0, ctx.directions), gradients)
        if ctx.is_spent:  # the library writes into what it kept, and somebody goes back a second time
            *_, kept = torch.ops.mlc_torch.lstm_cudnn_forward(x, memory, h0, c0, ctx.directions)
        ctx.is_spent = True
        # Zeros of our own are made once where a recording is run many times.
        given = [torch.zeros_like(t) if g is None else g for g, t in zip(gradients, (outputs, h0, c0), strict=True)]
        back, args = torch.ops.mlc_torch, (x, memory, h0, c0, ctx.directions, outputs, kept, *given)
        if ctx.needs_input_grad[1]:
            by_x, by_h, by_c, by_memory = back.lstm_cudnn_backward(*args)
        else:
            (by_x, by_h, by_c), by_memory = back.lstm_cudnn_backward_frozen(*args), None
        return by_x, by_memory, by_h, by_c, None
