"""Whose the optimizer state of a tensor is: several optimizers may train one tensor, and each keeps its own.

State that is bound through a graph is its optimizer's. State that is bound through the tensor waits for the optimizer that makes
the next update: each that trains the tensor is ready to begin with it, and the others go back to what they had.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any

from mlc_torch.tensor.data import MLCTensorData
from mlc_torch.tensor.kept_state import Kept
from mlc_torch.tensor.state import TensorState


def kept_for(cell: TensorState, optimizer: object) -> Kept | None:
    """What ``optimizer`` goes on with; ``None``: it begins without state."""
    waits = cell.waiting_state
    if waits is not None and (optimizer is None or optimizer not in waits.not_for):
        return waits
    return None if optimizer is None or cell.kept_states is None else cell.kept_states.get(optimizer)


def bound_for(cell: TensorState, optimizer: object) -> list[MLCTensorData]:
    """The memory that is bound for what ``optimizer`` goes on with."""
    kept = kept_for(cell, optimizer)
    return [] if kept is None else kept.data


def held_for(cell: TensorState, optimizer: object) -> list[Any]:
    """The same on the device."""
    kept = kept_for(cell, optimizer)
    return [] if kept is None else kept.device_data


def bind(cell: TensorState, data: list[MLCTensorData], device_data: list[Any], optimizer: object = None) -> None:
    """The state that ``optimizer`` goes on with, or whoever makes the next update. What others keep stays theirs."""
    cell.changed()  # before it, too: whatever strikes, graphs look again
    bound = Kept(data, device_data)
    if optimizer is None:
        cell.waiting_state = bound
    else:
        _keep(cell, optimizer, bound)
        if cell.waiting_state is not None:
            cell.waiting_state.not_for.add(optimizer)
    cell.optimizer_data, cell.optimizer_device_data, cell.bound_state = data, device_data, bound
    cell.changed()


def adopt(cell: TensorState, device_data: list[Any], optimizer: object) -> None:
    """``optimizer`` goes on with this on the device, over the memory that is bound for it; the tensor shows it."""
    kept = kept_for(cell, optimizer)
    if kept is None:
        _keep(cell, optimizer, Kept([], device_data))
    else:
        kept.device_data = device_data
        if kept is cell.waiting_state:
            kept.ready.add(optimizer)
    cell.optimizer_device_data = device_data


def was_updated(cell: TensorState, optimizer: object) -> None:
    """What waited for the next update is ``optimizer``'s from now on; others that were ready to begin with it look again."""
    waited = cell.waiting_state
    if waited is None or optimizer not in waited.ready:
        return
    _keep(cell, optimizer, waited)
    cell.waiting_state = None
    waited.ready.discard(optimizer)
    if waited.ready:
        cell.changed()


def all_kept(cell: TensorState) -> list[Kept]:
    """What every optimizer keeps, what waits for one, and what was bound last."""
    every = [cell.bound_state, cell.waiting_state, *(() if cell.kept_states is None else cell.kept_states.values())]
    return list(dict.fromkeys(kept for kept in every if kept is not None))


def way_back(cell: TensorState) -> Callable[[], None]:
    """What gives a tensor the optimizer state back that it has now."""
    shown, waits, states = cell.optimizer_device_data, cell.waiting_state, dict(cell.kept_states or {})
    held = [(kept, kept.device_data) for kept in all_kept(cell)]

    def go_back() -> None:
        cell.optimizer_device_data, cell.waiting_state = shown, waits
        cell.kept_states = weakref.WeakKeyDictionary(states) if states else None
        for kept, device_data in held:
            kept.device_data = device_data

    return go_back


def _keep(cell: TensorState, optimizer: object, kept: Kept) -> None:
    if cell.kept_states is None:
        cell.kept_states = weakref.WeakKeyDictionary()
    cell.kept_states[optimizer] = kept
