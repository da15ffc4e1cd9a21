"""The optimizer state that belongs to a tensor: on its device, over the buffers that were bound for it."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from mlc_torch.refusals import refuse
from mlc_torch.tensor.data import MLCTensorData
from mlc_torch.tensor.state import TensorState
from mlc_torch.tensor.tensor import MLCTensorOptimizerDeviceData


def refuse_too_few(label: str, bound: int, count: int) -> None:
    """Refuse buffers for some of the state that the optimizer keeps for a tensor, and not for all."""
    if 0 < bound < count:
        refuse(f"the optimizer keeps {count} tensors for {label!r}, {bound} are bound as optimizer data")


def adopt_state(cell: TensorState, count: int, optimizer: object) -> list[torch.Tensor]:
    """What ``optimizer`` keeps for one parameter, on its device: what it has kept, what was bound, or zeros.

    Each optimizer has its own: several graphs may train one tensor. ``optimizerDeviceData`` shows that of the last to come.
    """
    if not count:
        return []
    value = cell.value
    assert value is not None
    refuse_too_few(cell.label, len(cell.optimizer_data), count)
    states = state_of(cell, count, optimizer)
    if states is None:
        states = [torch.zeros_like(value) for _ in range(count)]
    states = [state.to(value.device) for state in states]
    there = held_by(cell, optimizer)
    if len(there) != count or any(d._state is not state for d, state in zip(there, states, strict=True)):
        there = [MLCTensorOptimizerDeviceData._over(state) for state in states]
    _show(cell, there, optimizer)
    return states


def state_of(cell: TensorState, count: int, optimizer: object) -> list[torch.Tensor] | None:
    """What ``optimizer`` has kept for a tensor, or what was bound for it; ``None`` where it begins from zeros."""
    there = [d._state for d in held_by(cell, optimizer)]
    if len(there) == count and all(state is not None for state in there):
        return there
    bound = cell.optimizer_data[:count]  # of more than the optimizer keeps, the first
    return [_bound_state(data, cell) for data in bound] if len(bound) == count else None


def held_by(cell: TensorState, optimizer: object) -> list[Any]:
    """The optimizer state of a tensor that is this optimizer's, or that nobody has taken up yet."""
    if cell.optimizer is None or cell.optimizer() is optimizer:
        return cell.optimizer_device_data
    return [] if cell.other_optimizers is None else cell.other_optimizers.get(optimizer, [])


def _show(cell: TensorState, there: list[Any], optimizer: object) -> None:
    before = None if cell.optimizer is None else cell.optimizer()
    if before is not None and before is not optimizer:
        if cell.other_optimizers is None:
            cell.other_optimizers = weakref.WeakKeyDictionary()
        cell.other_optimizers[before] = cell.optimizer_device_data
        cell.other_optimizers.pop(optimizer, None)
    cell.optimizer_device_data, cell.optimizer = there, weakref.ref(optimizer)


@dataclass(slots=True)
class Count:
    """Which update is next: of an optimizer, for tensors that it trains in one graph or in several."""

    next: int


def shared_count(cells: Sequence[TensorState], optimizer: object, begins: int) -> Count:
    """The count of graphs that train these tensors by ``optimizer``: whoever trains one of them has taken it up.

    As state is, it is the tensor's: another graph over the same layers goes on with it, one over others has its own. Where some
    were trained longer than others, that of the longest counts for all.
    """
    known = [cell.steps[optimizer] for cell in cells if cell.steps is not None and optimizer in cell.steps]
    count = max(known, key=lambda count: count.next) if known else Count(begins)
    for cell in cells:
        if cell.steps is None:
            cell.steps = weakref.WeakKeyDictionary()
        cell.steps[optimizer] = count
    return count


def way_back(cell: TensorState) -> Callable[[], None]:
    """What gives a tensor the optimizer state back that it has now."""
    shown, optimizer, others = cell.optimizer_device_data, cell.optimizer, dict(cell.other_optimizers or {})

    def go_back() -> None:
        cell.optimizer_device_data, cell.optimizer = shown, optimizer
        cell.other_optimizers = weakref.WeakKeyDictionary(others) if others else None

    return go_back


def _bound_state(data: MLCTensorData, cell: TensorState) -> torch.Tensor:
    assert cell.value is not None
    view = data._view(cell.dtype, cell.shape)
    return view if cell.value.device.type == "cpu" else view.to(cell.value.device)
