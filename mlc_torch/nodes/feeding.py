"""What a call feeds into a graph: which tensors, under which names, cut to the batch that the call runs."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

import torch

from mlc_torch.device import MLCDevice
from mlc_torch.enums import MLCLossType
from mlc_torch.layers import MLCLossLayer
from mlc_torch.layers.base import MLCLayer
from mlc_torch.layers.loss_formulas import class_axis
from mlc_torch.nodes.node import Node
from mlc_torch.refusals import MLCRefusal, refuse, warn_the_program
from mlc_torch.spelling.closest import hint
from mlc_torch.tensor import MLCTensorData, TensorState
from mlc_torch.tensor.elements import FITTING, check_fit
from mlc_torch.tensor.state import upload

Data = Mapping[str, MLCTensorData]
LINKED = "linked tensor"
"""The kind of feed that a call is given no data for: a linked graph computes it."""


@dataclass(frozen=True, slots=True)
class Feed:
    """One tensor that a call is given data for."""

    kind: str
    group: int
    """Which of the call's dictionaries holds its data."""
    name: str
    cell: TensorState
    batch_axis: int | None
    """The dimension that counts samples; ``None`` for a tensor that goes in whole."""
    limit: int | None
    """Indices, and the lengths of sequences, must stay below this."""
    form: tuple[torch.dtype, tuple[int, ...]]
    """How its data is looked at."""
    reader: MLCLayer | None = None
    """The layer that sets the limit."""
    classes: int | None = None
    """Of labels that are one-hot: how many numbers each sample has."""
    declared: tuple[frozenset[str], ...] = ()
    """The names that each of the call's dictionaries may hold."""


def describe_feeds(
    fed: Sequence[tuple[str, Mapping[str, TensorState]]],
    nodes: Sequence[Node],
    batch: int,
    declared: Sequence[tuple[str, Mapping[str, TensorState]]],
) -> list[Feed]:
    """The feeds of a plan, in the order of its slots. ``declared`` is all that a call may be given data for."""
    axes, limits, classes = batch_axes(nodes), index_limits(nodes), class_counts(nodes)
    names = tuple(frozenset(cells) for _, cells in declared)
    feeds = []
    for group, (kind, cells) in enumerate(fed):
        for name, cell in cells.items():
            axis, form = counted_axis(cell, axes, batch), (cell.dtype, cell.shape)
            limit, reader = limits.get(id(cell), (None, None))
            one_hot = classes.get(id(cell))
            feeds.append(Feed(kind, group, name, cell, axis, limit, form, reader, one_hot, names))
    return feeds


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
            _check_indices(f"constant {cell.label!r}", value, *limits[id(cell)])
    return list(constants.values())


def batch_axes(nodes: Sequence[Node]) -> dict[int, int | None]:
    """The dimension that counts samples, for each tensor that a node reads."""
    axes: dict[int, int | None] = {}
    for node in nodes:
        for position, cell in enumerate(node.reads):
            axes.setdefault(id(cell), node.layer._batch_axis(position))
    return axes


def counted_axis(cell: TensorState, axes: Mapping[int, int | None], batch: int) -> int | None:
    """The dimension of a tensor that counts ``batch`` samples; ``None`` for one that goes in whole."""
    axis = axes.get(id(cell), 0)
    return axis if axis is not None and axis < len(cell.shape) and cell.shape[axis] == batch else None


def declared_batch(inputs: Mapping[str, TensorState], labels: Mapping[str, TensorState], nodes: Sequence[Node]) -> int:
    """How many samples the inputs hold: what one of them shares with the labels, else the first one that counts any.

    An initial state or a dictionary among the inputs counts layers or rows, not samples. 0: there are no inputs.
    """
    axes = batch_axes(nodes)
    sizes = []
    for cell in inputs.values():
        axis = axes.get(id(cell), 0)
        if axis is not None and axis < len(cell.shape):
            sizes.append(cell.shape[axis])
    labelled = {cell.shape[0] for cell in labels.values()}
    return next((n for n in sizes if n in labelled), sizes[0] if sizes else 0)


def take(feeds: Sequence[Feed], given: Sequence[Data | None], batch: int | None) -> list[torch.Tensor]:
    """A tensor for each feed: over the caller's own memory where data is given, else what is bound.

    They are contiguous, since a gear is made for that: a linked graph may have computed its result in another layout.
    ``batch`` is the number of samples of a short batch, ``None`` for all of them.
    """
    taken, new = [], False
    for feed in feeds:
        data, cell = given[feed.group] if feed.group < 3 else None, feed.cell
        found = data.get(feed.name) if data else None
        if found is not None and batch is None and found._length >= cell.nbytes:
            value = found._views.get(feed.form)
            if value is None:  # data that was never seen here before: its type, its shape and the names are looked at
                value, new = _whole(feed, found), True
        else:
            value, new = _cut(feed, found, given, batch), True
        if feed.limit is not None:
            _check_indices(f"{feed.kind} {feed.name!r}", value, feed.limit, feed.reader)
        taken.append(value)
    inputs, labels, weights = given
    if new or len(inputs or ()) + len(labels or ()) + len(weights or ()) != len(taken):
        _check_names(feeds, given)
    return taken


def _check_names(feeds: Sequence[Feed], given: Sequence[Data | None]) -> None:
    """Where data was given for more or less than the feeds, or for the first time."""
    for data, names in zip(given, feeds[0].declared if feeds else (), strict=False):
        if data and not names.issuperset(data):
            refuse_names(given, feeds[0].declared)


def _whole(feed: Feed, found: MLCTensorData) -> torch.Tensor:
    try:
        return found._view(feed.cell.dtype, feed.cell.shape, feed.name)
    except MLCRefusal as why:
        raise _advised(why, feed, found) from None


def _cut(feed: Feed, found: MLCTensorData | None, given: Sequence[Data | None], batch: int | None) -> torch.Tensor:
    cell, axis = feed.cell, feed.batch_axis
    if found is None:
        data = given[feed.group] if feed.group < 3 else None
        if data:
            refuse_names(given, feed.declared)
        value = cell.current()
        if value is None:
            refuse(_no_data(feed, given))
        return (value if batch is None or axis is None else value.narrow(axis, 0, batch)).contiguous()
    short = batch is not None and axis == 0
    try:
        needed_bytes(feed.name, cell, found, batch if short and batch is not None else 0)
    except MLCRefusal as why:
        raise _advised(why, feed, found) from None
    if short:
        return found._view(cell.dtype, (batch, *cell.shape[1:]), feed.name)  # type: ignore[arg-type]
    value = found._view(cell.dtype, cell.shape, feed.name)
    return value if batch is None or axis is None else value.narrow(axis, 0, batch).contiguous()


DICTIONARIES = ("inputsData", "lossLabelsData", "lossLabelWeightsData")
"""What a call's dictionaries are called, in the order of the groups of feeds."""


def refuse_names(given: Sequence[Data | None], declared: Sequence[Collection[str]]) -> None:
    """Refuse names that ``addInputs`` did not declare: their data would be passed over without a word."""
    for group, data in enumerate(given):
        for name in data or ():
            if name in declared[group]:
                continue
            known = ", ".join(sorted(declared[group])) or "nothing"
            other = next((DICTIONARIES[n] for n, names in enumerate(declared) if name in names), None)
            meant = hint(name, declared[group]) if other is None else f"; data for {name!r} goes into {other}"
            refuse(f"{DICTIONARIES[group]} names {name!r}; addInputs declared for it: {known}{meant}")


def _no_data(feed: Feed, given: Sequence[Data | None]) -> str:
    """The words for a tensor that a run needs and that holds nothing."""
    if feed.kind == LINKED:
        return f"tensor {feed.cell.label!r} has no value yet; run executeForward of the graph that computes it first"
    data = given[feed.group]
    have = f"; given: {', '.join(map(repr, data))}" if data else ""
    # What execute is given for its inputs may be empty, but not nil: no dictionary at all means a phase.
    ways = "" if given[0] is None else f"give it in {DICTIONARIES[feed.group]}, or "
    return f"no data for the {feed.kind} {feed.name!r}{have}; {ways}bind it with bindAndWriteData before"


def _advised(why: MLCRefusal, feed: Feed, data: MLCTensorData) -> MLCRefusal:
    """The refusal of some data; where class numbers were given as one-hot labels, with the way out."""
    size = data._element.itemsize if isinstance(data._element, torch.dtype) else data._element[1]
    count = data._length // size
    if feed.classes is None or count * feed.classes > math.prod(feed.cell.shape):
        return why
    return MLCRefusal(
        f"{why.reason.partition(';')[0]}; the loss takes one-hot labels, {feed.classes} numbers for each sample: where these "
        f"are class numbers, pass np.eye({feed.classes}, dtype=np.float32)[labels]"
    )


def needed_bytes(name: str, cell: TensorState, data: MLCTensorData, batch: int) -> int:
    """The bytes that ``batch`` samples of a tensor take (0: all of it); data that holds fewer is refused."""
    descriptor = cell.descriptor
    if (data._element, cell.dtype) not in FITTING:
        check_fit(data._element, cell.dtype, f"data for {name!r}")
    if data._shape is not None and data._shape != cell.shape:
        data._check_shape(cell.dtype, cell.shape, f"data for {name!r}")
    if not 0 <= batch <= cell.shape[0]:
        refuse(f"batchSize is {batch}, the tensor for {name!r} holds {cell.shape[0]} samples")
    needed = descriptor._sample_bytes * batch if batch else cell.nbytes
    if data._length < needed:
        samples = f" and batchSize {batch}" if batch else ""
        size, (there, rest) = cell.dtype.itemsize, divmod(data._length, descriptor._sample_bytes)
        out = f"; for a smaller batch give batchSize={there}" if there and not rest else ""
        if data._shape is None and data._length * size == needed:
            out = "; the length of data is counted in bytes"
        refuse(
            f"data for {name!r} holds {data._length} bytes ({data._length // size} elements), shape "
            f"{descriptor.shape}{samples} needs {needed} ({needed // size} elements){out}"
        )
    return needed


def warn_unbound(given: Mapping[str, object], tensors: Mapping[str, object]) -> None:
    """Data for which there is no tensor of that name. The framework takes it (measured, evidence.md G), and so do we."""
    lost = [f"{name!r}{hint(name, tensors).replace('; ', ', ')}" for name in given if name not in tensors]
    if lost:
        known = ", ".join(map(repr, tensors)) or "nothing"
        warn_the_program(
            f"no tensor for the data named {'; '.join(lost)}, which is not bound; the tensors are: {known}"
        )


def _check_indices(who: str, value: torch.Tensor, limit: int, reader: MLCLayer | None) -> None:
    """An index out of range would end a CUDA process, so it is looked for before the device sees it."""
    low, high = (int(n) for n in torch.aminmax(value))
    if low < 0 or high >= limit:
        wrong, whose = low if low < 0 else high, "its layer" if reader is None else f"the layer {reader._label!r}"
        refuse(f"the {who} holds {wrong}; what is there must lie from 0 to {limit - 1} for {whose}")


def write(cell: TensorState, data: MLCTensorData, device: MLCDevice, batch: int) -> None:
    """Copy ``batch`` samples into the tensor's memory on ``device``; the other samples keep what they hold.

    On CUDA a whole tensor goes to the device with the other inputs, when the graph runs.
    """
    shape = (batch, *cell.shape[1:]) if batch else cell.shape
    source, target = data._views.get((cell.dtype, shape)), device.torch_device
    if source is None:
        source = data._view(cell.dtype, shape)
    if shape == cell.shape:
        cell.publish(upload(source, target) if device._kind == "mps" else source.clone(), device)
        return
    full = cell.value if cell.value is not None and cell.value.device == target else None
    if full is None:
        full = source.new_zeros(cell.shape, device=target)
    full = full.clone()
    full[: shape[0]] = source.to(target)
    cell.publish(full, device)
