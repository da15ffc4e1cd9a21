"""The memory that a tensor's data is copied to when it is bound: the same one each time, unless somebody looks into it."""

from __future__ import annotations

from sys import getrefcount

import torch

from mlc_torch.tensor.data import USUAL, MLCTensorData, seen_as_bytes
from mlc_torch.torch_private import available
from mlc_torch.torch_private.memory import GRAIN, storage_uses, tensor_uses


class BoundMemory:
    """The memory of a tensor's value, for data that torch, too, would copy by one thread.

    New memory has left the processor's caches by the time it comes round again. (A perceptron's three phases, 32x784
    inputs, µs beyond one call, with new memory and so: Neoverse-N1, one thread 75 and 60, two threads 76 and 60; for an H200,
    28 and 22.)
    """

    __slots__ = ("_address", "_bytes", "_element", "_storage", "_uses", "tensor")

    def __init__(self, source: torch.Tensor) -> None:
        """A copy of ``source``, which goes to a cell as its value, and to nobody else under a name.

        Counted before anybody can know it: a thread may look at a tensor while another one binds data to it.
        """
        self.tensor = source.clone()
        self._bytes, self._element = seen_as_bytes(self.tensor)[0], USUAL[self.tensor.dtype]
        self._storage = self.tensor.untyped_storage()
        self._address = self._storage.data_ptr()
        by_python, by_torch, of_memory = self._count()
        self._uses = by_python + 1, by_torch, of_memory  # with the cell

    @staticmethod
    def suits(source: torch.Tensor) -> bool:
        """Whether data is little enough, and torch tells who looks."""
        return 0 < source.numel() < GRAIN and source.dtype in USUAL and available["use_counts"]

    def _count(self) -> tuple[int, int, int]:
        """How often Python refers to the tensor, torch to the tensor, and tensors to its memory."""
        return getrefcount(self.tensor), tensor_uses(self.tensor), storage_uses(self._storage._cdata)

    def refill(self, data: MLCTensorData) -> bool:
        """Copy the bytes of ``data``, if they are elements as the tensor has them, and nobody but the tensor has come since this
        was made: no program, and no pass that may still be differentiated."""
        if data._element != self._element or data._shape is not None or self._count() != self._uses:
            return False
        if self._storage.data_ptr() != self._address:
            return False  # it was moved to memory that processes share, and nobody may write to where it was
        size = len(self._bytes)
        self._bytes[:] = data._bytes if data._length == size else data._bytes[:size]
        return True
