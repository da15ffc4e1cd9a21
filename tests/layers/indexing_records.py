"""Gather and scatter, against loops over the indices."""

from __future__ import annotations

import numpy as np

from mlc_torch.enums import MLCReductionType as Reduction
from mlc_torch.layers.indexing import Gather, MLCGatherLayer, MLCScatterLayer, Scatter
from tests.layers.records import Record, Refusal, booleans, integers, values


def fetch(x, indices, dimension):
    """One element, or one slice, for each index."""
    if indices.ndim == x.ndim:
        result = np.empty(indices.shape, x.dtype)
        for place in np.ndindex(*indices.shape):
            result[place] = x[(*place[:dimension], indices[place], *place[dimension + 1 :])]
        return result
    return np.stack([np.take(x, i, dimension) for i in indices], dimension)


def write(updates, indices, copy_from, dimension, adds):
    result = copy_from.copy()
    for place in np.ndindex(*updates.shape):
        index = indices[place] if indices.ndim == updates.ndim else indices[place[dimension]]
        at = (*place[:dimension], index, *place[dimension + 1 :])
        result[at] = result[at] + updates[place] if adds else updates[place]
    return result


def gather(name, x, indices, dimension, result, **kw) -> Record:
    return Record(
        f"gather {name}",
        lambda: MLCGatherLayer(dimension=dimension),
        [values(*x) if isinstance(x, tuple) else x, indices],
        result,
        lambda x, i: fetch(x, i, dimension),
        objc=lambda: MLCGatherLayer.layerWithDimension_(dimension),
        module=Gather,
        **kw,
    )


def scatter(name, updates, indices, copy_from, dimension, reduction=Reduction.none, **kw) -> Record:
    sources = [values(*a, seed=i) if isinstance(a, tuple) else a for i, a in enumerate((updates, copy_from))]
    return Record(
        f"scatter {name}, {reduction.name}",
        lambda: MLCScatterLayer(dimension=dimension, reductionType=reduction),
        [sources[0], indices, sources[1]],
        sources[1].shape,
        lambda u, i, c: write(u, i, c, dimension, reduction is Reduction.sum),
        objc=lambda: MLCScatterLayer.layerWithDimension_reductionType_(dimension, reduction),
        module=Scatter,
        **kw,
    )


def distinct(*shape, below, dimension, seed=0, dtype="int32"):
    """Indices that name no place twice along ``dimension``."""
    draw = np.random.default_rng([seed, *shape])
    moved = np.moveaxis(np.empty(shape, dtype), dimension, -1)
    for place in np.ndindex(*moved.shape[:-1]):
        moved[place] = draw.permutation(below)[: moved.shape[-1]]
    return np.moveaxis(moved, -1, dimension).copy()


def _typed(name):
    return {"gradient": False, "half": False, "result_type": name}


_TENS = np.arange(10, 90, 10, dtype=np.float32)
_PLACES = np.array([1, 3, 7, 5], np.int32)
_TYPES = ["float16", "int32", "int64", "int8", "uint8"]


def _of(name, *shape, seed=0):
    return booleans(*shape, seed=seed) if name == "bool" else integers(*shape, below=90, seed=seed, dtype=name)


RECORDS = [
    # Apple's own example of the two functions in BNNS.
    gather("documented", _TENS, _PLACES, 0, (4,)),
    scatter("documented", np.array([2, 4, 6, 8], np.float32), _PLACES, _TENS, 0, Reduction.sum, half=False),
    gather("slices", (3, 4), integers(5, below=3), 0, (5, 4)),
    gather("slices, second dimension", (2, 3, 4), integers(2, below=3), 1, (2, 2, 4)),
    gather("slices, last of four", (2, 3, 2, 4), integers(6, below=4, dtype="int64"), 3, (2, 3, 2, 6)),
    gather("elements", (3, 4), integers(3, 2, below=4), 1, (3, 2)),
    gather("elements, longer", (3, 4), integers(7, 4, below=3, dtype="int64"), 0, (7, 4)),
    gather("elements, fewer rows", (3, 4), integers(2, 6, below=4), 1, (2, 6)),
    gather("elements, four dimensions", (2, 3, 4, 2), integers(2, 3, 3, 2, below=4), 2, (2, 3, 3, 2)),
    *(gather(t, _of(t, 3, 4), integers(3, 2, below=4), 1, (3, 2), **_typed(t)) for t in [*_TYPES, "bool"]),
    *(gather(f"slices, {t}", _of(t, 3, 4), integers(2, below=4), 1, (3, 2), **_typed(t)) for t in [*_TYPES, "bool"]),
    scatter("one dimension", (3,), distinct(3, below=5, dimension=0), (5,), 0),
    scatter("slices", (2, 4), distinct(2, below=3, dimension=0), (3, 4), 0),
    scatter("slices, second dimension", (2, 2, 4), distinct(2, below=3, dimension=0, dtype="int64"), (2, 3, 4), 1),
    scatter("slices", (5, 4), integers(5, below=3), (3, 4), 0, Reduction.sum),
    scatter("slices, last of four", (2, 3, 2, 5), integers(5, below=4, dtype="int64"), (2, 3, 2, 4), 3, Reduction.sum),
    scatter("elements", (3, 2), distinct(3, 2, below=4, dimension=1), (3, 4), 1),
    scatter("elements, fewer rows", (2, 4), distinct(2, 4, below=4, dimension=1, dtype="int64"), (3, 4), 1),
    scatter("elements", (3, 6), integers(3, 6, below=4), (3, 4), 1, Reduction.sum),
    scatter("elements, four dimensions", (2, 2, 3, 2), integers(2, 2, 3, 2, below=5), (2, 3, 5, 2), 2, Reduction.sum),
    *(
        scatter(t, _of(t, 3, 2), distinct(3, 2, below=4, dimension=1), _of(t, 3, 4, seed=1), 1, **_typed(t))
        for t in [*_TYPES, "bool"]
    ),
    *(
        scatter(
            f"slices, {t}",
            _of(t, 3, 2) % 20,
            distinct(2, below=4, dimension=0),
            _of(t, 3, 4, seed=1),
            1,
            Reduction.sum,
            **_typed(t),
        )
        for t in _TYPES
    ),
]

_F, _I = ((3, 4), "float32"), ((3, 4), "int32")


def _gather(dimension=1):
    return lambda: MLCGatherLayer(dimension=dimension)


def _scatter(dimension=1, reduction=Reduction.sum):
    return lambda: MLCScatterLayer(dimension=dimension, reductionType=reduction)


REFUSALS = [
    Refusal("gather before 0", _gather(-1), "negative"),
    Refusal("gather, one source", _gather(), "2 sources", [_F]),
    Refusal("gather, float indices", _gather(), "indices", [_F, _F]),
    Refusal("gather, small indices", _gather(), "int8", [_F, ((3, 4), "int8")]),
    Refusal("gather past the rank", _gather(2), "dimension 2", [_F, _I]),
    Refusal("gather, rank of indices", _gather(), "one dimension", [((3, 4, 5), "float32"), _I]),
    Refusal("gather, indices beyond", _gather(), "beyond", [_F, ((4, 4), "int32")]),
    Refusal("scatter before 0", _scatter(-1), "negative"),
    *(
        Refusal(f"scatter {r.name}", _scatter(1, r), "none or sum")
        for r in Reduction
        if r not in (Reduction.none, Reduction.sum)
    ),
    Refusal("scatter, two sources", _scatter(), "3 sources", [_F, _I]),
    Refusal("scatter, float indices", _scatter(), "indices", [_F, _F, _F]),
    Refusal("scatter past the rank", _scatter(2), "dimension 2", [_F, _I, _F]),
    Refusal("scatter, types", _scatter(), "share one data type", [_I, _I, _F]),
    Refusal("scatter, Booleans", _scatter(), "cannot be added", [((3, 4), "bool"), _I, ((3, 4), "bool")]),
    Refusal("scatter, ranks", _scatter(), "differ in rank", [((4,), "float32"), ((4,), "int32"), _F]),
    Refusal(
        "scatter, rank of indices", _scatter(), "one dimension", [((3, 4, 5), "float32"), _I, ((3, 4, 5), "float32")]
    ),
    Refusal("scatter, indices unlike source", _scatter(), "shape of the source", [_F, ((3, 3), "int32"), _F]),
    Refusal("scatter, source too large", _scatter(), "does not fit", [((4, 4), "float32"), ((4, 4), "int32"), _F]),
    Refusal("scatter, slices", _scatter(), "does not fit", [((3, 2), "float32"), ((3,), "int32"), _F]),
]
