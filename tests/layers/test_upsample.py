"""Upsampling beyond the records: every pair of sizes."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from mlc_torch.enums import MLCSampleMode as Mode
from mlc_torch.layers.upsample import MLCUpsampleLayer
from tests.layers.records import descriptor, values
from tests.layers.upsample_records import upsampled


@settings(max_examples=60, deadline=None)
@given(
    mode=st.sampled_from(list(Mode)),
    aligned=st.booleans(),
    old=st.tuples(st.integers(1, 16), st.integers(1, 16)),
    new=st.lists(st.integers(1, 40), min_size=1, max_size=2),
)
def test_every_pair_of_sizes(mode, aligned, old, new):
    layer = MLCUpsampleLayer(shape=new, sampleMode=mode, alignsCorners=aligned)
    x = values(2, 1, *old)
    (rule,) = layer._infer([descriptor(x.shape)])
    got = layer.module(torch.from_numpy(x))
    assert tuple(got.shape) == rule._shape
    np.testing.assert_allclose(got, upsampled(x.astype(float), new, mode, aligned), rtol=1e-5, atol=2e-5)


@pytest.mark.parametrize("factor", [2, 3, 8, 41, 47, 82])
def test_whole_factors_repeat_pixels(factor, torch_device):
    x = torch.arange(5.0, device=torch_device).view(1, 1, 1, 5)
    got = MLCUpsampleLayer(shape=[1, 5 * factor]).module(x)
    assert got.flatten().tolist() == [float(i) for i in range(5) for _ in range(factor)]


def test_properties():
    short, long = (
        MLCUpsampleLayer(shape=[4]),
        MLCUpsampleLayer(shape=[2, 3], sampleMode=Mode.linear, alignsCorners=True),
    )
    assert (short.shape, short.sampleMode, short.alignsCorners) == ([4], Mode.nearest, False)
    assert (long.shape, long.sampleMode, long.alignsCorners) == ([2, 3], Mode.linear, True)
    assert short.label == "Upsampling"
    short.shape.append(9)
    assert short.shape == [4]
