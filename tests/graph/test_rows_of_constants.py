"""A short batch, where a constant has a row for each sample: its first rows are read, and no others."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import pytest
import torch

from mlc_torch import (
    MLCArithmeticLayer,
    MLCArithmeticOperation,
    MLCConcatenationLayer,
    MLCDataType,
    MLCEmbeddingDescriptor,
    MLCEmbeddingLayer,
    MLCGatherLayer,
    MLCGraph,
    MLCGraphCompilationOptions,
    MLCInferenceGraph,
    MLCLossLayer,
    MLCMatMulDescriptor,
    MLCMatMulLayer,
    MLCReductionType,
    MLCReshapeLayer,
    MLCSGDOptimizer,
    MLCTensor,
    MLCTensorParameter,
    MLCTrainingGraph,
)
from mlc_torch.running.completion import wait_for_handlers
from tests.graph.programs import Array, array, cpu, data, dense, hyper, on, placeholder, values
from tests.layers.records import tensor

N, WIDTH = 4, 3
PLAIN = [MLCGraphCompilationOptions.disableLayerFusion]
GEARS = pytest.mark.parametrize("options", [[], PLAIN], ids=["planned", "plain"])
SIZES = pytest.mark.parametrize("batch", [1, 2, 3, N])


def add(graph: MLCGraph, x: MLCTensor, other: MLCTensor) -> MLCTensor:
    return graph.node(MLCArithmeticLayer(operation=MLCArithmeticOperation.add), sources=[x, other])


class Reading(NamedTuple):
    """A layer that reads the input ``x`` [N, WIDTH] beside a constant, and the same by NumPy, of any number of rows."""

    constant: Array
    build: Callable[[MLCGraph, MLCTensor, MLCTensor], MLCTensor]
    by_hand: Callable[[Array, Array], Array]


def _select(graph: MLCGraph, x: MLCTensor, condition: MLCTensor) -> MLCTensor:
    other = tensor(np.full((N, WIDTH), 9, np.float32))
    return graph.select(sources=[x, other], condition=condition)


def _product(graph: MLCGraph, x: MLCTensor, other: MLCTensor) -> MLCTensor:
    rows = graph.node(MLCReshapeLayer(shape=[N, 1, WIDTH]), source=x)
    return graph.node(MLCMatMulLayer(descriptor=MLCMatMulDescriptor()), sources=[rows, other])


def _embedded(graph: MLCGraph, x: MLCTensor, indices: MLCTensor) -> MLCTensor:
    layer = MLCEmbeddingLayer(
        descriptor=MLCEmbeddingDescriptor(embeddingCount=5, embeddingDimension=WIDTH), weights=tensor(TABLE)
    )
    return add(graph, x, graph.node(layer, source=indices))


TABLE = values(5, WIDTH, seed=7)
READINGS = {
    "added": Reading(values(N, WIDTH, seed=1), add, lambda x, c: x + c),
    "a column": Reading(values(N, 1, seed=1), add, lambda x, c: x + c),
    "joined": Reading(
        values(N, 2, seed=1),
        lambda g, x, c: g.node(MLCConcatenationLayer(dimension=1), sources=[x, c]),
        lambda x, c: np.concatenate([x, c], 1),
    ),
    "multiplied": Reading(values(N, WIDTH, 2, seed=1), _product, lambda x, c: x[:, None] @ c),
    "selected by": Reading(
        np.arange(N * WIDTH).reshape(N, WIDTH) % 3 == 0, _select, lambda x, c: np.where(c, x, np.float32(9))
    ),
    "gathered by": Reading(
        np.array([[2, 0], [1, 1], [0, 2], [2, 2]], np.int32),
        lambda g, x, c: g.node(MLCGatherLayer(dimension=1), sources=[x, c]),
        lambda x, c: np.take_along_axis(x, c.astype(np.int64), 1),
    ),
    "embedded, then added": Reading(np.array([3, 1, 4, 2], np.int32), _embedded, lambda x, c: x + TABLE[c]),
}
_TYPES = {"float32": MLCDataType.float32, "bool": MLCDataType.boolean, "int32": MLCDataType.int32}


def constant(held: Array) -> MLCTensor:
    return MLCTensor(shape=list(held.shape), data=data(held), dataType=_TYPES[held.dtype.name])


@GEARS
@pytest.mark.parametrize("kind", READINGS)
def test_inference(kind, options):
    """Each size twice: the second time by a gear of its own. What lies behind the samples stays as it was."""
    held, build, by_hand = READINGS[kind]
    graph, x = MLCGraph(), placeholder(N, WIDTH)
    result = build(graph, x, constant(held))
    inference = MLCInferenceGraph(graphObjects=[graph])
    assert inference.addInputs({"x": x}) and inference.compile(options=options, device=cpu())
    shown = np.zeros(result.descriptor.shape, np.float32)
    for number, batch in enumerate((N, 2, 1, 3, 2, 1, N, 1)):
        given = values(N, WIDTH, seed=20 + number)
        assert inference.execute(inputsData={"x": data(given)}, batchSize=batch)
        shown[:batch] = by_hand(given[:batch], held[:batch])
        np.testing.assert_allclose(array(result), shown, rtol=1e-6, atol=1e-6)


@GEARS
@SIZES
@pytest.mark.parametrize("trained", [False, True], ids=["constant", "trained"])
def test_training(batch, options, trained, torch_device):
    """Constant labels, and a shift of each sample that may be trained: rows that were not read have no gradient."""
    shift, target = values(N, WIDTH, seed=1), values(N, 2, seed=2)
    graph, x, layer = MLCGraph(), placeholder(N, WIDTH), dense(WIDTH, 2)
    shifts, labels = tensor(shift.copy()), tensor(target.copy())
    hidden = add(graph, x, shifts)
    by_mean = MLCLossLayer.meanSquaredError(reductionType=MLCReductionType.mean, weight=1)
    graph.node(by_mean, sources=[graph.node(layer, source=hidden)], lossLabels=[labels])
    training = MLCTrainingGraph(graphObjects=[graph], lossLayer=None, optimizer=MLCSGDOptimizer(descriptor=hyper(0.1)))
    assert training.addInputs({"x": x}, lossLabels=None)
    if trained:
        assert training.setTrainingTensorParameters([MLCTensorParameter(tensor=shifts)])
    assert training.compile(options=options, device=on(torch_device))
    w, b = (torch.tensor(array(p), dtype=torch.float64, requires_grad=True) for p in (layer.weights, layer.biases))
    own = torch.tensor(shift, dtype=torch.float64, requires_grad=trained)
    moved = torch.optim.SGD([w, b, *([own] if trained else [])], lr=0.1)
    told: list[float] = []
    for number in range(3):
        given = values(N, WIDTH, seed=30 + number)
        assert training.execute(
            inputsData={"x": data(given)}, lossLabelsData=None, lossLabelWeightsData=None, batchSize=batch,
            completionHandler=lambda result, error, seconds: told.append(float(result)),
        )  # fmt: skip
        training.synchronizeUpdates()
        moved.zero_grad()
        made = (torch.tensor(given[:batch]) + own[:batch]) @ w.reshape(2, WIDTH).T + b.reshape(2)
        by_hand = ((made - torch.tensor(target[:batch])) ** 2).mean()
        by_hand.backward()
        moved.step()
        assert not wait_for_handlers()  # on a GPU they are called when the device is done
        assert len(told) == number + 1
        np.testing.assert_allclose(told[-1], by_hand.item(), rtol=2e-3 if torch_device.type == "cuda" else 1e-5)
    close = {"rtol": 1e-3, "atol": 1e-3} if torch_device.type == "cuda" else {"rtol": 1e-5, "atol": 1e-6}
    np.testing.assert_allclose(array(layer.weights).ravel(), w.detach().ravel(), **close)
    np.testing.assert_allclose(array(shifts), own.detach(), **close)


def test_one_layer_reads_rows_and_another_all():
    """The same constant is added row by row and multiplied with whole: N rows, for N columns."""
    held, given = values(N, N, seed=3), values(N, N, seed=4)
    graph, x, both = MLCGraph(), placeholder(N, N), constant(held)
    product = graph.node(MLCMatMulLayer(descriptor=MLCMatMulDescriptor()), sources=[x, both])
    result = add(graph, product, both)
    inference = MLCInferenceGraph(graphObjects=[graph])
    assert inference.addInputs({"x": x}) and inference.compile(device=cpu())
    for batch in (1, 2, 2, N):
        assert inference.execute(inputsData={"x": data(given)}, batchSize=batch)
        want = given[:batch] @ held + held[:batch]
        np.testing.assert_allclose(array(result)[:batch], want, rtol=1e-5, atol=1e-6)


@SIZES
def test_as_a_module(batch):
    held, build, by_hand = READINGS["added"]
    graph, x = MLCGraph(), placeholder(N, WIDTH)
    build(graph, x, constant(held))
    inference = MLCInferenceGraph(graphObjects=[graph])
    assert inference.addInputs({"x": x}) and inference.compile(device=cpu())
    given = values(batch, WIDTH, seed=5)
    made = inference.to_module()(torch.tensor(given)).detach().numpy()
    np.testing.assert_allclose(made, by_hand(given, held[:batch]), rtol=1e-6)
