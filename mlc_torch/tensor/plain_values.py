"""Tensors and arrays that look like numbers in memory and are none."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch.nn.parameter import is_lazy


def why_not_plain(values: Any) -> str:
    """Why the memory of a tensor or array does not hold its values, and the way out; empty where it does."""
    if isinstance(values, np.ma.MaskedArray):
        return (
            "is a masked array, and the numbers under its mask would be taken; pass array.filled(value), or array.data "
            "if they are meant"
        )
    if not isinstance(values, torch.Tensor):
        # As SciPy's are, whose package need not be there.
        is_sparse = hasattr(values, "toarray")
        return f"is a sparse matrix ({type(values).__name__}); pass matrix.toarray()" if is_sparse else ""
    is_ordinary = type(values) in _ORDINARY
    if not is_ordinary and is_lazy(values):
        return "is a torch parameter that has no shape and no values yet; run its module once, which makes them"
    if values.is_nested:  # asked first: such a tensor has no shape
        return (
            "is a nested torch tensor, whose parts are of several shapes; pass torch.nested.to_padded_tensor(tensor, 0)"
        )
    if values.is_meta:
        return "is a torch tensor on the device meta, which has no memory; pass one on the CPU"
    if values.layout is not torch.strided:
        return f"is a torch tensor of the layout {values.layout}; pass tensor.to_dense()"
    if values.is_quantized:
        return "is a quantized torch tensor; pass tensor.dequantize()"
    if _has_memory(values, is_ordinary):
        return ""
    if values._is_zerotensor():
        return "is a torch tensor of zeros that has no memory; pass tensor.clone()"
    return (
        "is a torch tensor without memory of its own, as in a FakeTensorMode and inside torch.func.vmap; pass one that holds "
        "its values"
    )


_ORDINARY = (torch.Tensor, torch.nn.Parameter)


def _has_memory(values: torch.Tensor, is_ordinary: bool) -> bool:
    try:
        if not is_ordinary and values.untyped_storage().device.type == "meta":
            return False  # torch warns who asks a FakeTensor where it lies
        return bool(values.data_ptr()) or not values.numel()
    except RuntimeError:  # torch's word for what has no storage
        return False
