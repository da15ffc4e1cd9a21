"""Small rewrites of a recorded graph that change no number: views of views, transposes of transposes, dense layers."""

from __future__ import annotations

from typing import Any

import torch
from torch import fx

from mlc_torch.engine.trace import Recording

aten = torch.ops.aten
_VIEWS = (aten.view.default, aten._unsafe_view.default, aten.reshape.default)


def simplify(recording: Recording) -> Recording:
    """Rewrite until nothing changes. The phases keep their nodes: a rewrite only drops or redirects."""
    replaced: dict[fx.Node, fx.Node] = {}
    for node in list(recording.graph.nodes):
        shorter = _shorter(node)
        if shorter is not None:
            node.replace_all_uses_with(shorter)
            replaced[node] = shorter
    for node in recording.graph.nodes:
        _as_linear(node)
    recording.graph.eliminate_dead_code()
    alive = set(recording.graph.nodes)

    def renamed(node: Any) -> Any:
        while node in replaced:
            node = replaced[node]
        return node

    return Recording(
        recording.graph,
        recording.constants,
        recording.placeholders,
        [n for n in recording.forward if n in alive],
        [n for n in recording.backward if n in alive],
        [renamed(n) for n in recording.readable],
        recording.lent,
        [renamed(n) for n in recording.gradients],
        [renamed(n) for n in recording.wanted],
        recording.draws,
    )


def _as_linear(node: fx.Node) -> None:
    """A product with a transposed weight is one call of torch's, not two."""
    if node.target is not aten.addmm.default or len(node.args) != 3 or node.kwargs:
        return
    bias, x, transposed = node.args
    if isinstance(transposed, fx.Node) and transposed.target is aten.t.default:
        node.target, node.args = torch._C._nn.linear, (x, transposed.args[0], bias)


def _shorter(node: fx.Node) -> fx.Node | None:
    """An earlier node with the same value, or ``None``."""
    if node.op != "call_function" or not node.args or not isinstance(node.args[0], fx.Node):
        return None
    source = node.args[0]
    if node.target is aten.t.default and source.op == "call_function" and source.target is aten.t.default:
        return source.args[0]  # type: ignore[return-value]
    if node.target is aten.view.default and source.op == "call_function" and source.target in _VIEWS:
        node.args = (source.args[0], node.args[1])
    return None
