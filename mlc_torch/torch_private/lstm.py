"""LSTMs by torch's libraries: calls that its documentation does not promise.

oneDNN computes a layer on the CPU, cuDNN a whole stack on a GPU. Where they are not available, loops of our own do.
"""

from __future__ import annotations

import math
import weakref
from collections.abc import Callable, Iterable, Sequence
from typing import TypeVar

import torch
from torch import nn

from mlc_torch.torch_private import available
from mlc_torch.torch_private.lists import Tensors
from mlc_torch.torch_private.modes import is_written_out

T = TypeVar("T")


def has_library_lstm() -> bool:
    """Whether ``nn.LSTM`` would compute on the CPU by oneDNN, and nobody wants to see into it."""
    if is_written_out():
        return False  # how much memory it keeps for the gradient cannot be told without running it
    return available["library_lstm"] and torch.backends.mkldnn.is_available() and bool(torch.backends.mkldnn.enabled)


_LSTM = 2
"""The number of the LSTM among the recurrent networks of oneDNN and of cuDNN."""


def library_lstm(
    x: torch.Tensor,
    wi: torch.Tensor,
    wh: torch.Tensor,
    b: torch.Tensor,
    second_b: torch.Tensor,
    h0: torch.Tensor,
    c0: torch.Tensor,
    reverse: bool,
    keeps: bool,
) -> tuple[torch.Tensor, ...]:
    """One LSTM layer by oneDNN: outputs, h, c, and what the gradient needs, if it ``keeps`` that."""
    mode = torch.is_grad_enabled()
    if mode is not keeps:  # torch's mode decides, not the argument; torch.set_grad_enabled would take ten times as long
        torch._C._set_grad_enabled(keeps)
    try:
        # Then: batch sizes, kind, hidden, layers, biases, both directions, batch first, training.
        return torch.mkldnn_rnn_layer(
            x, wi, wh, b, second_b, h0, c0, reverse, [], _LSTM, h0.shape[1], 1, True, False, False, keeps
        )
    finally:
        if mode is not keeps:
            torch._C._set_grad_enabled(mode)


def packed_for_library_lstm(
    wi: torch.Tensor, wh: torch.Tensor, shape: list[int], reverse: bool
) -> Sequence[torch.Tensor]:
    """The weights of a layer for ``library_lstm`` over a source of this shape, laid out as its kernels read them.

    It does so with other weights at every call, which takes as long as ten steps of a small layer.
    """
    if not available["packed_lstm"]:
        return wi, wh
    return torch.ops.mkldnn._reorder_mkldnn_rnn_layer_weight(wi, wh, wh.shape[1], reverse, True, False, shape)


def library_lstm_backward(
    x: torch.Tensor,
    wi: torch.Tensor,
    wh: torch.Tensor,
    b: torch.Tensor,
    second_b: torch.Tensor,
    h0: torch.Tensor,
    c0: torch.Tensor,
    outputs: torch.Tensor,
    h: torch.Tensor,
    c: torch.Tensor,
    kept: torch.Tensor,
    grad_outputs: torch.Tensor | None,
    grad_h: torch.Tensor | None,
    grad_c: torch.Tensor | None,
    reverse: bool,
) -> tuple[torch.Tensor, ...]:
    """The gradients of x, the weights, both biases, h0 and c0 from those of outputs, h and c, as far as there are any."""
    return torch.ops.aten.mkldnn_rnn_layer_backward.default(
        x, wi, wh, b, second_b, h0, c0, outputs, h, c, grad_outputs, grad_h, grad_c,
        reverse, _LSTM, h0.shape[1], 1, True, True, False, [], False, kept,
    )  # fmt: skip


def lstm_views(memory: torch.Tensor, inputs: int, states: Sequence[int], directions: int) -> Tensors:
    """An LSTM's weights in one piece of memory, the matrices of all layers and then the biases, as torch lists them."""
    places, _, hidden = states
    widths = [inputs if place < directions else directions * hidden for place in range(places)]
    matrices = [shape for width in widths for shape in ((4 * hidden, width), (4 * hidden, hidden))]
    shapes: list[tuple[int, ...]] = [*matrices, *[(4 * hidden,)] * 2 * places]
    parts = memory.split([math.prod(shape) for shape in shapes])
    views = [part.view(shape) for part, shape in zip(parts, shapes, strict=True)]
    count = 2 * places
    return [view for n in range(0, count, 2) for view in (*views[n : n + 2], *views[count + n : count + n + 2])]


def cudnn_lstm(
    x: torch.Tensor, memory: torch.Tensor, h0: torch.Tensor, c0: torch.Tensor, directions: int, keeps: bool
) -> tuple[torch.Tensor, ...]:
    """A stack of LSTM layers by cuDNN: outputs, h, c, and what the gradient needs, if it ``keeps`` that."""
    weights, layers = lstm_views(memory, x.shape[2], h0.shape, directions), len(h0) // directions
    # torch.lstm would find out by itself that they are one piece, but through their storage, where no recording follows.
    return torch._cudnn_rnn(
        x, weights, 4, memory, h0, c0, _LSTM, h0.shape[2], 0, layers, False, 0.0, keeps, directions == 2, [], None
    )[:4]


def cudnn_lstm_backward(
    x: torch.Tensor,
    memory: torch.Tensor,
    h0: torch.Tensor,
    c0: torch.Tensor,
    directions: int,
    outputs: torch.Tensor,
    kept: torch.Tensor,
    grad_outputs: torch.Tensor,
    grad_h: torch.Tensor,
    grad_c: torch.Tensor,
    trained: bool,
) -> tuple[torch.Tensor, ...]:
    """The gradients of x, h0 and c0 from those of outputs, h and c, and of the weights' memory, if that is ``trained``."""
    weights, layers = lstm_views(memory, x.shape[2], h0.shape, directions), len(h0) // directions
    by_x, by_h, by_c, by_weights = torch.ops.aten._cudnn_rnn_backward(
        x, weights, 4, memory, h0, c0, outputs, grad_outputs, grad_h, grad_c, _LSTM, h0.shape[2], 0, layers, False, 0.0,
        True, directions == 2, [], None, kept, [True, True, True, trained],
    )  # fmt: skip
    return (by_x, by_h, by_c, _in_one_piece(by_weights, weights, memory)) if trained else (by_x, by_h, by_c)


def _in_one_piece(gradients: Sequence[torch.Tensor], weights: Tensors, memory: torch.Tensor) -> torch.Tensor:
    """The gradients of parts of a piece of memory, the first of which begins it, as such a piece: most often they are one."""
    at, zero = gradients[0].data_ptr(), memory.data_ptr()
    is_one = len({g.untyped_storage().data_ptr() for g in gradients}) == 1
    if is_one and all(g.data_ptr() - at == w.data_ptr() - zero for g, w in zip(gradients, weights, strict=True)):
        return gradients[0].as_strided(memory.shape, (1,))
    in_order = sorted(zip(weights, gradients, strict=True), key=lambda pair: pair[0].data_ptr())
    return torch.cat([gradient.flatten() for _, gradient in in_order])


def own_weights_again(module: nn.Module) -> None:
    """Let the recurrent parts of a module compute with the parameters that they have.

    Each keeps a list of those of its last pass, which in a recording were others. Finding that out in the next pass, on CUDA it
    lays its weights out anew, in memory that is not the layer's; and until then ``flatten_parameters`` moves the others.
    """
    for part in recurrent_parts(module):
        own = [getattr(part, name, None) for name in part._flat_weights_names]
        part._flat_weights[:] = own
        part._flat_weight_refs[:] = [None if weight is None else weakref.ref(weight) for weight in own]


def recurrent_parts(module: nn.Module) -> list[nn.RNNBase]:
    return [part for part in module.modules() if isinstance(part, nn.RNNBase)]


def called_in_place(parts: Iterable[nn.RNNBase], call: Callable[[], T]) -> T:
    """What ``call`` gives. The weights of these parts then lie where they lay: many a module calls ``flatten_parameters`` in its
    forward pass, which on CUDA copies them into new memory."""
    lay = [(p, p.data) for part in parts for p in part.parameters()]
    try:
        return call()
    finally:
        for p, memory in lay:
            if p.data_ptr() != memory.data_ptr():
                p.data = memory
