"""What a call feeds into a graph: which tensors, under which names, cut to the batch that the call runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch

from mlc_torch.device import MLCDevice
from mlc_torch.layers.base import MLCLayer
from mlc_torch.nodes.node import Node
from mlc_torch.refusals import refuse
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


def describe_feeds(
    fed: Sequence[tuple[str, Mapping[str, TensorState]]], nodes: Sequence[Node], batch: int
) -> list[Feed]:
    """The feeds of a plan, in the order of its slots."""
    axes, limits = batch_axes(nodes), index_limits(nodes)
    feeds = []
    for group, (kind, cells) in enumerate(fed):
        for name, cell in cells.items():
            axis, form = counted_axis(cell, axes, batch), (cell.dtype, cell.shape)
            limit, reader = limits.get(id(cell), (None, None))
            feeds.append(Feed(kind, group, name, cell, axis, limit, form, reader))
    return feeds


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
    taken = []
    for feed in feeds:
        data, cell = given[feed.group] if feed.group < 3 else None, feed.cell
        found = data.get(feed.name) if data else None
        if found is not None and batch is None and found._length >= cell.nbytes:
            value = found._views.get(feed.form)
            if value is None:
                value = found._view(cell.dtype, cell.shape, feed.name)
        else:
            value = _cut(feed, found, data, batch)
        if feed.limit is not None:
            _check_indices(f"{feed.kind} {feed.name!r}", value, feed.limit, feed.reader)
        taken.append(value)
    return taken


def _cut(feed: Feed, found: MLCTensorData | None, data: Data | None, batch: int | None) -> torch.Tensor:
    cell, axis = feed.cell, feed.batch_axis
    if found is None:
        value = cell.current()
        if value is None and feed.kind == LINKED:
            refuse(f"tensor {cell.label!r} has no value yet; run executeForward of the graph that computes it first")
        if value is None:
            have = ", ".join(map(repr, data)) if data else "nothing"
            refuse(f"no data for the {feed.kind} {feed.name!r}; given: {have}")
        return (value if batch is None or axis is None else value.narrow(axis, 0, batch)).contiguous()
    short = batch is not None and axis == 0
    needed_bytes(feed.name, cell, found, batch if short and batch is not None else 0)
    if short:
        return found._view(cell.dtype, (batch, *cell.shape[1:]))  # type: ignore[arg-type]
    value = found._view(cell.dtype, cell.shape)
    return value if batch is None or axis is None else value.narrow(axis, 0, batch).contiguous()


def needed_bytes(name: str, cell: TensorState, data: MLCTensorData, batch: int) -> int:
    """The bytes that ``batch`` samples of a tensor take (0: all of it); data that holds fewer is refused."""
    descriptor = cell.descriptor
    if (data._element, cell.dtype) not in FITTING:
        check_fit(data._element, cell.dtype, f"data for {name!r}")
    if not 0 <= batch <= cell.shape[0]:
        refuse(f"batchSize is {batch}, the tensor for {name!r} holds {cell.shape[0]} samples")
    needed = descriptor._sample_bytes * batch if batch else cell.nbytes
    if data._length < needed:
        samples = f" and batchSize {batch}" if batch else ""
        refuse(f"data for {name!r} holds {data._length} bytes, shape {descriptor.shape}{samples} needs {needed}")
    return needed


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
