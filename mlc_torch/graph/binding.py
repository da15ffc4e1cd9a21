"""Data for the tensors of a graph, bound by name ahead of the calls that read it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

import torch

from mlc_torch.device import MLCDevice
from mlc_torch.graph.surroundings import refuse_unreal, undisturbed
from mlc_torch.nodes.feeding import check_bytes, warn_unbound, write_samples
from mlc_torch.tensor import MLCTensor, MLCTensorData, TensorState
from mlc_torch.tensor.bound_memory import BoundMemory
from mlc_torch.tensor.elements import FITTING
from mlc_torch.tensor.lack_of_memory import refuse_lack_of_memory
from mlc_torch.tensor.staged import is_much, staged_for
from mlc_torch.tensor.state import upload
from mlc_torch.torch_private.modes import is_disturbed

Part = tuple[int, int]
"""The dimension that counts samples, and how many of them."""
_Write = tuple[TensorState, MLCTensorData, Part | None, bool, torch.Tensor | None]
"""A tensor with its data, which part of it is written (``None``: all of it), whether it lies in that memory from now on, and
the data as a torch tensor, where somebody has looked at it before. (A named tuple takes a tenth longer for the whole call.)"""


class Binding(Protocol):
    """What binding asks of a graph."""

    def _batches(self, cells: Mapping[str, TensorState], batch_size: int) -> dict[str, Part]:
        """Which part is written of each tensor that is not written whole."""


def bind(
    graph: Binding,
    given: Mapping[str, MLCTensorData],
    tensors: Mapping[str, MLCTensor],
    device: MLCDevice,
    batch_size: int,
) -> None:
    """Write each tensor's data, or where a layer or an optimizer works on the tensor, let it lie in that memory.

    Nothing is written before everything was checked.
    """
    if not given.keys() <= tensors.keys():
        warn_unbound(given, tensors)
    parts: Mapping[str, Part] = {}
    if batch_size:
        parts = graph._batches({n: t._cell for n, t in tensors.items() if n in given}, batch_size)
    writes: list[_Write] = []
    for name, tensor in tensors.items():
        data = given.get(name)
        if data is None:
            continue
        cell = tensor._cell
        is_kept = cell.is_parameter or bool(cell._views and cell.is_shown)
        part = parts.get(name) if parts and not is_kept else None
        view = data._views.get((cell.dtype, cell.shape))
        fits = view is not None or ((data._element, cell.dtype) in FITTING and data._shape in (None, cell.shape))
        if part or not fits or data._length < cell.nbytes:
            axis, batch = part or (0, 0)
            if not batch and data._length < cell.nbytes and cell.shape[0] != 1:
                axis, _ = graph._batches({name: cell}, 1).get(name, (1, 0))  # asked only where too little is there
            check_bytes(name, cell, data, 0 if axis else batch, axis == 0)
            if part and batch == cell.shape[axis]:
                part = None  # the whole tensor
        writes.append((cell, data, part, is_kept, view))
    disturbed = is_disturbed()
    if disturbed:
        refuse_unreal()
    try:
        if device._kind != "mps":  # where data is bound to the device's own memory
            writes = [write for write in writes if not _is_written_again(write, device, disturbed)]
        if writes and disturbed:
            with undisturbed(device.torch_device):
                _write_all(writes, device)
        else:
            _write_all(writes, device)
    except (MemoryError, RuntimeError) as error:
        refuse_lack_of_memory(error)


def _is_written_again(write: _Write, device: MLCDevice, disturbed: bool) -> bool:
    """Whether a tensor's data could be written where it was before."""
    cell, data, part, is_kept, view = write
    bound = cell.bound
    if bound is None:
        return False
    if part or is_kept or cell.value is not bound.tensor:
        cell.bound = None
        return False
    cell.device = device
    if disturbed and bound.needs_torch:
        with undisturbed(device.torch_device):
            filled = bound.refill(data, view)
    else:
        filled = bound.refill(data, view)
    if filled is not None:
        cell.value, cell.snapshot = filled, None
        return True
    cell.bound = None
    return False


def _write_all(writes: list[_Write], device: MLCDevice) -> None:
    """On CUDA a whole tensor goes to the device with the other inputs, when the graph runs."""
    for cell, data, part, is_kept, view in writes:
        if is_kept:
            cell.upload(data, device)
        elif part:
            write_samples(cell, data, device, *part)
        else:
            source = data._view(cell.dtype, cell.shape) if view is None else view
            if cell.host is None and _stays(source, device) and BoundMemory.suits(source):
                cell.bound = BoundMemory(source)
                cell.publish(cell.bound.tensor, device)
            else:
                cell.take_copy(_copied(source, device), device)


def _stays(source: torch.Tensor, device: MLCDevice) -> bool:
    """Whether data that is bound stays in ordinary memory of the host until a graph runs."""
    return device._kind == "cpu" or (device._kind == "cuda" and not is_much(source))


def _copied(source: torch.Tensor, device: MLCDevice) -> torch.Tensor:
    if _stays(source, device):
        return source.clone()
    return (upload if device._kind == "mps" else staged_for)(source, device.torch_device)
