"""The memory that a tensor's data is copied to when it is bound: the same again, unless somebody looks into it.

New memory comes page by page from the system, and has left the processor's caches by the time it comes round again. (Three
phases, µs beyond one call, with new memory and so. A perceptron, 32x784 inputs: Neoverse-N1, one thread 75 and 60, two threads 76
and 60; for an H200, 28 and 22. On x86 under KVM, medians of three runs: 256x784 227 and 152 with one thread, 188 and 133 with
two; 1024x784 670 and 230, 701 and 314; 4096x784, which no cache holds, 1708 and 1662, 1767 and 845.)
"""

from __future__ import annotations

from sys import getrefcount

import torch

from mlc_torch.tensor.data import USUAL, MLCTensorData, seen_as_bytes
from mlc_torch.torch_private import available
from mlc_torch.torch_private.memory import GRAIN, storage_uses, tensor_uses


class BoundMemory:
    """The memory of a tensor's value and as much beside it, which take turns.

    What is written to is out of everybody's sight: other threads of the program may look at the tensor at any time.
    """

    __slots__ = ("_element", "_is_little", "_now", "_spare")

    def __init__(self, source: torch.Tensor) -> None:
        """A copy of ``source``."""
        self._now, self._spare = _Place(source), list[_Place]()
        self._now.tensor.copy_(source)
        self._element, self._is_little = USUAL[source.dtype], source.numel() < GRAIN

    @property
    def tensor(self) -> torch.Tensor:
        """What goes to a cell as its value, and to nobody else under a name."""
        return self._now.tensor

    @staticmethod
    def suits(source: torch.Tensor) -> bool:
        """Whether torch tells who looks into it, and its elements are such as NumPy has."""
        return source.numel() > 0 and source.dtype in USUAL and available["use_counts"]

    @property
    def needs_torch(self) -> bool:
        """Whether the next binding calls torch: little is copied by Python, before torch's threads were woken."""
        try:
            return not self._is_little or self._spare[-1].is_known()
        except IndexError:
            return True

    def refill(self, data: MLCTensorData, view: torch.Tensor | None) -> torch.Tensor | None:
        """The bytes of ``data`` in the memory that was spare; ``None`` where they are no elements as the tensor has them.

        ``view`` is the data as a torch tensor, if there is one.
        """
        if data._element != self._element or data._shape is not None:
            return None
        now = self._now
        try:
            place = self._spare.pop()  # so that another thread which binds at the same time has memory of its own
        except IndexError:
            place = _Place(now.tensor)
        if place.is_known():
            place = _Place(now.tensor)
        if self._is_little:
            size = len(place.bytes)
            place.bytes[:] = data._bytes if data._length == size else data._bytes[:size]
        else:
            place.tensor.copy_(data._view(now.tensor.dtype, tuple(now.tensor.shape)) if view is None else view)
        self._now, self._spare = place, [now]
        return place.tensor


class _Place:
    """Memory of ours, and how often it was referred to when nobody else could know of it."""

    __slots__ = ("_address", "_storage", "_uses", "bytes", "tensor")

    def __init__(self, like: torch.Tensor) -> None:
        self.tensor = torch.empty_like(like)
        self._storage, self.bytes = self.tensor.untyped_storage(), seen_as_bytes(self.tensor)[0]
        self._address = self._storage.data_ptr()
        self._uses = self._count()

    def is_known(self) -> bool:
        """Whether somebody knows of it: a program, or a pass that may still be differentiated. If somebody did, processes may
        share it by now, and nobody may write to where it was."""
        return self._count() != self._uses or self._storage.data_ptr() != self._address

    def _count(self) -> tuple[int, int, int]:
        """How often Python refers to the tensor, torch to the tensor, and tensors to its memory."""
        return getrefcount(self.tensor), tensor_uses(self.tensor), storage_uses(self._storage._cdata)
