"""Indices out of range, and lengths of sequences: found before a device sees them, whose process they would end."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

from mlc_torch import (
    MLCDataType,
    MLCGraph,
    MLCInferenceGraph,
    MLCLSTMDescriptor,
    MLCLSTMLayer,
    last_refusal,
)
from mlc_torch.engine.plain import run_forward
from mlc_torch.engine.plan import Plan, Step
from mlc_torch.layers.indexing import Gather
from mlc_torch.tensor import MLCTensorDescriptor, TensorState
from tests.graph.programs import array, data, on, placeholder, tensor, values

ROWS = values(4, 3)


def rows(*indices: int) -> np.ndarray:
    return np.array(indices, np.int32)


class Taken:
    """Rows of an input, by indices that are a constant, an input, or an input that passes through a layer."""

    def __init__(self, kind: str, device, first=(0, 3)) -> None:
        graph, self.kind = MLCGraph(), kind
        self.device, self.x = device, placeholder(4, 3)
        if kind == "constant":
            self.indices = source = tensor(rows(*first))
        elif kind == "input":
            self.indices = source = placeholder(2, type_=MLCDataType.int32)
        else:
            self.indices = placeholder(2, 1, type_=MLCDataType.int32)
            source = graph.reshape(shape=[2], source=self.indices)
        self.result = graph.gather(withDimension=0, source=self.x, indices=source)
        self.graph = MLCInferenceGraph(graphObjects=[graph])
        self.graph.addInputs({"x": self.x} | ({} if kind == "constant" else {"i": self.indices}))

    def compile(self) -> bool:
        return self.graph.compile(options=[], device=self.device)

    def __call__(self, *indices: int) -> np.ndarray | None:
        given = {"x": data(ROWS)} | ({} if self.kind == "constant" else {"i": data(rows(*indices))})
        return array(self.result) if self.graph.execute(inputsData=given, batchSize=0) else None


@pytest.mark.parametrize("wrong", [4, -1])
def test_a_constant_is_looked_at_when_the_graph_is_compiled(wrong, torch_device):
    taken = Taken("constant", on(torch_device), first=(0, wrong))
    assert not taken.compile()
    assert f"holds {wrong}; what is there must lie from 0 to 3" in str(last_refusal())
    assert taken.indices.bindAndWriteData(data(rows(2, 1)), to=taken.device) and taken.compile()
    np.testing.assert_array_equal(taken(), ROWS[[2, 1]])


def test_a_constant_that_is_bound_anew_is_looked_at_again(torch_device):
    taken = Taken("constant", on(torch_device))
    assert taken.compile()
    np.testing.assert_array_equal(taken(), ROWS[[0, 3]])
    assert taken.indices.bindAndWriteData(data(rows(0, 7)), to=taken.device)
    assert taken() is None and "holds 7" in str(last_refusal())
    assert taken.indices.bindAndWriteData(data(rows(1, 1)), to=taken.device)
    np.testing.assert_array_equal(taken(), ROWS[[1, 1]])


@pytest.mark.parametrize("wrong", [4, -1])
def test_an_input_is_looked_at_in_each_call(wrong, torch_device):
    taken = Taken("input", on(torch_device))
    assert taken.compile()
    taken.graph.layers[0].label = "the rows"
    assert taken(0, wrong) is None
    assert f"the input 'i' holds {wrong}; what is there must lie from 0 to 3 for the layer 'the rows'" in str(
        last_refusal()
    )
    np.testing.assert_array_equal(taken(3, 0), ROWS[[3, 0]])


def test_an_input_is_looked_at_in_the_usual_call_too(torch_device):
    """That is the one like those before it, which does not take the road."""
    taken = Taken("input", on(torch_device))
    assert taken.compile()
    for first in (0, 1, 2, 3):
        np.testing.assert_array_equal(taken(first, 3), ROWS[[first, 3]])
    for wrong in (4, -1):
        assert taken(0, wrong) is None and f"the input 'i' holds {wrong}" in str(last_refusal())
        np.testing.assert_array_equal(taken(1, 2), ROWS[[1, 2]])


def test_indices_that_the_graph_computes(torch_device):
    """On the CPU torch finds them; a GPU, which could only end the process, takes the nearest row."""
    taken = Taken("computed", on(torch_device))
    assert taken.compile()
    for wrong, nearest in ((9, 3), (-2, 0)):
        if torch_device.type == "cpu":
            assert taken(1, wrong) is None and "torch cannot compute this" in str(last_refusal())
        else:
            np.testing.assert_array_equal(taken(1, wrong), ROWS[[1, nearest]])
        np.testing.assert_array_equal(taken(2, 0), ROWS[[2, 0]])


def test_how_a_guarded_source_is_kept_in_range():
    cells = tuple(TensorState(MLCTensorDescriptor(shape=s)) for s in ([4, 3], [3], [3, 3]))
    step = Step(Gather(0), (0, 1), (2,), "gather", guarded=((1, 4),))
    plan = Plan(
        cells=cells, fed_count=2, constant_count=0, steps=(step,), readable=(2,), losses=(), injected=(), trained=(),
        wanted=(), stopped=frozenset(), hooks={}, device=torch.device("cpu"),
    )  # fmt: skip
    env = run_forward(plan, [torch.from_numpy(ROWS), torch.tensor([-5, 2, 4])], [])
    np.testing.assert_array_equal(env[2], ROWS[[0, 2, 3]])


@pytest.mark.parametrize("wrong", [5, -1])
def test_the_lengths_of_sequences(wrong, torch_device):
    module = nn.LSTM(3, 2)
    gates = [[tensor(w.detach().numpy()) for w in p.chunk(4)] for p in module.parameters()]
    layer = MLCLSTMLayer(
        descriptor=MLCLSTMDescriptor(inputSize=3, hiddenSize=2, layerCount=1, usesBiases=False, batchFirst=True,
                                     isBidirectional=False, returnsSequences=True, dropout=0.0),
        inputWeights=gates[0], hiddenWeights=gates[1], biases=None,
    )  # fmt: skip
    graph, x, lengths = MLCGraph(), placeholder(2, 4, 3), placeholder(2, type_=MLCDataType.int32)
    result = graph.node(layer, sources=[x, lengths])
    inference = MLCInferenceGraph(graphObjects=[graph])
    inference.addInputs({"x": x, "n": lengths})
    assert inference.compile(options=[], device=on(torch_device))

    def run(*n: int) -> bool:
        return inference.execute(inputsData={"x": data(values(2, 4, 3)), "n": data(rows(*n))}, batchSize=0)

    assert not run(4, wrong) and f"the input 'n' holds {wrong}; what is there must lie from 0 to 4" in str(
        last_refusal()
    )
    assert run(4, 2) and not array(result)[1, 2:].any()
