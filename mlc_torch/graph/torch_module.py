"""From the nodes of a graph to the ``nn.Module`` that PyTorch programs use."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from mlc_torch.engine.as_module import Call, SharedGraphModule, as_module, attribute_names
from mlc_torch.layers import MLCSplitLayer
from mlc_torch.nodes.feeding import batch_axes, declared_batch
from mlc_torch.nodes.node import Node, producers, unique_layers
from mlc_torch.refusals import refuse
from mlc_torch.tensor import TensorState

if TYPE_CHECKING:
    from mlc_torch.graph.graph import MLCGraph


def layer_names(nodes: Sequence[Node]) -> dict[int, str]:
    """A name for each layer, by its identity: its label, made valid and unique. Checkpoints use the same names."""
    layers = unique_layers(nodes)
    names = attribute_names(layer.label or type(layer).__name__ for layer in layers)
    return {id(layer): name for layer, name in zip(layers, names, strict=True)}


def torch_module(graph: MLCGraph, loss: bool) -> SharedGraphModule:
    """What ``MLCGraph.to_module`` gives."""
    every = graph._all_nodes()
    names = layer_names(every)
    nodes = [n for n in every if loss or not graph._is_loss(n.layer)]
    if not nodes:
        refuse("the graph has no layers")
    trained = _trained(graph)
    inputs = _inputs(graph, nodes, loss, trained)
    axes, batch = batch_axes(nodes), declared_batch(dict(inputs), {}, nodes)
    return as_module(
        [
            Call(
                n.layer.module,
                names[id(n.layer)],
                n.layer.parameter_uses,
                n.reads,
                n.results,
                lists=isinstance(n.layer, MLCSplitLayer),
                given=getattr(n.layer, "_module_is_given", False),
            )
            for n in nodes
        ],
        [(name, cell, _batch_axis(cell, axes.get(id(cell), 0), batch)) for name, cell in inputs],
        _outputs(graph, nodes, names),
        trained,
        graph._stopped_cells(),
        type(graph).__name__,
    )


def declared_or(graph: Any, name: str, otherwise: Any) -> Any:
    """What only graphs that can be executed are told."""
    return graph.__dict__.get(name, otherwise)


def _trained(graph: MLCGraph) -> list[TensorState]:
    return [parameter._tensor._cell for parameter in declared_or(graph, "_to_train", [])]


def _inputs(
    graph: MLCGraph, nodes: Sequence[Node], loss: bool, trained: Sequence[TensorState]
) -> list[tuple[str, TensorState]]:
    """Declared inputs as declared (with a loss also labels and their weights), then what else has no data of its own.

    A graph that declares nothing cannot tell a constant on a device from an input that was bound: it is taken as an input.
    """
    groups = ("_inputs", "_labels", "_label_weights") if loss else ("_inputs",)
    declares = "_inputs" in graph.__dict__
    declared = [(name, cell) for group in groups for name, cell in declared_or(graph, group, {}).items()]
    linked = graph._linked_results() if hasattr(graph, "_linked_results") else set()
    there = {id(cell) for _, cell in declared} | {id(cell) for cell in trained}
    there |= {id(cell) for node in nodes for cell in node.results}
    bare = {}
    for cell in (c for node in nodes for c in node.reads if id(c) not in there):
        holds_data = cell.host is not None or (declares and cell.value is not None)
        if not holds_data or id(cell) in linked:
            bare[id(cell)] = cell
    return declared + [(cell.label, cell) for cell in bare.values()]


def _batch_axis(cell: TensorState, axis: int | None, batch: int) -> int | None:
    counts = axis is not None and axis < len(cell.shape) and cell.shape[axis] == batch
    return axis if counts else None


def _outputs(graph: MLCGraph, nodes: Sequence[Node], names: dict[int, str]) -> list[tuple[str, TensorState]]:
    """Declared outputs, else what a completion handler gets, by the name of the layer that makes it."""
    made_by = producers(nodes)
    declared = [(name, cell) for name, cell in declared_or(graph, "_outputs", {}).items() if id(cell) in made_by]
    last = graph._result_cell(list(nodes)) if hasattr(graph, "_result_cell") else nodes[-1].results[0]
    return declared or [(names[id(made_by[id(last)].layer)], last)]
