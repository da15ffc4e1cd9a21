"""The memory that a tensor's data is copied to when it is bound: the same one each time, unless somebody looks into it."""

from __future__ import annotations

from sys import getrefcount
from typing import Any

import torch

from mlc_torch.tensor.data import USUAL, MLCTensorData, seen_as_bytes
from mlc_torch.tensor.staged import is_staged
from mlc_torch.torch_private import GRAIN, available, storage_uses, tensor_uses


class BoundMemory:
    """The memory of a tensor's value, for data that torch, too, would copy by one thread.

    New memory has left the processor's caches by the time it comes round again. (A perceptron's three phases, 32x784
    inputs, µs beyond one call, with new memory and so: Neoverse-N1, one thread 75 and 60, two threads 76 and 60; for an H200,
    28 and 22.)
    """

    __slots__ = ("_bytes", "_element", "_storage", "_uses", "tensor")

    def __init__(self, cell: Any) -> None:
        """Over the value of a tensor that nobody else knows yet; not even the caller has it under a name."""
        self.tensor: torch.Tensor = cell.value
        self._bytes, self._element = seen_as_bytes(self.tensor)[0], USUAL[self.tensor.dtype]
        self._storage = self.tensor.untyped_storage()
        self._uses = self._count()

    @staticmethod
    def suits(cell: Any) -> bool:
        """Whether a tensor's value is on the host, and nothing that a GPU fetches by itself."""
        value = cell.value
        fits = value.is_cpu and 0 < value.numel() < GRAIN and not is_staged(value)
        return fits and value.dtype in USUAL and available["use_counts"]

    def _count(self) -> tuple[int, int, int]:
        """How often Python refers to the tensor, torch to the tensor, and tensors to its memory."""
        return getrefcount(self.tensor), tensor_uses(self.tensor), storage_uses(self._storage._cdata)

    def refill(self, data: MLCTensorData) -> bool:
        """Copy the bytes of ``data``, if they are elements as the tensor has them, and nobody but the tensor has come since this
        was made: no program, and no pass that may still be differentiated."""
        if data._element != self._element or data._shape is not None or self._count() != self._uses:
            return False
        size = len(self._bytes)
        self._bytes[:] = data._bytes if data._length == size else data._bytes[:size]
        return True
