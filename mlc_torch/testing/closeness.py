"""``assert_close``: two tensors, whatever library they come from, element by element; a failure says where and by how much."""

from __future__ import annotations

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

    Takes ``MLCTensor``, torch tensors (on any device), NumPy arrays and numbers. Shapes must be equal. Without
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
    if bool(wrong.any()):
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
    if array.dtype.kind not in "biuf":
        raise TypeError(f"assert_close takes tensors, arrays and numbers, {role} is {type(value).__name__}")
    if array.dtype.itemsize > 8:
        array = array.astype(np.float64)
    return torch.from_numpy(np.array(array, order="C")), role


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


def _wrong(left: torch.Tensor, right: torch.Tensor, rtol: float, atol: float, equal_nan: bool) -> torch.Tensor:
    if not left.is_floating_point() and not right.is_floating_point() and rtol == atol == 0:
        return left != right  # float64 cannot tell large whole numbers apart
    a, b = left.double(), right.double()
    close = (a == b) | ((a - b).abs() <= atol + rtol * b.abs()) & a.isfinite() & b.isfinite()
    if equal_nan:
        close |= a.isnan() & b.isnan()
    return ~close


def _report(left: torch.Tensor, right: torch.Tensor, wrong: torch.Tensor, rtol: float, atol: float) -> str:
    a, b = left.double(), right.double()
    off = torch.where(wrong, (a - b).abs(), 0.0).nan_to_num(nan=float("inf"))
    relative = torch.where(off > 0, off / b.abs(), 0.0).nan_to_num(nan=float("inf"))
    count, total = int(wrong.sum()), wrong.numel()
    places = [tuple(place) for place in wrong.nonzero()[:_SHOWN].tolist()]
    worst, steepest = _where(off), _where(relative)
    lines = [
        f"{count} of {total} elements differ ({count / total:.1%}); allowed: {atol:g} + {rtol:g} * |expected|",
        f"largest absolute difference: {float(off[worst]):g} at {_index(worst)}: {_pair(left, right, worst)}",
        f"largest relative difference: {float(relative[steepest]):g} at {_index(steepest)}: {_pair(left, right, steepest)}",
        "first: " + "; ".join(f"{_index(place)} {_pair(left, right, place)}" for place in places),
    ]
    if bool((a.isnan() & b.isnan() & wrong).any()):
        lines.append("NaN equals NaN only with equal_nan=True")
    return "\n".join(f"  {line}" for line in lines)


def _where(values: torch.Tensor) -> tuple[int, ...]:
    return tuple(int(i) for i in torch.unravel_index(values.argmax(), values.shape))


def _index(place: tuple[int, ...]) -> str:
    return str(list(place)) if place else "the only element"


def _pair(left: torch.Tensor, right: torch.Tensor, place: tuple[int, ...]) -> str:
    return f"{_number(left[place])}, expected {_number(right[place])}"


def _number(value: torch.Tensor) -> str:
    return f"{value.item():.9g}" if value.is_floating_point() else str(value.item())


def _with(msg: str, text: str) -> str:
    return f"{msg}: {text}" if msg else text
