"""Divides a traced step in two: the graph of the forward pass, and the graph of the gradients with what it is handed."""

from __future__ import annotations

import math
import operator
from collections.abc import Sequence
from typing import Any

import torch
from torch import fx

from mlc_torch.engine.views import is_view


def split_joint(
    joint: fx.GraphModule, forward_count: int, injected_count: int, written: Sequence[int]
) -> tuple[fx.GraphModule, fx.GraphModule, list[int]]:
    """The graph of the forward results, the graph of the gradients, and which inputs the latter needs too.

    The inputs ``written`` have other values by then.
    """
    nodes = list(joint.graph.nodes)
    outputs = list(nodes[-1].args[0])
    placeholders = [n for n in nodes if n.op == "placeholder"]
    outside = placeholders[len(placeholders) - injected_count :] if injected_count else []
    ahead = _ancestors(outputs[:forward_count])
    # A part of a forward operation's several results is taken out where they are made.
    ahead |= {n for n in nodes if n.target is operator.getitem and n.args[0] in ahead}
    first = [n for n in nodes if n.op in ("call_function", "get_attr") and n in ahead]
    later = {n for n in nodes if n.op in ("call_function", "get_attr") and n not in ahead}
    later |= _computed_again(first, [*later, *outputs[forward_count:]], [placeholders[i] for i in written])
    second = [n for n in nodes if n in later]
    used = dict.fromkeys(i for n in second for i in n.all_input_nodes)
    used |= dict.fromkeys(o for o in outputs[forward_count:] if isinstance(o, fx.Node))
    inputs = [n for n in used if n.op == "placeholder" and n not in outside]
    saved = [n for n in used if n.op != "placeholder" and n not in later]
    own = [n for n in placeholders if n not in outside]
    forward = _graph(joint, own, first, [*outputs[:forward_count], *saved])
    backward = _graph(joint, [*inputs, *saved, *outside], second, outputs[forward_count:])
    return forward, backward, [own.index(n) for n in inputs]


_SMALL = 128
"""Up to this many elements, computing them again is faster than keeping memory for them and handing it over."""


def _computed_again(first: Sequence[fx.Node], needing: Sequence[Any], written: Sequence[fx.Node]) -> set[fx.Node]:
    """Which forward nodes the gradient phase computes once more, rather than being handed their values.

    Small results of nothing but inputs and each other; and views of all that they look at, which is handed over instead.
    """
    cheap: set[fx.Node] = set()
    for node in first:
        small = torch.Tag.pointwise in getattr(node.target, "tags", ()) and _size(node) <= _SMALL
        sources = [n for n in node.all_input_nodes if n.op != "placeholder" or n in written]
        if (small or is_view(node)) and cheap.issuperset(sources):
            cheap.add(node)
    ahead, again = set(first), set[fx.Node]()
    waiting = [i for n in needing if isinstance(n, fx.Node) for i in (n, *n.all_input_nodes)]
    while waiting:
        node = waiting.pop()
        if node in ahead and node not in again and (node in cheap or _shows_all(node)):
            again.add(node)
            waiting += node.all_input_nodes
    return again


def _size(node: fx.Node) -> float:
    value = node.meta.get("val")
    return value.numel() if isinstance(value, torch.Tensor) else math.inf


def _shows_all(node: fx.Node) -> bool:
    """Whether a node is a view and leaves nothing out: what it looks at need not be kept for a part of it."""
    return is_view(node) and all(_size(source) <= _size(node) < math.inf for source in node.all_input_nodes)


def _ancestors(nodes: Sequence[Any]) -> set[fx.Node]:
    found: set[fx.Node] = set()
    waiting = [n for n in nodes if isinstance(n, fx.Node)]
    while waiting:
        node = waiting.pop()
        if node not in found:
            found.add(node)
            waiting += node.all_input_nodes
    return found


def _graph(
    owner: fx.GraphModule, inputs: Sequence[fx.Node], nodes: Sequence[fx.Node], outputs: Sequence[Any]
) -> fx.GraphModule:
    graph, copies = fx.Graph(), {}
    for node in inputs:
        copies[node] = graph.placeholder(node.name)
        copies[node].meta = dict(node.meta)
    for node in nodes:
        copies[node] = graph.node_copy(node, lambda n: copies[n])
    graph.output([copies[o] if isinstance(o, fx.Node) else o for o in outputs])
    return fx.GraphModule(owner, graph)
