"""Selection by a Boolean tensor."""

from __future__ import annotations

import numpy as np

from mlc_torch.layers.selection import MLCSelectionLayer, Select
from tests.layers.records import Record, Refusal, booleans, integers, values


def choose(condition, x, y):
    """Element by element, in a loop."""
    shape = np.broadcast_shapes(condition.shape, x.shape, y.shape)
    condition, x, y = (np.broadcast_to(a, shape) for a in (condition, x, y))
    result = np.empty(shape, x.dtype)
    for place in np.ndindex(shape):
        result[place] = x[place] if condition[place] else y[place]
    return result


def _record(name, condition, x, y, result, **kw) -> Record:
    return Record(
        name,
        lambda: MLCSelectionLayer(),
        [condition, x, y],
        result,
        choose,
        objc=None if np.isnan(x).any() else lambda: MLCSelectionLayer.layer(),  # NaN never equals NaN
        module=Select,
        **kw,
    )


_WHOLE = {"gradient": False, "half": False}
_AWKWARD = np.array([np.nan, np.inf, -np.inf, 0, -0.0, 3e38], np.float32)

RECORDS = [
    _record("elements", booleans(2, 3, 4), values(2, 3, 4), values(2, 3, 4, seed=1), (2, 3, 4)),
    _record("rows", booleans(3, 1), values(3, 4), values(3, 4, seed=1), (3, 4)),
    _record("columns", booleans(4), values(2, 3, 4), values(2, 3, 4, seed=1), (2, 3, 4)),
    _record("one number", booleans(2, 2, 3, 4), values(1), values(2, 2, 3, 4), (2, 2, 3, 4)),
    _record("the condition is largest", booleans(2, 3), values(2, 1), values(3), (2, 3)),
    _record("awkward numbers", booleans(6), _AWKWARD, _AWKWARD[::-1].copy(), (6,), **_WHOLE),
    *(
        _record(
            t,
            booleans(5),
            integers(5, below=9, dtype=t),
            integers(5, below=9, seed=1, dtype=t),
            (5,),
            result_type=t,
            **_WHOLE,
        )
        for t in ("int32", "int64", "int8", "uint8")
    ),
    _record("bool", booleans(5), booleans(5, seed=1), booleans(5, seed=2), (5,), result_type="bool", **_WHOLE),
    _record(
        "float16",
        booleans(5),
        values(5).astype("f2"),
        values(5, seed=1).astype("f2"),
        (5,),
        result_type="float16",
        **_WHOLE,
    ),
]

_B, _F = ((2, 3), "bool"), ((2, 3), "float32")
REFUSALS = [
    Refusal("two sources", MLCSelectionLayer, "3 sources", [_B, _F]),
    Refusal("condition of floats", MLCSelectionLayer, "condition", [_F, _F, _F]),
    Refusal("two types", MLCSelectionLayer, "share one data type", [_B, _F, ((2, 3), "int32")]),
    Refusal("no broadcast", MLCSelectionLayer, "do not broadcast", [((4,), "bool"), _F, _F]),
]
