"""Shapes the real framework gave, smaller batches, and any slice, split, transposition and reshape."""

from __future__ import annotations

import copy
import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from mlc_torch import MLCDevice, MLCGraph, MLCInferenceGraph, MLCTensor, last_refusal
from mlc_torch.layers.joining import MLCConcatenationLayer, MLCSplitLayer
from mlc_torch.layers.shape import MLCReshapeLayer, MLCSliceLayer, MLCTransposeLayer
from mlc_torch.layers.sharing import MixesSamples
from mlc_torch.refusals import MLCRefusal
from tests.layers.records import descriptor
from tests.layers.shape_records import cut, permuted


def inferred(layer, *shapes):
    return [d.shape for d in layer._infer([descriptor(s) for s in shapes])]


@pytest.mark.parametrize(
    ("make", "sources", "results"),
    [
        (lambda: MLCConcatenationLayer(dimension=1), [(2, 3), (2, 3)], [[2, 6]]),
        (lambda: MLCConcatenationLayer(dimension=0), [(2, 3), (2, 3)], [[4, 3]]),
        (lambda: MLCReshapeLayer(shape=[6]), [(2, 3)], [[6]]),
        (lambda: MLCReshapeLayer(shape=[7]), [(2, 3)], [[7]]),  # the count is not looked at yet
        (lambda: MLCTransposeLayer(dimensions=[1, 0]), [(2, 3)], [[3, 2]]),
        (lambda: MLCSplitLayer(splitCount=2, dimension=1), [(2, 3)], [[2, 2], [2, 1]]),
        (lambda: MLCSplitLayer(splitCount=3, dimension=0), [(2, 3)], [[1, 3], [1, 3]]),
        (lambda: MLCSplitLayer(splitCount=2, dimension=1), [(2, 3, 4)], [[2, 2, 4], [2, 1, 4]]),
        (lambda: MLCSplitLayer(splitSectionLengths=[4, 4], dimension=1), [(2, 3)], [[2, 4], [2, 4]]),
    ],
)
def test_measured_shapes(make, sources, results):
    assert inferred(make(), *sources) == results


@pytest.mark.parametrize(
    ("make", "sources"),
    [
        (lambda: MLCConcatenationLayer(dimension=3), [(2, 3), (2, 3)]),  # NSRangeException there
        (lambda: MLCTransposeLayer(dimensions=[0]), [(2, 3)]),
        (MLCConcatenationLayer, []),
    ],
)
def test_measured_refusals(make, sources):
    with pytest.raises(MLCRefusal):
        inferred(make(), *sources)


def test_properties_are_lists_of_ones_own():
    reshape, transpose = MLCReshapeLayer(shape=[2, -1]), MLCTransposeLayer(dimensions=[1, 0])
    part, plain = MLCSliceLayer(start=[0], end=[2], stride=[1]), MLCSliceLayer(start=[0], end=[2], stride=None)
    split = MLCSplitLayer(splitSectionLengths=[1, 3], dimension=1)
    for layer, name, value in [
        (reshape, "shape", [2, -1]),
        (transpose, "dimensions", [1, 0]),
        (part, "start", [0]),
        (part, "end", [2]),
        (part, "stride", [1]),
        (split, "splitSectionLengths", [1, 3]),
    ]:
        getattr(layer, name).append(9)
        assert getattr(layer, name) == value
    assert plain.stride is None
    assert split.splitCount == 2 and split.dimension == 1
    counted = MLCSplitLayer(splitCount=5, dimension=0)
    assert counted.splitCount == 5 and counted.splitSectionLengths is None
    assert MLCConcatenationLayer().dimension == 1


@pytest.mark.parametrize(
    ("source", "shape", "smaller", "result"),
    [
        ((8, 3, 4), [8, 12], 5, (5, 12)),
        ((8, 3, 4), [8, 12, 1, 1], 1, (1, 12, 1, 1)),
        ((8, 3, 4), [-1, 12], 5, (5, 12)),
        ((8, 3, 4), [24, 4], 5, (15, 4)),
        ((8, 3, 4), [8, -1], 4, (4, 12)),  # and not [8, 6]
        ((8, 3, 4), [8, 2, -1], 4, (4, 2, 6)),
        ((8, 12), [96], 5, (60,)),
    ],
)
def test_a_reshape_takes_a_smaller_batch(source, shape, smaller, result):
    layer = MLCReshapeLayer(shape=shape)
    layer._note_sources([descriptor(source)])
    x = torch.arange(math.prod(source)).reshape(source)
    whole, part = layer.module(x), layer.module(x[:smaller])
    assert part.shape == result
    assert torch.equal(part, whole[: result[0]])
    assert torch.equal(copy.deepcopy(layer.module)(x[:smaller]), part)


def test_one_reshape_may_serve_sources_of_two_shapes():
    layer = MLCReshapeLayer(shape=[4, -1])
    for shape in [(4, 6), (4, 2, 5)]:
        layer._note_sources([descriptor(shape)])
    assert layer.module(torch.zeros(3, 6)).shape == (3, 6)
    assert layer.module(torch.zeros(3, 2, 5)).shape == (3, 10)


def inferring(layer, *batches):
    """A graph in which the layer has a node for each batch of samples of three numbers; compiled."""
    graph, inputs, outputs = MLCGraph(), {}, {}
    for batch in batches:
        inputs[f"x{batch}"] = MLCTensor(shape=[batch, 3])
        outputs[f"y{batch}"] = graph.node(layer, source=inputs[f"x{batch}"])
    made = MLCInferenceGraph(graphObjects=[graph])
    assert made.addInputs(inputs) and made.addOutputs(outputs)
    assert made.compile(options=[], device=MLCDevice.cpu()), last_refusal().reason
    return made, outputs


def test_one_row_takes_any_number_of_samples():
    batches = 2, 4
    made, outputs = inferring(MLCReshapeLayer(shape=[1, -1]), *batches)
    given = {f"x{n}": numbered((n, 3)).astype(np.float32) for n in batches}
    assert made.execute(inputsData=given, batchSize=0, options=[])
    for n in batches:
        np.testing.assert_array_equal(outputs[f"y{n}"].numpy(), given[f"x{n}"].reshape(1, -1))


def test_one_reshape_by_what_two_batches_leave_is_refused():
    """Two samples may be all that one node has, or a short batch of the other's four."""
    for batches in ((2, 4), (4, 2)):
        first, second = batches
        with pytest.raises(AssertionError) as refused:
            inferring(MLCReshapeLayer(shape=[2, -1]), *batches)
        said = f"what {first} samples of shape [3] leave, in another node of this layer, and the source has {second}"
        assert said in str(refused.value)
    inferring(MLCReshapeLayer(shape=[-1, 3]), 2, 4)  # the batch is all that is left open


def test_the_others_take_a_smaller_batch():
    x = torch.arange(24).reshape(4, 3, 2)
    layers = [
        MLCTransposeLayer(dimensions=[0, 2, 1]),
        MLCSliceLayer(start=[0, 1, 0], end=[4, 3, 2], stride=None),
        MLCConcatenationLayer(),
        MLCSplitLayer(splitCount=1, dimension=1),
        MLCSplitLayer(splitSectionLengths=[3], dimension=1),
    ]
    for layer in layers:
        whole, part = layer.module(x), layer.module(x[:3])
        if isinstance(whole, tuple):
            (whole,), (part,) = whole, part
        assert torch.equal(part, whole[:3])


_SIZES = st.lists(st.integers(1, 5), min_size=1, max_size=4)


def numbered(sizes):
    return np.arange(math.prod(sizes), dtype=np.int32).reshape(sizes)


def agrees(layer, x, *wanted):
    """The rule, the check and the run against arrays."""
    source = [descriptor(x.shape, x.dtype.name)]
    layer._check(source)
    layer._note_sources(source)
    results = layer.module(torch.from_numpy(x))
    results = results if isinstance(results, tuple) else (results,)
    for rule, got, want in zip(layer._infer(source), results, wanted, strict=True):
        assert rule.shape == list(want.shape)
        np.testing.assert_array_equal(got.numpy(), want)


@settings(max_examples=40, deadline=None)
@given(st.data())
def test_any_slice(data):
    x = numbered(data.draw(_SIZES))
    start = [data.draw(st.integers(0, n - 1)) for n in x.shape]
    end = [data.draw(st.integers(a + 1, n)) for a, n in zip(start, x.shape, strict=True)]
    stride = data.draw(st.none() | st.lists(st.integers(1, 6), min_size=x.ndim, max_size=x.ndim))
    agrees(MLCSliceLayer(start=start, end=end, stride=stride), x, cut(x, start, end, stride))


@settings(max_examples=40, deadline=None)
@given(st.data())
def test_any_transposition(data):
    x = numbered(data.draw(_SIZES))
    order = data.draw(st.permutations(range(x.ndim)))
    agrees(MLCTransposeLayer(dimensions=order), x, permuted(x, order))


@settings(max_examples=40, deadline=None)
@given(st.data())
def test_any_split_by_count(data):
    x = numbered(data.draw(_SIZES))
    dimension, count = data.draw(st.integers(0, x.ndim - 1)), data.draw(st.integers(1, 7))
    size = math.ceil(x.shape[dimension] / count)
    ends = list(range(size, x.shape[dimension], size))
    agrees(MLCSplitLayer(splitCount=count, dimension=dimension), x, *np.split(x, ends, dimension))


@settings(max_examples=40, deadline=None)
@given(st.data())
def test_any_split_by_lengths_and_back(data):
    lengths = data.draw(st.lists(st.integers(1, 4), min_size=1, max_size=4))
    sizes = data.draw(_SIZES)
    dimension = data.draw(st.integers(0, len(sizes) - 1))
    sizes[dimension] = sum(lengths)
    x = numbered(sizes)
    parts = np.split(x, np.cumsum(lengths)[:-1], dimension)
    split = MLCSplitLayer(splitSectionLengths=lengths, dimension=dimension)
    agrees(split, x, *parts)
    joined = MLCConcatenationLayer(dimension=dimension).module(*split.module(torch.from_numpy(x)))
    np.testing.assert_array_equal(joined.numpy(), x)


@settings(max_examples=40, deadline=None)
@given(st.data())
def test_any_reshape(data):
    factors = data.draw(st.lists(st.integers(1, 4), min_size=1, max_size=4))
    shape = data.draw(st.permutations(factors))
    x = numbered(factors)
    unknown = data.draw(st.none() | st.integers(0, len(shape) - 1))
    asked = [-1 if i == unknown else n for i, n in enumerate(shape)]
    agrees(MLCReshapeLayer(shape=asked), x, x.reshape(shape))


@st.composite
def reshapes(draw):
    """A shape, another of as many elements that may say -1 for one of its dimensions, and a dimension that counts samples."""
    shape = draw(st.lists(st.sampled_from([1, 2, 3, 4, 6]), min_size=1, max_size=4))
    left, wanted = math.prod(shape), []
    for _ in range(draw(st.integers(0, 3))):
        wanted.append(draw(st.sampled_from([n for n in range(1, left + 1) if left % n == 0])))
        left //= wanted[-1]
    wanted = draw(st.permutations([*wanted, left]))
    if draw(st.booleans()):
        wanted[draw(st.integers(0, len(wanted) - 1))] = -1
    return shape, wanted, draw(st.integers(0, len(shape) - 1))


@settings(max_examples=300, deadline=None)
@given(reshapes())
def test_what_a_reshape_says_of_samples_is_what_it_does_to_fewer(given_shapes):
    """They have a place, along which fewer are a part of all; or none, and fewer give some of the rows; or all are needed."""
    shape, wanted, axis = given_shapes
    layer, numbers = MLCReshapeLayer(shape=wanted), torch.arange(math.prod(shape)).reshape(shape)
    sources, whole = [descriptor(shape)], numbers.reshape(wanted)
    layer._note_sources(sources)
    try:
        place, needs_all = layer._samples([axis], sources, layer._infer(sources)).results[0], False
    except MixesSamples as why:
        place, needs_all = why.results and why.results[0], why.needs_all
    for count in range(1, shape[axis]):
        try:
            part = layer.module(numbers.narrow(axis, 0, count))
        except RuntimeError:  # torch has no such shape for so few
            assert place is None or needs_all
            continue
        if place is not None:
            assert torch.equal(part, whole.narrow(place, 0, count)) is not needs_all
        elif not needs_all:
            gives, inside = layer._gives_way(axis), math.prod(shape[axis + 1 :])
            by_rows = (math.prod(part.shape[:gives]), -1, math.prod(part.shape[gives + 1 :]))
            for rows, fewer in zip(whole.reshape(by_rows).tolist(), part.reshape(by_rows).tolist(), strict=True):
                assert fewer == [row for row in rows if all(n // inside % shape[axis] < count for n in row)]
