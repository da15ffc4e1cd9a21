"""The result of a short batch in its tensor's full shape."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from mlc_torch.running.results import into_full
from tests.graph.programs import placeholder

SHAPES = [((4, 3), (2, 3)), ((4, 3), (4, 2)), ((4, 3), (3, 4)), ((1,), ()), ((5,), (2,)), ((2, 3), (1, 2))]


@pytest.mark.parametrize(("whole", "short"), SHAPES)
@pytest.mark.parametrize("old", [None, -1.0])
def test_a_result_in_its_tensor_s_shape(whole, short, old):
    """As many elements are the same elements; fewer stand at the beginning, and the others are what they were, or 0."""
    cell, value = placeholder(*whole)._cell, torch.arange(1.0, 1 + math.prod(short)).reshape(short)
    before = None if old is None else torch.full(whole, old)
    made = into_full(cell, value, before)
    want = np.zeros(whole, np.float32) if before is None else before.numpy().copy()
    if value.numel() == want.size:
        want = value.numpy().reshape(whole)
    else:
        want[tuple(slice(n) for n in short)] = value.numpy()
    np.testing.assert_array_equal(made.numpy(), want)
    assert before is None or bool((before == old).all())
