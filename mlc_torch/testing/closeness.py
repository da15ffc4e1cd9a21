"""``assert_close``: two tensors, whatever library they come from, element by element; a failure says where and by how much."""

from __future__ import annotations

import math
from numbers import Real
from typing import Any

import numpy as np
import torch

from mlc_torch.refusals import last_refusal
from mlc_torch.spelling.own import wrong_type
from mlc_torch.tensor import MLCTensor
from mlc_torch.tensor.plain_values import why_not_plain

# What rounding does to a few operations in a row, by the coarser of the two types; whole numbers are equal or not.
_TOLERANCES = {
    torch.float16: (1e-3, 1e-5),
    torch.bfloat16: (1.6e-2, 1e-5),
    torch.float32: (1.3e-6, 1e-5),
    torch.float64: (1e-7, 1e-7),
}
_UNSIGNED = {torch.uint16, torch.uint32, torch.uint64}
_NUMBERS = (int, float, complex, np.number, np.bool_)
_SHOWN = 5


def assert_close(
    actual: Any,
    expected: Any,
    *,
    rtol: float | None = None,
    atol: float | None = None,
    equal_nan: bool = False,
    check_dtype: bool = False,
    msg: str = "",
) -> None:
    """Fail unless ``|actual - expected| <= atol + rtol * |expected|`` everywhere.

    Takes ``MLCTensor``, torch tensors (on any device), NumPy arrays, lists and numbers. Shapes must be equal. Without
    tolerances they follow the coarser of the two types, as in ``torch.testing``. Infinities must be equal; NaN equals
    NaN only with ``equal_nan``.
    """
    __tracebackhide__ = True
    if (rtol is None) != (atol is None):
        raise TypeError("assert_close takes both rtol and atol, or neither")
    for name, tolerance in (("rtol", rtol), ("atol", atol)):
        _check_tolerance(name, tolerance)
    left, left_name = _taken(actual, "actual")
    right, right_name = _taken(expected, "expected")
    names = f"{left_name} and {right_name}"
    if left.shape != right.shape:
        raise AssertionError(_with(msg, f"{names} differ in shape: {list(left.shape)} and {list(right.shape)}"))
    if check_dtype and left.dtype != right.dtype:
        raise AssertionError(_with(msg, f"{names} differ in type: {left.dtype} and {right.dtype}"))
    left, right = _signed(left, "actual"), _signed(right, "expected")
    if rtol is None or atol is None:
        rtol, atol = (max(pair) for pair in zip(_tolerance(left), _tolerance(right), strict=True))
    wrong = _wrong(left, right, rtol, atol, equal_nan)
    if wrong.any():
        report = _report(left, right, wrong, rtol, atol)
        raise AssertionError(_with(msg, f"{names} are not close\n{report}"))


def _check_tolerance(name: str, tolerance: Any) -> None:
    __tracebackhide__ = True
    if tolerance is not None and (isinstance(tolerance, bool) or not isinstance(tolerance, Real)):
        raise wrong_type("assert_close", name, "a number", tolerance)
    if tolerance is not None and not float(tolerance) >= 0:
        raise ValueError(f"assert_close: argument {name!r} must be at least 0, got {tolerance}")


def _taken(value: Any, role: str) -> tuple[torch.Tensor, str]:
    """The values on the CPU, and what to call them."""
    __tracebackhide__ = True
    if value is None:
        why = last_refusal()
        raise AssertionError(f"{role} is None" + (f"; the last refusal was: {why}" if why else ""))
    if isinstance(value, MLCTensor):
        try:
            return value.torch.cpu(), f"{role} ({value!r})"
        except ValueError:
            raise AssertionError(f"{role} ({value!r}) holds no data; has the graph been executed?") from None
    trouble = why_not_plain(value)
    if trouble:
        raise ValueError(f"assert_close: {role} {trouble}")
    if isinstance(value, torch.Tensor):
        if value.is_complex():
            raise TypeError(f"assert_close takes real numbers, {role} is a tensor of {value.dtype}")
        return value.detach().cpu(), role
    try:
        array = np.asarray(value)
    except ValueError as error:  # a list whose rows differ in length
        raise TypeError(f"assert_close: {role} is a {type(value).__name__} that makes no array ({error})") from None
    if array.dtype.kind == "O" and array.size and all(isinstance(number, _NUMBERS) for number in array.flat):
        array = np.asarray(array.tolist())  # an array of Python's numbers is taken as a list of them is
        if array.dtype.kind == "O":
            raise ValueError(f"assert_close: {role} holds a whole number that int64 cannot hold")
    if array.dtype.kind == "c":
        raise TypeError(f"assert_close takes real numbers, {role} is {_named(value, array, 'complex')}")
    if array.dtype.kind not in "biuf":
        other = next((type(found).__name__ for found in array.ravel().tolist() if not isinstance(found, _NUMBERS)), "")
        raise TypeError(
            f"assert_close takes tensors, arrays, lists and numbers, {role} is {_named(value, array, other)}"
        )
    if array.dtype.itemsize > 8:
        array = array.astype(np.float64)
    # By its name: NumPy has two types of 64 bits without a sign, and torch knows one of them; it knows no foreign order of bytes.
    return torch.from_numpy(array.astype(array.dtype.name, order="C")), role


def _named(value: Any, array: np.ndarray, element: str) -> str:
    """The type of ``value``; of a list or an array, what is in it, too."""
    return f"{type(value).__name__}" + (f" with {element}" if array.ndim and element else "")


def _signed(values: torch.Tensor, role: str) -> torch.Tensor:
    """Torch compares its unsigned types with nothing else."""
    __tracebackhide__ = True
    if values.dtype not in _UNSIGNED:
        return values
    made = values.to(torch.int64)
    if bool((made < 0).any()):
        raise ValueError(f"assert_close: {role} holds a whole number of 2**63 or more, which int64 cannot hold")
    return made


def _tolerance(values: torch.Tensor) -> tuple[float, float]:
    return _TOLERANCES.get(values.dtype, (0.0, 0.0))


def _distance(left: torch.Tensor, right: torch.Tensor) -> np.ndarray:
    """How far apart they are; infinitely, where one is no number.

    Of whole numbers it is exact: float64 cannot tell large ones apart.
    """
    if left.is_floating_point() or right.is_floating_point():
        return (left.double() - right.double()).abs().nan_to_num(nan=math.inf, posinf=math.inf).numpy()
    a, b = left.long(), right.long()
    # What does not fit into int64 wraps around, to what is right without a sign.
    return torch.where(a > b, a - b, b - a).numpy().view(np.uint64)


def _wrong(left: torch.Tensor, right: torch.Tensor, rtol: float, atol: float, equal_nan: bool) -> np.ndarray:
    off, a, b = _distance(left, right), left.double(), right.double()
    near = off <= (atol + rtol * b.abs()).numpy()
    close = (off == 0) | near & (a.isfinite() & b.isfinite()).numpy() | (a.isinf() & (a == b)).numpy()
    if equal_nan:
        close |= (a.isnan() & b.isnan()).numpy()
    return np.asarray(~close)


def _report(left: torch.Tensor, right: torch.Tensor, wrong: np.ndarray, rtol: float, atol: float) -> str:
    off = _distance(left, right)
    off = np.where(wrong, off, off.dtype.type(0))
    with np.errstate(all="ignore"):
        relative = np.where(off > 0, off / right.double().abs().numpy(), 0.0)
    relative = np.where(np.isnan(relative), math.inf, relative)
    count, total = int(wrong.sum()), wrong.size
    places = [tuple(place) for place in np.argwhere(wrong)[:_SHOWN].tolist()]
    worst, steepest = _where(off), _where(relative)
    by = f"{off[worst]:g}" if off.dtype.kind == "f" else str(off[worst])
    lines = [
        f"{count} of {total} elements differ ({count / total:.1%}); allowed: {atol:g} + {rtol:g} * |expected|",
        f"largest absolute difference: {by} at {_index(worst)}: {_pair(left, right, worst)}",
        f"largest relative difference: {relative[steepest]:g} at {_index(steepest)}: {_pair(left, right, steepest)}",
        "first: " + "; ".join(f"{_index(place)} {_pair(left, right, place)}" for place in places),
    ]
    if bool((left.isnan() & right.isnan()).numpy()[wrong].any()):
        lines.append("NaN equals NaN only with equal_nan=True")
    return "\n".join(f"  {line}" for line in lines)


def _where(values: np.ndarray) -> tuple[int, ...]:
    return tuple(int(i) for i in np.unravel_index(values.argmax(), values.shape))


def _index(place: tuple[int, ...]) -> str:
    return str(list(place)) if place else "the only element"


def _pair(left: torch.Tensor, right: torch.Tensor, place: tuple[int, ...]) -> str:
    return f"{_number(left[place])}, expected {_number(right[place])}"


def _number(value: torch.Tensor) -> str:
    return f"{value.item():.9g}" if value.is_floating_point() else str(value.item())


def _with(msg: str, text: str) -> str:
    return f"{msg}: {text}" if msg else text
