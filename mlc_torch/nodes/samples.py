"""Where several processes share a batch: which dimension of each tensor counts samples, all through a graph."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from mlc_torch.layers import MLCLossLayer
from mlc_torch.layers.sharing import PART, Axis
from mlc_torch.nodes.node import Node, describe, producers
from mlc_torch.refusals import MLCRefusal, refuse
from mlc_torch.tensor import TensorState


def sample_axes(nodes: Sequence[Node], fed: Mapping[int, Axis]) -> dict[int, Axis]:
    """The dimension of every tensor that counts samples, by the cell's identity; ``fed`` says it of what is fed.

    Refuses, with the layer's name, where samples would be mixed: each process has only its own.
    """
    axes: dict[int, Axis] = dict(fed)
    made_by = producers(nodes)
    whole: dict[int, Node] = {}
    """Who reads all of a tensor that no layer makes: it cannot be cut for another one."""
    for node in nodes:
        sources, results = ([c.descriptor for c in cells] for cells in (node.reads, node.results))
        known = [axes.get(id(c)) for c in node.reads]
        try:
            if PART in known:
                refuse("reads a loss, of which each rank has only the part of its own samples")
            found = node.layer._samples(known, sources, results)
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
