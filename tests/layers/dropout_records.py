"""Dropout where it drops nothing; what it does in training is in ``test_dropout.py``."""

from __future__ import annotations

import numpy as np

from mlc_torch.layers.dropout import MLCDropoutLayer
from mlc_torch.layers.noise import Dropout
from tests.layers.records import Record, Refusal, values

L = MLCDropoutLayer


def record(name, x, rate, seed, **kw) -> Record:
    return Record(
        name,
        lambda: L(rate=rate, seed=seed),
        [x],
        x.shape,
        lambda s: s,
        objc=None if np.isnan(x).any() else lambda: L.layerWithRate_seed_(rate, seed),
        module=Dropout,
        **kw,
    )


AWKWARD = np.array([0, -0.5, np.nan, np.inf, -np.inf, 3e38], np.float32)

RECORDS = [
    record("in inference", values(2, 3, 2, 3), 0.5, 0),
    record("in inference, nearly all", values(3, 4), 0.999, 7),
    record("rate 0 in training", np.arange(1, 5, dtype=np.float32).reshape(1, 1, 2, 2), 0.0, 7, training=True),
    record("rate 0 in training, own seed 0", values(5), 0.0, 0, training=True),
    record("awkward values", AWKWARD, 0.5, 3, gradient=False, half=False),
]

REFUSALS = [
    Refusal("rate 1", lambda: L(rate=1, seed=0), "from 0 to below 1"),
    Refusal("negative rate", lambda: L(rate=-0.1, seed=0), "got -0.1"),
    Refusal("rate is no number", lambda: L(rate=float("nan"), seed=0), "nan"),
    Refusal("integers", lambda: L(rate=0.5, seed=0), "int32", [((2, 3), "int32")]),
    Refusal("two sources", lambda: L(rate=0.5, seed=0), "1 source", [((2, 3), "float32")] * 2),
]
