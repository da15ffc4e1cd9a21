"""Which inputs have a row for each sample, and so are cut to a short batch, and which are the same for all; by NumPy, torch."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import numpy as np
import pytest
import torch
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from mlc_torch import (
    MLCArithmeticLayer,
    MLCArithmeticOperation,
    MLCComparisonLayer,
    MLCComparisonOperation,
    MLCDataType,
    MLCGatherLayer,
    MLCGraph,
    MLCInferenceGraph,
    MLCLayer,
    MLCLossLayer,
    MLCLSTMResultMode,
    MLCMatMulDescriptor,
    MLCMatMulLayer,
    MLCReductionType,
    MLCScatterLayer,
    MLCSelectionLayer,
    MLCTensor,
    MLCTrainingGraph,
    last_refusal,
)
from tests.graph.programs import array, cpu, data, placeholder, sgd, values
from tests.layers.test_attention import make as attention
from tests.layers.test_attention import torch_attention
from tests.layers.test_lstm import make as lstm
from tests.layers.test_lstm import torch_lstm

BATCH = 4
Array = np.ndarray
TYPES = {"f": MLCDataType.float32, "i": MLCDataType.int32, "b": MLCDataType.boolean}


def arithmetic(operation: str) -> Callable[[], MLCLayer]:
    return lambda: MLCArithmeticLayer(operation=MLCArithmeticOperation[operation])


def product(turned: bool = False) -> Callable[[], MLCLayer]:
    return lambda: MLCMatMulLayer(descriptor=MLCMatMulDescriptor(alpha=1, transposesX=False, transposesY=turned))


def numbers(*shape: int) -> Callable[[], Array]:
    return lambda: values(*shape, seed=len(shape) + shape[0])


def indices(*found: int) -> Callable[[], Array]:
    return lambda: np.array(found, np.int32)


@dataclass(frozen=True)
class Layer:
    """A layer over the samples ``x`` and over what is the same for all of them, and what it computes."""

    make: Callable[[], MLCLayer]
    x: Callable[[], Array]
    whole: Callable[[], Array]
    formula: Callable[[Array, Array], Array]
    first: bool = True
    """Whether the samples are its first source."""


LAYERS = {
    "a sum with a row": Layer(arithmetic("add"), numbers(BATCH, BATCH), numbers(BATCH), np.add),
    "a row minus": Layer(arithmetic("subtract"), numbers(BATCH, BATCH), numbers(BATCH), lambda x, b: b - x, False),
    "a sum with a row, of a column": Layer(arithmetic("add"), numbers(BATCH, 1), numbers(BATCH), np.add),
    "a factor": Layer(arithmetic("multiply"), numbers(BATCH, 3), numbers(1), np.multiply),
    "a factor of two dimensions": Layer(arithmetic("multiply"), numbers(BATCH, 3), numbers(1, 3), np.multiply),
    "a factor of three": Layer(arithmetic("multiply"), numbers(BATCH, 3), numbers(3), np.multiply),
    "a comparison": Layer(
        lambda: MLCComparisonLayer(operation=MLCComparisonOperation.greater),
        numbers(BATCH, BATCH),
        numbers(BATCH),
        np.greater,
    ),
    "a product": Layer(product(), numbers(BATCH, BATCH), numbers(BATCH, BATCH), np.matmul),
    "a product of stacks": Layer(product(), numbers(BATCH, 3, BATCH), numbers(BATCH, 2), np.matmul),
    "a product with a table": Layer(product(True), numbers(BATCH, 3), numbers(9, 3), lambda x, t: x @ t.T),
    "columns": Layer(lambda: MLCGatherLayer(dimension=1), numbers(BATCH, 6), indices(5, 0, 3, 1), lambda x, i: x[:, i]),
    "other columns": Layer(
        lambda: MLCGatherLayer(dimension=1), numbers(BATCH, 6), indices(5, 0, 3), lambda x, i: x[:, i]
    ),
}


def graph_of(layer: Layer, order: str) -> tuple[MLCInferenceGraph, MLCGraph]:
    x, whole = layer.x(), layer.whole()
    tensors = {n: placeholder(*a.shape, type_=TYPES[a.dtype.kind]) for n, a in (("x", x), ("w", whole))}
    graph = MLCGraph()
    sources = [tensors["x"], tensors["w"]]
    result = graph.node(layer.make(), sources=sources if layer.first else sources[::-1])
    inference = MLCInferenceGraph(graphObjects=[graph])
    assert inference.addInputs({name: tensors[name] for name in order})
    assert inference.compile(options=[], device=cpu()), last_refusal()
    return inference, result


@pytest.mark.parametrize("order", ["xw", "wx"])  # a dictionary of Swift's has none
@pytest.mark.parametrize("name", LAYERS)
def test_what_is_the_same_for_all_samples_is_not_cut(name, order):
    layer = LAYERS[name]
    inference, result = graph_of(layer, order)
    x, whole = layer.x(), layer.whole()
    for count in (BATCH, 2, 2, 2, 1, 0, BATCH):
        given = {"x": data(x[: count or BATCH].copy()), "w": data(whole)}
        assert inference.execute(inputsData=given, batchSize=count), last_refusal()
        want = layer.formula(x[: count or BATCH], whole)
        found = result.numpy()[: count or BATCH]
        np.testing.assert_allclose(found, want, rtol=1e-5, atol=1e-6)
    assert not inference.execute(inputsData={"x": data(x), "w": data(whole)}, batchSize=BATCH + 1)
    assert f"the inputs hold {BATCH} samples" in str(last_refusal())


def test_scattered_columns_are_the_same_for_all_samples():
    updates, places, onto = (placeholder(BATCH, BATCH), placeholder(BATCH, type_=TYPES["i"]), placeholder(BATCH, 6))
    graph = MLCGraph()
    layer = MLCScatterLayer(dimension=1, reductionType=MLCReductionType.none)
    result = graph.node(layer, sources=[updates, places, onto])
    inference = MLCInferenceGraph(graphObjects=[graph])
    assert inference.addInputs({"i": places, "u": updates, "o": onto}) and inference.compile(options=[], device=cpu())
    u, o, i = values(BATCH, BATCH), values(BATCH, 6, seed=1), np.array([5, 0, 3, 1], np.int32)
    for count in (2, 2, 3, BATCH):
        given = {"u": data(u[:count].copy()), "o": data(o[:count].copy()), "i": data(i)}
        assert inference.execute(inputsData=given, batchSize=count), last_refusal()
        want = o[:count].copy()
        want[:, i] = u[:count]
        np.testing.assert_array_equal(array(result)[:count], want)


def test_choices_of_one_row_are_the_same_for_all_samples():
    condition, x, y = placeholder(BATCH, type_=TYPES["b"]), placeholder(BATCH, BATCH), placeholder(BATCH, BATCH)
    graph = MLCGraph()
    result = graph.node(MLCSelectionLayer(), sources=[condition, x, y])
    inference = MLCInferenceGraph(graphObjects=[graph])
    assert inference.addInputs({"c": condition, "x": x, "y": y}) and inference.compile(options=[], device=cpu())
    c, a, b = np.array([True, False, False, True]), values(BATCH, BATCH), values(BATCH, BATCH, seed=1)
    for count in (2, 2, BATCH):
        given = {"c": data(c), "x": data(a[:count].copy()), "y": data(b[:count].copy())}
        assert inference.execute(inputsData=given, batchSize=count), last_refusal()
        np.testing.assert_array_equal(array(result)[:count], np.where(c, a[:count], b[:count]))


def test_an_input_that_no_layer_reads_counts_nothing():
    unread, x = placeholder(7), placeholder(BATCH, 3)
    graph = MLCGraph()
    result = graph.node(arithmetic("tanh")(), source=x)
    inference = MLCInferenceGraph(graphObjects=[graph])
    with pytest.warns(UserWarning, match="reads"):
        assert inference.addInputs({"z": unread, "x": x}) and inference.compile(options=[], device=cpu())
    given = {"z": data(values(7)), "x": data(values(BATCH, 3))}
    assert not inference.execute(inputsData=given, batchSize=7)
    assert inference.execute(inputsData=given, batchSize=2), last_refusal()
    np.testing.assert_allclose(array(result)[:2], np.tanh(values(BATCH, 3)[:2]), rtol=1e-5)


# What has a row for each sample although it is no ordinary source


def masked_attention(x: torch.Tensor, rows: torch.Tensor) -> torch.Tensor:
    return torch_attention()(x, x, x, key_padding_mask=rows, need_weights=False)[0]


def packed_lstm(x: torch.Tensor, rows: torch.Tensor) -> torch.Tensor:
    packed = pack_padded_sequence(x, rows, batch_first=True, enforce_sorted=False)
    return pad_packed_sequence(torch_lstm(6, 4, 1, False)(packed)[0], batch_first=True, total_length=5)[0]


MASK = np.array([[0, 0, 1, 0, 0], [0, 1, 0, 0, 1], [0, 0, 0, 0, 0], [1, 0, 0, 0, 0]], bool)
LENGTHS = np.array([5, 2, 3, 1], np.int32)
ROWS = {
    "a key mask": (attention, 3, MASK, masked_attention),
    "sequence lengths": (partial(lstm, 6, 4, 1, mode=MLCLSTMResultMode.output), 1, LENGTHS, packed_lstm),
}
"""A layer, how often it reads the samples, the rows beside them, and the same by torch."""


def over_rows(name: str) -> tuple[MLCGraph, dict, MLCTensor, Array, Callable[[int], Array]]:
    make, times, rows, theirs = ROWS[name]
    x, more = placeholder(BATCH, 5, 6), placeholder(*rows.shape, type_=TYPES[rows.dtype.kind])
    graph = MLCGraph()
    result = graph.node(make(), sources=[x] * times + [more])
    assert result is not None, last_refusal()

    def wanted(count: int) -> Array:
        with torch.no_grad():
            return theirs(torch.from_numpy(values(BATCH, 5, 6)[:count]), torch.from_numpy(rows[:count])).numpy()

    return graph, {"r": more, "x": x}, result, rows, wanted


@pytest.mark.parametrize("name", ROWS)
def test_masks_and_lengths_are_cut_with_their_samples(name):
    graph, tensors, result, rows, wanted = over_rows(name)
    inference = MLCInferenceGraph(graphObjects=[graph])
    assert inference.addInputs(tensors) and inference.compile(options=[], device=cpu())
    x = values(BATCH, 5, 6)
    for count in (BATCH, 2, 2, 3, 1):
        for given in (rows[:count].copy(), rows):  # as many as are read, or more
            inputs = {"x": data(x[:count].copy()), "r": data(given)}
            assert inference.execute(inputsData=inputs, batchSize=count), last_refusal()
            np.testing.assert_allclose(array(result)[:count], wanted(count), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", ROWS)
def test_fit_takes_a_last_batch_that_is_short(name):
    graph, tensors, result, rows, wanted = over_rows(name)
    labels = placeholder(*result.descriptor.shape)
    loss = MLCLossLayer.meanSquaredError(reductionType=MLCReductionType.mean, weight=1)
    training = MLCTrainingGraph(graphObjects=[graph], lossLayer=loss, optimizer=sgd(1e-9))
    assert training.addInputs(tensors, lossLabels={"y": labels}) and training.compile(options=[], device=cpu())
    x, y = values(BATCH, 5, 6), values(*result.descriptor.shape, seed=9)
    batches = [({"x": x[:n], "r": rows[:n]}, {"y": y[:n]}) for n in (BATCH, 2)]
    history = training.fit(batches, progress=False)
    want = [float(((wanted(n) - y[:n]) ** 2).mean()) for n in (BATCH, 2)]
    np.testing.assert_allclose(history.step_losses, want, rtol=1e-4)
