"""``assert_close``: what passes, what fails, and that the message says where and by how much."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

import mlc_torch as mlc
from mlc_torch.testing import assert_close
from tests.seeing.graphs import bare

VALUES = np.arange(12, dtype=np.float32).reshape(3, 4)


def tensor(values: np.ndarray) -> mlc.MLCTensor:
    return mlc.MLCTensor.from_torch(torch.from_numpy(values.copy()), label="y")


KINDS = {"MLCTensor": tensor, "torch": torch.from_numpy, "NumPy": np.copy, "list": np.ndarray.tolist}


@pytest.mark.parametrize("right", KINDS)
@pytest.mark.parametrize("left", KINDS)
def test_every_kind_compares_with_every_other(left, right):
    assert_close(KINDS[left](VALUES), KINDS[right](VALUES))
    with pytest.raises(AssertionError, match="1 of 12 elements"):
        assert_close(KINDS[left](VALUES), KINDS[right](VALUES + (VALUES == 7)))


def test_the_message_says_where_and_by_how_much():
    expected = VALUES.copy()
    expected[1, 2] = 6.5
    expected[2, 3] = 8
    expected[0, 1] = 0.75
    with pytest.raises(AssertionError) as found:
        assert_close(tensor(VALUES), expected, rtol=0, atol=0.1)
    assert str(found.value).splitlines() == [
        "actual (MLCTensor('y', [3, 4], float32)) and expected are not close",
        "  3 of 12 elements differ (25.0%); allowed: 0.1 + 0 * |expected|",
        "  largest absolute difference: 3 at [2, 3]: 11, expected 8",
        "  largest relative difference: 0.375 at [2, 3]: 11, expected 8",
        "  first: [0, 1] 1, expected 0.75; [1, 2] 6, expected 6.5; [2, 3] 11, expected 8",
    ]


def test_a_message_of_ones_own_comes_first():
    with pytest.raises(AssertionError, match="^after 3 steps: actual and expected are not close"):
        assert_close(1.0, 2.0, msg="after 3 steps")
    with pytest.raises(AssertionError, match=r"differ in shape: \[3, 4\] and \[4, 3\]"):
        assert_close(VALUES, VALUES.T)
    with pytest.raises(AssertionError, match="at the only element: 1, expected 2"):
        assert_close(torch.tensor(1.0), 2.0)


def test_types_are_compared_on_request():
    assert_close(VALUES, VALUES.astype(np.int64))
    with pytest.raises(AssertionError, match="torch.float32 and torch.int64"):
        assert_close(VALUES, VALUES.astype(np.int64), check_dtype=True)


@pytest.mark.parametrize(
    ("type_", "near", "far"),
    [
        (torch.float16, 1.0005, 1.01),
        (torch.bfloat16, 1.01, 1.05),
        (torch.float32, 1 + 1e-5, 1 + 1e-4),
        (torch.float64, 1 + 1e-7, 1 + 1e-6),
    ],
)
def test_tolerances_follow_the_coarser_type(type_, near, far):
    one = torch.ones(2, dtype=type_)
    assert_close(one, np.full(2, near))
    with pytest.raises(AssertionError):
        assert_close(one, np.full(2, far))


def test_whole_numbers_are_equal_or_not():
    large = 2**62
    assert_close(torch.tensor([large]), torch.tensor([large]))
    with pytest.raises(AssertionError, match=f"{large + 1}, expected {large}"):
        assert_close(torch.tensor([large + 1]), torch.tensor([large]))
    assert_close(np.array([True, False]), torch.tensor([True, False]))
    assert_close(np.array([3], np.uint32), np.array([3], np.int8))
    with pytest.raises(AssertionError, match="True, expected False"):
        assert_close(np.array([True]), np.array([False]))
    assert_close(np.array([3]), np.array([4]), rtol=0, atol=1)


@pytest.mark.parametrize(
    ("actual", "expected", "by"),
    [
        (2**53 + 1, 2**53, 1),
        (-(2**53) - 1, -(2**53), 1),
        ([0, 2**62 + 3], [2**61, 2**62], 2**61),
        (2**63 - 1, -(2**63), 2**64 - 1),
        (-(2**63), 2**63 - 1, 2**64 - 1),
        (np.uint8(3), np.uint8(5), 2),
        (True, False, 1),
    ],
)
def test_whole_numbers_are_compared_as_whole_numbers(actual, expected, by):
    """By as much as Python says."""
    assert max(abs(int(a) - int(e)) for a, e in zip(np.ravel(actual), np.ravel(expected), strict=True)) == by
    with pytest.raises(AssertionError, match=f"largest absolute difference: {by} at"):
        assert_close(actual, expected)
    with pytest.raises(AssertionError, match=f"largest absolute difference: {by} at"):
        assert_close(actual, expected, rtol=0, atol=0.5)
    assert_close(actual, expected, rtol=0, atol=by)


@pytest.mark.parametrize(
    ("actual", "expected"),
    [(math.inf, 1.0), (1.0, -math.inf), (math.inf, -math.inf), (math.nan, 1.0), ([3.0, -math.inf], [3, 2])],
)
def test_a_difference_without_end_is_infinite(actual, expected):
    says = r"largest absolute difference: inf at (.|\n)*largest relative difference: inf at"
    with pytest.raises(AssertionError, match=says):
        assert_close(actual, expected)
    with pytest.raises(AssertionError, match=says.replace("inf", "2", 1)):
        assert_close([2.0, 1.0], [0.0, 1.0])


def test_a_number_that_only_python_can_hold_is_refused_in_words():
    for large in (2**63, 2**64, -(2**63) - 1):
        with pytest.raises(ValueError, match=r"assert_close: actual holds a whole number .*int64 cannot hold"):
            assert_close(large, large)


@pytest.mark.parametrize("numbers", [[1, 2], [1.5, 2], [True, False], [np.float32(1), np.int8(2)]])
def test_an_array_of_python_s_numbers_is_taken_as_a_list(numbers):
    assert_close(np.array([numbers], object), [numbers])
    with pytest.raises(AssertionError, match="not close"):
        assert_close(np.array([numbers], object), [[7, 7]])


def test_numbers_of_a_foreign_order_of_bytes():
    assert_close(VALUES.astype(">f4"), VALUES)
    assert_close(VALUES, VALUES.astype(">i8"))


def test_nan_and_infinities():
    odd = np.array([np.nan, np.inf, -np.inf, 1])
    assert_close(odd[1:], odd[1:])
    assert_close(odd, odd, equal_nan=True)
    with pytest.raises(
        AssertionError, match=r"1 of 4 .*\n.* inf at \[0\]: nan, expected nan(.|\n)*only with equal_nan=True"
    ):
        assert_close(odd, odd)
    for wrong in (np.array([-np.inf]), np.array([1e38]), np.array([np.nan])):
        with pytest.raises(AssertionError):
            assert_close(np.array([np.inf]), wrong, rtol=1, atol=1e300)


@given(
    arrays(np.float64, (2, 3), elements=st.floats(-1e6, 1e6)), arrays(np.float64, (2, 3), elements=st.floats(-1e6, 1e6))
)
def test_it_agrees_with_numpy(a, b):
    """NumPy's own rule is the same."""
    if np.allclose(a, b, rtol=1e-2, atol=1.0):
        assert_close(a, b, rtol=1e-2, atol=1.0)
    else:
        with pytest.raises(AssertionError):
            assert_close(a, b, rtol=1e-2, atol=1.0)


def test_empty_tensors_are_close():
    assert_close(np.zeros((0, 3)), torch.zeros(0, 3))


def test_what_has_no_values_is_said():
    assert mlc.MLCTensorDescriptor(shape=[]) is None
    with pytest.raises(AssertionError, match="actual is None; the last refusal was: .*shape is empty"):
        assert_close(None, VALUES)
    with pytest.raises(AssertionError, match="expected .* holds no data; has the graph been executed"):
        assert_close(np.zeros((2, 2)), bare([2, 2]))
    with pytest.raises(TypeError, match="actual is str"):
        assert_close("text", VALUES)
    with pytest.raises(TypeError, match="both rtol and atol"):
        assert_close(VALUES, VALUES, rtol=1)


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
@pytest.mark.parametrize(
    ("value", "error", "says"),
    [
        (torch.tensor([1 + 1j]), TypeError, "takes real numbers, actual is a tensor of torch.complex64"),
        (np.array([1 + 1j]), TypeError, "takes real numbers, actual is ndarray with complex"),
        ([1 + 1j], TypeError, "takes real numbers, actual is list with complex"),
        (["a"], TypeError, "takes tensors, arrays, lists and numbers, actual is list with str"),
        ([1.0, None], TypeError, "takes tensors, arrays, lists and numbers, actual is list with NoneType"),
        (np.array([2**64, 1], object), ValueError, "actual holds a whole number that int64 cannot hold"),
        (np.array([2**64 - 1], np.uint64), ValueError, r"actual holds a whole number of 2\*\*63 or more"),
        ([2**63], ValueError, r"actual holds a whole number of 2\*\*63 or more"),
        ([2**64], ValueError, "actual holds a whole number that int64 cannot hold"),
        (torch.tensor([2**63], dtype=torch.uint64), ValueError, r"actual holds a whole number of 2\*\*63 or more"),
        (
            torch.ones(1).to_sparse(),
            ValueError,
            r"actual is a torch tensor of the layout torch.sparse_coo; pass tensor.to_dense",
        ),
        (torch.ones(1, device="meta"), ValueError, "actual is a torch tensor on the device meta, which has no memory"),
        (lambda: torch.nested.nested_tensor([torch.ones(1)]), ValueError, "actual is a nested torch tensor"),
        (
            np.ma.masked_less(np.array([-1.0]), 0),
            ValueError,
            r"actual is a masked array, .* pass array.filled\(value\)",
        ),
        ([[1.0, 2.0], [3.0]], TypeError, r"actual is a list that makes no array \(.*inhomogeneous"),
    ],
)
def test_what_has_other_values_than_numbers(value, error, says):
    """Each would pass for close to what it is not, or fail in words of torch's."""
    actual = value() if callable(value) else value
    for expected in ([1.0], [-1]):
        with pytest.raises(error, match=says):
            assert_close(actual, expected, rtol=1.0, atol=1.0)
        with pytest.raises(error, match=says.replace("actual", "expected")):
            assert_close(expected, actual)


@pytest.mark.parametrize("type_", [torch.uint16, torch.uint32, torch.uint64])
def test_unsigned_numbers_compare_with_all_others(type_):
    three = torch.tensor([3]).to(type_)
    for same in (three, np.array([3], np.int8), [3.0], three.numpy()):
        assert_close(three, same)
    for other in ([4], [-3], three.numpy() + 1):
        with pytest.raises(AssertionError, match="3, expected"):
            assert_close(three, other)


@pytest.mark.parametrize(
    ("rtol", "atol", "error", "says"),
    [
        ("a", 1, TypeError, "argument 'rtol' expects a number, got 'a'"),
        (1, True, TypeError, "argument 'atol' expects a number, got True"),
        (1, -1e-3, ValueError, "argument 'atol' must be at least 0, got -0.001"),
        (float("nan"), 1, ValueError, "argument 'rtol' must be at least 0, got nan"),
    ],
)
def test_tolerances_are_numbers(rtol, atol, error, says):
    with pytest.raises(error, match=says):
        assert_close(1.0, 1.0, rtol=rtol, atol=atol)


def test_the_first_frame_shown_is_the_tests_own():
    with pytest.raises(AssertionError) as found:
        assert_close(1.0, 2.0)
    assert found.traceback.filter(found)[-1].path.name == "test_closeness.py"


def test_on_every_device(torch_device):
    made = mlc.MLCTensor.from_torch(torch.from_numpy(VALUES).to(torch_device))
    assert_close(made, VALUES)
    assert_close(made.torch, VALUES)
