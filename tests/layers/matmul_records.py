"""Matrix products, against loops over rows and columns."""

from __future__ import annotations

import numpy as np

from mlc_torch.descriptors import MLCMatMulDescriptor
from mlc_torch.layers.matmul import MatMul, MLCMatMulLayer
from tests.layers.records import Record, Refusal, values


def product(x, y, alpha, turn_x, turn_y):
    """alpha times the sum over the inner index, for every row, column and place in the stack."""
    x = np.swapaxes(x, -1, -2) if turn_x else x
    y = np.swapaxes(y, -1, -2) if turn_y else y
    stack = np.broadcast_shapes(x.shape[:-2], y.shape[:-2])
    x, y = np.broadcast_to(x, stack + x.shape[-2:]), np.broadcast_to(y, stack + y.shape[-2:])
    result = np.zeros((*stack, x.shape[-2], y.shape[-1]))
    for place in np.ndindex(result.shape):
        *at, i, j = place
        for k in range(x.shape[-1]):
            result[place] += alpha * x[(*at, i, k)] * y[(*at, k, j)]
    return result


def _record(name, x, y, result, alpha=1.0, turn_x=False, turn_y=False, **kw) -> Record:
    return Record(
        name,
        lambda: MLCMatMulLayer(descriptor=MLCMatMulDescriptor(alpha=alpha, transposesX=turn_x, transposesY=turn_y)),
        [values(*x), values(*y, seed=1)],
        result,
        lambda x, y: product(x, y, alpha, turn_x, turn_y),
        objc=lambda: MLCMatMulLayer.layerWithDescriptor_(
            MLCMatMulDescriptor.descriptorWithAlpha_transposesX_transposesY_(alpha, turn_x, turn_y)
        ),
        module=MatMul,
        **kw,
    )


_X = np.array([[[[1, 2], [3, 4]]]], np.float32)
RECORDS = [
    _record("matrices", (2, 3), (3, 4), (2, 4)),
    _record("scaled", (2, 3), (3, 4), (2, 4), alpha=-0.5),
    _record("alpha 0", (2, 3), (3, 4), (2, 4), alpha=0.0),
    _record("X transposed", (3, 2), (3, 4), (2, 4), turn_x=True),
    _record("Y transposed", (2, 3), (4, 3), (2, 4), turn_y=True),
    _record("both transposed", (5, 3, 2), (5, 4, 3), (5, 2, 4), 2.0, True, True),
    _record("stacks", (2, 3, 4, 5), (2, 3, 5, 2), (2, 3, 4, 2)),
    _record("stacks that broadcast", (2, 1, 3, 4), (1, 5, 4, 2), (2, 5, 3, 2)),
    _record("a stack and a matrix", (2, 3, 4), (4, 5), (2, 3, 5)),
    _record("a matrix and a stack", (3, 4), (2, 2, 4, 5), (2, 2, 3, 5)),
    _record("outer product", (3, 1), (1, 4), (3, 4)),
    Record(
        "measured",
        lambda: MLCMatMulLayer(descriptor=MLCMatMulDescriptor()),
        [_X, _X],
        _X.shape,
        lambda x, y: np.array([[[[7, 10], [15, 22]]]]),
        objc=lambda: MLCMatMulLayer.layerWithDescriptor_(MLCMatMulDescriptor.descriptor()),
    ),
]


def _plain():
    return MLCMatMulLayer(descriptor=MLCMatMulDescriptor())


REFUSALS = [
    Refusal("one source", _plain, "2 sources", [((2, 2), "float32")]),
    Refusal("a vector", _plain, "two dimensions", [((2, 2), "float32"), ((2,), "float32")]),
    Refusal("inner sizes", _plain, "columns of X (3)", [((2, 3), "float32"), ((2, 3), "float32")]),
    Refusal("stacks", _plain, "do not broadcast", [((2, 3, 3), "float32"), ((4, 3, 3), "float32")]),
    Refusal("two types", _plain, "share one data type", [((2, 2), "float32"), ((2, 2), "float16")]),
    Refusal("whole numbers", _plain, "int32", [((2, 2), "int32"), ((2, 2), "int32")]),
]
