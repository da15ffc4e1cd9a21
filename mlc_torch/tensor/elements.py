"""What a buffer says its elements are, and which tensors may read or write them.

A float64 array in a float32 tensor would silently be read as garbage. Raw bytes say nothing of what they hold, and
pass. An array of 8-bit numbers whose rows are a tensor's samples is no raw bytes: images are often kept so.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Sequence
from typing import Any

import torch

from mlc_torch.refusals import refuse

Element = torch.dtype | tuple[str, int]
"""A torch tensor's type, or the format that the buffer protocol gives and the bytes of one element."""

_FLOATS, _INTEGERS = "efdg", "bBhHiIlLqQnN"
_NATIVE = {"@", "=", "<" if sys.byteorder == "little" else ">"}
_BYTES = {torch.uint8, torch.int8}
_ONE_BYTE = {torch.bool, *_BYTES}
_BITS_OF: dict[torch.dtype, set[torch.dtype]] = {
    torch.int32: {torch.uint32},
    torch.int64: {torch.uint64},
    torch.float16: {torch.uint16},
}
"""What stands for the same bits: unsigned for signed, and uint16 where a language has no half floats."""

FITTING: set[tuple[Element, torch.dtype]] = set()
"""Pairs that were found to fit: a program uses few, again and again."""


def check_fit(
    element: Element, dtype: torch.dtype, who: str, given: Sequence[int], shape: Sequence[int], filled: bool = False
) -> None:
    """Refuse a buffer whose elements are of another type than the tensor's, with the way out.

    ``given`` is the shape of the buffer, empty where it has none; ``shape`` the tensor's. ``filled``: by the values.
    """
    if (element, dtype) in FITTING:
        return
    fits = _torch_fits(element, dtype) if isinstance(element, torch.dtype) else _format_fits(*element, dtype)
    are_bytes = fits and dtype not in _ONE_BYTE and _is_of_bytes(element)
    if are_bytes and not (len(given) > 1 < len(shape) and math.prod(given[1:]) == math.prod(shape[1:])):
        return  # whether they are numbers depends on the shape: such a pair is looked at each time
    if not fits or are_bytes:
        wanted = str(dtype).removeprefix("torch.")
        rows = f", in rows of {math.prod(shape[1:])} like the tensor's, which" if are_bytes else ", the tensor's"
        if filled:
            out = room_for(element, dtype, shape)
        elif isinstance(element, torch.dtype):
            raw = "tensor.reshape(-1)" if are_bytes else "tensor.view(torch.uint8)"
            out = f"pass tensor.to({dtype}), or {raw} if these are raw bytes"
        else:
            raw = "array.reshape(-1)" if are_bytes else "array.view(np.uint8)"
            out = f"pass array.astype({_numpy_name(wanted)}), or {raw} if these are raw bytes"
        refuse(f"{who} has elements of type {_in_words(element)}{rows} are {wanted}; {out}")
    FITTING.add((element, dtype))


def room_for(element: Element, dtype: torch.dtype, shape: Sequence[int]) -> str:
    """How to make a buffer that a tensor's values go into. A copy of what was given would take them, and nobody see it."""
    if isinstance(element, torch.dtype):
        return f"make it torch.zeros({list(shape)}, dtype={dtype})"
    return f"make it np.zeros({list(shape)}, {_numpy_name(str(dtype).removeprefix('torch.'))})"


def _is_of_bytes(element: Element) -> bool:
    """Whether a buffer holds 8-bit numbers, which may also stand for the bytes of something else."""
    return element in _BYTES if isinstance(element, torch.dtype) else element[0].lstrip("@=<>!") in ("B", "b")


def _numpy_name(wanted: str) -> str:
    return "np.bool_" if wanted == "bool" else f"np.{wanted}"


def _torch_fits(element: torch.dtype, dtype: torch.dtype) -> bool:
    if element is dtype or element in _BYTES:
        return True
    return dtype in _ONE_BYTE if element is torch.bool else element in _BITS_OF.get(dtype, ())


def _format_fits(format_: str, size: int, dtype: torch.dtype) -> bool:
    order, letter = (format_[0], format_[1:]) if format_[:1] in "@=<>!" and len(format_) > 1 else ("@", format_)
    if letter in ("B", "b", "c") or letter.lstrip("0123456789") == "x":  # x: void
        return True
    if letter == "?":
        return dtype in _ONE_BYTE
    if dtype in _ONE_BYTE or order not in _NATIVE or size != dtype.itemsize or len(letter) != 1:
        return False
    if dtype.is_floating_point:
        return letter in _FLOATS or (letter == "H" and dtype is torch.float16)
    return letter in _INTEGERS


_WORDS: dict[str, str] = {
    **dict.fromkeys(_FLOATS, "float"),
    **{letter: "uint" if letter.isupper() else "int" for letter in _INTEGERS},
}


def _in_words(element: Any) -> str:
    """The type in NumPy's words where it has some, else the format as it is."""
    if isinstance(element, torch.dtype):
        return str(element)
    format_, size = element
    letter = format_.lstrip("@=<>!")
    if letter == "?":
        return "bool"
    if letter not in _WORDS:
        return f"{format_!r} (of the buffer protocol)"
    order = "big-endian " if format_[0] in ">!" else "little-endian " if format_[0] == "<" else ""
    return ("" if not order or format_[0] in _NATIVE else order) + f"{_WORDS[letter]}{8 * size}"
