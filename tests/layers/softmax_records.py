"""Softmax and its logarithm along every dimension."""

from __future__ import annotations

import numpy as np
from torch import nn

from mlc_torch.enums import MLCSoftmaxOperation as Kind
from mlc_torch.layers.softmax import MLCSoftmaxLayer
from tests.layers.records import Record, Refusal, values

L = MLCSoftmaxLayer


def log_softmax(x, axis):
    x = x - x.max(axis, keepdims=True)
    return x - np.log(np.exp(x).sum(axis, keepdims=True))


FORMULAS = {Kind.softmax: lambda x, axis: np.exp(log_softmax(x, axis)), Kind.logSoftmax: log_softmax}
MODULES = {Kind.softmax: nn.Softmax, Kind.logSoftmax: nn.LogSoftmax}


def softmax(name, x, kind, dimension, **kw) -> Record:
    return Record(
        f"{name}, {kind.name} along {dimension}",
        lambda: L(operation=kind, dimension=dimension),
        [x],
        x.shape,
        lambda s: FORMULAS[kind](s, dimension),
        objc=None if np.isnan(x).any() else lambda: L.layerWithOperation_dimension_(kind, dimension),
        module=MODULES[kind],
        **kw,
    )


def default(name, x, kind, reference=None) -> Record:
    return Record(
        f"{name}, {kind.name}",
        lambda: L(operation=kind),
        [x],
        x.shape,
        reference or (lambda s: FORMULAS[kind](s, 1)),
        objc=lambda: L.layerWithOperation_(kind),
    )


ONE_TO_FOUR = np.arange(1, 5, dtype=np.float32).reshape(1, 1, 2, 2)
LARGE = np.array([[1000, 1001, 999], [-1000, -1001, -3], [0, 0, 0], [-0.5, 88.8, 1e10]], np.float32)
LOST = np.array([[np.nan, 1, 2], [np.inf, 0, 1], [-np.inf, 0, 1], [-np.inf, -np.inf, -np.inf]], np.float32)

RECORDS = [
    record
    for kind in Kind
    for record in (
        *(
            softmax(f"rank {len(shape)}", values(*shape), kind, d)
            for shape in ((7,), (3, 5), (2, 3, 4), (2, 3, 2, 4))
            for d in range(len(shape))
        ),
        softmax("one class", values(3, 1), kind, 1),
        softmax("large values", LARGE, kind, 1, gradient=False, half=False),
        softmax("no numbers and infinities", LOST, kind, 1, gradient=False, half=False),
        default("classes of images", values(2, 5, 1, 1), kind),
        default("the default is dimension 1", values(3, 4), kind),
    )
] + [
    default("as measured", ONE_TO_FOUR, Kind.softmax, np.ones_like),
    default("as measured", ONE_TO_FOUR, Kind.logSoftmax, np.zeros_like),
]

REFUSALS = [
    Refusal("no such dimension", lambda: L(operation=Kind.softmax, dimension=2), "dimension 2", [((2, 3), "float32")]),
    Refusal(
        "negative dimension", lambda: L(operation=Kind.softmax, dimension=-1), "dimension -1", [((2, 3), "float32")]
    ),
    Refusal("default needs two dimensions", lambda: L(operation=Kind.softmax), "dimension 1", [((3,), "float32")]),
    Refusal("integers", lambda: L(operation=Kind.softmax), "int32", [((2, 3), "int32")]),
    Refusal("two sources", lambda: L(operation=Kind.softmax), "1 source", [((2, 3), "float32")] * 2),
    Refusal("unknown operation", lambda: L(operation=10), "MLCSoftmaxOperation"),
]
