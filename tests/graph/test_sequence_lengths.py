"""Sequence lengths that reach an LSTM under the old input name, or in the descriptor of its input."""

from __future__ import annotations

import numpy as np
import pytest

from mlc_torch import (
    MLCDataType,
    MLCDevice,
    MLCGraph,
    MLCInferenceGraph,
    MLCLSTMDescriptor,
    MLCLSTMLayer,
    MLCTensor,
    MLCTensorData,
    last_refusal,
)
from tests.layers.records import tensor, values

LENGTHS = [4, 2, 1]


def _layer():
    return MLCLSTMLayer(
        descriptor=MLCLSTMDescriptor(inputSize=2, hiddenSize=3, layerCount=1),
        inputWeights=[tensor(values(3, 2, seed=i)) for i in range(4)],
        hiddenWeights=[tensor(values(3, 3, seed=10 + i)) for i in range(4)],
        biases=[tensor(values(3, seed=20 + i)) for i in range(4)],
    )


def _run(source, more_inputs, more_data):
    graph = MLCGraph()
    result = graph.node(_layer(), source=source)
    inference = MLCInferenceGraph(graphObjects=[graph])
    inference.addInputs({"x": source} | more_inputs)
    assert inference.compile(options=[], device=MLCDevice())
    x = values(3, 4, 2, seed=5)
    data = {"x": MLCTensorData(bytesNoCopy=x, length=x.nbytes)} | more_data
    assert inference.execute(inputsData=data, batchSize=3)
    return result.numpy().copy()


@pytest.fixture
def unlimited():
    return _run(MLCTensor(shape=[3, 4, 2]), {}, {})


def _check(found, unlimited):
    for row, length in enumerate(LENGTHS):
        np.testing.assert_allclose(found[row, :length], unlimited[row, :length], rtol=1e-6)
        assert not found[row, length:].any()


@pytest.mark.parametrize("name", ["sortedSequenceLengths", "sortedSequenceLength"])
def test_under_the_input_name_of_the_first_sdks(unlimited, name):
    lengths = MLCTensor(shape=[3], dataType=MLCDataType.int32)
    array = np.array(LENGTHS, np.int32)
    data = {name: MLCTensorData(bytesNoCopy=array, length=array.nbytes)}
    _check(_run(MLCTensor(shape=[3, 4, 2]), {name: lengths}, data), unlimited)


def test_in_the_descriptor_of_the_input(unlimited):
    source = MLCTensor(sequenceLengths=LENGTHS, sortedSequences=True, featureChannelCount=2, batchSize=3)
    _check(_run(source, {}, {}), unlimited)


@pytest.mark.parametrize("lengths", [[4, 2], [4, 2, 1, 1]])
def test_lengths_of_other_samples_than_there_are(lengths):
    """The tensor can be made (measured); what an LSTM would read from it is not clear."""
    source = MLCTensor(sequenceLengths=lengths, sortedSequences=True, featureChannelCount=2, batchSize=3)
    graph = MLCGraph()
    graph.node(_layer(), source=source)
    inference = MLCInferenceGraph(graphObjects=[graph])
    assert inference.addInputs({"x": source})
    assert not inference.compile(options=[], device=MLCDevice())
    assert f"has {len(lengths)} sequence lengths" in str(last_refusal())
    assert "reads 3 samples of 4 steps" in str(last_refusal())
