"""Arithmetic where gradients of plain torch would be NaN, and where the shapes of two sources meet."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from mlc_torch.enums import MLCArithmeticOperation as Op
from mlc_torch.layers.arithmetic import MLCArithmeticLayer
from mlc_torch.refusals import MLCRefusal
from tests.layers.records import descriptor


def slopes(op, *numbers, upstream=1.0):
    """The value at ``numbers`` and the gradient for each of them."""
    sources = [torch.tensor(n, dtype=torch.float64, requires_grad=True) for n in numbers]
    value = MLCArithmeticLayer(operation=op).module(*sources)
    value.backward(torch.full_like(value, upstream))
    return value.tolist(), [s.grad.tolist() for s in sources]


def test_a_product_without_nan_has_finite_gradients_where_it_is_forced_to_zero():
    x = [np.nan, np.inf, -np.inf, 3.0, 0.0]
    value, gradients = slopes(Op.multiplyNoNaN, x, [0.0] * 5)
    assert value == [0.0] * 5
    assert gradients == [[0.0] * 5, [0.0, 0.0, 0.0, 3.0, 0.0]]


def test_a_quotient_without_nan_has_finite_gradients_where_it_is_forced_to_zero():
    value, gradients = slopes(Op.divideNoNaN, [np.nan, np.inf, -np.inf, 3.0, 0.0], [0.0, -0.0, 0.0, 0.0, 0.0])
    assert value == [0.0] * 5
    assert gradients == [[0.0] * 5, [0.0] * 5]


def test_beside_a_zero_both_keep_the_gradients_of_the_formula():
    value, gradients = slopes(Op.divideNoNaN, [3.0, 3.0], [0.0, 2.0])
    assert value == [0.0, 1.5] and gradients == [[0.0, 0.5], [0.0, -0.75]]
    value, gradients = slopes(Op.multiplyNoNaN, [np.inf, 3.0], [0.0, 2.0])
    assert value == [0.0, 6.0] and gradients == [[0.0, 2.0], [0.0, 3.0]]


@pytest.mark.parametrize("upstream", [0.0, 1.0])
def test_the_root_of_zero_sends_no_nan_back(upstream):
    value, [gradient] = slopes(Op.sqrt, [0.0, 4.0], upstream=upstream)
    assert value == [0.0, 2.0] and gradient == [0.0, 0.25 * upstream]


def test_powers_of_negative_numbers_send_no_nan_back():
    value, [base, exponent] = slopes(Op.pow, [-3.0, 0.0, 2.0], [2.0, 2.0, 2.0])
    assert value == [9.0, 0.0, 4.0] and base == [-6.0, 0.0, 4.0]
    assert exponent[:2] == [0.0, 0.0] and exponent[2] == pytest.approx(4 * np.log(2))


def test_halves_are_rounded_to_even():
    halves = torch.tensor([-2.5, -1.5, -0.5, 0.5, 1.5, 2.5, 3.5])
    assert MLCArithmeticLayer(operation=Op.round).module(halves).tolist() == [-2, -2, 0, 0, 2, 2, 4]


def test_a_node_with_the_wrong_number_of_sources_has_the_shape_of_the_first():
    layer = MLCArithmeticLayer(operation=Op.add)
    assert layer._infer([descriptor((2, 3))])[0].shape == [2, 3]
    assert layer._infer([descriptor((2, 3)), descriptor((5,)), descriptor((7,))])[0].shape == [2, 3]
    with pytest.raises(MLCRefusal):
        layer._infer([])


def test_the_module_names_its_operation():
    assert repr(MLCArithmeticLayer(operation=Op.divideNoNaN).module) == "TwoSources(divideNoNaN)"
    assert repr(MLCArithmeticLayer(operation=Op.rsqrt).module) == "OneSource(rsqrt)"


@settings(max_examples=40, deadline=None)
@given(st.data())
def test_any_two_shapes_meet_as_in_numpy_or_are_refused(data):
    shapes = data.draw(st.lists(st.lists(st.integers(1, 3), min_size=1, max_size=4), min_size=2, max_size=2))
    layer = MLCArithmeticLayer(operation=Op.subtract)
    sources = [np.random.default_rng(i).normal(size=s).astype(np.float32) for i, s in enumerate(shapes)]
    try:
        want = sources[0] - sources[1]
    except ValueError:
        with pytest.raises(MLCRefusal, match="do not broadcast"):
            layer._infer([descriptor(s) for s in shapes])
        return
    assert layer._infer([descriptor(s) for s in shapes])[0].shape == list(want.shape)
    np.testing.assert_array_equal(layer.module(*map(torch.from_numpy, sources)).numpy(), want)
