"""What a run computed: into the tensors of the program, and into the buffers that the caller gave."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Protocol

import torch

from mlc_torch.device import MLCDevice, queueing
from mlc_torch.engine.session import Session
from mlc_torch.layers.sharing import Axis
from mlc_torch.nodes.feeding import check_bytes
from mlc_torch.refusals import refuse
from mlc_torch.running.completion import Targets
from mlc_torch.running.request import Data
from mlc_torch.running.state import Declared
from mlc_torch.spelling.closest import hint
from mlc_torch.tensor import TensorState
from mlc_torch.tensor.addresses import LITTLE
from mlc_torch.tensor.data import USUAL
from mlc_torch.tensor.elements import FITTING


def publish(session: Session, device: MLCDevice) -> TensorState:
    """Give the readable tensors their values; gives the one that the handler gets."""
    fits = session.gear is session.fitting
    for cell, value in zip(session.readable, session.values):  # noqa: B905 - one for each, and strict takes its time
        # Asking a tensor for its shape takes longer than all the rest here.
        cell.publish(value if fits or value.shape == cell.shape else into_full(cell, value, cell.value), device)
    return session.result


def into_full(cell: TensorState, value: torch.Tensor, old: torch.Tensor | None = None) -> torch.Tensor:
    """A short batch's value in the tensor's full shape; the other samples keep what ``old`` holds, or are 0."""
    if value.is_cpu:
        return _into_full(cell, value, old)
    with queueing(value.device):
        return _into_full(cell, value, old)


def _into_full(cell: TensorState, value: torch.Tensor, old: torch.Tensor | None) -> torch.Tensor:
    shape, whole = tuple(value.shape), cell.shape
    if old is not None and (old.device != value.device or tuple(old.shape) != whole):
        old = None
    if len(shape) == len(whole) > 0 and shape[1:] == whole[1:] and shape[0] < whole[0]:  # nearly always
        count, more = shape[0], whole[0] - shape[0]
        others = value.new_zeros((more, *shape[1:])) if old is None else old.narrow(0, count, more)
        return torch.cat((value, others))
    if value.numel() == math.prod(whole):
        return value.reshape(whole)
    full = value.new_zeros(whole) if old is None else old.clone()
    full[tuple(slice(0, n) for n in shape)] = value
    return full


class Making(Protocol):
    """What is asked of a graph about its results."""

    _declared: Declared

    def _sample_axes(self) -> Mapping[int, Axis]: ...


def output_targets(given: Data, graph: Making, full: int, batch: int) -> Targets:
    """The caller's output buffers, checked, with the tensors that will fill them.

    Of a short batch only the places of its samples are written, if samples have places; the whole tensor otherwise.
    """
    declared = graph._declared.outputs
    targets: list[tuple[TensorState, torch.Tensor | memoryview]] = []
    for name, data in given.items():
        cell = declared.get(name)
        if cell is None:
            known = ", ".join(declared) or "nothing"
            refuse(f"outputsData names {name!r}; addOutputs declared: {known}{hint(name, declared)}")
        if batch == full and data._length == cell.nbytes <= LITTLE and data._element == USUAL.get(cell.dtype):
            memory = data._bytes
            if data._shape is None and not memory.readonly:
                targets.append((cell, memory))  # nearly always
                continue
        if (data._element, cell.dtype) not in FITTING or (data._shape is not None and data._shape != cell.shape):
            data._must_fit(cell.dtype, cell.shape, f"the buffer for output {name!r}", filled=True)
        is_less = data._length < cell.nbytes
        counted = _counted_axis(cell, graph) if is_less or batch != full else None
        axis = None if batch == full else counted
        short = axis == 0
        if is_less or short:
            check_bytes(name, cell, data, batch if short else 0, counted == 0)
        memory = data._bytes
        if memory.readonly:
            refuse(f"the buffer for output {name!r} is read-only")
        shape = (batch, *cell.shape[1:]) if short else cell.shape
        size = cell.descriptor._sample_bytes * batch if short else cell.nbytes
        inner = axis is not None and axis > 0
        # A torch tensor may be moved before its room is filled, and a tensor in its storage moves with it.
        if size > LITTLE or inner or type(data._element) is not tuple:
            room = data._view(cell.dtype, shape, name)
            targets.append((cell, room.narrow(axis, 0, batch) if inner else room))  # type: ignore[arg-type]
            continue
        targets.append((cell, memory if len(memory) == size else memory[:size]))
    return targets


def _counted_axis(cell: TensorState, graph: Making) -> Axis:
    """Which dimension counts samples; a gradient's lie where those of its tensor do."""
    return graph._sample_axes().get(id(cell if cell.gradient_of is None else cell.gradient_of))


def of_pass(targets: Targets, session: Session) -> Targets:
    """The same for a call that comes after the pass, with that pass's own values.

    The tensors may hold others by then: another graph over the same layers may have run in between.
    """
    found: list[tuple[TensorState, torch.Tensor | memoryview]] = []
    for cell, target in targets:
        value = session.value_of(cell)
        if value is not None and value.shape != cell.shape:
            value = into_full(cell, value, cell.value)
        found.append((cell.frozen(value), target))
    return found


def with_inputs(targets: Targets, session: Session, feeds: Sequence[torch.Tensor]) -> Targets:
    """The same, where inputs are outputs, too: a buffer for one gets what this pass was given for it.

    The tensor itself holds what is bound to it, and goes on doing so. Copies, taken before the pass begins: on a GPU buffers are
    filled later, and the program may write into its arrays before that; another buffer may lie where the input does.
    """
    plan, computed = session.plan, {id(cell) for cell in session.readable}
    found: list[tuple[TensorState, torch.Tensor | memoryview]] = []
    for cell, target in targets:
        slot = plan.slots.get(id(cell), plan.fed_count)
        if slot < plan.fed_count and id(cell) not in computed:
            found.append((cell.frozen(into_full(cell, _copied(feeds[slot]), cell.value)), target))
        else:
            found.append((cell, target))
    return found


def _copied(value: torch.Tensor) -> torch.Tensor:
    if value.is_cpu:
        return value.clone()
    with queueing(value.device):
        return value.clone()
