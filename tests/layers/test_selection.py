"""What selection does not let through."""

from __future__ import annotations

import numpy as np
import torch

from mlc_torch.layers.selection import MLCSelectionLayer


def test_what_was_not_chosen_gets_no_gradient_even_where_it_is_nan():
    condition = torch.tensor([True, False, True])
    x = torch.tensor([1.0, np.nan, np.inf], requires_grad=True)
    y = torch.tensor([np.inf, 2.0, np.nan], requires_grad=True)
    result = MLCSelectionLayer().module(condition, x, y)
    assert result.tolist() == [1.0, 2.0, np.inf]
    result.sum().backward()
    assert x.grad.tolist() == [1.0, 0.0, 1.0] and y.grad.tolist() == [0.0, 1.0, 0.0]


def test_a_smaller_batch_is_taken():
    chosen = MLCSelectionLayer().module(torch.tensor([[True], [False]]), torch.ones(2, 3), torch.zeros(2, 3))
    assert chosen.tolist() == [[1.0] * 3, [0.0] * 3]
