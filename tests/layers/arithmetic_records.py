"""All 30 arithmetic operations, over ordinary and awkward numbers, with their formulas in NumPy."""

from __future__ import annotations

import numpy as np
from torch import nn

from mlc_torch.enums import MLCArithmeticOperation as Op
from mlc_torch.layers import arithmetic as ours
from mlc_torch.layers.arithmetic import MLCArithmeticLayer
from tests.layers.records import Record, Refusal, integers, values

ONE = {
    Op.floor: np.floor,
    Op.round: np.rint,
    Op.ceil: np.ceil,
    Op.sqrt: np.sqrt,
    Op.rsqrt: lambda x: 1 / np.sqrt(x),
    Op.sin: np.sin,
    Op.cos: np.cos,
    Op.tan: np.tan,
    Op.asin: np.arcsin,
    Op.acos: np.arccos,
    Op.atan: np.arctan,
    Op.sinh: np.sinh,
    Op.cosh: np.cosh,
    Op.tanh: np.tanh,
    Op.asinh: np.arcsinh,
    Op.acosh: np.arccosh,
    Op.atanh: np.arctanh,
    Op.exp: np.exp,
    Op.exp2: lambda x: np.power(2.0, x),
    Op.log: np.log,
    Op.log2: lambda x: np.log(x) / np.log(2.0),
}
TWO = {
    Op.add: lambda x, y: x + y,
    Op.subtract: lambda x, y: x - y,
    Op.multiply: lambda x, y: x * y,
    Op.divide: lambda x, y: x / y,
    Op.pow: np.power,
    Op.multiplyNoNaN: lambda x, y: np.where(y == 0, 0, x * y),
    Op.divideNoNaN: lambda x, y: np.where(y == 0, 0, x / y),
    Op.min: np.minimum,
    Op.max: np.maximum,
}
FORMULAS = ONE | TWO

# Where an operation is defined, away from poles and steps that a finite difference would straddle.
_RANGES = {
    Op.sqrt: (0.1, 4),
    Op.rsqrt: (0.2, 4),
    Op.tan: (-1.2, 1.2),
    Op.asin: (-0.9, 0.9),
    Op.acos: (-0.9, 0.9),
    Op.atanh: (-0.9, 0.9),
    Op.acosh: (1.2, 4),
    Op.log: (0.2, 4),
    Op.log2: (0.2, 4),
    Op.pow: (0.3, 2),
}
_AWKWARD = np.array(
    [0.0, -0.0, 1, -1, 0.5, -0.5, 1.5, 2.5, -2.5, 3.5, 2, -3, 1e-30, 100, -100, 1e30, -1e30, np.nan, np.inf, -np.inf],
    np.float32,
)


def _layer(op):
    return lambda: MLCArithmeticLayer(operation=op)


def _objc(op):
    return lambda: MLCArithmeticLayer.layerWithOperation_(op)


def _module(op):
    return nn.Tanh if op is Op.tanh else ours.OneSource if op in ONE else ours.TwoSources


def _ordinary(op) -> Record:
    low, high = _RANGES.get(op, (-2, 2))
    x, y = values(2, 3, 4, low=low, high=high), values(2, 3, 4, seed=1, low=0.4, high=2)
    sources = [x] if op in ONE else [x, y]
    return Record(op.name, _layer(op), sources, x.shape, FORMULAS[op], objc=_objc(op), module=_module(op))


def _awkward(op) -> Record:
    """One source: the numbers as they are. Two: every pair of them."""
    x = _AWKWARD if op in ONE else _AWKWARD[:, None]
    sources, shape = ([x], x.shape) if op in ONE else ([x, _AWKWARD[None, :]], (x.size, x.size))
    # In float64, then rounded: what overflows float32 is infinite there too.
    return Record(
        f"{op.name}, awkward numbers",
        _layer(op),
        sources,
        shape,
        lambda *s: FORMULAS[op](*s).astype(np.float32),
        gradient=False,
        half=False,
    )


def _whole(op, dtype) -> Record:
    x = integers(3, 4, below=9, dtype=dtype) - 4
    y = integers(4, below=4, seed=1, dtype=dtype)
    sources = [x] if op in ONE else [x, y]
    return Record(
        f"{op.name} of {dtype}",
        _layer(op),
        sources,
        (3, 4),
        lambda *s: FORMULAS[op](*s).astype(dtype),
        result_type=dtype,
        gradient=False,
        half=False,
    )


def _broadcast(name, op, x, y, result) -> Record:
    sources = [values(*x, low=0.4), values(*y, seed=1, low=0.4)]
    return Record(name, _layer(op), sources, result, FORMULAS[op])


_WHOLE = [Op.add, Op.subtract, Op.multiply, Op.multiplyNoNaN, Op.min, Op.max, Op.pow, Op.floor, Op.round, Op.ceil]
_ONE_TO_FOUR = np.array([[[[1, 2], [3, 4]]]], np.float32)
_SPARSE = np.where(values(3, 4, seed=3) > 0, values(3, 4, seed=4), 0).astype(np.float32)


def _measured(op, expected) -> Record:
    """Sources and results of the real framework (evidence.md J)."""
    sources = [_ONE_TO_FOUR] * (1 if op in ONE else 2)
    want = np.array(expected, np.float32).reshape(1, 1, 2, 2)
    return Record(
        f"measured {op.name}", _layer(op), sources, want.shape, lambda *s: want, rtol=2e-6, gradient=False, half=False
    )


_NAN, _INF = np.nan, np.inf
RECORDS = [
    *(_ordinary(op) for op in Op),
    *(_awkward(op) for op in Op),
    *(_whole(op, dtype) for op in _WHOLE for dtype in ("int32", "int64")),
    _broadcast("row", Op.add, (2, 3), (3,), (2, 3)),
    _broadcast("column", Op.subtract, (2, 3), (2, 1), (2, 3)),
    _broadcast("both ways", Op.multiply, (2, 1, 3), (4, 1), (2, 4, 3)),
    _broadcast("first source is smaller", Op.divide, (1,), (2, 3, 2, 2), (2, 3, 2, 2)),
    _broadcast("channels", Op.pow, (2, 3, 2, 4), (1, 3, 1, 1), (2, 3, 2, 4)),
    _broadcast("channels, divideNoNaN", Op.divideNoNaN, (2, 3, 2, 4), (1, 3, 1, 1), (2, 3, 2, 4)),
    _broadcast("channels, multiplyNoNaN", Op.multiplyNoNaN, (1, 3, 1, 1), (2, 3, 2, 4), (2, 3, 2, 4)),
    _broadcast("rows, max", Op.max, (3, 4), (4,), (3, 4)),
    # The slope of x·y along y is x at y = 0 too.
    Record(
        "multiplyNoNaN, sparse", _layer(Op.multiplyNoNaN), [values(3, 4), _SPARSE], (3, 4), FORMULAS[Op.multiplyNoNaN]
    ),
    _measured(Op.subtract, [0, 0, 0, 0]),
    _measured(Op.multiply, [1, 4, 9, 16]),
    _measured(Op.divide, [1, 1, 1, 1]),
    _measured(Op.multiplyNoNaN, [1, 4, 9, 16]),
    _measured(Op.divideNoNaN, [1, 1, 1, 1]),
    _measured(Op.min, [1, 2, 3, 4]),
    _measured(Op.asin, [1.5707963267948966, _NAN, _NAN, _NAN]),
    _measured(Op.acos, [0, _NAN, _NAN, _NAN]),
    _measured(Op.atanh, [_INF, _NAN, _NAN, _NAN]),
]

_F, _I = ((2, 3), "float32"), ((2, 3), "int32")
REFUSALS = [
    Refusal("unknown operation", lambda: MLCArithmeticLayer(operation=30), "MLCArithmeticOperation"),
    Refusal("no broadcast", _layer(Op.add), "do not broadcast", [_F, ((2, 4), "float32")]),
    Refusal("two types", _layer(Op.add), "share one data type", [_F, _I]),
    Refusal("whole numbers divided", _layer(Op.divide), "int32", [_I, _I]),
    Refusal("sine of whole numbers", _layer(Op.sin), "int32", [_I]),
    Refusal("sum of Booleans", _layer(Op.add), "boolean", [((2,), "bool"), ((2,), "bool")]),
    # Measured for all thirty: the wrong number of sources is found at compile.
    *(
        Refusal(f"{op.name} of {n}", _layer(op), f"got {n}", [_F] * n, at_compile=True)
        for op in Op
        for n in (1 if op in TWO else 2, 3)
    ),
]
