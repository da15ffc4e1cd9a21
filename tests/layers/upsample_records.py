"""Upsampling, against positions written out for every pixel."""

from __future__ import annotations

import numpy as np
from torch import nn

from mlc_torch.enums import MLCSampleMode as Mode
from mlc_torch.layers.upsample import LinearUpsample, MLCUpsampleLayer, NearestUpsample
from tests.layers.records import Record, Refusal, values

L = MLCUpsampleLayer


def resample(x, axis, new, mode, aligned):
    old = x.shape[axis]
    if mode is Mode.nearest:
        return np.take(x, [i * old // new for i in range(new)], axis)
    if aligned:
        places = [i * (old - 1) / (new - 1) if new > 1 else 0.0 for i in range(new)]
    else:
        places = [min(max((i + 0.5) * old / new - 0.5, 0), old - 1) for i in range(new)]  # half-pixel centres
    pieces = []
    for place in places:
        low = int(place)
        high = min(low + 1, old - 1)
        share = place - low
        pieces.append(np.take(x, [low], axis) * (1 - share) + np.take(x, [high], axis) * share)
    return np.concatenate(pieces, axis)


def upsampled(x, shape, mode, aligned):
    for axis, new in enumerate(shape, start=x.ndim - len(shape)):
        x = resample(x, axis, new, mode, aligned)
    return x


MODULES = {
    (Mode.nearest, 1): NearestUpsample,
    (Mode.nearest, 2): NearestUpsample,
    (Mode.linear, 1): LinearUpsample,
    (Mode.linear, 2): nn.Upsample,
}


def upsample(name, x, shape, mode=Mode.nearest, aligned=False, **kw) -> Record:
    source = x if isinstance(x, np.ndarray) else values(*x)
    result = (*source.shape[: source.ndim - len(shape)], *shape)
    return Record(
        f"{name}, {mode.name}{', aligned' * aligned}",
        lambda: L(shape=shape, sampleMode=mode, alignsCorners=aligned),
        [source],
        result,
        lambda s: upsampled(s, shape, mode, aligned),
        objc=None
        if np.isnan(source).any()
        else lambda: L.layerWithShape_sampleMode_alignsCorners_(shape, mode, aligned),
        module=MODULES[mode, len(shape)],
        **{"atol": 1e-5, **kw},
    )


FORMS = [(Mode.nearest, False), (Mode.nearest, True), (Mode.linear, False), (Mode.linear, True)]

RECORDS = [
    record
    for mode, aligned in FORMS
    for record in (
        upsample("doubled", (2, 2, 3, 2), [6, 4], mode, aligned),
        upsample("tripled", (1, 2, 3, 2), [9, 6], mode, aligned),
        upsample("by uneven factors", (1, 2, 3, 5), [7, 8], mode, aligned),
        upsample("by 2 and by a fraction", (1, 1, 4, 3), [8, 5], mode, aligned),
        upsample("the width alone", (1, 2, 3, 4), [7], mode, aligned),
        upsample("the width alone, doubled", (1, 2, 3, 4), [8], mode, aligned),
        upsample("rank 3", (2, 3, 4), [6], mode, aligned),
        upsample("as it was", (1, 2, 3, 4), [3, 4], mode, aligned),
        upsample("smaller", (1, 2, 5, 6), [2, 4], mode, aligned),
        upsample("to one pixel", (1, 2, 5, 6), [1, 1], mode, aligned),
        upsample("from one pixel", (1, 2, 1, 1), [3, 2], mode, aligned),
    )
] + [
    # float32 quotients would be one pixel off here
    upsample("exact for every factor", np.arange(2, dtype=np.float32).reshape(1, 1, 1, 2), [1, 82]),
    upsample("exact for every fraction", np.arange(14, dtype=np.float32).reshape(1, 1, 1, 14), [1, 46]),
    upsample(
        "awkward values",
        np.array([0, -0.5, np.nan, np.inf, -np.inf, 3e38], np.float32).reshape(1, 1, 2, 3),
        [4, 5],
        gradient=False,
        half=False,
    ),
    Record(
        "short form",
        lambda: L(shape=[4, 2]),
        [np.arange(1, 3, dtype=np.float32).reshape(1, 1, 2, 1)],
        (1, 1, 4, 2),
        lambda x: np.reshape([1, 1, 1, 1, 2, 2, 2, 2], (1, 1, 4, 2)),
        objc=lambda: L.layerWithShape_([4, 2]),
        module=NearestUpsample,
    ),
]

REFUSALS = [
    Refusal("no sizes", lambda: L(shape=[]), "[width] or [height, width]"),
    Refusal("three sizes", lambda: L(shape=[1, 2, 3]), "[1, 2, 3]"),
    Refusal("size of zero", lambda: L(shape=[0, 2]), "at least 1"),
    Refusal(
        "rank 3 for two sizes", lambda: L(shape=[4, 4]), "[batch, channels, height, width]", [((1, 2, 2), "float32")]
    ),
    Refusal("rank 2", lambda: L(shape=[4]), "[batch, channels, width]", [((2, 2), "float32")]),
    Refusal("integers", lambda: L(shape=[4]), "int64", [((1, 1, 2, 2), "int64")]),
    Refusal("two sources", lambda: L(shape=[4]), "1 source", [((1, 1, 2, 2), "float32")] * 2),
]
