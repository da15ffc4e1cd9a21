"""The optimizer state that belongs to a tensor: on its device, over the buffers that were bound for it."""

from __future__ import annotations

import torch

from mlc_torch.refusals import refuse
from mlc_torch.tensor.data import MLCTensorData
from mlc_torch.tensor.state import TensorState
from mlc_torch.tensor.tensor import MLCTensorOptimizerDeviceData


def refuse_too_few(label: str, bound: int, count: int) -> None:
    """Refuse buffers for some of the state that the optimizer keeps for a tensor, and not for all."""
    if 0 < bound < count:
        refuse(f"the optimizer keeps {count} tensors for {label!r}, {bound} are bound as optimizer data")


def adopt_state(cell: TensorState, count: int) -> list[torch.Tensor]:
    """The optimizer state of one parameter on its device: what was bound, what is there already, or zeros."""
    value = cell.value
    assert value is not None
    refuse_too_few(cell.label, len(cell.optimizer_data), count)
    bound = cell.optimizer_data[:count]  # of more than the optimizer keeps, the first
    there = [d._state for d in cell.optimizer_device_data]
    if len(there) == count and all(t is not None and t.device == value.device for t in there):
        return there
    if len(there) == count and all(t is not None for t in there):
        states = [t.to(value.device) for t in there]
    elif bound:
        states = [_bound_state(data, cell) for data in bound]
    else:
        states = [torch.zeros_like(value) for _ in range(count)]
    cell.optimizer_device_data = [MLCTensorOptimizerDeviceData._over(t) for t in states]
    return states


def _bound_state(data: MLCTensorData, cell: TensorState) -> torch.Tensor:
    assert cell.value is not None
    view = data._view(cell.dtype, cell.shape)
    if data._readonly:
        view = view.clone()
    return view if cell.value.device.type == "cpu" else view.to(cell.value.device)
