"""A call's data on its way into a graph: checked, copied or looked at in place, cut to the batch that the call runs."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from typing import NoReturn

import torch

from mlc_torch.device import MLCDevice, queueing
from mlc_torch.layers.loss_formulas import class_axis
from mlc_torch.layers.sharing import UNKNOWN
from mlc_torch.nodes.feeds import LINKED, Feed, check_indices
from mlc_torch.refusals import MLCRefusal, refuse, warn_the_program
from mlc_torch.spelling.closest import hint
from mlc_torch.tensor import MLCTensorData, SamplesBound, TensorState
from mlc_torch.tensor.elements import FITTING

Data = Mapping[str, MLCTensorData]


def take(feeds: Sequence[Feed], given: Sequence[Data | None], batch: int | None) -> list[torch.Tensor]:
    """A tensor for each feed: a copy of the caller's data or a tensor over it, and what is bound where none is given.

    They are contiguous, since a gear is made for that: a linked graph may have computed its result in another layout.
    ``batch`` is the number of samples of a short batch, ``None`` for all of them.
    """
    taken, copies, count = [], [], 0
    for feed in feeds:
        data, cell = given[feed.group] if feed.group < 3 else None, feed.cell
        found = data.get(feed.name) if data else None
        if found is not None and batch is None and found._length >= cell.nbytes:
            count += 1
            standing = feed.standing
            if standing is not None:
                value, memory, element = standing
                if found._element != element or found._shape is not None:
                    _check_fit(feed, found)
                copies.append((memory, found._bytes if found._length == cell.nbytes else found._bytes[: cell.nbytes]))
                taken.append(value)
                continue
            value = found._views.get(feed.form)
            if value is None:
                value = _whole(feed, found)
        elif not data and batch is None and cell.value is not None:
            if cell.partly is not None:
                _must_be_bound(feed, None)
            value = cell.value.contiguous()  # bound before
        else:
            count += found is not None
            value = _cut(feed, found, given, batch)
        if feed.limit is not None:
            check_indices(feed.title, value, feed.limit, feed.reader)
        taken.append(value)
    for data in given:
        if data:
            count -= len(data)
    if count:
        _check_names(feeds, given)
    for memory, source in copies:  # at the end, when nothing can be refused any more
        memory[:] = source
    return taken


def _check_names(feeds: Sequence[Feed], given: Sequence[Data | None]) -> None:
    """Where data was given under more names than the feeds took it by."""
    for data, names in zip(given, feeds[0].declared if feeds else (), strict=False):
        if data and not names.issuperset(data):
            refuse_names(given, feeds[0].declared)


def _check_fit(feed: Feed, found: MLCTensorData) -> None:
    try:
        found._must_fit(feed.cell.dtype, feed.cell.shape, f"data for {feed.name!r}")
    except MLCRefusal as why:
        raise _advised(why, feed, found) from None


def _whole(feed: Feed, found: MLCTensorData) -> torch.Tensor:
    try:
        return found._view(feed.cell.dtype, feed.cell.shape, feed.name)
    except MLCRefusal as why:
        raise _advised(why, feed, found) from None


def _cut(feed: Feed, found: MLCTensorData | None, given: Sequence[Data | None], batch: int | None) -> torch.Tensor:
    cell, axis = feed.cell, feed.batch_axis
    if batch is not None and axis == UNKNOWN:
        refuse_unknown(feed.title if feed.kind != LINKED else f"{feed.kind} {cell.label!r}", cell, batch)
    if found is None:
        data = given[feed.group] if feed.group < 3 else None
        if data:
            refuse_names(given, feed.declared)
        value = cell.current()
        if value is None:
            refuse(_no_data(feed, given))
        if cell.partly is not None:
            _must_be_bound(feed, None if axis is None else batch)
        return (value if batch is None or axis is None else value.narrow(axis, 0, batch)).contiguous()
    short = batch is not None and axis == 0
    try:
        check_bytes(feed.name, cell, found, batch if short and batch is not None else 0, axis == 0)
    except MLCRefusal as why:
        raise _advised(why, feed, found) from None
    if short:
        return found._view(cell.dtype, (batch, *cell.shape[1:]), feed.name)  # type: ignore[arg-type]
    value = found._view(cell.dtype, cell.shape, feed.name)
    return value if batch is None or axis is None else value.narrow(axis, 0, batch).contiguous()


def _must_be_bound(feed: Feed, samples: int | None) -> None:
    """Refuse to run more samples than were ever bound; ``None``: all that the tensor holds."""
    bound = feed.cell.samples_bound()
    if bound is not None and bound.number < (wanted := bound.total if samples is None else samples):
        refuse(
            f"{bound.number} of the {wanted} samples of the {feed.title} were bound; bind the others too, or give "
            f"batchSize={bound.number}"
        )


def refuse_unknown(what: str, cell: TensorState, batch: int) -> NoReturn:
    """Refuse to cut a tensor of which nobody can say where its samples lie."""
    refuse(
        f"batchSize is {batch}, and which part of the {what} of shape {list(cell.shape)} belongs to these samples cannot be "
        "told, since a layer mixes samples or moves them elsewhere; run the whole batch"
    )


DICTIONARIES = ("inputsData", "lossLabelsData", "lossLabelWeightsData")
"""What a call's dictionaries are called, in the order of the groups of feeds."""


def refuse_names(given: Sequence[Data | None], declared: Sequence[Collection[str]]) -> None:
    """Refuse names that ``addInputs`` did not declare: their data would be passed over without a word."""
    for group, data in enumerate(given):
        for name in data or ():
            if name in declared[group]:
                continue
            if group == 1 and not declared[group]:
                refuse("data for loss labels was given, and addInputs declared no loss labels")
            known = ", ".join(sorted(declared[group])) or "nothing"
            other = next((DICTIONARIES[n] for n, names in enumerate(declared) if name in names), None)
            meant = hint(name, declared[group]) if other is None else f"; data for {name!r} goes into {other}"
            refuse(f"{DICTIONARIES[group]} names {name!r}; addInputs declared for it: {known}{meant}")


def refuse_moved(moved: Sequence[tuple[int, str]], given: Sequence[Data | None]) -> None:
    """Refuse data for tensors that the call's own update moves: its gradient at the data would move what is bound."""
    for group, name in moved:
        if name in (given[group] or ()):
            refuse(
                f"{DICTIONARIES[group]} names {name!r}, which setTrainingTensorParameters named too: it is trained, so that it "
                "holds its own values; bind those that it starts with by bindAndWriteData, and leave it out here"
            )


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
        f"{why.reason.partition(';')[0]}; the loss takes one-hot labels, {feed.classes} numbers in place of one: where these "
        f"are class numbers, pass {_one_hot(feed.classes, feed.cell.shape, data._shape)}"
    )


def _one_hot(classes: int, shape: tuple[int, ...], given: tuple[int, ...] | None) -> str:
    """How NumPy makes labels of ``shape`` from class numbers, which may come with a 1 where the classes go."""
    axis = class_axis(len(shape))
    is_kept = given is not None and len(given) == len(shape) and given[axis] == 1
    made = f"np.eye({classes}, dtype=np.float32)[labels{f'.squeeze({axis})' if is_kept else ''}]"
    return made if axis == len(shape) - 1 else f"np.ascontiguousarray(np.moveaxis({made}, -1, {axis}))"


SMALLER_BATCH = "; for a smaller batch give batchSize="
"""Advice for who calls ``execute``; ``step`` and ``fit`` count the samples themselves, and give other advice."""


def check_bytes(name: str, cell: TensorState, data: MLCTensorData, batch: int, counts: bool) -> None:
    """Refuse data that holds fewer bytes than ``batch`` samples of a tensor take (0: all of it), or other elements.

    ``counts``: whether the tensor's first dimension counts samples, so that there may be fewer of them.
    """
    descriptor = cell.descriptor
    if (data._element, cell.dtype) not in FITTING or (data._shape is not None and data._shape != cell.shape):
        data._must_fit(cell.dtype, cell.shape, f"data for {name!r}")
    if not 0 <= batch <= cell.shape[0]:
        refuse(f"batchSize is {batch}, the tensor for {name!r} holds {cell.shape[0]} samples")
    needed = descriptor._sample_bytes * batch if batch else cell.nbytes
    if data._length < needed:
        samples, size = f" and batchSize {batch}" if batch else "", cell.dtype.itemsize
        refuse(
            f"data for {name!r} holds {data._length} bytes ({data._length // size} elements), shape {descriptor.shape}{samples} "
            f"needs {needed} ({needed // size} elements){_why_too_few(cell, data, batch, counts, needed)}"
        )


def _why_too_few(cell: TensorState, data: MLCTensorData, batch: int, counts: bool, needed: int) -> str:
    """What too few bytes for ``batch`` samples most likely are, as the end of a refusal."""
    if data._shape is None and data._length * cell.dtype.itemsize == needed:
        return "; the length of data is counted in bytes"
    if not counts:
        return "; its first dimension counts no samples, so it is given whole, whatever the size of the batch"
    rows, *row = getattr(data._owner, "shape", None) or (0,)
    if rows == (batch or cell.shape[0]) and tuple(row) != cell.shape[1:]:
        return f"; its shape is {[rows, *row]}, and each of its {rows} samples takes {[*cell.shape[1:]]}"
    there, rest = divmod(data._length, cell.descriptor._sample_bytes)
    return f"{SMALLER_BATCH}{there}" if there and not rest else ""


def warn_unbound(given: Mapping[str, object], tensors: Mapping[str, object]) -> None:
    """Data for which there is no tensor of that name. The framework takes it (measured, evidence.md G), and so do we."""
    lost = [f"{name!r}{hint(name, tensors).replace('; ', ', ')}" for name in given if name not in tensors]
    if lost:
        known = ", ".join(map(repr, tensors)) or "nothing"
        warn_the_program(
            f"no tensor for the data named {'; '.join(lost)}, which is not bound; the tensors are: {known}"
        )


def write_samples(cell: TensorState, data: MLCTensorData, device: MLCDevice, axis: int, batch: int) -> None:
    """Copy ``batch`` samples into the tensor's memory on ``device``; the other samples keep what they hold, if anything.

    ``axis`` is the dimension that counts them. Data comes whole unless that is the first.
    """
    target, held = device.torch_device, cell.current()
    source = data._view(cell.dtype, cell.shape if axis else (batch, *cell.shape[1:])).narrow(axis, 0, batch)
    with queueing(target):
        # For a GPU what was bound before may still lie on the host.
        full = source.new_zeros(cell.shape, device=target) if held is None else held.to(target, copy=True)
        full.narrow(axis, 0, batch).copy_(source.to(target))
    total, before = cell.shape[axis], cell.samples_bound()
    count = batch if held is None else max(batch, total if before is None else before.number)
    cell.take_copy(full, device)
    cell.partly = None if count == total else (full, SamplesBound(count, total))
