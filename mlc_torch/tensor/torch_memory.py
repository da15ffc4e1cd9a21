"""The memory of a torch tensor of the program's, which torch may move away from under it."""

from __future__ import annotations

import math
from typing import Any

import torch

from mlc_torch.refusals import refuse
from mlc_torch.tensor.plain_values import why_not_plain
from mlc_torch.torch_private.modes import is_traced


def tensor_bytes(tensor: torch.Tensor) -> memoryview:
    """A torch tensor's memory as bytes; what has no plain bytes in the host's memory is refused."""
    if is_traced():
        refuse("a torch tensor has no bytes inside torch.jit.trace, which would write down how they were read")
    why = why_not_plain(tensor)
    if why or not tensor.is_cpu:
        refuse(f"the buffer {why or f'is a torch tensor on {tensor.device}; pass tensor.cpu()'}")
    if tensor.is_conj() or tensor.is_neg():
        refuse("the buffer is a torch tensor still to be conjugated; pass tensor.resolve_conj().resolve_neg()")
    if not tensor.is_contiguous():
        refuse(
            "the buffer is a torch tensor that is not contiguous; pass tensor.contiguous(), which is a copy; for results make it "
            "torch.zeros(tensor.shape, dtype=tensor.dtype)"
        )
    count = tensor.numel()
    if not count:
        return memoryview(b"")
    if tensor.untyped_storage().nbytes() < (tensor.storage_offset() + count) * tensor.itemsize:
        refuse("the buffer is a torch tensor whose memory was given back (its storage was made smaller)")
    # A single element lies in order whatever its strides are: a view of bytes asks for a stride of one. Of memory that NumPy
    # looks at, torch itself refuses to make it larger or smaller.
    return tensor.detach().as_strided((count,), (1,)).view(torch.uint8).numpy().data


class TensorMemory:
    """Where a torch tensor's memory lies, and how it is seen there.

    ``tensor.share_memory_()``, which a queue between processes calls too, moves it and frees where it was; ``tensor.set_`` and
    ``tensor.data = other`` give the tensor other memory. So whoever wants the bytes looks first.
    """

    __slots__ = ("_dtype", "_length", "address", "bytes", "is_fixed", "tensor", "views")

    def __init__(self, tensor: torch.Tensor, view: memoryview, *, is_fixed: bool = False) -> None:
        """``is_fixed``: the bytes are meant where they lie now, since somebody is to free them."""
        self.tensor, self.bytes, self.address = tensor, view, tensor.data_ptr()
        self.views: dict[Any, torch.Tensor] = {}
        self._dtype, self._length, self.is_fixed = tensor.dtype, view.nbytes, is_fixed

    def look(self) -> None:
        """Follow the tensor where it has gone; refused where the bytes are not there."""
        if self.tensor.data_ptr() == self.address:
            return
        if self.is_fixed:
            refuse("the torch tensor that was wrapped with a deallocator lies in other memory now; wrap it again")
        found, dtype = tensor_bytes(self.tensor), self.tensor.dtype
        if dtype != self._dtype or found.nbytes < self._length:
            refuse(
                f"{self._length} bytes of a torch tensor of {self._dtype} were wrapped, and it has other memory now, "
                f"{found.nbytes} bytes of {dtype}; wrap it again"
            )
        self.views, self.bytes, self.address = {}, found[: self._length], self.tensor.data_ptr()

    def moves_with(self, dtype: torch.dtype) -> bool:
        """Whether a tensor of these elements can lie in the same storage as the program's."""
        return not self.is_fixed and not self.tensor.storage_offset() * self.tensor.itemsize % dtype.itemsize

    def seen_as(self, dtype: torch.dtype, shape: tuple[int, ...]) -> torch.Tensor:
        """The leading bytes as a tensor in the same storage, so that it is moved with it. It has no history and counts its
        changes for itself, and it is an ordinary tensor even where the program's was made in inference mode."""
        tensor, count = self.tensor, math.prod(shape)
        if not tensor.is_inference():
            elements = count * dtype.itemsize // tensor.itemsize
            return tensor.data.as_strided((elements,), (1,)).view(dtype).view(shape).detach()
        start = tensor.storage_offset() * tensor.itemsize // dtype.itemsize
        whole = torch.empty(0, dtype=dtype, device="cpu").set_(tensor.untyped_storage())
        return whole.narrow(0, start, count).view(shape).detach()

    def again(self, tensor: torch.Tensor) -> TensorMemory:
        """The same bytes, seen through ``tensor``, which lies there too."""
        self.look()
        return TensorMemory(tensor, self.bytes, is_fixed=self.is_fixed)


class Followed:
    """A field of data over a torch tensor, read after a look at where the tensor lies.

    Other memory cannot move as long as somebody looks at it: data over it has the field itself, which Python finds before
    this, so that it costs nothing there.
    """

    def __init__(self, field: str) -> None:
        self._field = field

    def __get__(self, data: Any, cls: Any = None) -> Any:
        if data is None:
            return self
        lies = data.__dict__["_lies"]
        if lies.tensor.data_ptr() != lies.address:
            lies.look()
        return getattr(lies, self._field)
