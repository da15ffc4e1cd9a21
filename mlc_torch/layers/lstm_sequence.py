"""The recurrence of one LSTM layer in one direction (evidence.md D.17).

    i = σ(Wi·x + Ui·h + bi)    f = σ(Wf·x + Uf·h + bf)    g = tanh(Wg·x + Ug·h + bg)    o = σ(Wo·x + Uo·h + bo)
    c' = f∘c + i∘g             h' = o∘tanh(c')

With peepholes, i and f also see c and o also sees c'.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from mlc_torch.layers.lstm_cudnn import cudnn_stack, has_cudnn_lstm
from mlc_torch.layers.lstm_kernel import own_sequence
from mlc_torch.layers.lstm_library import library_sequence
from mlc_torch.layers.lstm_loop import Activation, Result, loop_sequence
from mlc_torch.layers.lstm_rule import Way, is_differentiated, way_for
from mlc_torch.torch_private.modes import transformations

Weights = tuple[torch.Tensor, torch.Tensor, torch.Tensor | None]


def lstm_sequence(
    x: torch.Tensor,
    wi: torch.Tensor,
    wh: torch.Tensor,
    b: torch.Tensor | None,
    h0: torch.Tensor,
    c0: torch.Tensor,
    peepholes: Sequence[torch.Tensor] | None = None,
    activations: Sequence[Activation] | None = None,
    lengths: torch.Tensor | None = None,
    reverse: bool = False,
    no_bias: torch.Tensor | None = None,
) -> Result:
    """Run over ``x`` [time, batch, input] and give the outputs [time, batch, hidden] and the final h and c.

    ``wi`` [4·hidden, input], ``wh`` [4·hidden, hidden], ``b`` [4·hidden] and the four ``peepholes`` hold the gates in the order
    i, f, g, o. ``activations`` are those of the four gates and of the output, ``None`` for σ, σ, tanh, σ, tanh.
    ``lengths`` [batch] ends each sequence at its own step; ``reverse`` runs from there to step 0. ``no_bias`` are zeros
    [4·hidden], if they are at hand.
    """
    if peepholes is None and activations is None and lengths is None:
        return _plain(x, wi, wh, b, h0, c0, reverse, no_bias)
    return loop_sequence(x, wi, wh, b, h0, c0, reverse, peepholes, activations, lengths)


def _plain(
    x: torch.Tensor,
    wi: torch.Tensor,
    wh: torch.Tensor,
    b: torch.Tensor | None,
    h0: torch.Tensor,
    c0: torch.Tensor,
    reverse: bool,
    no_bias: torch.Tensor | None,
) -> Result:
    """Where nothing is special: the device's own LSTM, oneDNN's, or ours."""
    # MPSGraph's LSTM is only known to be sound in float32, and for one layer in one direction.
    by_mps = x.device.type == "mps" and x.dtype == torch.float32
    if by_mps or has_cudnn_lstm(x):
        run = _by_mps if by_mps else _by_cudnn
        outputs, h, c = run(x.flip(0) if reverse else x, wi, wh, b, h0.unsqueeze(0), c0.unsqueeze(0))
        return outputs.flip(0) if reverse else outputs, h[0], c[0]
    # Autocast and torch.func do not know operations of ours, and oneDNN's LSTM of short numbers is not there on every processor.
    unknown = torch.compiler.is_compiling() or torch.is_autocast_enabled("cpu") or transformations()
    if x.device.type == "cpu" and not unknown:
        if way_for(x, wh.shape[1], infers=not is_differentiated(x, wi, wh, b, h0, c0)) is Way.own:
            return own_sequence(x, wi, wh, b, h0, c0, reverse)
        zeros = wi.new_zeros(wi.shape[0]) if no_bias is None else no_bias
        return library_sequence(x, wi, wh, b, zeros, h0, c0, reverse)
    return loop_sequence(x, wi, wh, b, h0, c0, reverse)


def _by_cudnn(x: Tensor, wi: Tensor, wh: Tensor, b: Tensor | None, h0: Tensor, c0: Tensor) -> Result:
    return cudnn_stack(x, [([wi], [wh], None if b is None else [b])], h0, c0, 1)


def _by_mps(x: Tensor, wi: Tensor, wh: Tensor, b: Tensor | None, h0: Tensor, c0: Tensor) -> Result:
    zeros = wi.new_zeros(wi.shape[0])  # torch has two biases where ML Compute has one
    weights, states = [wi, wh, zeros if b is None else b, zeros], (h0.contiguous(), c0.contiguous())
    return torch.lstm(x, states, weights, True, 1, 0.0, torch.is_grad_enabled(), False, False)
