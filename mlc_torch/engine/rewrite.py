"""Small rewrites of a recorded graph that change numbers by rounding at most: views of views, transposes of transposes,
constants, dense layers, slices; and with ``in_place``, where results are written.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import fx
from torch.nn import functional as F

from mlc_torch.engine.in_place import work_in_place
from mlc_torch.engine.numbers import numbers_as_tensors
from mlc_torch.engine.trace import Recording
from mlc_torch.engine.views import drop_unread, is_view, lies_in_order, may_write
from mlc_torch.torch_private import available

aten = torch.ops.aten
_RELU = (aten.relu.default, aten.relu_.default)
_FEW = 2**13
_PRODUCTS = (aten.addmm.default, aten._addmm_activation.default)


def simplify(recording: Recording, device: torch.device) -> Recording:
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
    for node in list(recording.graph.nodes):
        for stands_for in (_as_linear(node, parameters), _with_relu(node, device)):
            if stands_for is not None:
                stands_for.replace_all_uses_with(node)
                replaced[stands_for] = node
                recording.graph.erase_node(stands_for)
        if node not in replaced:
            _narrow(node)
            _reduce_briefly(node)
            _divide_before_spreading(node)
            work_in_place(node)
    forward = numbers_as_tensors(_with_biases_as_rows(recording.forward, parameters), constants, device)
    backward = numbers_as_tensors(recording.backward, constants, device)
    drop_unread(recording.graph)
    alive = set(recording.graph.nodes)

    return replace(
        recording,
        constants=recording.constants | constants,
        forward=[n for n in forward if n in alive],
        backward=[n for n in backward if n in alive],
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
        if may_write(node) or (node in outside and is_view(node)):
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


def _as_linear(node: fx.Node, parameters: set[fx.Node]) -> fx.Node | None:
    """A product with a transposed matrix is one call of torch's, not two. (A parameter is transposed once and for all.)

    Gives the view behind it that the product stands for from now on, if there is one. It stays where it was: a module may
    write into what it reads before anybody looks at the result.
    """
    if node.target not in (aten.addmm.default, aten.mm.default) or node.kwargs:
        return None
    given: Any = node.args
    *bias, x, transposed = given
    if not isinstance(transposed, fx.Node) or transposed.target is not aten.t.default:
        return None
    if _of_three_dimensions(node, x, bias):
        (out,) = node.users
        node.target, node.args = F.linear, (x.args[0], transposed.args[0], *bias)
        node.meta["lies"] = out.meta["lies"]
        return out
    if transposed.args[0] not in parameters:
        node.target, node.args = F.linear, (x, transposed.args[0], *bias)
    return None


def _with_relu(node: fx.Node, device: torch.device) -> fx.Node | None:
    """A dense layer and its ReLU as one operation of torch's on the CPU, in the product's place. Gives the ReLU.

    It saves a call, which does not count where there is much to compute. (One row of 784 by 128, µs: Neoverse-N1 28.1 and
    27.2; 8 rows of 64 by 64 18.4 and 16.4. x86 10.7 and 10.4; 5.4 and 5.3.)
    """
    if node.target is not aten.addmm.default or node.kwargs or len(node.users) != 1:
        return None
    if math.prod(node.meta["lies"][0]) > _FEW:
        return None
    (relu,) = node.users
    if device.type != "cpu" or not available["activated_product"] or relu.target not in _RELU or relu.kwargs:
        return None
    node.target = aten._addmm_activation.default
    return relu


def _of_three_dimensions(node: fx.Node, x: Any, bias: Any) -> bool:
    """Whether a product stands between two views, as torch's linear makes them: inside of it they cost less.

    It does so for a bias and three dimensions that lie contiguously. (A view and a product of a few rows and a view take
    21 µs on a Neoverse-N1, one linear 12.)
    """
    after = list(node.users)
    if not bias or len(after) != 1 or not all(_is_view_of_known(v) for v in (x, *after)):
        return False
    (shape, strides, _), (rows, columns) = x.args[0].meta["lies"], node.meta["lies"][0]
    return (
        len(shape) == 3
        and lies_in_order(shape, strides)
        and x.meta["lies"][0] == (rows, shape[2])
        and after[0].meta["lies"][0] == (*shape[:2], columns)
        and bias[0].meta["lies"][0] == (columns,)
    )


def _is_view_of_known(node: Any) -> bool:
    return node.op == "call_function" and node.target is aten.view.default and "lies" in node.args[0].meta


def _with_biases_as_rows(nodes: Sequence[fx.Node], parameters: set[fx.Node]) -> list[fx.Node]:
    """The bias of a product of one row as a row itself, looked at so once and for all: torch copies it straight then.

    (128 by 10 on a Neoverse-N1: 6.3 and 5.1 µs; 784 by 128: 25.4 and 25.0.)
    """
    found = []
    for node in nodes:
        bias: Any = node.args[0] if node.target in _PRODUCTS and not node.kwargs else None
        if bias in parameters and len(bias.meta["lies"][0]) == 1 and node.meta["lies"][0][0] == 1:
            with node.graph.inserting_before(node):
                row = node.graph.call_function(aten.unsqueeze.default, (bias, 0))
            node.args = (row, *node.args[1:])
            found.append(row)
        found.append(node)
    return found


def _narrow(node: fx.Node) -> None:
    """A part without gaps by torch's own binding; that of slices takes other arguments, and the operation longer."""
    if node.target is not aten.slice.Tensor or len(node.args) != 4 or node.kwargs:
        return
    given: Any = node.args
    source, dimension, start, _ = given
    length = node.meta["lies"][0][dimension]
    if start >= 0 and length > 0:
        node.target, node.args = aten.narrow.default, (source, dimension, start, length)


_REDUCTIONS = (aten.sum.dim_IntList, aten.mean.dim)


def _reduce_briefly(node: fx.Node) -> None:
    """A sum over one dimension by its number, and without the type that it has anyway, both of which torch would have to read.

    (32x16 elements on a Neoverse-N1: 6.9 and 5.5 µs.)
    """
    if node.target not in _REDUCTIONS:
        return
    given: Any = node.args
    source, dimensions, *rest = given
    dtype = source.meta["lies"][2] if "lies" in source.meta else None
    if node.kwargs == {"dtype": dtype} and dtype is not None and dtype.is_floating_point:  # others would become 64 bits
        node.kwargs = {}
    if isinstance(dimensions, (list, tuple)) and len(dimensions) == 1:
        node.args = (source, dimensions[0], *rest)


def _divide_before_spreading(node: fx.Node) -> None:
    """The gradient of a mean that is laid out for what comes next: divided while it is small, and written out once, not twice.

    (Back through the mean of 64 images of 64 channels of 8x8, x86, one thread: 372 and 46 µs; of 32x256x14x14: 2439 and 397.)
    """
    if node.target is not aten.clone.default or node.kwargs.get("memory_format") is not torch.channels_last:
        return
    given: Any = node.args
    quotient = given[0]
    if quotient.target is not aten.div.Scalar or list(quotient.users) != [node]:
        return
    spread, number = quotient.args
    if spread.target is not aten.expand.default or list(spread.users) != [quotient]:
        return
    small, *size = spread.args
    lies = spread.meta["lies"], small.meta["lies"]
    spread.target, spread.args, spread.kwargs = quotient.target, (small, number), {}
    quotient.target, quotient.args = aten.expand.default, (spread, *size)
    quotient.meta["lies"], spread.meta["lies"] = lies


def _shorter(node: fx.Node) -> fx.Node | None:
    """An earlier node with the same value, or ``None``."""
    if node.target is aten.t.default and isinstance(source := node.args[0], fx.Node) and source.target is node.target:
        return source.args[0]  # type: ignore[return-value]
    if node.target is aten.view.default and isinstance(source := node.args[0], fx.Node):
        return source if "lies" in node.meta and node.meta["lies"] == source.meta.get("lies") else None
    return None


def _look_past_views(node: fx.Node) -> None:
    """A view of a view looks at what that one looks at."""
    if (
        node.target is aten.view.default
        and isinstance(source := node.args[0], fx.Node)
        and source.target is node.target
    ):
        node.args = (source.args[0], node.args[1])
