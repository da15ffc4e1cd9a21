"""The 12 comparisons and logical operations."""

from __future__ import annotations

import itertools

import numpy as np

from mlc_torch.enums import MLCComparisonOperation as Op
from mlc_torch.layers.comparison import Comparison, LogicalNot, MLCComparisonLayer
from tests.layers.records import Record, Refusal, booleans, integers, values

RELATIONS = {
    Op.equal: lambda x, y: x == y,
    Op.notEqual: lambda x, y: x != y,
    Op.less: lambda x, y: x < y,
    Op.greater: lambda x, y: x > y,
    Op.lessOrEqual: lambda x, y: x <= y,
    Op.greaterOrEqual: lambda x, y: x >= y,
}
# (False, False), (False, True), (True, False), (True, True)
TRUTH = {
    Op.logicalAND: [0, 0, 0, 1],
    Op.logicalOR: [0, 1, 1, 1],
    Op.logicalNAND: [1, 1, 1, 0],
    Op.logicalNOR: [1, 0, 0, 0],
    Op.logicalXOR: [0, 1, 1, 0],
    Op.logicalNOT: [1, 0],
}
_AWKWARD = np.array([0.0, -0.0, 1, -1, 0.5, -2.5, 1e-30, 1e30, -1e30, np.nan, np.inf, -np.inf], np.float32)
_HALF = np.clip(_AWKWARD, -6e4, 6e4).astype(np.float16)
_X, _Y = (np.array(column, bool) for column in zip(*itertools.product((False, True), repeat=2), strict=True))


def _record(name, op, sources, result, reference, module=Comparison) -> Record:
    return Record(
        name,
        lambda: MLCComparisonLayer(operation=op),
        sources,
        result,
        reference,
        objc=lambda: MLCComparisonLayer.layerWithOperation_(op),
        gradient=False,
        half=False,
        result_type="bool",
        module=module,
    )


def _relations(op):
    pairs = (_AWKWARD.size, _AWKWARD.size)
    relation = RELATIONS[op]
    few = integers(3, 4, below=3), integers(3, 4, below=3, seed=1)
    yield _record(f"{op.name}, awkward numbers", op, [_AWKWARD[:, None], _AWKWARD], pairs, relation)
    yield _record(f"{op.name}, float16", op, [_HALF[:, None], _HALF], pairs, relation)
    yield _record(f"{op.name}, rows", op, [values(2, 3, 4), values(3, 1, seed=1)], (2, 3, 4), relation)
    for dtype in ("int32", "int64", "int8", "uint8"):
        yield _record(f"{op.name}, {dtype}", op, [f.astype(dtype) for f in few], (3, 4), relation)


def _logic(op):
    if op is Op.logicalNOT:
        table = np.array([False, True])
        yield _record(op.name, op, [table], (2,), lambda x: np.array(TRUTH[op], bool), LogicalNot)
        yield _record(f"{op.name}, larger", op, [booleans(2, 3)], (2, 3), lambda x: x == 0, LogicalNot)
        return
    table = np.array(TRUTH[op], bool).reshape(2, 2)
    yield _record(op.name, op, [_X, _Y], (4,), lambda x, y: table.reshape(-1))
    wide = [booleans(2, 1, 4), booleans(3, 1, seed=1)]
    yield _record(f"{op.name}, broadcast", op, wide, (2, 3, 4), lambda x, y: table[x * 1, y * 1])


def _measured(op, expected):
    x = np.array([[[[1, 2], [3, 4]]]], np.float32)
    want = np.full(x.shape, expected)
    return _record(f"measured {op.name}", op, [x, x], x.shape, lambda x, y: want)


RECORDS = [
    *(record for op in RELATIONS for record in _relations(op)),
    *(record for op in TRUTH for record in _logic(op)),
    _record("equal Booleans", Op.equal, [_X, _Y], (4,), lambda x, y: np.array([True, False, False, True])),
    _measured(Op.lessOrEqual, True),
    _measured(Op.greaterOrEqual, True),
    _measured(Op.notEqual, False),
    _measured(Op.greater, False),
]

_F, _B = ((2, 3), "float32"), ((2, 3), "bool")


def _layer(op):
    return lambda: MLCComparisonLayer(operation=op)


REFUSALS = [
    Refusal("unknown operation", lambda: MLCComparisonLayer(operation=12), "MLCComparisonOperation"),
    Refusal("two types", _layer(Op.less), "share one data type", [_F, ((2, 3), "int32")]),
    Refusal("no broadcast", _layer(Op.less), "do not broadcast", [_F, ((2, 4), "float32")]),
    Refusal("one source", _layer(Op.equal), "2 sources", [_F], at_compile=True),
    Refusal("NOT of two", _layer(Op.logicalNOT), "1 source", [_B, _B], at_compile=True),
    # Measured: these did not compile with two float sources.
    *(
        Refusal(
            f"{op.name} of floats", _layer(op), "float32", [_F] * (1 if op is Op.logicalNOT else 2), at_compile=True
        )
        for op in TRUTH
    ),
]
