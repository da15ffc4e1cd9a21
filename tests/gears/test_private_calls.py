"""Every call that torch does not promise has a public way to the same numbers."""

from __future__ import annotations

import pytest
import torch

from mlc_torch import torch_private
from tests.gears.training import GRAPHS, train


@pytest.mark.parametrize("name", [n for n in torch_private.available if n != "inductor"])
@pytest.mark.parametrize("graph", GRAPHS, ids=lambda g: g.__name__)
def test_training_without_it_gives_the_same(name, graph, monkeypatch):
    with_it = train(graph, steps=4)
    assert torch_private.available[name], "this torch does not have it, so the comparison would compare nothing"
    monkeypatch.setitem(torch_private.available, name, False)
    without = train(graph, steps=4)
    for a, b in zip(with_it, without, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-5, atol=1e-6)
