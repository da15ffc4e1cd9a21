"""Indices out of range, smaller batches, and any gather and scatter."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from mlc_torch.enums import MLCReductionType as Reduction
from mlc_torch.layers.indexing import MLCGatherLayer, MLCScatterLayer
from tests.layers.indexing_records import distinct, fetch, write
from tests.layers.records import descriptor, integers, values


@pytest.mark.parametrize("dtype", [torch.int32, torch.int64])
@pytest.mark.parametrize("index", [-1, 3, -4])
@pytest.mark.parametrize("elements", [False, True])
def test_an_index_out_of_range_is_an_error_and_does_not_count_from_the_end(index, dtype, elements):
    indices = torch.tensor([0, index], dtype=dtype)
    indices = indices[:, None].expand(2, 4).contiguous() if elements else indices
    x, updates = torch.zeros(3, 4), torch.ones(2, 4)
    with pytest.raises((IndexError, RuntimeError), match=r"out of (range|bounds)"):
        MLCGatherLayer(dimension=0).module(x, indices)
    for reduction in (Reduction.none, Reduction.sum):
        with pytest.raises((IndexError, RuntimeError), match=r"out of (range|bounds)"):
            MLCScatterLayer(dimension=0, reductionType=reduction).module(updates, indices, x)


@pytest.mark.parametrize("reduction", [Reduction.none, Reduction.sum])
@pytest.mark.parametrize("indices", [torch.tensor([1, 0]), torch.tensor([[1, 0], [0, 1], [0, 1]])])
def test_a_scatter_leaves_its_sources_alone(indices, reduction):
    updates, copied = torch.ones(3, 2), torch.zeros(3, 2)
    result = MLCScatterLayer(dimension=1, reductionType=reduction).module(updates, indices, copied)
    assert result.sum() == 6 and copied.sum() == 0 and updates.sum() == 6


def test_a_smaller_batch_is_taken():
    x, indices = torch.from_numpy(values(4, 5)), torch.from_numpy(integers(4, 2, below=5))
    gather = MLCGatherLayer(dimension=1).module
    assert torch.equal(gather(x[:3], indices[:3]), gather(x, indices)[:3])
    assert torch.equal(gather(x[:3], indices[0]), gather(x, indices[0])[:3])
    scatter = MLCScatterLayer(dimension=1, reductionType=Reduction.sum).module
    updates = torch.from_numpy(values(4, 2))
    whole = scatter(updates, indices, x)
    assert torch.equal(scatter(updates[:3], indices[:3], x[:3]), whole[:3])


@st.composite
def sources(draw, dimension_free=True):
    """A shape, a dimension of it, how many indices along it, and which of the two forms they have."""
    shape = draw(st.lists(st.integers(1, 4), min_size=1, max_size=4))
    dimension = draw(st.integers(0, len(shape) - 1))
    count = draw(st.integers(1, 6 if dimension_free else shape[dimension]))
    dtype = draw(st.sampled_from(["int32", "int64"]))
    return shape, dimension, count, draw(st.booleans()), dtype


@settings(max_examples=40, deadline=None)
@given(sources(), st.data())
def test_any_gather(drawn, data):
    shape, dimension, count, elements, dtype = drawn
    rows = [data.draw(st.integers(1, n)) for n in shape] if elements else shape
    places = [*rows[:dimension], count, *rows[dimension + 1 :]] if elements else [count]
    x, indices = values(*shape), integers(*places, below=shape[dimension], dtype=dtype)
    layer, want = MLCGatherLayer(dimension=dimension), fetch(x, indices, dimension)
    assert layer._infer([descriptor(shape), descriptor(places, dtype)])[0].shape == list(want.shape)
    np.testing.assert_array_equal(layer.module(torch.from_numpy(x), torch.from_numpy(indices)).numpy(), want)


@settings(max_examples=40, deadline=None)
@given(st.booleans(), st.data())
def test_any_scatter(adds, data):
    shape, dimension, count, elements, dtype = data.draw(sources(dimension_free=adds))
    rows = [data.draw(st.integers(1, n)) for n in shape] if elements else list(shape)
    rows[dimension] = count
    places = rows if elements else [count]
    if adds:
        indices = integers(*places, below=shape[dimension], dtype=dtype)
    else:
        indices = distinct(*places, below=shape[dimension], dimension=dimension if elements else 0, dtype=dtype)
    updates, copied = values(*rows, seed=1), values(*shape)
    layer = MLCScatterLayer(dimension=dimension, reductionType=Reduction.sum if adds else Reduction.none)
    rule = layer._infer([descriptor(rows), descriptor(places, dtype), descriptor(shape)])
    assert rule[0].shape == shape
    got = layer.module(*map(torch.from_numpy, (updates, indices, copied))).numpy()
    np.testing.assert_allclose(got, write(updates, indices, copied, dimension, adds), rtol=1e-5, atol=1e-6)
