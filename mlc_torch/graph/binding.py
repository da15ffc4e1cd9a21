"""Data for the tensors of a graph, bound by name ahead of the calls that read it."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from mlc_torch.device import MLCDevice
from mlc_torch.graph.surroundings import undisturbed
from mlc_torch.nodes.feeding import needed_bytes, warn_unbound, write
from mlc_torch.tensor import MLCTensor, MLCTensorData, TensorState
from mlc_torch.tensor.elements import FITTING
from mlc_torch.tensor.memory import refuse_lack_of_memory
from mlc_torch.torch_private import is_disturbed


def bind(
    given: Mapping[str, MLCTensorData],
    tensors: Mapping[str, MLCTensor],
    device: MLCDevice,
    trained: Collection[int],
    batches: Mapping[str, int],
) -> None:
    """Write each tensor's data, or where a layer or an optimizer works on the tensor, let it lie in that memory.

    ``trained`` are the identities of tensors that are trained for themselves; ``batches`` says how many samples are
    written of those that are not written whole. Nothing is written before everything was checked.
    """
    if not given.keys() <= tensors.keys():
        warn_unbound(given, tensors)
    writes = []
    for name, tensor in tensors.items():
        data = given.get(name)
        if data is None:
            continue
        cell = tensor._cell
        is_kept = cell.is_shown or id(cell) in trained
        batch = 0 if is_kept else batches.get(name, 0)
        is_odd = data._length < cell.nbytes or data._shape not in (None, cell.shape)
        if batch or is_odd or (data._element, cell.dtype) not in FITTING:
            needed_bytes(name, cell, data, batch)
        writes.append((cell, data, batch, is_kept))
    try:
        if is_disturbed():
            with undisturbed(device.torch_device):
                _write_all(writes, device)
        else:
            _write_all(writes, device)
    except (MemoryError, RuntimeError) as error:
        refuse_lack_of_memory(error)


def _write_all(writes: list[tuple[TensorState, MLCTensorData, int, bool]], device: MLCDevice) -> None:
    """Tensors with their data, how many samples it holds (0: all of them), and whether they lie in that memory from now on."""
    for cell, data, batch, is_kept in writes:
        if is_kept:
            cell.upload(data, device)
        else:
            write(cell, data, device, batch)
