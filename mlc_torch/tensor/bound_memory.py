"""The memory that a tensor's data is copied to when it is bound: the same one each time, unless somebody looks into it."""

from __future__ import annotations

from sys import getrefcount
from typing import Any

import torch

from mlc_torch.tensor.data import USUAL, MLCTensorData, seen_as_bytes
from mlc_torch.torch_private import GRAIN, available, use_counts


class BoundMemory:
    """The memory of a tensor's value, for data that torch, too, would copy by one thread.

    New memory has left the processor's caches by the time it comes round again. (A perceptron's three phases, 32x784
    inputs, µs beyond one call, with new memory and so: Neoverse-N1, one thread 75 and 60, two threads 76 and 60.)
    """

    __slots__ = ("_bytes", "_element", "_storage", "_uses", "tensor")

    def __init__(self, cell: Any) -> None:
        """Over the value of a tensor that nobody else knows yet; not even the caller has it under a name."""
        self.tensor: torch.Tensor = cell.value
        self._bytes, self._element = seen_as_bytes(self.tensor)[0], USUAL[self.tensor.dtype]
        self._storage = self.tensor.untyped_storage()
        self._uses = self._count()

    @staticmethod
    def suits(dtype: torch.dtype, nbytes: int) -> bool:
        return 0 < nbytes < GRAIN * dtype.itemsize and dtype in USUAL and available["use_counts"]

    def _count(self) -> tuple[int, int, int]:
        """How often Python refers to the tensor, torch to the tensor, and tensors to its memory."""
        return getrefcount(self.tensor), *use_counts(self.tensor, self._storage)

    def is_free(self) -> bool:
        """Whether nobody but its tensor has come since it was made: no program, and no pass that may be differentiated yet."""
        return self._count() == self._uses

    def takes(self, data: MLCTensorData) -> bool:
        """Whether the bytes of ``data`` are elements of the tensor, as they are."""
        return data._element == self._element and data._shape is None

    def fill(self, data: MLCTensorData) -> None:
        size = len(self._bytes)
        self._bytes[:] = data._bytes if data._length == size else data._bytes[:size]
