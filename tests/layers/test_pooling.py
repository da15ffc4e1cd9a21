"""Pooling beyond the records: windows of every size, zeros, half precision, short batches."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from mlc_torch.descriptors import MLCPoolingDescriptor
from mlc_torch.enums import MLCPaddingPolicy as Padding
from mlc_torch.enums import MLCPoolingType as Kind
from mlc_torch.layers.pooling import MLCPoolingLayer
from mlc_torch.refusals import MLCRefusal
from tests.layers.pooling_records import KINDS, pool
from tests.layers.records import descriptor, values

pairs = st.tuples(st.integers(1, 4), st.integers(1, 4))
policies = st.one_of(
    st.just(Padding.same), st.just(Padding.valid), st.builds(Padding.sized, y=st.integers(0, 4), x=st.integers(0, 4))
)


def layer_of(kind, kernel, strides=(1, 1), dilation=(1, 1), padding=Padding.same):
    return MLCPoolingLayer(
        descriptor=MLCPoolingDescriptor(
            type=kind, kernelSizes=kernel, strides=strides, dilationRates=dilation, paddingPolicy=padding
        )
    )


@settings(max_examples=60, deadline=None)
@given(
    kind=st.sampled_from(KINDS),
    size=st.tuples(st.integers(1, 9), st.integers(1, 9)),
    kernel=pairs,
    strides=pairs,
    dilation=pairs,
    padding=policies,
)
def test_every_window(kind, size, kernel, strides, dilation, padding):
    layer = layer_of(kind, kernel, strides, dilation, padding)
    x = values(2, 2, *size)
    try:
        (rule,) = layer._infer([descriptor(x.shape)])
    except MLCRefusal as why:
        # Refused exactly where NumPy has nothing to reduce: no window fits, or one holds no real element.
        if "does not fit" in str(why):
            reaches = [(k - 1) * d + 1 for k, d in zip(kernel, dilation, strict=True)]
            assert any(n + 2 * p < r for n, p, r in zip(size, padding.sizes, reaches, strict=True))
        else:
            with pytest.raises((ValueError, ZeroDivisionError, FloatingPointError)), np.errstate(all="raise"):
                pool(x.astype(float), kind, kernel, strides, dilation, padding)
        return
    got = layer.module(torch.from_numpy(x))
    assert tuple(got.shape) == rule._shape
    np.testing.assert_allclose(
        got, pool(x.astype(float), kind, kernel, strides, dilation, padding), rtol=1e-5, atol=1e-6
    )


@pytest.mark.parametrize("size", range(1, 5))
def test_windows_of_padding_alone_are_found(size):
    wrong = []
    for kernel, stride, dilation, pad in itertools.product(range(1, 5), range(1, 4), range(1, 7), range(6)):
        reach = (kernel - 1) * dilation + 1
        if size + 2 * pad < reach:
            continue
        starts = range(-pad, size + pad - reach + 1, stride)
        empty = any(not any(0 <= s + i * dilation < size for i in range(kernel)) for s in starts)
        layer = layer_of(Kind.max, (1, kernel), (1, stride), (1, dilation), Padding.sized(y=0, x=pad))
        try:
            layer._infer([descriptor((1, 1, 1, size))])
            refused = False
        except MLCRefusal:
            refused = True
        if refused != empty:
            wrong.append((kernel, stride, dilation, pad, refused))
    assert wrong == []


def test_absurd_sizes_are_answered_at_once():
    layer = layer_of(Kind.max, (1, 2**40), (1, 3), (1, 2**20), Padding.sized(y=0, x=2**58))
    with pytest.raises(MLCRefusal):
        layer._infer([descriptor((1, 1, 1, 5))])


@pytest.mark.parametrize("padding", [Padding.same, Padding.valid])
@pytest.mark.parametrize("dilation", [(1, 1), (2, 2)])
def test_the_norm_of_zeros_has_gradient_zero(padding, dilation):
    module = layer_of(Kind.l2Norm, (2, 2), dilation=dilation, padding=padding).module
    x = torch.zeros(1, 1, 4, 4, requires_grad=True)
    y = module(x)
    assert torch.equal(y, torch.zeros_like(y))
    y.sum().backward()
    assert torch.equal(x.grad, torch.zeros_like(x))


def test_the_norm_of_half_precision_values_does_not_overflow(torch_device):
    module = layer_of(Kind.l2Norm, (2, 2), padding=Padding.valid).module
    got = module(torch.full((1, 1, 2, 2), 3000.0, dtype=torch.float16, device=torch_device))
    assert got.dtype is torch.float16 and got.item() == 6000


def test_padding_never_wins():
    for padding in (Padding.same, Padding.sized(y=1, x=1), Padding.sized(y=2, x=2)):
        y = layer_of(Kind.max, (3, 3), padding=padding).module(torch.full((1, 1, 3, 3), -1e30))
        assert torch.equal(y, torch.full_like(y, -1e30))


@pytest.mark.parametrize("kind", KINDS, ids=repr)
def test_a_short_batch(kind):
    module = layer_of(kind, (2, 3)).module
    x = torch.from_numpy(values(4, 2, 5, 5))
    assert torch.equal(module(x[:1]), module(x)[:1])


def test_properties():
    descriptor_ = MLCPoolingDescriptor(type=Kind.max, kernelSizes=(2, 2))
    layer = MLCPoolingLayer(descriptor=descriptor_)
    assert layer.label == "Pooling" and layer.descriptor == descriptor_
    assert "kernel_size=(2, 2)" in repr(layer.module)


HUGE = 2**63 - 1


@pytest.mark.parametrize("kind", [*KINDS, Kind.average(countIncludesPadding=True)])
@pytest.mark.parametrize(
    ("kernel", "strides", "dilation", "padding", "words"),
    [
        ((HUGE, 7), (1, 1), (1, 2**62), Padding.same, f"kernel {HUGE} of the height is too large"),
        ((2**62, 7), (4, 1), (1, 1), Padding.same, f"kernel {2**62} of the height is too large"),
        ((1, 2), (1, HUGE), (1, 1), Padding.same, f"stride {HUGE} of the width is too large"),
        ((3, 3), (1, 1), (2**31, 1), Padding.same, f"dilation {2**31} of the height is too large"),
        (
            (2**31 - 1, 1),
            (1, 1),
            (2**31 - 1, 1),
            Padding.same,
            rf"are too large for a height of 5 pixels: .* \[1, 3, {5 + (2**31 - 2) * (2**31 - 1)}, 1\]",
        ),
        ((2, 2), (2**30, 1), (1, 1), Padding.sized(y=HUGE, x=0), f"padding {HUGE} are too large for a height"),
    ],
)
def test_a_window_beyond_what_torch_counts_is_refused_by_the_node(kind, kernel, strides, dilation, padding, words):
    with pytest.raises(MLCRefusal, match=words):
        layer_of(kind, kernel, strides, dilation, padding)._infer([descriptor((1, 3, 5, 1))])


def test_the_largest_stride_that_torch_counts_serves():
    x = values(1, 2, 3, 3)
    got = layer_of(Kind.max, (2, 2), (2**31 - 1, 2**31 - 1)).module(torch.from_numpy(x))
    np.testing.assert_array_equal(got, x[:, :, :2, :2].max((2, 3), keepdims=True))
