"""A few steps of an LSTM layer that no gradient follows: products gate by gate, with the weights as they lie.

oneDNN wants the four gates side by side, and lays them out for its kernels. For one step that takes longer than the products,
and so it does for several steps of few samples, where the weights are large.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import fx

from mlc_torch.engine.replacements import Replacement
from mlc_torch.engine.rules import Rule, said
from mlc_torch.engine.standing import Joined

aten = torch.ops.aten

Gates = Sequence[torch.Tensor]
"""Of i, f, g and o, as their transposed weights."""


def by_rows(
    x: torch.Tensor, wi: Gates, wh: Gates, b: torch.Tensor, h0: torch.Tensor, c0: torch.Tensor, apart: bool
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Outputs, h and c of ``x`` [1, batch, inputs]. ``apart``: outputs and h, which hold the same, have memory of their own."""
    source = x.squeeze(0)
    gates = [
        torch.addmm(bias, source, of_x).addmm_(h0, of_h) for bias, of_x, of_h in zip(b.chunk(4), wi, wh, strict=True)
    ]
    h, c = _states(gates, c0)
    return _results(h, c, apart)


def by_columns(
    x: torch.Tensor, wi: Gates, wh: Gates, b: torch.Tensor, h0: torch.Tensor, c0: torch.Tensor, apart: bool
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """The same with each sample in a column: the weights are then not the transposed factor, which BLAS would lay out first."""
    source, state = x.squeeze(0).t(), h0.t()
    gates = [
        torch.addmm(bias.unsqueeze(1), of_x.t(), source).addmm_(of_h.t(), state)
        for bias, of_x, of_h in zip(b.chunk(4), wi, wh, strict=True)
    ]
    h, c = _states(gates, c0.t())
    return _results(h.t().contiguous(), c.t().contiguous(), apart)


def step_by_step(
    x: torch.Tensor, wi: Gates, wh: Gates, b: torch.Tensor, h0: torch.Tensor, c0: torch.Tensor, reverse: bool
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """The same by rows over several steps, from the last one on where that is asked for. (One step of 16 to 32 takes 1.6 times as
    long as ``by_rows``.)"""
    (steps, samples, _), (_, hidden) = x.shape, h0.shape
    # The gates i, f, o and g: three of them are squashed by one function.
    order, memory = (0, 1, 3, 2), x.new_empty(4, steps, samples, hidden)
    rows, biases = x.flatten(0, 1), b.chunk(4)
    for found, gate in zip(memory.flatten(1, 2).unbind(0), order, strict=True):
        torch.addmm(biases[gate], rows, wi[gate], out=found)
    factors = [wh[gate] for gate in order]
    outputs = x.new_empty(steps, samples, hidden)
    each = list(zip(memory.unbind(1), memory[:3].unbind(1), outputs.unbind(0), strict=True))
    h, c = h0, c0.clone()
    for gates, squashed, made in each[::-1] if reverse else each:
        i, f, o, g = gates.unbind(0)
        for found, factor in zip((i, f, o, g), factors, strict=True):
            found.addmm_(h, factor)
        squashed.sigmoid_()
        c.mul_(f).addcmul_(i, g.tanh_())
        h = torch.mul(torch.tanh(c), o, out=made)
    return outputs, h.clone(), c


def _states(gates: Gates, c0: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    i, f, g, o = gates
    c = f.sigmoid_().mul_(c0).addcmul_(i.sigmoid_(), g.tanh_())
    return torch.tanh(c).mul_(o.sigmoid_()), c


def _results(h: torch.Tensor, c: torch.Tensor, apart: bool) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    outputs = h.unsqueeze(0)
    return (outputs.clone() if apart else outputs), h, c


@dataclass(frozen=True)
class Step:
    """Samples and threads, and the bytes of a layer's weights."""

    samples: int
    weights: int
    threads: int


_MUCH = 512 << 10
"""Less is found to be the same in next to no time, and oneDNN's threads share what is left."""
_VERY_MUCH = 4 << 20

STEPS: tuple[Rule[Step, Callable[..., Any]], ...] = (
    Rule(
        lambda s: s.weights >= _VERY_MUCH and 8 < s.samples <= 48 and s.samples * s.threads <= 256,
        by_columns,
        "Two hosts, torch 2.11 and 2.13; over packed weights, by rows and so, 16, 32 and 48 samples, inputs to hidden: one "
        "thread, 512 to 512 .89, .58 and .48, .90, .66 and .52, .90, .68 and .58; two threads 1.11, 1.15 and .58, 1.09, 1.19 and "
        ".70, 1.04, .96 and .74; 128 to 512 1.05, .99 and .62, 1.03, .99 and .70, 1.04, 1.04 and .82; four, 512 to 512 .93, 1.03 "
        "and .65, .96, 1.05 and .71, .94, 1.05 and .92; eight, 16 and 32 samples, .86, 1.01 and .74, .88, 1.05 and .88, of 256 "
        "to 1024 1.03, 1.14 and .70, 1.08, 1.42 and .80; sixteen, 16 samples, by columns .76 to .81. 256 to 256, left: one "
        "thread .77, .60 and .64, two .87, 1.13 and .83, .82, 1.08 and .87, .83, 1.12 and 1.05.",
    ),
    Rule(
        lambda s: s.threads == 1 and s.samples <= 256,
        by_rows,
        "Two hosts; over packed weights and so, 1, 4, 16, 64 and 128 samples: 16 to 32 .54 and .43, .56 and .50, .57 and .53, "
        ".59 and .52, .61 and .53; 64 to 128 .62 and .40, .65 and .47, .67 and .53, .70 and .62, .76 and .83, on the other .59 "
        "and .48, .63 and .55, .70 and .62, .76 and .71, .81 and .74; 256 to 256 .70 and .36, .71 and .45, .77 and .60, .82 "
        "and .74, .87 and .83; 512 to 512, 64 samples, .88 and .71, 128 .92 and .84.",
    ),
    Rule(
        lambda s: s.threads == 2 and s.weights >= _VERY_MUCH and 64 <= s.samples <= 128,
        by_rows,
        "512 to 512, 64 and 128 samples, over packed weights and so: 1.04 and .83, 1.02 and .81. 128 to 512 on the other host, "
        "64 samples, .95 and .92. 256 to 256, left: .84 and .81, .91 and .90; and 49 to 63 samples, 1.0 to 1.3.",
    ),
    Rule(
        lambda s: s.samples <= 8 and s.weights >= _MUCH,
        by_rows,
        "Two hosts; over packed weights and so, 1, 4 and 8 samples: two threads 256 to 256 .82 and .59, .77 and .56, .77 and "
        ".61, 512 to 512 1.38 and .43, 1.33 and .51, 1.20 and .54; four, 8 samples .93 and .63; eight 128 to 512 .94 and .36, "
        ".98 and .46, .82 and .59. From 12 or 16 rows on BLAS goes another way.",
    ),
    Rule(
        lambda s: s.samples * s.threads <= 16,
        by_rows,
        "Two hosts; over packed weights and so, 1, 4 and 8 samples: two threads 16 to 32 .52 and .32, .56 and .51, .58 and .51, "
        "on the other .56 and .51, .60 and .59; 64 to 128 .59 and .70, .67 and .59, .66 and .60, on the other .59 and .54, .64 "
        "and .64; eight threads, 1 and 4 samples, .61 and .66, .65 and .72.",
    ),
)
"""What takes a single step, relative to ``nn.LSTM``'s time; where none applies, the layer of torch's library over packed weights.

Each further step takes as long as the first or half as long, as wide as the inputs are; the library's takes a fifth of its first.
"""


@dataclass(frozen=True)
class Steps(Step):
    """More than one."""

    reads: float
    """How often its weights are read: those of the inputs once, those of the state in each step."""


_FEW_READS = (2, 2, 5.0), (4, 4, 3.2), (8, 4, 1.6), (2, 8, 3.2), (4, 8, 1.6), (8, 8, 1.0)
"""So many samples and threads, at most, and so many reads, where weights are large."""
_HUGE = 16 << 20
_FEW_READS_OF_HUGE = (2, 2, 10.0), (4, 8, 4.8), (8, 8, 3.2)

SEVERAL_STEPS: tuple[Rule[Steps, Callable[..., Any]], ...] = (
    Rule(
        lambda s: s.weights >= _HUGE and s.threads > 1 and is_few(s, _FEW_READS_OF_HUGE),
        step_by_step,
        "torch 2.11; over packed weights and so, 256 to 1024, 2, 4, 6 and 12 steps, read 1.6, 3.2, 4.8 and 9.6 times. One "
        "thread, 1 sample .92 and .34, 1.04 and .56, 1.01 and .67, 1.04 and .81, 4 .96 and .66, .98 and .93, .99 and 1.14, 8, "
        "left, 1.02 and 1.02, .98 and 1.42; two threads, 1 sample 1.27 and .40, 1.33 and .55, 1.20 and .68, 1.14 and .77, 4 "
        "1.32 and .59, 1.28 and .96, 1.25 and 1.06, 1.13 and 1.16, 8 1.19 and .78, 1.16 and 1.09, 1.15 and 1.23; eight, 1 "
        "sample 1.00 and .56, 1.05 and .76, 1.05 and .97, 1.02 and 1.25, 4 1.14 and .64, 1.11 and .90, 1.08 and 1.01, 1.09 and "
        "1.25, 8 1.04 and .85, .96 and .96, 1.04 and 1.25.",
    ),
    Rule(
        lambda s: s.weights >= _VERY_MUCH and is_few(s, _FEW_READS),
        step_by_step,
        "The same, 128 to 512, 2, 3, 4 and 6 steps, read 1.6, 2.4, 3.2 and 4.8 times. One thread, 1 sample .81 and .49, .84 and "
        ".59, .84 and .65, .86 and .75, 4 .81 and .67, .83 and .78, .85 and .85, .87 and .95, 8 .81 and .79, .85 and .96; two, "
        "1 sample 1.11 and .59, 1.06 and .67, 1.09 and .79, 1.05 and .99, 4 1.05 and .73, 1.03 and .83, 1.03 and .92, 1.01 and "
        "1.02, 8 1.02 and .90, 1.01 and 1.03; four, 1 sample .96 and .51, .94 and .65, .93 and .76, .92 and .97, 4 .93 and .80, "
        ".90 and .76, .92 and .87, .90 and 1.05; eight, 1 sample .93 and .64, .95 and .81, .98 and .89, .97 and 1.12, 4 .98 and "
        ".83, .97 and .95, .94 and 1.06. 512 to 512, 2, 4, 6 and 12 steps, read 1, 2, 3 and 6 times: two threads, 4 samples "
        "1.06 and .55, 1.07 and .86, 1.00 and .89, 1.00 and .94. torch 2.13, two cores, stacks of 1 to 4 layers, 6 steps: two "
        "threads, 2 samples .98 to 1.22 and .69 to .89, 4 1.04 to 1.22 and .99 to 1.25; one thread .84 to 1.03 and .67 to .76, "
        ".85 to 1.02 and .82 to .98. Left: 256 to 256, one thread, 1 to 8 samples, 2 and 3 steps "
        ".64 to .83 and .53 to .86, two threads .77 to .86 and .68 to 1.02, eight .93 to 1.04 and 1.06 to 1.39.",
    ),
)
"""What takes several steps, relative to ``nn.LSTM``'s time; else the layer of torch's library."""


def is_few(steps: Steps, most: Sequence[tuple[int, int, float]]) -> bool:
    return any(steps.samples <= s and steps.threads <= t and steps.reads <= r for s, t, r in most)


def way_of(steps: int, samples: int, inputs: int, hidden: int) -> Callable[..., Any] | None:
    """What takes so many steps of a layer; ``None`` for the layer of torch's library."""
    weights, threads = 4 * 4 * hidden * (inputs + hidden), torch.get_num_threads()
    if steps == 1:
        return said(STEPS, Step(samples, weights, threads))
    return said(SEVERAL_STEPS, Steps(samples, weights, threads, steps * hidden / (inputs + hidden)))


def gate_by_gate(node: fx.Node) -> Replacement | None:
    """An LSTM layer over few steps, whose gates are joined parameters."""
    given: Any = node.args
    x, wi, wh, b, _, h0, c0, reverse = given
    (steps, samples, inputs), hidden = x.meta["lies"][0], h0.meta["lies"][0][1]
    way = way_of(steps, samples, inputs, hidden)
    gates = [_gates(w) for w in (wi, wh)]
    if way is None or None in gates:
        return None
    with node.graph.inserting_before(node):
        turned = [[node.graph.call_function(aten.t.default, (w,)) for w in parts] for parts in gates if parts]
    if steps > 1:
        return way, (x, *turned, b, h0, c0, reverse)
    read = {user.args[1] for user in node.users if user.target is operator.getitem}
    return way, (x, *turned, b, h0, c0, read >= {0, 1})


def _gates(weights: fx.Node) -> Sequence[fx.Node] | None:
    """What was joined to ``weights``."""
    given: Any = weights.args
    if weights.target is operator.call and given[0].target is Joined:
        return given[0].args
    return given[0] if weights.target is aten.cat.default and len(given) == 1 else None
