"""What a graph is fed: which tensors, under which names, which of their dimensions counts samples. Found once, at compile."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch

from mlc_torch.enums import MLCLossType
from mlc_torch.layers import MLCLossLayer
from mlc_torch.layers.base import MLCLayer
from mlc_torch.layers.loss_formulas import class_axis
from mlc_torch.layers.sharing import UNKNOWN, MixesSamples
from mlc_torch.nodes.node import Node
from mlc_torch.refusals import MLCRefusal, refuse
from mlc_torch.tensor import TensorState
from mlc_torch.tensor.addresses import LITTLE
from mlc_torch.tensor.data import USUAL, seen_as_bytes
from mlc_torch.tensor.elements import Element

LINKED = "linked tensor"
"""The kind of feed that a call is given no data for: a linked graph computes it."""


class Standing(NamedTuple):
    """Memory of ours that a call's data is copied to where there is little of it: nothing has to be made for it, and the
    pass can be looked into afterwards, whatever the program writes into its arrays."""

    tensor: torch.Tensor
    bytes: memoryview
    element: Element
    """What an array says of its elements that is of the tensor's type."""


@dataclass(frozen=True, slots=True)
class Feed:
    """One tensor that a call is given data for."""

    kind: str
    group: int
    """Which of the call's dictionaries holds its data."""
    name: str
    cell: TensorState
    batch_axis: int | None
    """The dimension that counts samples; ``None`` for a tensor that goes in whole, ``UNKNOWN`` where nobody can say."""
    limit: int | None
    """Indices, and the lengths of sequences, must stay below this."""
    form: tuple[torch.dtype, tuple[int, ...]]
    """How its data is looked at."""
    reader: MLCLayer | None = None
    """The layer that sets the limit."""
    classes: int | None = None
    """Of labels that are one-hot: how many numbers stand for each class number."""
    declared: tuple[frozenset[str], ...] = ()
    """The names that each of the call's dictionaries may hold."""
    standing: Standing | None = None

    @property
    def title(self) -> str:
        """What messages call it."""
        return f"{self.kind} {self.name!r}"


def describe_feeds(
    fed: Sequence[tuple[str, Mapping[str, TensorState]]],
    nodes: Sequence[Node],
    axes: Mapping[int, int | None],
    declared: Sequence[tuple[str, Mapping[str, TensorState]]],
) -> list[Feed]:
    """The feeds of a plan, in the order of its slots. ``axes`` says where samples lie, ``declared`` is all that a call may be
    given data for."""
    limits, classes = index_limits(nodes), class_counts(nodes)
    names = tuple(frozenset(cells) for _, cells in declared)
    feeds = []
    for group, (kind, cells) in enumerate(fed):
        for name, cell in cells.items():
            axis, form = axes[id(cell)], (cell.dtype, cell.shape)
            limit, reader = limits.get(id(cell), (None, None))
            one_hot = classes.get(id(cell))
            standing = _standing(cell) if limit is None and kind != LINKED else None
            feeds.append(Feed(kind, group, name, cell, axis, limit, form, reader, one_hot, names, standing))
    return feeds


def _standing(cell: TensorState) -> Standing | None:
    if not 0 < cell.nbytes <= LITTLE or cell.dtype not in USUAL:
        return None
    with torch.inference_mode(False):  # a tensor that is made in inference mode could never be trained
        memory = torch.zeros(cell.shape, dtype=cell.dtype, device="cpu")
    return Standing(memory, seen_as_bytes(memory)[0], USUAL[cell.dtype])


def class_counts(nodes: Sequence[Node]) -> dict[int, int]:
    """How many classes there are, for each tensor that a loss over classes reads as its labels."""
    found: dict[int, int] = {}
    for node in nodes:
        if isinstance(node.layer, MLCLossLayer) and node.layer.descriptor.lossType in _ONE_HOT and len(node.reads) > 1:
            shape = node.reads[0].shape
            found[id(node.reads[1])] = shape[class_axis(len(shape))]
    return found


_ONE_HOT = (MLCLossType.softmaxCrossEntropy, MLCLossType.categoricalCrossEntropy)


def index_limits(nodes: Sequence[Node]) -> dict[int, tuple[int, MLCLayer]]:
    """What the elements of a tensor must stay below, and which layer demands it, where one reads indices or lengths."""
    limits: dict[int, tuple[int, MLCLayer]] = {}
    for node in nodes:
        sources = [c.descriptor for c in node.reads]
        for position, cell in enumerate(node.reads):
            limit = node.layer._index_limit(position, sources)
            if limit is not None and (id(cell) not in limits or limit < limits[id(cell)][0]):
                limits[id(cell)] = (limit, node.layer)
    return limits


def checked_constants(nodes: Sequence[Node], fed: Sequence[TensorState]) -> list[TensorState]:
    """The constants that hold indices; refused where one is out of range."""
    limits, others = index_limits(nodes), {id(c) for c in fed} | {id(c) for node in nodes for c in node.results}
    constants = {id(c): c for node in nodes for c in node.reads if id(c) in limits and id(c) not in others}
    for cell in constants.values():
        value = cell.current()
        if value is not None:
            check_indices(f"constant {cell.label!r}", value, *limits[id(cell)])
    return list(constants.values())


def batch_axes(nodes: Sequence[Node], beyond: Sequence[Node] = ()) -> dict[int, int | None]:
    """The dimension that counts samples, for each tensor that a node reads; ``UNKNOWN`` where its readers differ about it.

    ``beyond``: the nodes of linked graphs, which may read what these make.
    """
    axes: dict[int, int | None] = {}
    for node in nodes:
        sources = [c.descriptor for c in node.reads]
        for position, cell in enumerate(node.reads):
            axes.setdefault(id(cell), node.layer._batch_axis(position, sources))
    wanted = wanted_axes(nodes, beyond)
    # Most layers leave samples where they are and say the first dimension; what stands behind them knows better.
    return axes | {key: axis for key, axis in wanted.items() if axes.get(key) is not None}


def wanted_axes(nodes: Sequence[Node], beyond: Sequence[Node] = ()) -> dict[int, int]:
    """Where a layer that knows of samples, an LSTM, has them in the tensors that it reads, and what those were made of."""
    wanted: dict[int, int] = {}
    if not any(node.layer._knows_samples for node in (*nodes, *beyond)):
        return wanted
    while True:
        before = dict(wanted)
        for node in reversed((*nodes, *beyond)):
            behind = [wanted.get(id(c)) for c in node.results]
            found = [_wanted_axis(node, position, behind) for position in range(len(node.reads))]
            is_carried = any(axis is not None and axis != UNKNOWN for axis in found)
            for cell, axis in zip(node.reads, found, strict=True):
                if axis is not None and not (axis == UNKNOWN and is_carried):  # another source has the samples
                    wanted[id(cell)] = axis if wanted.get(id(cell), axis) == axis else UNKNOWN
        if not beyond or wanted == before:  # linked graphs come in any order
            return wanted


def _wanted_axis(node: Node, position: int, behind: Sequence[int | None]) -> int | None:
    """Where samples must lie in a source, given where its results have them.

    ``None``: nothing is known of it, since nothing is of the results, or samples come into being there, as rows of what was
    reshaped. ``UNKNOWN``: not along the first dimension, which would lie elsewhere in the results.
    """
    sources = [c.descriptor for c in node.reads]
    if node.layer._knows_samples:
        axis = node.layer._batch_axis(position, sources)
        is_one = axis is not None and sources[position]._shape[axis] == 1  # a sequence whose steps may be the samples
        return None if is_one else axis
    if all(axis is None for axis in behind):
        return None
    carried = [_carried(node, position, axis) for axis in range(len(sources[position]._shape))]
    for axis, found in enumerate(carried):
        for cell, there, want in zip(node.results, found, behind, strict=False):
            if there is not None and there == want:  # where there is one element, it is the same for all samples
                return axis if sources[position]._shape[axis] == cell.shape[there] else None
    return UNKNOWN if any(axis is not None and axis >= 0 for found in carried[:1] for axis in found) else None


def _carried(node: Node, position: int, axis: int) -> Sequence[int | None]:
    """Where a node has in its results what lies along a dimension of one source; empty where nowhere, or nobody can say."""
    sources, results = ([c.descriptor for c in cells] for cells in (node.reads, node.results))
    known: list[int | None] = [None] * len(sources)
    known[position] = axis
    try:
        return node.layer._samples(known, sources, results).results
    except MLCRefusal as why:  # it looks along that dimension
        return (why.results if isinstance(why, MixesSamples) else None) or ()


def counted_axis(cell: TensorState, axes: Mapping[int, int | None], batch: int) -> int | None:
    """The dimension of a tensor that counts ``batch`` samples; ``None`` for one that goes in whole."""
    axis = axes.get(id(cell), 0)
    return axis if axis is not None and 0 <= axis < len(cell.shape) and cell.shape[axis] == batch else None


def declared_batch(
    inputs: Mapping[str, TensorState],
    labels: Mapping[str, TensorState],
    nodes: Sequence[Node],
    linked: Mapping[int, int | None] | None = None,
    beyond: Sequence[Node] = (),
) -> int:
    """How many samples the inputs hold: what one of them shares with the labels, else with a result that no layer reads, else
    what the first one has that counts any.

    Where an LSTM has samples elsewhere than first, it decides. An initial state or a dictionary among the inputs counts layers or
    rows, not samples; an input that no layer reads counts where no other does. ``linked`` says where samples lie in what
    other graphs compute, ``beyond`` are their nodes. 0: there are no inputs.
    """
    wanted = wanted_axes(nodes, beyond)
    said = {c.shape[wanted[id(c)]] for c in inputs.values() if wanted.get(id(c), 0) > 0}
    if not said and any(wanted.get(id(c)) == UNKNOWN for c in inputs.values()):
        known_by = [node.reads[0] for node in (*nodes, *beyond) if node.layer._knows_samples]
        said = {c.shape[wanted[id(c)]] for c in known_by if wanted.get(id(c), UNKNOWN) != UNKNOWN}
    if len(said) == 1:
        return said.pop()
    axes = batch_axes(nodes, beyond) | dict(linked or {})
    cells = [c for c in inputs.values() if id(c) in axes] or [*inputs.values()]
    sizes = []
    for cell in cells:
        axis = axes.get(id(cell), 0)
        if axis is not None and 0 <= axis < len(cell.shape):
            sizes.append(cell.shape[axis])
    labelled = {cell.shape[0] for cell in labels.values()}
    made = {cell.shape[0] for node in nodes for cell in node.results if id(cell) not in axes}
    known = [n for n in sizes if n in labelled] or [n for n in sizes if n in made] or sizes
    return known[0] if known else 0


def refuse_part(batch: int, labels: Mapping[str, TensorState], nodes: Sequence[Node]) -> None:
    """Where no input counts samples, nothing says which those of a short batch are: the graph runs as a whole.

    How many there are is what a constant holds, or the labels, or a result that no layer reads.
    """
    computed = {id(c): c for node in nodes if not isinstance(node.layer, MLCLossLayer) for c in node.results}
    read = {id(c): c for node in nodes for c in node.reads if id(c) not in computed}
    inner = {id(c) for node in nodes if not isinstance(node.layer, MLCLossLayer) for c in node.reads}
    axes = batch_axes(nodes)
    sizes = [c.shape[axis] for key, c in read.items() if (axis := axes[key]) is not None and 0 <= axis < len(c.shape)]
    sizes += [c.shape[0] for c in (*labels.values(), *(c for key, c in computed.items() if key not in inner))]
    if batch not in sizes:
        whole = " or ".join(map(str, dict.fromkeys((0, *sizes))))
        refuse(f"batchSize is {batch}; no input counts samples, so that all of them are computed: give {whole}")


_UNSIGNED = {torch.int32: np.uint32, torch.int64: np.uint64}


def check_indices(who: str, value: torch.Tensor, limit: int, reader: MLCLayer | None) -> None:
    """An index out of range would end a CUDA process, so it is looked for before the device sees it."""
    unsigned = _UNSIGNED.get(value.dtype) if value.is_cpu else None
    if unsigned is not None and value.numel() and value.numpy().view(unsigned).max() < limit:
        return  # nearly always; what is negative would be large (4 µs for 32 indices, and not 15)
    low, high = (int(n) for n in torch.aminmax(value))
    if low < 0 or high >= limit:
        wrong, whose = low if low < 0 else high, "its layer" if reader is None else f"the layer {reader._label!r}"
        refuse(f"the {who} holds {wrong}; what is there must lie from 0 to {limit - 1} for {whose}")
