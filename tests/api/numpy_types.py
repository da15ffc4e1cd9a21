"""What NumPy calls the framework's element types."""

from __future__ import annotations

import numpy as np

from mlc_torch import MLCDataType

NUMPY = {
    MLCDataType.float32: np.float32,
    MLCDataType.float16: np.float16,
    MLCDataType.boolean: np.bool_,
    MLCDataType.int64: np.int64,
    MLCDataType.int32: np.int32,
    MLCDataType.int8: np.int8,
    MLCDataType.uint8: np.uint8,
}
