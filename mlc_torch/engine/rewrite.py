"""Small rewrites of a recorded graph that change no number: views of views, transposes of transposes, constants, dense layers."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch
from torch import fx
from torch.nn import functional as F

from mlc_torch.engine.trace import Recording, is_view

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
    constants = _fold(recording, {renamed(n, replaced) for n in _results(recording)})
    parameters = set(recording.placeholders["parameters"])
    for node in recording.graph.nodes:
        _as_linear(node, parameters)
    recording.graph.eliminate_dead_code()
    alive = set(recording.graph.nodes)

    return replace(
        recording,
        constants=recording.constants | constants,
        forward=[n for n in recording.forward if n in alive],
        backward=[n for n in recording.backward if n in alive],
        readable=[renamed(n, replaced) for n in recording.readable],
        gradients=[renamed(n, replaced) for n in recording.gradients],
        wanted=[renamed(n, replaced) for n in recording.wanted],
    )


def renamed(node: Any, replaced: dict[fx.Node, fx.Node]) -> Any:
    while node in replaced:
        node = replaced[node]
    return node


def _results(recording: Recording) -> list[fx.Node]:
    every = [*recording.readable, *recording.gradients, *recording.wanted]
    return [n for n in every if n is not None]


def _fold(recording: Recording, results: set[fx.Node]) -> dict[str, torch.Tensor]:
    """Compute once what depends on sizes alone: the number of real pixels under each window of an average, say.

    Not where the memory might be handed out or written to: what a program gets is its own.
    """
    outside = set(results)
    for node in reversed(recording.graph.nodes):
        if _may_write(node) or (node in outside and is_view(node)):
            outside.update(node.all_input_nodes)
    folded: dict[fx.Node, torch.Tensor] = {}
    for node in recording.graph.nodes:
        value = node.meta.get("made")
        if value is None and node.all_input_nodes and folded.keys() >= set(node.all_input_nodes):
            known = [fx.node.map_arg(part, folded.__getitem__) for part in (node.args, node.kwargs)]
            value = node.target(*known[0], **known[1])
        if isinstance(value, torch.Tensor) and node not in outside:
            folded[node] = value
    constants: dict[str, torch.Tensor] = {}
    for node, value in folded.items():
        if all(user in folded for user in node.users):
            continue
        name = f"folded{len(constants)}"
        constants[name] = value
        node.op, node.target, node.args, node.kwargs = "get_attr", name, (), {}
    return constants


def _may_write(node: fx.Node) -> bool:
    """Whether a node writes into what it is given, or is not known not to."""
    schema = getattr(node.target, "_schema", None)
    return node.op == "call_function" and (schema is None or schema.is_mutable)


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
