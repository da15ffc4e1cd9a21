"""The results of a short batch: in their tensors' full shapes, and as many as there are tensors."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from mlc_torch import MLCGraph, MLCGraphCompilationOptions, MLCInferenceGraph, MLCSplitLayer, last_refusal
from mlc_torch.running.results import into_full
from tests.graph.programs import array, cpu, data, placeholder, values

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


@pytest.mark.parametrize("options", [[], [MLCGraphCompilationOptions.disableLayerFusion]], ids=["planned", "plain"])
def test_a_short_batch_that_is_split_into_fewer_parts_is_refused_in_words(options):
    graph, x = MLCGraph(), placeholder(3, 2)
    layer = MLCSplitLayer(splitCount=3, dimension=0)
    graph.node(layer, source=x)
    inference = MLCInferenceGraph(graphObjects=[graph])
    parts = graph.resultTensors(for_=layer)
    assert inference.addInputs({"x": x}) and inference.addOutputs({str(n): part for n, part in enumerate(parts)})
    assert inference.compile(options=options, device=cpu())
    numbers = values(3, 2)
    for _ in range(2):
        assert not inference.execute(inputsData={"x": data(numbers)}, batchSize=2)
        assert "layer 'Split' gives 2 results for this batch, 3 were declared" in str(last_refusal())
        assert inference.execute(inputsData={"x": data(numbers)}, batchSize=3)
        np.testing.assert_array_equal(np.vstack([array(part) for part in parts]), numbers)
