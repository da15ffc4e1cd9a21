"""An LSTM layer's recurrence in torch's own operations: for every option, and differentiable as often as anybody likes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

Activation = Callable[[Tensor], Tensor]
Result = tuple[Tensor, Tensor, Tensor]

_STANDARD = (torch.sigmoid, torch.sigmoid, torch.tanh, torch.sigmoid, torch.tanh)


def project(x: Tensor, wi: Tensor, b: Tensor | None) -> Tensor:
    """Wi·x + b for every step, as one product of two dimensions: of three, torch would make one for each step."""
    return F.linear(x.flatten(0, 1), wi, b).unflatten(0, x.shape[:2])


def loop_sequence(
    x: Tensor,
    wi: Tensor,
    wh: Tensor,
    b: Tensor | None,
    h: Tensor,
    c: Tensor,
    reverse: bool,
    peepholes: Sequence[Tensor] | None = None,
    activations: Sequence[Activation] | None = None,
    lengths: Tensor | None = None,
) -> Result:
    """``lstm_sequence`` by a loop over time that knows every option; the input projection is one product for all steps."""
    input_gate, forget_gate, cell_gate, output_gate, output = activations or _STANDARD
    running = None
    if lengths is not None:
        steps = torch.arange(x.shape[0], device=x.device).view(-1, 1, 1)
        running = steps < lengths.view(1, -1, 1)
        # What lies past a sequence's end takes no part, whatever it holds: 0·NaN would reach the weights' gradient.
        x = torch.where(running, x, 0)
    projected = project(x, wi, b).unbind(0)
    alive = running.unbind(0) if running is not None else None
    recurrent = wh.t().contiguous()  # half the time of a transposed product for small batches
    nothing = torch.zeros_like(h)
    outputs: list[Tensor] = [nothing] * x.shape[0]
    for t in range(x.shape[0] - 1, -1, -1) if reverse else range(x.shape[0]):
        i, f, g, o = torch.addmm(projected[t], h, recurrent).chunk(4, 1)
        if peepholes is not None:
            # The cell gate has none; its tensor is part of the API's lists all the same.
            i, f = i + peepholes[0] * c, f + peepholes[1] * c
        new_c = forget_gate(f) * c + input_gate(i) * cell_gate(g)
        if peepholes is not None:
            o = o + peepholes[3] * new_c
        new_h = output_gate(o) * output(new_c)
        if alive is None:
            outputs[t], h, c = new_h, new_h, new_c
        else:
            outputs[t] = torch.where(alive[t], new_h, nothing)
            h, c = torch.where(alive[t], new_h, h), torch.where(alive[t], new_c, c)
    return torch.stack(outputs), h, c


def gradient_by_loop(
    run: Callable[..., Result], given: Sequence[Any], gradients: Sequence[Tensor | None]
) -> tuple[Tensor | None, ...]:
    """The gradients of ``given`` from those of what ``run`` makes of it, themselves to be differentiated (``create_graph``).

    The gradient of a kernel is a number of which torch does not know what it is made of. It sees only whether the gradient
    that comes in moves, and takes the kernel's for a constant if not: so all is computed once more, by ``run``.
    """
    # Under names of their own: where c0 is made of x, say, the gradient of x would contain that of c0 a second time.
    own = [t.view_as(t) if isinstance(t, Tensor) else t for t in given]
    wanted = [isinstance(t, Tensor) and t.requires_grad for t in own]
    # What the kernel was given has its type already.
    with torch.autocast(own[0].device.type, enabled=False):
        known = [(r, g) for r, g in zip(run(*own), gradients, strict=True) if g is not None]
        if not known:
            return (None,) * len(own)
        results, upstream = zip(*known, strict=True)
        leaves = [t for t, is_wanted in zip(own, wanted, strict=True) if is_wanted]
        found = iter(torch.autograd.grad(results, leaves, upstream, create_graph=True, allow_unused=True))
    return tuple(next(found) if is_wanted else None for is_wanted in wanted)
