"""``MLCTensorData``: memory of the caller's, wrapped without a copy."""

from __future__ import annotations

import math
import weakref
from typing import Any

import numpy as np
import torch

from mlc_torch.enums import MLCDataType
from mlc_torch.refusals import refuse
from mlc_torch.spelling import MLCObject, declare, direct_call, prop
from mlc_torch.spelling.arguments import to_buffer
from mlc_torch.tensor.addresses import address_of, memory_at
from mlc_torch.tensor.elements import FITTING, Element, check_fit, room_for
from mlc_torch.tensor.plain_values import why_not_plain
from mlc_torch.tensor.shapes import reads_as
from mlc_torch.tensor.torch_memory import Followed, TensorMemory, tensor_bytes

TORCH_TYPES: dict[MLCDataType, torch.dtype] = {
    MLCDataType.float32: torch.float32,
    MLCDataType.float16: torch.float16,
    MLCDataType.boolean: torch.bool,
    MLCDataType.int64: torch.int64,
    MLCDataType.int32: torch.int32,
    MLCDataType.int8: torch.int8,
    MLCDataType.uint8: torch.uint8,
}
DATA_TYPES = {torch_type: data_type for data_type, torch_type in TORCH_TYPES.items()}


_SAME: dict[Any, torch.dtype] = {
    (np.dtype(name).char, np.dtype(name).itemsize): getattr(torch, name)
    for name in ("float32", "float16", "int64", "int32", "int8", "uint8")
}
"""What a buffer says of its elements where they are torch's own, in this machine's order of bytes."""
USUAL: dict[torch.dtype, Element] = {dtype: element for element, dtype in _SAME.items()}
"""What the elements of a NumPy array say that is made for a tensor of this type."""


class _MadeAtOnce(type):
    """Makes data without ``__new__`` and ``__init__``, which take a sixth of the time: many programs wrap every batch anew.

    For this class alone: with a metaclass, a program's own layers could not be abstract classes too. Its ``__call__`` is
    written from the initializers, below them.
    """


class MLCTensorData(MLCObject, metaclass=_MadeAtOnce):
    """The memory that a tensor's values are read from or written to, without a copy.

    Any buffer serves: a NumPy array, a torch CPU tensor, ``bytes``, ``bytearray`` or ``memoryview``. It is kept alive. A torch
    tensor is followed where its memory moves, as ``share_memory_()`` moves it.
    """

    length = prop("Int", "How many bytes of the buffer are used.")

    _shape: tuple[int, ...] | None
    """Of an array that was given in place of data. Data itself is bytes, and has none."""
    _bytes: Any = Followed("bytes")
    _views: Any = Followed("views")
    """Torch tensors over the bytes, by type and shape."""

    @prop("UnsafeMutableRawPointer")
    def bytes(self):
        """The caller's own memory as a ``memoryview`` of bytes."""
        return self._bytes

    @declare("init(bytesNoCopy bytes: UnsafeMutableRawPointer, length: Int)", "dataWithBytesNoCopy:length:")
    @declare("init(immutableBytesNoCopy bytes: UnsafeRawPointer, length: Int)", "dataWithImmutableBytesNoCopy:length:")
    @declare(
        "init(bytesNoCopy bytes: UnsafeMutableRawPointer, length: Int, "
        "deallocator: @escaping (UnsafeMutableRawPointer, Int) -> Void)",
        "dataWithBytesNoCopy:length:deallocator:",
    )
    def _create(cls, bytes, length, deallocator=None):
        """The first ``length`` bytes of a buffer. A deallocator is called once, when the memory is no longer used."""
        view, element = seen_as_bytes(bytes)
        if length is None:  # of ours: the whole of it
            length = view.nbytes
        elif length != view.nbytes:
            if length < 0:
                refuse(f"length must not be negative, got {length}")
            if length > view.nbytes:
                refuse(f"length is {length} bytes, the buffer holds {view.nbytes}")
            view = view[:length]
        made: Any = object.__new__(cls)  # type: ignore[arg-type]  # mypy takes the class for an object of it
        fields = made.__dict__
        fields["_length"], fields["_owner"], fields["_element"], fields["_shape"] = length, bytes, element, None
        if type(element) is tuple or not length:
            fields["_bytes"], fields["_views"] = view, {}
        else:
            fields["_lies"] = TensorMemory(bytes, view, is_fixed=deallocator is not None)
        if deallocator is not None:
            last: Any = made
            if length:
                # Whoever looks into the memory, be it ``tensor.data`` or a torch tensor, looks through this and holds it.
                last = memory_at(address_of(view), length, view)
                seen = memoryview(last).cast("B")
                fields["_owner"] = seen = seen.toreadonly() if view.readonly else seen
                if type(element) is tuple:
                    fields["_bytes"] = seen
                else:
                    fields["_lies"].bytes = seen
            weakref.finalize(last, deallocator, bytes, length)
        return made

    @classmethod
    def _coerce(cls, value: Any) -> MLCTensorData:
        """What a member makes of an argument that is no ``MLCTensorData``: arrays and torch tensors serve as they are."""
        if isinstance(value, cls):
            return value
        try:
            made = cls._over(to_buffer(value))
        except TypeError:
            out = "; np.array(numbers, np.float32) makes one of a list" if isinstance(value, (list, tuple)) else ""
            out = "; matrix.toarray() makes one of a sparse matrix" if hasattr(value, "toarray") else out
            raise TypeError(f"MLCTensorData, a NumPy array or a torch tensor{out}") from None
        made.__dict__["_shape"] = getattr(value, "shape", None)
        return made

    @classmethod
    def _over(cls, memory: Any) -> MLCTensorData:
        """The whole of a buffer."""
        return cls._create(memory, None)

    @classmethod
    def _bare(cls) -> MLCTensorData:
        return cls._over(b"")

    @property
    def _readonly(self) -> bool:
        return self._bytes.readonly

    @property
    def _address(self) -> int:
        """Where its bytes lie: they cannot move as long as this looks at them, but those of a torch tensor can."""
        lies: TensorMemory | None = self.__dict__.get("_lies")
        if lies is not None:
            lies.look()
            return lies.address
        found: int | None = self.__dict__.get("_place")
        if found is None:
            found = self.__dict__["_place"] = address_of(self._bytes)
        return found

    def _view(self, dtype: torch.dtype, shape: tuple[int, ...], name: str = "") -> torch.Tensor:
        """The leading bytes as a torch tensor over the same memory. Memory marked read-only must only be read.

        Refused where the buffer's elements are of another type; ``name`` says for what the data is.
        """
        key = (dtype, shape)
        views = self._views
        found = views.get(key)
        if found is None:
            owner, lies = self._owner, self.__dict__.get("_lies")
            if (
                _SAME.get(self._element) is dtype
                and type(owner) is np.ndarray
                and owner.shape == shape
                and min(owner.strides, default=0) >= 0  # a single row may lie backwards, which torch does not take
                and not self._bytes.readonly
                and not torch.is_inference_mode_enabled()
            ):
                found = torch.from_numpy(owner)  # one call, where the way below takes three
            else:
                if (self._element, dtype) not in FITTING or (self._shape is not None and self._shape != shape):
                    self._must_fit(dtype, shape, f"data for {name!r}" if name else "the data")
                with torch.inference_mode(False):  # a tensor that is made in inference mode could never be trained
                    # Detached: of a view, torch looks at what it is a view of in every operation, which takes time.
                    if lies is not None and lies.moves_with(dtype):
                        found = lies.seen_as(dtype, shape)
                    else:
                        found = _alias(self._bytes, dtype, math.prod(shape)).view(shape).detach()
            views[key] = found
        return found

    def _kept(self) -> MLCTensorData:
        """For a tensor that lies in this memory from now on: it is moved with the memory, and stays in it where the program gives
        its torch tensor other memory (``tensor.data = other``)."""
        lies: TensorMemory | None = self.__dict__.get("_lies")
        if lies is None:
            return self
        made = self.__copy__()
        made.__dict__["_lies"] = lies.again(lies.tensor.detach())
        return made

    def _must_stay(self, dtype: torch.dtype, who: str) -> None:
        """Refuse memory that a tensor is to lie in and could not be moved with."""
        lies: TensorMemory | None = self.__dict__.get("_lies")
        if lies is not None and not lies.moves_with(dtype) and not lies.is_fixed:
            at = lies.tensor.storage_offset() * lies.tensor.itemsize
            refuse(
                f"{who} is a torch tensor that begins {at} bytes into its storage, no multiple of the {dtype.itemsize} bytes "
                f"that {dtype} has; pass tensor.clone()"
            )

    def _must_fit(self, dtype: torch.dtype, shape: tuple[int, ...], who: str, filled: bool = False) -> None:
        """Refuse data whose elements or shape are not a tensor's, before anything is changed. ``filled``: it is a buffer for the
        tensor's values."""
        if (self._element, dtype) not in FITTING:
            check_fit(self._element, dtype, who, getattr(self._owner, "shape", ()), shape, filled)
        if self._shape is not None and self._shape != shape:
            self._check_shape(dtype, shape, who, filled)

    def _check_shape(self, dtype: torch.dtype, shape: tuple[int, ...], who: str, filled: bool) -> None:
        """Refuse an array whose elements would come to stand in other places of the tensor than in the array."""
        element, given = self._element, self._shape
        size = element.itemsize if isinstance(element, torch.dtype) else element[1]
        if given is None or size != dtype.itemsize or reads_as(tuple(given), shape):
            return  # elements of another size are raw bytes
        turned = sorted(given) == sorted(shape)
        out = "pass the transposed array (numpy.ascontiguousarray)" if turned else "pass an array of that shape"
        out = room_for(element, dtype, shape) if filled else out
        refuse(f"{who} is an array of shape {list(given)}, the tensor's shape is {list(shape)}; {out}")

    def __reduce__(self) -> Any:
        raise TypeError("MLCTensorData wraps memory of this process and cannot be pickled")

    def __copy__(self) -> MLCTensorData:
        """The same memory once more."""
        made = self._make(**{name[1:]: value for name, value in vars(self).items()})
        lies: TensorMemory | None = vars(self).get("_lies")
        if lies is None:
            made.__dict__["_views"] = {}
        else:
            made.__dict__["_lies"] = lies.again(lies.tensor)
        return made

    def __deepcopy__(self, memo: dict[int, Any]) -> MLCTensorData:
        made = self._over(bytearray(self._bytes))
        made._element = self._element
        return made

    def __repr__(self) -> str:
        return f"MLCTensorData({type(self._owner).__name__}, length={self._length})"


_MadeAtOnce.__call__ = direct_call(  # type: ignore[method-assign]
    MLCTensorData.__declared__["init"],
    lambda cls, args, labels: type.__call__(cls, *args, **labels),
    MLCTensorData,
    only=MLCTensorData,
)


def seen_as_bytes(memory: Any) -> tuple[memoryview, Element]:
    """A buffer as contiguous bytes, and what it says its elements are; what has no bytes in place is refused."""
    kind = type(memory)
    if kind is not np.ndarray:
        if isinstance(memory, torch.Tensor):
            return tensor_bytes(memory), memory.dtype
        if isinstance(memory, np.ma.MaskedArray):
            refuse(f"the buffer {why_not_plain(memory)}")
    try:
        view = memoryview(memory)
        element = (view.format, view.itemsize)
        if element in _SAME and view.c_contiguous and view.nbytes:
            return view.cast("B"), element  # nearly always; the rest is for what is rare
    except TypeError:
        raise TypeError(
            "expected a buffer (NumPy array, torch CPU tensor, bytes, bytearray or memoryview), "
            f"got {type(memory).__name__}"
        ) from None
    except (ValueError, BufferError) as error:
        refuse(f"the buffer cannot be read as bytes ({error})")
    format_ = view.format
    records = getattr(memory, "dtype", None) if format_.startswith("T{") else None
    if format_.endswith("O") or getattr(records, "hasobject", False):
        refuse("the buffer holds Python objects, whose bytes are addresses; pass an array of numbers")
    if not view.c_contiguous:
        refuse(
            "the buffer is an array that is not contiguous; pass numpy.ascontiguousarray(array), which is a copy; for results "
            "make it np.zeros(array.shape, array.dtype)"
        )
    if not view.nbytes:
        return memoryview(b""), element
    try:
        return view.cast("B"), element
    except (TypeError, ValueError):
        return _uncastable_bytes(memory), element


def _uncastable_bytes(memory: Any) -> memoryview:
    """``memoryview`` casts only native single-character formats; NumPy also sees through the others."""
    try:
        return np.asarray(memory).reshape(-1).view(np.uint8).data
    except (TypeError, ValueError) as error:
        refuse(f"the buffer's elements have no plain bytes ({error})")


def _alias(view: memoryview, dtype: torch.dtype, count: int) -> torch.Tensor:
    buffer: Any = view
    if view.readonly:
        # torch.frombuffer warns about read-only memory although this alias is never written to.
        buffer = memory_at(address_of(view), view.nbytes, view)
    return torch.frombuffer(buffer, dtype=dtype, count=count)
