"""Batches as programs have them: arrays and torch tensors, alone, in a row or by name; and what ``execute`` takes of them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np
import torch

from mlc_torch.tensor import MLCTensor, MLCTensorData, TensorState
from mlc_torch.tensor.data import DATA_TYPES

Values = Any
"""One array or torch tensor, several in the order of ``addInputs``, or a dictionary by name."""
Batches = Iterable[Any] | Callable[[], Iterable[Any]]
"""Pairs (inputs, labels), or triples with label weights; or a function that gives them anew for each epoch."""

_NUMPY_TYPES = {type_: torch.empty(0, dtype=type_).numpy().dtype for type_ in DATA_TYPES}


def by_name(values: Values, declared: Mapping[str, TensorState], kind: str) -> dict[str, Any] | None:
    """Values of one kind by their declared names, ready for ``execute``."""
    if values is None:
        return {} if kind == "input" else None
    if not isinstance(values, Mapping):
        several = list(values) if isinstance(values, (tuple, list)) else [values]
        if len(several) != len(declared):
            names = ", ".join(declared) or "none"
            raise TypeError(f"{len(several)} {kind}s were given, addInputs declared {len(declared)}: {names}")
        values = dict(zip(declared, several, strict=True))
    return {name: _ready(value, declared.get(name)) for name, value in values.items()}


def _ready(value: Any, cell: TensorState | None) -> Any:
    """An array or tensor that ``execute`` takes as it is: of the declared type, contiguous, in the host's memory."""
    if isinstance(value, MLCTensorData) or cell is None:
        return value
    if isinstance(value, MLCTensor):
        value = value.torch
    elif not isinstance(value, torch.Tensor):
        return np.ascontiguousarray(value, _NUMPY_TYPES[cell.dtype])  # the array itself where it fits
    return value.detach().to("cpu", cell.dtype).contiguous()


def samples_of(data: Mapping[str, Any] | None, declared: Mapping[str, TensorState]) -> tuple[int, int]:
    """How many samples a batch has, by its first input, and how many that input was declared with."""
    for name, value in (data or {}).items():
        cell, shape = declared.get(name), getattr(value, "shape", None)
        if cell is not None and shape is not None and len(shape) == len(cell.shape):
            return int(shape[0]), cell.shape[0]
    full = next((cell.shape[0] for cell in declared.values()), 1)
    return full, full


def mean_of(result: MLCTensor) -> float:
    """A loss without reduction has a value for each sample or element: their mean."""
    values = result.torch
    return values.item() if values.numel() == 1 else values.mean().item()


def once(batches: Batches) -> Iterable[Any]:
    """The batches of one epoch."""
    return batches() if callable(batches) and not isinstance(batches, Iterable) else batches
