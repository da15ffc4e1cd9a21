"""Padding beyond the records: every size and type, and what the sizes of an array mean."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from mlc_torch.enums import MLCPaddingType as Kind
from mlc_torch.layers.padding import MLCPaddingLayer
from mlc_torch.refusals import MLCRefusal
from tests.layers.padding_records import SWIFT, pad
from tests.layers.records import descriptor, integers, values

arrays = st.sampled_from([1, 2, 4]).flatmap(lambda n: st.lists(st.integers(0, 7), min_size=n, max_size=n))


@settings(max_examples=60, deadline=None)
@given(
    kind=st.sampled_from(list(Kind)),
    outer=st.lists(st.integers(1, 2), max_size=2),
    size=st.tuples(st.integers(1, 5), st.integers(1, 5)),
    padding=arrays,
    whole=st.booleans(),
)
def test_every_size(kind, outer, size, padding, whole):
    layer = SWIFT[kind](padding)
    x = integers(*outer, *size, below=99) if whole else values(*outer, *size)
    try:
        (rule,) = layer._infer([descriptor(x.shape, x.dtype.name)])
    except MLCRefusal:
        top, bottom, left, right = layer.paddingTop, layer.paddingBottom, layer.paddingLeft, layer.paddingRight
        assert kind is Kind.reflect and (max(top, bottom) >= size[0] or max(left, right) >= size[1])
        return
    got = layer.module(torch.from_numpy(x))
    assert tuple(got.shape) == rule._shape
    np.testing.assert_array_equal(got, pad(x, kind, padding))


@pytest.mark.parametrize(
    ("padding", "sides"), [([3], (3, 3, 3, 3)), ([1, 2], (0, 0, 1, 2)), ([1, 2, 3, 4], (1, 2, 3, 4))]
)
@pytest.mark.parametrize("kind", list(Kind), ids=lambda k: k.name)
def test_properties(kind, padding, sides):
    layer = SWIFT[kind](padding)
    assert (layer.paddingTop, layer.paddingBottom, layer.paddingLeft, layer.paddingRight) == sides
    assert layer.paddingType is kind
    assert layer.constantValue == (9.0 if kind is Kind.constant else 0.0)
    assert layer.label == "Padding"


def test_a_reflection_is_the_same_for_numbers_and_integers():
    module = MLCPaddingLayer(reflectionPadding=[1, 2, 3, 1]).module
    x = torch.arange(24).view(1, 1, 4, 6)
    assert torch.equal(module(x), module(x.double()).long())
    assert torch.equal(module(x.bool()), module(x.double()).bool())
