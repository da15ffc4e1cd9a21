"""Small rewrites of a recorded graph that change no number: views of views, transposes of transposes, dense layers."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch
from torch import fx
from torch.nn import functional as F

from mlc_torch.engine.trace import Recording

aten = torch.ops.aten
_VIEWS = (aten.view.default, aten._unsafe_view.default, aten.reshape.default)


def simplify(recording: Recording) -> Recording:
    """One pass over the graph. The phases keep their nodes: a rewrite only drops or redirects."""
    replaced: dict[fx.Node, fx.Node] = {}
    for node in list(recording.graph.nodes):
        _look_past_views(node)
        shorter = _shorter(node)
        if shorter is not None:
            node.replace_all_uses_with(shorter)
            replaced[node] = shorter
    parameters = set(recording.placeholders["parameters"])
    for node in recording.graph.nodes:
        _as_linear(node, parameters)
    recording.graph.eliminate_dead_code()
    alive = set(recording.graph.nodes)

    def renamed(node: Any) -> Any:
        while node in replaced:
            node = replaced[node]
        return node

    return replace(
        recording,
        forward=[n for n in recording.forward if n in alive],
        backward=[n for n in recording.backward if n in alive],
        readable=[renamed(n) for n in recording.readable],
        gradients=[renamed(n) for n in recording.gradients],
        wanted=[renamed(n) for n in recording.wanted],
    )


def _as_linear(node: fx.Node, parameters: set[fx.Node]) -> None:
    """A product with a transposed matrix is one call of torch's, not two. (A parameter is transposed once and for all.)"""
    if node.target not in (aten.addmm.default, aten.mm.default) or node.kwargs:
        return
    *bias, x, transposed = node.args
    if not isinstance(transposed, fx.Node) or transposed.target is not aten.t.default:
        return
    if transposed.args[0] not in parameters:
        node.target, node.args = F.linear, (x, transposed.args[0], *bias)


def _shorter(node: fx.Node) -> fx.Node | None:
    """An earlier node with the same value, or ``None``."""
    if node.target is aten.t.default and isinstance(source := node.args[0], fx.Node) and source.target is node.target:
        return source.args[0]  # type: ignore[return-value]
    return None


def _look_past_views(node: fx.Node) -> None:
    """A view of a view looks at what that one looks at."""
    if node.target is aten.view.default and isinstance(source := node.args[0], fx.Node) and source.target in _VIEWS:
        node.args = (source.args[0], node.args[1])
