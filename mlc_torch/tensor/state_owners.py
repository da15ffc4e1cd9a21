"""Whose the optimizer state of a tensor is: several optimizers may train one tensor, and each keeps its own."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any

from mlc_torch.tensor.data import MLCTensorData
from mlc_torch.tensor.state import TensorState


def held_by(cell: TensorState, optimizer: object) -> list[Any]:
    """The optimizer state of a tensor that is this optimizer's, or that nobody has taken up yet."""
    if cell.optimizer is None or cell.optimizer() is optimizer:
        return cell.optimizer_device_data
    return [] if cell.other_optimizers is None else cell.other_optimizers.get(optimizer, [])


def bound_for(cell: TensorState, optimizer: object) -> list[MLCTensorData]:
    """The memory bound for state that is this optimizer's, or that nobody has taken up yet."""
    owner = cell.optimizer_data_owner
    return cell.optimizer_data if owner is None or owner() is optimizer else []


def bind(cell: TensorState, data: list[MLCTensorData], device_data: list[Any], optimizer: object = None) -> None:
    """The state that ``optimizer`` goes on with, or the first one to take it up. What others have kept stays theirs."""
    cell.changed()  # before it, too: whatever strikes, graphs look again
    owner = None if optimizer is None else weakref.ref(optimizer)
    others = _others(cell, but=optimizer)
    (
        cell.optimizer_data,
        cell.optimizer_device_data,
        cell.optimizer,
        cell.optimizer_data_owner,
        cell.other_optimizers,
    ) = (
        data,
        device_data,
        owner,
        owner,
        others,
    )
    cell.changed()


def take_up(cell: TensorState, there: list[Any], optimizer: object) -> None:
    """``there`` is what ``optimizer`` keeps from now on, and what the tensor shows."""
    others, owner = _others(cell, but=optimizer), weakref.ref(optimizer)
    if bound_for(cell, optimizer):
        cell.optimizer_data_owner = owner
    cell.optimizer_device_data, cell.optimizer, cell.other_optimizers = there, owner, others


def bound_and_held(cell: TensorState) -> list[tuple[MLCTensorData, Any]]:
    """The bound memory beside what its optimizer keeps on the device."""
    owner = cell.optimizer_data_owner
    if cell.optimizer == owner:  # a dead one, too
        held = cell.optimizer_device_data
    else:
        held = held_by(cell, alive) if owner is not None and (alive := owner()) is not None else []
    return list(zip(cell.optimizer_data, held, strict=False))


def way_back(cell: TensorState) -> Callable[[], None]:
    """What gives a tensor the optimizer state back that it has now."""
    shown, optimizer, owner = cell.optimizer_device_data, cell.optimizer, cell.optimizer_data_owner
    others = dict(cell.other_optimizers or {})

    def go_back() -> None:
        cell.optimizer_device_data, cell.optimizer, cell.optimizer_data_owner = shown, optimizer, owner
        cell.other_optimizers = weakref.WeakKeyDictionary(others) if others else None

    return go_back


def _others(cell: TensorState, but: object) -> weakref.WeakKeyDictionary[Any, list[Any]] | None:
    """What all optimizers but one have kept of a tensor."""
    before = None if cell.optimizer is None else cell.optimizer()
    if (before is None or before is but) and not cell.other_optimizers:
        return None
    others = weakref.WeakKeyDictionary(cell.other_optimizers or {})
    if before is not None:
        others[before] = cell.optimizer_device_data
    if but is not None:
        others.pop(but, None)
    return others
