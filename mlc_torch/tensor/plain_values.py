"""Tensors and arrays that look like numbers in memory and are none."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch


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
    if values.is_nested:  # asked first: such a tensor has no shape
        return (
            "is a nested torch tensor, whose parts are of several shapes; pass torch.nested.to_padded_tensor(tensor, 0)"
        )
    if values.is_meta:
        return "is a torch tensor on the device meta, which has no memory; pass one on the CPU"
    if values.layout is not torch.strided:
        return f"is a torch tensor of the layout {values.layout}; pass tensor.to_dense()"
    return "is a quantized torch tensor; pass tensor.dequantize()" if values.is_quantized else ""
