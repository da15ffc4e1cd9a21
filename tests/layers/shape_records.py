"""Reshape, transpose, slice, concatenation and split."""

from __future__ import annotations

import itertools

import numpy as np

from mlc_torch.layers.joining import Chunk, Concatenate, MLCConcatenationLayer, MLCSplitLayer, Sections
from mlc_torch.layers.shape import (
    MLCReshapeLayer,
    MLCSliceLayer,
    MLCTransposeLayer,
    Permute,
    Reshape,
    Slice,
)
from tests.layers.records import Record, Refusal, booleans, integers, values


def refill(x, shape):
    """The elements in reading order, put one by one into the new shape."""
    result = np.empty(shape, x.dtype)
    for place, value in zip(np.ndindex(*shape), x.flat, strict=True):
        result[place] = value
    return result


def reshape(name, x, shape, result=None, **kw) -> Record:
    result = result or shape
    return Record(
        f"reshape {name}",
        lambda: MLCReshapeLayer(shape=list(shape)),
        [values(*x) if isinstance(x, tuple) else x],
        result,
        lambda x: refill(x, result),
        objc=lambda: MLCReshapeLayer.layerWithShape_(list(shape)),
        module=Reshape,
        **kw,
    )


def permuted(x, dimensions):
    result = np.empty([x.shape[d] for d in dimensions], x.dtype)
    for place in np.ndindex(*x.shape):
        result[tuple(place[d] for d in dimensions)] = x[place]
    return result


def transpose(x, dimensions, **kw) -> Record:
    return Record(
        f"transpose {dimensions}",
        lambda: MLCTransposeLayer(dimensions=list(dimensions)),
        [values(*x) if isinstance(x, tuple) else x],
        tuple(np.empty(x if isinstance(x, tuple) else x.shape).transpose(dimensions).shape),
        lambda x: permuted(x, dimensions),
        objc=lambda: MLCTransposeLayer.layerWithDimensions_(list(dimensions)),
        module=Permute,
        **kw,
    )


def cut(x, start, end, stride):
    for axis, ends in enumerate(zip(start, end, stride or [1] * len(start), strict=True)):
        x = np.take(x, list(range(*ends)), axis)
    return x


def slices(name, x, start, end, stride, result, **kw) -> Record:
    return Record(
        f"slice {name}",
        lambda: MLCSliceLayer(start=start, end=end, stride=stride),
        [values(*x) if isinstance(x, tuple) else x],
        result,
        lambda x: cut(x, start, end, stride),
        objc=lambda: MLCSliceLayer.sliceLayerWithStart_end_stride_(start, end, stride),
        module=Slice,
        **kw,
    )


def concatenate(name, xs, dimension, result, **kw) -> Record:
    plain = dimension is None
    axis = 1 if plain else dimension
    sources = [values(*x, seed=i) if isinstance(x, tuple) else x for i, x in enumerate(xs)]
    return Record(
        f"concatenate {name}",
        lambda: MLCConcatenationLayer() if plain else MLCConcatenationLayer(dimension=dimension),
        sources,
        result,
        lambda *s: np.concatenate(s, axis),
        objc=lambda: MLCConcatenationLayer.layer() if plain else MLCConcatenationLayer.layerWithDimension_(dimension),
        module=Concatenate,
        **kw,
    )


def split(name, x, dimension, result, count=None, lengths=None, **kw) -> Record:
    """The parts one after the other, with the lengths that ``result`` states."""

    def reference(x):
        ends = list(itertools.accumulate((shape[dimension] for shape in result), initial=0))
        return tuple(np.take(x, range(a, b), dimension) for a, b in itertools.pairwise(ends))

    return Record(
        f"split {name}",
        lambda: (
            MLCSplitLayer(splitCount=count, dimension=dimension)
            if lengths is None
            else MLCSplitLayer(splitSectionLengths=lengths, dimension=dimension)
        ),
        [values(*x) if isinstance(x, tuple) else x],
        result,
        reference,
        objc=lambda: (
            MLCSplitLayer.layerWithSplitCount_dimension_(count, dimension)
            if lengths is None
            else MLCSplitLayer.layerWithSplitSectionLengths_dimension_(lengths, dimension)
        ),
        module=Chunk if lengths is None else Sections,
        **kw,
    )


def _every_type(make):
    """The same layer on each type that is not float32."""
    for name in ("float16", "int32", "int64", "int8", "uint8"):
        yield make(integers(2, 6, below=90, dtype=name), name)
    yield make(booleans(2, 6), "bool")


def _typed(name):
    return {"gradient": False, "half": False, "result_type": name}


_1234 = np.array([[[[1, 2], [3, 4]]]], np.float32)

RECORDS = [
    reshape("flat", (2, 3), (6,)),
    reshape("to four dimensions", (2, 12), (2, 3, 2, 2)),
    reshape("to [N, C, 1, 1]", (2, 3, 2, 2), (2, 12, 1, 1)),
    reshape("-1 first", (2, 3, 4), (-1, 4), (6, 4)),
    reshape("-1 last", (2, 3, 4), (2, -1), (2, 12)),
    reshape("-1 in the middle", (2, 3, 4), (4, -1, 2), (4, 3, 2)),
    reshape("-1 stands for 1", (2, 3), (2, -1, 3), (2, 1, 3)),
    reshape("-1 alone", (2, 3), (-1,), (6,)),
    reshape("measured", _1234, (1, 4)),
    *_every_type(lambda x, t: reshape(t, x, (3, 4), **_typed(t))),
    transpose((2, 3), (1, 0)),
    transpose((3,), (0,)),
    transpose((2, 3, 4), (2, 0, 1)),
    transpose((2, 3, 4, 5), (0, 2, 3, 1)),
    transpose((2, 5, 3, 4), (0, 3, 1, 2)),
    transpose((2, 3, 4, 5), (3, 2, 1, 0)),
    transpose((2, 3, 2, 3), (0, 1, 2, 3)),
    transpose(np.array([[[1, 2], [3, 4]]], np.float32), (0, 2, 1)),  # measured: 1 3 2 4
    *_every_type(lambda x, t: transpose(x, (1, 0), **_typed(t))),
    slices("all", (2, 3), [0, 0], [2, 3], None, (2, 3)),
    slices("one dimension", (7,), [2], [6], [1], (4,)),
    slices("strided", (3, 7), [0, 1], [3, 7], [2, 3], (2, 2)),
    slices("stride beyond the end", (3, 7), [1, 2], [3, 5], [9, 9], (1, 1)),
    slices("image", (2, 3, 6, 5), [0, 1, 2, 0], [2, 3, 6, 5], [1, 1, 2, 4], (2, 2, 2, 2)),
    slices("nil stride", (2, 3, 4), [1, 0, 3], [2, 2, 4], None, (1, 2, 1)),
    slices("measured", _1234, [0, 0, 1, 1], [1, 1, 2, 2], [1, 1, 1, 1], (1, 1, 1, 1)),
    *_every_type(lambda x, t: slices(t, x, [0, 1], [2, 6], [1, 2], (2, 3), **_typed(t))),
    concatenate("default", [(2, 3), (2, 3)], None, (2, 6)),
    concatenate("first dimension", [(2, 3), (2, 3)], 0, (4, 3)),
    concatenate("many", [(2, 3, 2), (2, 1, 2), (2, 4, 2)], 1, (2, 8, 2)),
    concatenate("last of four", [(2, 3, 2, 1), (2, 3, 2, 5)], 3, (2, 3, 2, 6)),
    concatenate("one source", [(2, 3)], 1, (2, 3)),
    concatenate("one dimension", [(2,), (3,)], 0, (5,)),
    *_every_type(lambda x, t: concatenate(t, [x, x], 1, (2, 12), **_typed(t))),
    split("evenly", (2, 6), 1, [(2, 3), (2, 3)], count=2),
    split("with a rest", (2, 3), 1, [(2, 2), (2, 1)], count=2),
    split("capped", (2, 3), 0, [(1, 3), (1, 3)], count=3),
    split("into fewer", (5, 2), 0, [(2, 2), (2, 2), (1, 2)], count=4),
    split("inside", (2, 3, 4), 1, [(2, 2, 4), (2, 1, 4)], count=2),
    split("into one", (2, 3), 1, [(2, 3)], count=1),
    split("lengths", (2, 6), 1, [(2, 1), (2, 3), (2, 2)], lengths=[1, 3, 2]),
    split("lengths, first of four", (5, 2, 1, 2), 0, [(4, 2, 1, 2), (1, 2, 1, 2)], lengths=[4, 1]),
    split("one length", (2, 3), 0, [(2, 3)], lengths=[2]),
    split("measured", _1234, 2, [(1, 1, 1, 2), (1, 1, 1, 2)], count=2),
    *_every_type(lambda x, t: split(t, x, 1, [(2, 2), (2, 4)], lengths=[2, 4], **_typed(t))),
]

_F = ((2, 3), "float32")
REFUSALS = [
    Refusal("reshape to nothing", lambda: MLCReshapeLayer(shape=[]), "empty"),
    Refusal("reshape to 0", lambda: MLCReshapeLayer(shape=[2, 0]), "at least 1"),
    Refusal("reshape to -2", lambda: MLCReshapeLayer(shape=[2, -2]), "at least 1"),
    Refusal("reshape to two unknowns", lambda: MLCReshapeLayer(shape=[-1, -1]), "once"),
    Refusal("reshape to five dimensions", lambda: MLCReshapeLayer(shape=[1, 1, 1, 1, 6]), "at most 4"),
    Refusal("reshape, two sources", lambda: MLCReshapeLayer(shape=[6]), "1 source", [_F, _F]),
    Refusal("reshape, -1 has no value", lambda: MLCReshapeLayer(shape=[4, -1]), "does not divide", [_F]),
    Refusal("reshape, count", lambda: MLCReshapeLayer(shape=[7]), "7 elements", [_F], at_compile=True),
    Refusal("transpose nothing", lambda: MLCTransposeLayer(dimensions=[]), "each of 0, 1, 2"),
    Refusal("transpose twice the same", lambda: MLCTransposeLayer(dimensions=[0, 0]), "each of 0, 1, 2"),
    Refusal("transpose past the rank", lambda: MLCTransposeLayer(dimensions=[0, 2]), "each of 0, 1, 2"),
    Refusal("transpose backwards", lambda: MLCTransposeLayer(dimensions=[0, -1]), "each of 0, 1, 2"),
    Refusal("transpose too short", lambda: MLCTransposeLayer(dimensions=[0]), "do not fit", [_F]),
    Refusal("transpose too long", lambda: MLCTransposeLayer(dimensions=[0, 1, 2]), "do not fit", [_F]),
    Refusal("slice lengths", lambda: MLCSliceLayer(start=[0], end=[1, 1], stride=None), "equally long"),
    Refusal("slice stride length", lambda: MLCSliceLayer(start=[0], end=[1], stride=[1, 1]), "equally long"),
    Refusal("slice of nothing", lambda: MLCSliceLayer(start=[], end=[], stride=None), "not empty"),
    Refusal("slice stride 0", lambda: MLCSliceLayer(start=[0], end=[1], stride=[0]), "stride"),
    Refusal("slice backwards", lambda: MLCSliceLayer(start=[1], end=[1], stride=[1]), "below its end"),
    Refusal("slice before 0", lambda: MLCSliceLayer(start=[-1], end=[1], stride=[1]), "from 0 on"),
    Refusal("slice rank", lambda: MLCSliceLayer(start=[0], end=[1], stride=None), "1 entries", [_F]),
    Refusal("slice too far", lambda: MLCSliceLayer(start=[0, 0], end=[2, 4], stride=None), "beyond", [_F]),
    Refusal("concatenate before 0", lambda: MLCConcatenationLayer(dimension=-1), "negative"),
    Refusal("concatenate past the rank", lambda: MLCConcatenationLayer(dimension=3), "dimension 3", [_F, _F]),
    Refusal("concatenate sizes", MLCConcatenationLayer, "agree", [_F, ((3, 3), "float32")]),
    Refusal("concatenate ranks", MLCConcatenationLayer, "agree", [_F, ((2, 3, 1), "float32")]),
    Refusal("concatenate types", MLCConcatenationLayer, "share one data type", [_F, ((2, 3), "int32")]),
    Refusal("split into 0", lambda: MLCSplitLayer(splitCount=0, dimension=0), "splitCount"),
    Refusal("split before 0", lambda: MLCSplitLayer(splitCount=2, dimension=-1), "negative"),
    Refusal("split lengths before 0", lambda: MLCSplitLayer(splitSectionLengths=[1], dimension=-1), "negative"),
    Refusal("split by no lengths", lambda: MLCSplitLayer(splitSectionLengths=[], dimension=0), "empty"),
    Refusal("split by a length of 0", lambda: MLCSplitLayer(splitSectionLengths=[2, 0], dimension=0), "at least 1"),
    Refusal("split past the rank", lambda: MLCSplitLayer(splitCount=2, dimension=2), "dimension 2", [_F]),
    Refusal(
        "split lengths",
        lambda: MLCSplitLayer(splitSectionLengths=[1, 3], dimension=1),
        "add up to 4",
        [_F],
        at_compile=True,
    ),
]
