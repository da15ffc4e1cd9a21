"""The memory that a tensor's data is copied to when it is bound: the same one each time, unless somebody looks into it.

New memory comes page by page from the system, and has left the processor's caches by the time it comes round again. (Three
phases, µs beyond one call, with new memory and so. A perceptron, 32x784 inputs: Neoverse-N1, one thread 75 and 60, two threads 76
and 60; for an H200, 28 and 22. On x86 under KVM, one thread: 256x784 465 and 66, 1024x784 867 and 112, 4096x784 1164 and 320; an
LSTM, 32x32x64, two threads: 737 and nothing.)
"""

from __future__ import annotations

from sys import getrefcount

import torch

from mlc_torch.tensor.data import USUAL, MLCTensorData, seen_as_bytes
from mlc_torch.torch_private import available
from mlc_torch.torch_private.memory import GRAIN, storage_uses, tensor_uses


class BoundMemory:
    """The memory of a tensor's value, with an eye on who knows of it."""

    __slots__ = ("_address", "_bytes", "_element", "_storage", "_uses", "is_little", "tensor")

    def __init__(self, source: torch.Tensor) -> None:
        """A copy of ``source``, which goes to a cell as its value, and to nobody else under a name.

        Counted before anybody can know it: a thread may look at a tensor while another one binds data to it.
        """
        self.tensor = source.clone()
        self._bytes, self._element = seen_as_bytes(self.tensor)[0], USUAL[self.tensor.dtype]
        self.is_little = source.numel() < GRAIN
        """Whether one thread copies it, and Python in less time than torch."""
        self._storage = self.tensor.untyped_storage()
        self._address = self._storage.data_ptr()
        by_python, by_torch, of_memory = self._count()
        self._uses = by_python + 1, by_torch, of_memory  # with the cell

    @staticmethod
    def suits(source: torch.Tensor) -> bool:
        """Whether torch tells who looks into it, and its elements are such as NumPy has."""
        return source.numel() > 0 and source.dtype in USUAL and available["use_counts"]

    def _count(self) -> tuple[int, int, int]:
        """How often Python refers to the tensor, torch to the tensor, and tensors to its memory."""
        return getrefcount(self.tensor), tensor_uses(self.tensor), storage_uses(self._storage._cdata)

    def refill(self, data: MLCTensorData, view: torch.Tensor | None) -> bool:
        """Copy the bytes of ``data``, if they are elements as the tensor has them, and nobody but the tensor has come since this
        was made: no program, and no pass that may still be differentiated. ``view``: the data as a torch tensor, if there is one.
        """
        if data._element != self._element or data._shape is not None or self._count() != self._uses:
            return False
        if self._storage.data_ptr() != self._address:
            return False  # it was moved to memory that processes share, and nobody may write to where it was
        if self.is_little:
            size = len(self._bytes)
            self._bytes[:] = data._bytes if data._length == size else data._bytes[:size]
        else:  # torch shares it out between its threads
            self.tensor.copy_(data._view(self.tensor.dtype, tuple(self.tensor.shape)) if view is None else view)
        return True
