"""A single step of an LSTM layer that no gradient follows: products gate by gate, with the weights as they lie.

oneDNN wants the four gates side by side, and lays them out for its kernels. For one step that takes longer than the products.
"""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Any

import torch
from torch import fx

from mlc_torch.engine.replacements import Replacement
from mlc_torch.engine.standing import Joined

aten = torch.ops.aten

Gates = Sequence[torch.Tensor]
"""The transposed weights of i, f, g and o."""


def lstm_step(
    x: torch.Tensor, wi: Gates, wh: Gates, b: torch.Tensor, h0: torch.Tensor, c0: torch.Tensor, apart: bool
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Outputs, h and c of ``x`` [1, batch, inputs]. ``apart``: outputs and h, which hold the same, have memory of their own."""
    source = x.squeeze(0)
    i, f, g, o = (
        torch.addmm(bias, source, of_x).addmm_(h0, of_h) for bias, of_x, of_h in zip(b.chunk(4), wi, wh, strict=True)
    )
    c = i.sigmoid_().mul_(g.tanh_()).addcmul_(f.sigmoid_(), c0)
    h = torch.tanh(c).mul_(o.sigmoid_())
    outputs = h.unsqueeze(0)
    return (outputs.clone() if apart else outputs), h, c


_MUCH_BYTES = 512 << 10
"""Of a layer's weights. Less is found to be the same in next to no time, and oneDNN's threads share what is left."""
_MANY, _FEW = 256, 16
"""Samples times threads up to which products gate by gate are faster, with much to compare and with little: fewer rows are not
divided among threads."""


def one_step(node: fx.Node) -> Replacement | None:
    """An LSTM layer over a single step, whose gates are joined parameters."""
    given: Any = node.args
    x, wi, wh, b, _, h0, c0, _ = given
    (steps, samples, inputs), hidden = x.meta["lies"][0], h0.meta["lies"][0][1]
    threads, is_much = torch.get_num_threads(), 4 * 4 * hidden * (inputs + hidden) >= _MUCH_BYTES
    gates = [_gates(w) for w in (wi, wh)]
    if steps != 1 or samples * threads > (_MANY if is_much or threads == 1 else _FEW) or None in gates:
        return None
    with node.graph.inserting_before(node):
        turned = [[node.graph.call_function(aten.t.default, (w,)) for w in parts] for parts in gates if parts]
    read = {user.args[1] for user in node.users if user.target is operator.getitem}
    return lstm_step, (x, *turned, b, h0, c0, read >= {0, 1})


def _gates(weights: fx.Node) -> Sequence[fx.Node] | None:
    """What was joined to ``weights``."""
    given: Any = weights.args
    if weights.target is operator.call and given[0].target is Joined:
        return given[0].args
    return given[0] if weights.target is aten.cat.default and len(given) == 1 else None
