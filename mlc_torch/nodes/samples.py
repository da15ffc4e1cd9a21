"""Which dimension of each tensor counts samples, all through a graph: asked for short batches, and where processes share one."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from mlc_torch.layers import MLCLossLayer
from mlc_torch.layers.sharing import PART, UNKNOWN, Axis, MixesSamples, Samples
from mlc_torch.nodes.feeds import batch_axes, counted_axis
from mlc_torch.nodes.node import Node, describe, producers
from mlc_torch.refusals import MLCRefusal, refuse
from mlc_torch.tensor import TensorState


def axes_in_one_process(
    nodes: Sequence[Node], fed: Iterable[TensorState], batch: int, linked: Mapping[int, Axis]
) -> dict[int, Axis]:
    """Where the ``batch`` samples lie in every tensor, by the cell's identity: what a short batch is cut along.

    ``None``: the tensor is the same for all of them. ``UNKNOWN``: a layer mixed samples, which one process may do, and no
    dimension of what came of it counts them. ``linked`` says it of what other graphs compute.
    """
    readers = batch_axes([node for node in nodes if not isinstance(node.layer, MLCLossLayer)])
    axes = {id(c): _fed_axis(c, readers, batch, linked) for c in fed}
    labels: set[int] = set()
    for node in nodes:
        if isinstance(node.layer, MLCLossLayer):
            for cell in node.reads[1:]:
                if id(cell) not in axes or id(cell) in readers or id(cell) in linked:
                    continue  # somebody else has said it
                axis = _beside(cell, node.reads[0], axes.get(id(node.reads[0])), batch)
                if id(cell) in labels and axes[id(cell)] != axis:
                    axis = UNKNOWN
                labels.add(id(cell))
                axes[id(cell)] = axis
        axes |= dict(zip(map(id, node.results), _result_axes(node, axes), strict=True))
    return axes


def _fed_axis(cell: TensorState, readers: Mapping[int, Axis], batch: int, linked: Mapping[int, Axis]) -> Axis:
    if id(cell) in linked:
        return linked[id(cell)]
    return UNKNOWN if readers.get(id(cell)) == UNKNOWN else counted_axis(cell, readers, batch)


def rows_read(nodes: Iterable[Node], axes: Mapping[int, Axis], batch: int) -> dict[int, dict[int, int]]:
    """Which nodes read a row for each of the ``batch`` samples from a tensor that is the same for all of them: of a short batch
    they read the first ones. By the node's identity: the position among its sources, and the dimension of the rows.

    A constant is such a tensor, one that is trained by itself, and what layers make of those alone. Another node may read all of
    it.
    """
    found: dict[int, dict[int, int]] = {}
    for node in nodes:
        known = [axes.get(id(c)) for c in node.reads]
        if None not in known or UNKNOWN in known or all(axis is None for axis in known):
            continue
        try:
            of_node = _samples_of(node, known).sources
        except MLCRefusal:
            continue  # it looks at several samples, and nobody can say whether at the rows of this one, too
        rows = {
            position: axis
            for position, (cell, before, axis) in enumerate(zip(node.reads, known, of_node, strict=True))
            if before is None and axis is not None and axis >= 0 and cell.shape[axis] == batch
        }
        if rows:
            found[id(node)] = rows
    return found


def _samples_of(node: Node, known: list[Axis]) -> Samples:
    sources, results = ([c.descriptor for c in cells] for cells in (node.reads, node.results))
    return node.layer._samples(known, sources, results)


def _result_axes(node: Node, axes: Mapping[int, Axis]) -> Sequence[Axis]:
    known = [axes.get(id(c)) for c in node.reads]
    unknown: Sequence[Axis] = [UNKNOWN] * len(node.results)
    if UNKNOWN in known:
        return unknown
    try:
        found = _samples_of(node, known).results
    except MLCRefusal as why:
        said = why.results if isinstance(why, MixesSamples) else None
        found = unknown if said is None else said
    return [None if axis == PART else axis for axis in found]


def _beside(cell: TensorState, predictions: TensorState, axis: Axis, batch: int) -> Axis:
    """Where the samples of labels, or of their weights, lie: where those of the predictions do."""
    if axis is None or axis == UNKNOWN:
        return axis
    if axis == 0:
        return counted_axis(cell, {}, batch)
    shape, whole = cell.shape, predictions.shape
    if len(shape) == len(whole):
        return counted_axis(cell, {id(cell): axis}, batch)
    if not any(size != 1 for size in shape[1:]):
        return None  # a number for each row of the predictions, which are no samples
    mine, theirs = ([d for d, size in enumerate(sizes) if size != 1] for sizes in (shape, whole))
    if [shape[d] for d in mine] == [whole[d] for d in theirs] and axis in theirs:
        return mine[theirs.index(axis)]  # dimensions of one were added or left out
    return UNKNOWN


def sample_axes(nodes: Sequence[Node], fed: Mapping[int, Axis]) -> dict[int, Axis]:
    """The dimension of every tensor that counts samples, by the cell's identity; ``fed`` says it of what is fed.

    Refuses, with the layer's name, where samples would be mixed: each process has only its own.
    """
    axes: dict[int, Axis] = dict(fed)
    made_by = producers(nodes)
    whole: dict[int, Node] = {}
    """Who reads all of a tensor that no layer makes: it cannot be cut for another one."""
    for node in nodes:
        known = [axes.get(id(c)) for c in node.reads]
        try:
            if UNKNOWN in known:
                refuse("reads a tensor in which samples have no dimension of their own; the ranks share the batch")
            if PART in known:
                refuse("reads a loss, of which each rank has only the part of its own samples")
            found = _samples_of(node, known)
            node.layer._shared_along(known)
        except MLCRefusal as why:
            refuse(f"{describe(node.layer, node.reads)}: {why.reason}")
        for cell, before, axis in zip(node.reads, known, found.sources, strict=True):
            if axis == before:
                if axis is None:
                    whole.setdefault(id(cell), node)
                continue
            if id(cell) in whole:
                refuse(
                    f"{describe(node.layer, node.reads)}: reads {cell.label!r} with a row for each sample, and "
                    f"{describe(whole[id(cell)].layer, whole[id(cell)].reads)} reads all of it; the ranks share the batch, and "
                    "layers that mix samples cannot be shared; give each layer a tensor of its own"
                )
            if before is not None or id(cell) in made_by:
                refuse(
                    f"{describe(node.layer, node.reads)}: reads {cell.label!r} with a row for each sample, which no "
                    "input gave it; the ranks share the batch, and cannot tell whose row is whose"
                )
            axes[id(cell)] = axis
        axes |= dict(zip(map(id, node.results), found.results, strict=True))
    return axes


def with_weights(nodes: Sequence[Node]) -> list[Node]:
    """The nodes; a loss layer's own weights for each sample become a tensor that the node reads, like the labels.

    What a node reads can be cut to the samples of one process.
    """
    return [_with_weights(node) for node in nodes]


def _with_weights(node: Node) -> Node:
    layer = node.layer
    own: TensorState | None = None
    if isinstance(layer, MLCLossLayer) and layer._weights is not None and len(node.reads) == 2:
        own = layer._weights._cell
    if own is None or own.shape[0] != node.reads[0].shape[0]:
        return node
    return Node(layer, node.sources, node.results, (*node.labels, own), node.updates)
