"""All reductions, over one dimension and several, against NumPy."""

from __future__ import annotations

import itertools

import numpy as np

from mlc_torch.enums import MLCReductionType as Kind
from mlc_torch.layers import reduction as ours
from tests.layers.records import Record, Refusal, booleans, integers, values

L = ours.MLCReductionLayer


def position(find):
    """The index into the reduced dimensions, laid out in the order they are listed."""

    def reference(x, axes):
        shape = [1 if a in axes else n for a, n in enumerate(x.shape)]
        y = np.zeros(shape)
        for place in itertools.product(*map(range, shape)):
            line = [
                x[tuple(p if a not in axes else where[axes.index(a)] for a, p in enumerate(place))]
                for where in itertools.product(*(range(x.shape[a]) for a in axes))
            ]
            y[place] = find(line)
        return y

    return reference


FORMULAS = {
    Kind.sum: lambda x, axes: x.sum(axes, keepdims=True),
    Kind.mean: lambda x, axes: x.mean(axes, keepdims=True),
    Kind.max: lambda x, axes: x.max(axes, keepdims=True),
    Kind.min: lambda x, axes: x.min(axes, keepdims=True),
    Kind.argMax: position(np.argmax),
    Kind.argMin: position(np.argmin),
    Kind.l1Norm: lambda x, axes: np.abs(x).sum(axes, keepdims=True),
    Kind.any: lambda x, axes: (x != 0).any(axes, keepdims=True),
    Kind.all: lambda x, axes: (x != 0).all(axes, keepdims=True),
}
MODULES = {kind: getattr(ours, kind.name[0].upper() + kind.name[1:]) for kind in FORMULAS}
POSITIONS, LOGICAL = {Kind.argMax, Kind.argMin}, {Kind.any, Kind.all}


def reduced(name, x, kind, axes, **kw) -> Record:
    typed = {}
    if kind in LOGICAL:
        typed = {"result_type": "bool", "gradient": False}
    elif kind in POSITIONS:
        typed = {"gradient": False, "half": False}  # the result is float32 whatever the source is
    elif x.dtype.kind != "f":
        typed = {"gradient": False, "result_type": x.dtype.name}

    def objc():
        if len(axes) == 1:
            return L.layerWithReductionType_dimension_(kind, axes[0])
        return L.layerWithReductionType_dimensions_(kind, list(axes))

    return Record(
        f"{kind.name} of {name} over {axes}",
        lambda: (
            L(reductionType=kind, dimension=axes[0]) if len(axes) == 1 else L(reductionType=kind, dimensions=list(axes))
        ),
        [x],
        tuple(1 if a in axes else n for a, n in enumerate(x.shape)),
        lambda s: FORMULAS[kind](s, axes),
        objc=None if np.isnan(x).any() else objc,
        module=MODULES[kind],
        **{**typed, **kw},
    )


ONE_TO_FOUR = np.arange(1, 5, dtype=np.float32).reshape(1, 1, 2, 2)
AWKWARD = np.array(
    [
        [0, -0.5, 0.5, 2],
        [0, 0, 0, 0],
        [1e10, 3, 1, 1e10],
        [np.inf, 1, 2, 3],
        [-np.inf, 0, 1, 2],
        [1, np.nan, np.inf, 0],
    ],
    np.float32,
)
TIES = np.array([[1, 3, 3, 0], [0, 0, 5, 5], [-1, -1, -1, -1]], np.float32)
SPARSE = values(3, 4, 5) * (values(3, 4, 5, seed=1) > 1)

RECORDS = (
    [
        record
        for kind in FORMULAS
        for record in (
            reduced("rank 4", values(2, 3, 2, 4), kind, (1,)),
            reduced("rank 4", values(2, 3, 2, 4), kind, (2, 3)),
            reduced("rank 4", values(2, 3, 2, 4), kind, (3, 1)),
            reduced("rank 4", values(2, 3, 2, 3), kind, (0, 1, 2, 3)),
            reduced("rank 3", values(2, 3, 4), kind, (0,)),
            reduced("rank 2", values(3, 4), kind, (1,)),
            reduced("rank 1", values(5), kind, (0,)),
            reduced("one element", values(1, 1), kind, (0, 1)),
            reduced("size 1", values(2, 1, 3), kind, (1,)),
            reduced("awkward values", AWKWARD, kind, (1,), gradient=False, half=False),
            reduced("ties", TIES, kind, (1,), gradient=False),
            reduced("sparse values", SPARSE, kind, (0, 2), gradient=False),
        )
    ]
    + [
        reduced(f"{dtype}", integers(2, 3, 4, below=50, dtype=dtype) - 20, kind, axes)
        for dtype, axes in (("int32", (1,)), ("int64", (0, 2)))
        for kind in FORMULAS
        if kind is not Kind.mean
    ]
    + [
        reduced(f"{dtype}", integers(2, 3, 4, below=100, dtype=dtype), kind, (0, 2))
        for dtype in ("int8", "uint8")
        for kind in (Kind.max, Kind.min, Kind.argMax, Kind.argMin, Kind.any, Kind.all)
    ]
    + [reduced("Booleans", booleans(2, 3, 4), kind, axes) for kind in (Kind.any, Kind.all) for axes in ((2,), (0, 1))]
    + [
        Record(
            f"as measured, {kind.name} over {axes}",
            lambda kind=kind, axes=axes: L(reductionType=kind, dimensions=axes),
            [ONE_TO_FOUR],
            (1, 1, 1, 2),
            lambda x, answer=answer: np.reshape(answer, (1, 1, 1, 2)),
            gradient=kind not in POSITIONS,
            half=kind not in POSITIONS,
        )
        for kind, axes, answer in ((Kind.sum, [1, 2], [4, 6]), (Kind.max, [2], [3, 4]), (Kind.argMax, [2], [1, 1]))
    ]
)

REFUSALS = [
    Refusal("nothing to do", lambda: L(reductionType=Kind.none, dimension=1), "none"),
    Refusal("nothing to do, several", lambda: L(reductionType=Kind.none, dimensions=[1, 2]), "none"),
    Refusal("no dimensions", lambda: L(reductionType=Kind.sum, dimensions=[]), "empty"),
    Refusal("a dimension twice", lambda: L(reductionType=Kind.sum, dimensions=[1, 1]), "twice"),
    Refusal("unknown type", lambda: L(reductionType=10, dimension=0), "MLCReductionType"),
    Refusal("no such dimension", lambda: L(reductionType=Kind.sum, dimension=2), "dimension 2", [((2, 3), "float32")]),
    Refusal("negative", lambda: L(reductionType=Kind.max, dimensions=[0, -1]), "dimension -1", [((2, 3), "float32")]),
    Refusal("mean of integers", lambda: L(reductionType=Kind.mean, dimension=0), "int32", [((2, 3), "int32")]),
    Refusal("sum of bytes", lambda: L(reductionType=Kind.sum, dimension=0), "uint8", [((2, 3), "uint8")]),
    Refusal("sum of Booleans", lambda: L(reductionType=Kind.sum, dimension=0), "boolean", [((2, 3), "bool")]),
    Refusal("two sources", lambda: L(reductionType=Kind.sum, dimension=0), "1 source", [((2, 3), "float32")] * 2),
]
