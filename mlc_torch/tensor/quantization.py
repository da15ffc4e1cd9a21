"""q = clamp(round(x / scale) + bias, range of the type) and back (evidence.md A.5)."""

from __future__ import annotations

import torch

from mlc_torch.enums import MLCDataType
from mlc_torch.refusals import refuse
from mlc_torch.tensor.data import TORCH_TYPES

_QUANTIZED = (MLCDataType.int8, MLCDataType.uint8, MLCDataType.int32)


def quantize(x: torch.Tensor, type_: MLCDataType, scale: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
    if type_ not in _QUANTIZED:
        refuse(f"a tensor quantizes to int8, uint8 or int32, not to {type_.name}")
    if not x.is_floating_point():
        refuse(f"only floating-point tensors quantize, this one holds {x.dtype}")
    if not bool((scale.isfinite() & (scale != 0)).all()):
        refuse("scale must not be zero, infinite or NaN")
    limits = torch.iinfo(TORCH_TYPES[type_])
    # float64 holds every int32, so that the clamp at the ends of the range is exact.
    steps = torch.round(x.double() / scale.double()) + bias.double()
    # Infinity goes to the end of the range; NaN, as an integer, is whatever the processor makes of it.
    if bool(steps.isnan().any()):
        if bool(bias.isnan().any()):
            refuse("bias must not be NaN")
        what = "this tensor holds NaN" if bool(x.isnan().any()) else "infinity less infinity"
        refuse(f"{what}, which no integer stands for")
    return steps.clamp(limits.min, limits.max).to(TORCH_TYPES[type_])


def dequantize(q: torch.Tensor, type_: MLCDataType, scale: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
    if type_ is not MLCDataType.float32:
        refuse(f"a tensor dequantizes to float32, not to {type_.name}")
    if q.is_floating_point() or q.dtype == torch.bool:
        refuse(f"only integer tensors dequantize, this one holds {q.dtype}")
    return (_difference(q.long(), bias) * scale.double()).float()


def _difference(q: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
    """q - bias in float64, rounded once: float64 does not hold every int64, so integers are subtracted as such."""
    if bias.is_floating_point():
        whole = torch.where(bias.abs() < 2.0**62, bias, 0).long()
        rest = bias.double() - whole.double()
    else:
        whole, rest = bias.long(), torch.zeros((), dtype=torch.float64, device="cpu")
    exact = q - whole
    # Where two numbers of different signs give one of the other sign, it has gone round the end of the range.
    is_beyond = ((q ^ whole) & (q ^ exact)) < 0
    return torch.where(is_beyond, q.double() - whole.double(), exact.double()) - rest


def along(axis: int, numbers: torch.Tensor, shape: tuple[int, ...], who: str) -> torch.Tensor:
    """One number for each index of ``axis``, laid out to meet a tensor of ``shape``."""
    if not 0 <= axis < len(shape):
        refuse(f"axis {axis} is none of the {len(shape)} dimensions")
    if numbers.numel() != shape[axis]:
        refuse(f"{who} needs {shape[axis]} numbers, one for each index of axis {axis}; it has {numbers.numel()}")
    return numbers.reshape([-1 if d == axis else 1 for d in range(len(shape))])
