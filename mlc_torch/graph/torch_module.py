"""From the nodes of a graph to the ``nn.Module`` that PyTorch programs use."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from mlc_torch.engine.as_module import Call, as_module, attribute_names
from mlc_torch.engine.shared_module import SharedGraphModule
from mlc_torch.layers import MLCSplitLayer
from mlc_torch.nodes.feeds import batch_axes, counted_axis, declared_batch
from mlc_torch.nodes.node import Node, producers, unique_layers
from mlc_torch.nodes.samples import axes_in_one_process, rows_read, sample_axes
from mlc_torch.refusals import MLCRefusal, refuse
from mlc_torch.seeing.facts import GraphFacts
from mlc_torch.tensor import TensorState


def layer_names(nodes: Sequence[Node]) -> dict[int, str]:
    """A name for each layer, by its identity: its label, made valid and unique. Checkpoints use the same names."""
    layers = unique_layers(nodes)
    names = attribute_names(layer.label or type(layer).__name__ for layer in layers)
    return {id(layer): name for layer, name in zip(layers, names, strict=True)}


def torch_module(graph: GraphFacts, loss: bool) -> SharedGraphModule:
    """What ``MLCGraph.to_module`` gives."""
    names = layer_names(graph.nodes)
    nodes = [n for n in graph.nodes if loss or not graph.is_loss(n.layer)]
    if not nodes:
        refuse("the graph has no layers")
    if loss and not any(graph.is_loss(n.layer) for n in nodes):
        refuse(
            "the graph has no loss; make a training graph with a loss layer, or add one with node(with:sources:lossLabels:)"
        )
    inputs = _inputs(graph, nodes, loss)
    batch = declared_batch(dict(inputs), {}, nodes)
    axes, rows = _open_axes(inputs, nodes, batch), _rows(inputs, nodes, batch)
    return as_module(
        [
            Call(
                n.layer.module,
                names[id(n.layer)],
                n.layer._parameter_uses,
                n.reads,
                n.results,
                lists=isinstance(n.layer, MLCSplitLayer),
                given=n.layer._module_is_given,
                rows=rows.get(id(n), {}),
            )
            for n in nodes
        ],
        [(name, cell, axes[id(cell)]) for name, cell in inputs],
        _outputs(graph, nodes, names, loss, {id(cell) for _, cell in inputs}),
        graph.trained_tensors,
        graph.stopped,
        graph.title,
    )


def _open_axes(inputs: Sequence[tuple[str, TensorState]], nodes: Sequence[Node], batch: int) -> dict[int, int | None]:
    """The dimension of each input that counts samples, also of one that a call of the graph is given whole: an initial state."""
    axes = batch_axes(nodes)
    counted = {id(cell): counted_axis(cell, axes, batch) for _, cell in inputs}
    try:
        found = sample_axes(nodes, counted)
    except MLCRefusal:  # a layer looks at several samples, and nothing more is known than what a call cuts
        return counted
    return {id(cell): counted_axis(cell, found, batch) for _, cell in inputs}


def _rows(inputs: Sequence[tuple[str, TensorState]], nodes: Sequence[Node], batch: int) -> dict[int, dict[int, int]]:
    """What nodes read the first rows of, where the module is called with fewer samples."""
    return rows_read(nodes, axes_in_one_process(nodes, [cell for _, cell in inputs], batch, {}), batch)


def _inputs(graph: GraphFacts, nodes: Sequence[Node], loss: bool) -> list[tuple[str, TensorState]]:
    """Declared inputs as declared (with a loss also labels and their weights), then what else has no data of its own.

    A graph that declares nothing cannot tell a constant on a device from an input that was bound: it is taken as an input.
    """
    declared = graph.of_kind("input", *(("label", "label weight") if loss else ()))
    there = {id(cell) for _, cell in declared} | {id(cell) for cell in graph.trained_tensors}
    there |= {id(cell) for node in nodes for cell in node.results}
    bare = {}
    for cell in (c for node in nodes for c in node.reads if id(c) not in there):
        holds_data = cell.host is not None or (graph.executable and cell.value is not None)
        if not holds_data or id(cell) in graph.linked:
            bare[id(cell)] = cell
    return declared + [(cell.label, cell) for cell in bare.values()]


def _outputs(
    graph: GraphFacts, nodes: Sequence[Node], names: dict[int, str], loss: bool, inputs: Collection[int]
) -> list[tuple[str, Sequence[TensorState]]]:
    """Declared outputs and, where asked for, the sum of all losses that are not among them; else what a completion handler
    gets. It has the name of its layer, a sum that of the last one."""
    made_by = producers(nodes)
    left_out = set() if loss else _of_the_losses(graph)
    declared = {}
    for name, cell in graph.of_kind("output"):
        if id(cell) not in made_by and id(cell) not in inputs:
            if id(cell) in left_out:
                continue
            _check_standing(graph, name, cell)
        declared[name] = [cell]
    known = {id(cell) for cells in declared.values() for cell in cells}
    more = [n.results[0] for n in nodes if loss and graph.is_loss(n.layer) and id(n.results[0]) not in known]
    if not more and not declared:
        more = [graph.result_of(nodes)]
    if more:
        name = names[id(made_by[id(more[-1])].layer)]
        declared[f"{name}_loss" if name in declared else name] = more
    return list(declared.items())


def _of_the_losses(graph: GraphFacts) -> set[int]:
    """What only losses read and fill, by identity: a module without them has none of it."""
    losses = [n for n in graph.nodes if graph.is_loss(n.layer)]
    declared = {id(cell) for _, cell in graph.of_kind("label", "label weight")}
    return declared | {id(cell) for n in losses for cell in (*n.labels, *n.results)}


def _check_standing(graph: GraphFacts, name: str, cell: TensorState) -> None:
    """Refuse an output that is neither computed nor given, and that holds nothing that a module could give."""
    if cell.gradient_of is not None:
        refuse(
            f"the output {name!r} ({cell.label}) is a gradient, and forward computes none; take the module of an inference "
            "graph over the same graph objects"
        )
    if id(cell) in graph.linked or cell.current() is None:
        refuse(
            f"the output {name!r} ({cell.label}) is no result of this graph's layers, no input that they read, and no tensor "
            "with data of its own"
        )
