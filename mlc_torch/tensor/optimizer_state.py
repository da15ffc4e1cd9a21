"""The optimizer state that belongs to a tensor: on its device, over the buffers that were bound for it."""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from dataclasses import dataclass

import torch

from mlc_torch.refusals import MLCTrainingWarning, refuse, warn_the_program
from mlc_torch.tensor.data import MLCTensorData
from mlc_torch.tensor.state import TensorState
from mlc_torch.tensor.state_owners import adopt, bound_for, held_for, kept_for
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
    refuse_too_few(cell.label, len(bound_for(cell, optimizer)), count)
    states = state_of(cell, count, optimizer)
    if states is None:
        states = [torch.zeros_like(value) for _ in range(count)]
    states = [state.to(value.device) for state in states]
    there = held_for(cell, optimizer)
    if len(there) != count or any(d._state is not state for d, state in zip(there, states, strict=True)):
        there = [MLCTensorOptimizerDeviceData._over(state) for state in states]
    adopt(cell, there, optimizer)
    return states


def begins_anew(cell: TensorState, count: int, optimizer: object) -> bool:
    """Whether ``optimizer`` has nothing of a tensor, although state is bound for it: that is another one's."""
    return bool(count and cell.optimizer_data) and kept_for(cell, optimizer) is None


def warn_of_others_state(anew: Sequence[TensorState]) -> None:
    """Say that an optimizer has begun ``anew`` with tensors for which ``begins_anew``."""
    if anew:
        warn_the_program(
            f"the optimizer data bound for {anew[0].label!r} is another optimizer's; this one begins without state, unless some "
            "is bound now",
            MLCTrainingWarning,
        )


def state_of(cell: TensorState, count: int, optimizer: object) -> list[torch.Tensor] | None:
    """What ``optimizer`` has kept for a tensor, or what was bound for it; ``None`` where it begins from zeros."""
    there = [d._state for d in held_for(cell, optimizer)]
    if len(there) == count and all(state is not None for state in there):
        return there
    bound = bound_for(cell, optimizer)[:count]  # of more than the optimizer keeps, the first
    return [_bound_state(data, cell) for data in bound] if len(bound) == count else None


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


def _bound_state(data: MLCTensorData, cell: TensorState) -> torch.Tensor:
    assert cell.value is not None
    view = data._view(cell.dtype, cell.shape)
    return view if cell.value.device.type == "cpu" else view.to(cell.value.device)
