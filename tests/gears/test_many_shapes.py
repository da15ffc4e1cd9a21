"""Batches of many sizes: each gets its gear, and the oldest are let go of."""

from __future__ import annotations

import numpy as np

from mlc_torch import MLCGraph
from mlc_torch.engine import geared
from mlc_torch.running.state import Variant
from tests.graph.programs import array, data, dense, inferring, placeholder, values


def test_gears_of_many_batch_sizes_do_not_pile_up(monkeypatch):
    monkeypatch.setattr(geared, "MANY_SHAPES", 3)
    graph, x, layer = MLCGraph(), placeholder(9, 4), dense(4, 3)
    y = graph.node(layer, source=x)
    inference = inferring(graph, x)
    weights, biases = array(layer.weights).reshape(3, 4), array(layer.biases).ravel()
    session = inference._runs.sessions[Variant.whole]
    for turn in range(2):
        for rows in range(1, 10):
            given = values(9, 4, seed=10 * turn + rows)
            for _ in range(3):
                assert inference.execute(inputsData={"x": data(given)}, batchSize=rows)
                want = given[:rows].astype(np.float64) @ weights.T + biases
                np.testing.assert_allclose(array(y)[:rows], want, rtol=1e-5, atol=1e-6)
            if turn == 0:  # later, a run like an earlier one may still have that one's
                assert session.gear in session._fast.values()
            assert sum(key[1] is not None for key in session._fast) <= 4
    assert set(session._whole.values()) <= set(session._fast.values()) and session.prepared in session._fast.values()
