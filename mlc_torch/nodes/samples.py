"""Which dimension of each tensor counts samples, all through a graph: asked for short batches, and where processes share one."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence

from mlc_torch.layers import MLCLossLayer
from mlc_torch.layers.sharing import PART, UNKNOWN, Axis, MixesSamples, Samples
from mlc_torch.nodes.feeds import batch_axes, counted_axis, wanted_axes
from mlc_torch.nodes.node import Node, describe, producers
from mlc_torch.refusals import MLCRefusal, refuse
from mlc_torch.tensor import TensorState


def axes_in_one_process(
    nodes: Sequence[Node],
    fed: Iterable[TensorState],
    batch: int,
    linked: Mapping[int, Axis],
    beyond: Sequence[Node] = (),
) -> dict[int, Axis]:
    """Where the ``batch`` samples lie in every tensor, by the cell's identity: what a short batch is cut along.

    ``None``: the tensor is the same for all of them. ``UNKNOWN``: a layer mixed samples, which one process may do, and no
    dimension of what came of it counts them. ``linked`` says it of what other graphs compute, ``beyond`` are their
    nodes.
    """
    fed, sure = list(fed), wanted_axes(nodes, beyond)
    readers = batch_axes([node for node in nodes if not isinstance(node.layer, MLCLossLayer)], beyond)
    axes = {id(c): _fed_axis(c, readers, batch, linked) for c in fed}
    guessed = {id(c) for c in fed if axes[id(c)] is not None} - sure.keys() - linked.keys() if sure else set[int]()
    while True:
        walk = _Walk(axes, guessed, readers.keys() | linked.keys(), batch)
        wrong = walk.through(nodes)
        if not wrong:
            return walk.axes
        axes |= dict.fromkeys(wrong)
        guessed -= wrong


class _Walk:
    """Through the nodes of a graph, from what is fed on.

    ``guessed``: what is fed with a first dimension as long as the batch, where another layer knows where samples lie. It may
    be a row for each step of a sequence: a layer that reads it beside samples that lie elsewhere tells.
    """

    def __init__(self, fed: Mapping[int, Axis], guessed: Iterable[int], said: Collection[int], batch: int) -> None:
        self.axes = dict(fed)
        self._fed, self._said, self._batch = fed, said, batch
        self._guesses = {key: frozenset((key,)) for key in guessed}
        """What the axis of a tensor rests on, where that is guesses alone."""
        self._labels: set[int] = set()

    def through(self, nodes: Sequence[Node]) -> frozenset[int]:
        """The guesses that turned out to be wrong, and then the rest is not worked out."""
        for node in nodes:
            if isinstance(node.layer, MLCLossLayer):
                self._place_labels(node)
            known = [self.axes.get(id(c)) for c in node.reads]
            found, needs_all = _result_axes(node, known)
            guesses = [
                self._guesses.get(id(c)) if axis is not None else None
                for c, axis in zip(node.reads, known, strict=True)
            ]
            behind = frozenset().union(*(guess for guess in guesses if guess is not None))
            if UNKNOWN in found and behind:
                surer = [None if guess else axis for axis, guess in zip(known, guesses, strict=True)]
                if any(axis is not None for axis in surer) and UNKNOWN not in _result_axes(node, surer)[0]:
                    return behind
            if needs_all:
                self.axes |= {key: UNKNOWN for key, axis in self._fed.items() if axis is not None}
            self.axes |= dict(zip(map(id, node.results), found, strict=True))
            if behind and all(guess for guess, axis in zip(guesses, known, strict=True) if axis is not None):
                self._guesses |= {id(c): behind for c in node.results}
        return frozenset()

    def _place_labels(self, node: Node) -> None:
        for cell in node.reads[1:]:
            if id(cell) not in self.axes or id(cell) in self._said:
                continue  # somebody else has said it
            axis = _beside(cell, node.reads[0], self.axes.get(id(node.reads[0])), self._batch)
            if id(cell) in self._labels and self.axes[id(cell)] != axis:
                axis = UNKNOWN
            self._labels.add(id(cell))
            self.axes[id(cell)] = axis


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


def _result_axes(node: Node, known: list[Axis]) -> tuple[Sequence[Axis], bool]:
    """Where samples lie in the results; and whether the node needs all samples to compute what it should."""
    unknown: Sequence[Axis] = [UNKNOWN] * len(node.results)
    if UNKNOWN in known:
        return unknown, False
    needs_all = False
    try:
        found = _samples_of(node, known).results
    except MLCRefusal as why:
        said = why.results if isinstance(why, MixesSamples) else None
        needs_all = isinstance(why, MixesSamples) and why.needs_all
        found = unknown if said is None else said
    return [None if axis == PART else axis for axis in found], needs_all


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
