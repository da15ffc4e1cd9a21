"""Gram matrices, against sums over pixels."""

from __future__ import annotations

import numpy as np

from mlc_torch.layers.gram import GramMatrix, MLCGramMatrixLayer
from tests.layers.records import Record, Refusal, values


def gram(x, scale):
    batch, channels = x.shape[:2]
    y = np.zeros((batch, channels, 1, channels))
    for n in range(batch):
        for f in range(channels):
            for c in range(channels):
                y[n, f, 0, c] = scale * (x[n, f] * x[n, c]).sum()
    return y


def record(name, x, scale, **kw) -> Record:
    batch, channels = x.shape[:2]
    return Record(
        name,
        lambda: MLCGramMatrixLayer(scale=scale),
        [x],
        (batch, channels, 1, channels),
        lambda s: gram(s, scale),
        objc=None if np.isnan(x).any() else lambda: MLCGramMatrixLayer.layerWithScale_(scale),
        module=GramMatrix,
        **{"atol": 1e-5, **kw},
    )


RECORDS = [
    record("scale 1", values(2, 3, 3, 2), 1.0),
    record("scale 0.25", values(1, 5, 2, 2), 0.25),
    record("negative scale", values(3, 1, 2, 3), -2.0),
    record("one pixel", values(2, 4, 1, 1), 1.5),
    record("scale 0", values(1, 2, 2, 2), 0.0),
    record(
        "awkward values",
        np.array([0, -0.5, 1e10, 1, np.nan, 2, np.inf, 1], np.float32).reshape(1, 4, 1, 2),
        1.0,
        gradient=False,
        half=False,
    ),
    Record(
        "as measured",
        lambda: MLCGramMatrixLayer(scale=2),
        [np.arange(1, 5, dtype=np.float32).reshape(1, 1, 2, 2)],
        (1, 1, 1, 1),
        lambda x: np.full((1, 1, 1, 1), 60.0),
    ),
]

REFUSALS = [
    Refusal("rank", lambda: MLCGramMatrixLayer(scale=1), "[batch, channels, height, width]", [((2, 3, 4), "float32")]),
    Refusal("integers", lambda: MLCGramMatrixLayer(scale=1), "int32", [((1, 2, 3, 4), "int32")]),
    Refusal("two sources", lambda: MLCGramMatrixLayer(scale=1), "1 source", [((1, 2, 3, 4), "float32")] * 2),
]
