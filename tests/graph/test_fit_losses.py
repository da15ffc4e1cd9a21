"""What ``step``, ``evaluate`` and ``fit`` call the loss: all losses, each by its own reduction, however the data is cut."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from mlc_torch import (
    MLCActivationLayer,
    MLCGraph,
    MLCLossDescriptor,
    MLCLossLayer,
    MLCLossType,
    MLCReductionType,
    MLCReshapeLayer,
    MLCTensorParameter,
    MLCTrainingGraph,
    MLCTrainingWarning,
    MLCYOLOLossLayer,
)
from tests.graph.programs import cpu, dense, loss, placeholder, sgd, tensor, values
from tests.layers.yolo_records import ANCHORS, OBJECTS, describe, labels_for, yolo

BATCH, SAMPLES = 8, 20
NONE, SUM, MEAN = MLCReductionType.none, MLCReductionType.sum, MLCReductionType.mean
SETS = {
    "mean": [MEAN],
    "sum": [SUM],
    "none": [NONE],
    "mean, sum": [MEAN, SUM],
    "sum, mean": [SUM, MEAN],
    "none, mean": [NONE, MEAN],
    "mean, none": [MEAN, NONE],
    "all": [SUM, NONE, MEAN],
    "two means": [MEAN, MEAN],
}
X, T = values(SAMPLES, 6), values(SAMPLES, 2, seed=1)


def scaled(reduction: MLCReductionType, number: int) -> MLCLossLayer:
    kind = (MLCLossType.meanSquaredError, MLCLossType.meanAbsoluteError, MLCLossType.huber)[number]
    return MLCLossLayer(descriptor=MLCLossDescriptor(type=kind, reductionType=reduction, weight=number + 0.5))


def training(reductions, own: bool = False, rate: float = 0.0) -> MLCTrainingGraph:
    """A dense layer under several losses of the same result; the last one is the graph's own, or a node like the others."""
    graph, x = MLCGraph(), placeholder(BATCH, 6)
    labels = {f"t{n}": placeholder(BATCH, 2) for n, _ in enumerate(reductions)}
    layers = [scaled(r, n) for n, r in enumerate(reductions)]
    y = graph.node(dense(6, 2), source=x)
    for layer, label in list(zip(layers, labels.values(), strict=True))[: -1 if own else None]:
        graph.node(layer, sources=[y], lossLabels=[label])
    made = MLCTrainingGraph(graphObjects=[graph], lossLayer=layers[-1] if own else None, optimizer=sgd(rate))
    assert made.addInputs({"x": x}, lossLabels=labels) and made.compile(options=[], device=cpu())
    return made


def cut(size: int, labels: int, x=X, t=T):
    """The data in batches of this size: what remains is one of its own."""
    return [(x[i : i + size], [t[i : i + size]] * labels) for i in range(0, len(x), size)]


def by_hand(made: MLCTrainingGraph, reductions, x=X, t=T) -> float:
    """The losses of these samples in one call, in float64, added up."""
    layer = made.layers[0]
    weights, biases = layer.weights.numpy().reshape(2, 6).astype(float), layer.biases.numpy().ravel().astype(float)
    e = np.abs(x @ weights.T + biases - t)
    found = 0.0
    for number, reduction in enumerate(reductions):
        each = (number + 0.5) * (e**2, e, np.where(e < 1, e**2 / 2, e - 0.5))[number]
        # Alone, a loss without reduction is told by its mean; beside others by its sum, whose gradient the graph computes.
        averages = reduction is MEAN or (len(reductions) == 1 and reduction is NONE)
        found += float(each.mean() if averages else each.sum())
    return found


@pytest.mark.parametrize("own", [False, True], ids=["nodes", "an own loss"])
@pytest.mark.parametrize("name", SETS)
def test_the_loss_is_the_sum_of_all_losses_of_one_call_over_all_samples(name, own):
    reductions = SETS[name]
    made = training(reductions, own)
    want = pytest.approx(by_hand(made, reductions), rel=1e-4)
    for size in (8, 5, 4, 1):
        batches = cut(size, len(reductions))
        assert made.evaluate(batches) == want, size
        history = made.fit(batches, validation=cut(7, len(reductions)), progress=False)
        assert (history.losses[0], history.validation_losses[0]) == (want, want), size
        assert made.fit(batches, accumulate=2, progress=False).losses[0] == want, size
        steps = [by_hand(made, reductions, x, t[0]) for x, t in batches]
        assert history.step_losses == pytest.approx(steps, rel=1e-4), size
        assert made.step(*batches[-1]) == pytest.approx(steps[-1], rel=1e-4), size


def test_the_loss_is_the_number_whose_gradient_moves_the_weights():
    reductions, rate = SETS["all"], 0.01
    made = training(reductions, rate=rate)
    batch = cut(8, 3)[0]
    layer = made.layers[0]
    before, start = by_hand(made, reductions, batch[0], batch[1][0]), layer.weights.numpy().astype(float)
    start_biases = layer.biases.numpy().astype(float)
    assert made.step(*batch) == pytest.approx(before, rel=1e-4)
    moved = [(layer.weights.numpy() - start) / rate, (layer.biases.numpy() - start_biases) / rate]
    x, t = (torch.tensor(v, dtype=torch.float64) for v in (batch[0], batch[1][0]))
    w, b = (torch.tensor(v.reshape(s), requires_grad=True) for v, s in ((start, (2, 6)), (start_biases, (2,))))
    e = (x @ w.T + b - t).abs()
    total = (0.5 * e**2).sum() + (1.5 * e).sum() + (2.5 * torch.where(e < 1, e**2 / 2, e - 0.5)).mean()
    assert total.item() == pytest.approx(before)
    total.backward()
    for got, want in zip(moved, (w.grad, b.grad), strict=True):
        np.testing.assert_allclose(got.ravel(), -want.numpy().ravel(), rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("reduction", [SUM, MEAN, NONE], ids=lambda r: r.name)
def test_label_weights_do_not_change_how_batches_are_joined(reduction):
    """A mean divides by the number of elements, not by the weights, so that it still counts by samples."""
    graph, x, t, w = MLCGraph(), placeholder(BATCH, 6), placeholder(BATCH, 2), placeholder(BATCH, 1)
    layer = dense(6, 2)
    graph.node(layer, source=x)
    made = MLCTrainingGraph(graphObjects=[graph], lossLayer=loss(reduction=reduction), optimizer=sgd(0.0))
    assert made.addInputs({"x": x}, lossLabels={"t": t}, lossLabelWeights={"w": w})
    assert made.compile(options=[], device=cpu())
    each = np.arange(SAMPLES, dtype=np.float32).reshape(-1, 1)
    e = X @ layer.weights.numpy().reshape(2, 6).T.astype(float) + layer.biases.numpy().ravel() - T
    want = (each * e**2).sum() if reduction is SUM else (each * e**2).mean()
    for size in (8, 5, 1):
        parts = [slice(i, i + size) for i in range(0, SAMPLES, size)]
        assert made.evaluate([(X[p], T[p], each[p]) for p in parts]) == pytest.approx(want, rel=1e-4), size


def test_a_loss_that_looks_at_no_sample_counts_once():
    """A penalty of a tensor that is trained for itself: in one call over all the data it would be there once."""
    graph, x, t = MLCGraph(), placeholder(BATCH, 6), placeholder(BATCH, 2)
    free, zero = tensor(values(3, 2, seed=4)), tensor(np.zeros((3, 2), np.float32))
    graph.node(scaled(SUM, 1), sources=[graph.node(MLCActivationLayer.relu, source=free)], lossLabels=[zero])
    layer = dense(6, 2)
    graph.node(layer, source=x)
    made = MLCTrainingGraph(graphObjects=[graph], lossLayer=scaled(SUM, 0), optimizer=sgd(0.0))
    assert made.setTrainingTensorParameters([MLCTensorParameter(tensor=free)])
    assert made.addInputs({"x": x}, lossLabels={"t": t}) and made.compile(options=[], device=cpu())
    penalty = 1.5 * np.maximum(values(3, 2, seed=4), 0).sum()
    e = X @ layer.weights.numpy().reshape(2, 6).T.astype(float) + layer.biases.numpy().ravel() - T
    for size in (8, 5, 1):
        assert made.evaluate([(x, t[0]) for x, t in cut(size, 1)]) == pytest.approx(
            0.5 * (e**2).sum() + penalty, rel=1e-4
        )


def test_values_of_a_loss_without_reduction_all_count_where_rows_are_no_samples():
    graph, x, t = MLCGraph(), placeholder(BATCH, 6), placeholder(2 * BATCH, 3)
    graph.node(MLCReshapeLayer(shape=[2 * BATCH, 3]), source=x)
    made = MLCTrainingGraph(graphObjects=[graph], lossLayer=loss(reduction=NONE), optimizer=None)
    assert made.addInputs({"x": x}, lossLabels={"t": t}) and made.compile(options=[], device=cpu())
    given, label = X[:BATCH], values(2 * BATCH, 3, seed=9)
    want = ((given.reshape(-1, 3).astype(float) - label) ** 2).mean()
    assert made.evaluate([(given, label)]) == pytest.approx(want, rel=1e-5)


def test_the_yolo_loss_is_the_sum_of_its_shares_and_counts_by_samples():
    shape = (2, 24, 2, 3)
    graph, x, t = MLCGraph(), placeholder(*shape), placeholder(*shape)
    graph.node(MLCActivationLayer.linear(scale=1, bias=0), source=x)
    layer = MLCYOLOLossLayer(descriptor=describe())
    made = MLCTrainingGraph(graphObjects=[graph], lossLayer=layer, optimizer=None)
    assert made.addInputs({"x": x}, lossLabels={"t": t}) and made.compile(options=[], device=cpu())
    y, truth = values(*shape, low=-1.5, high=1.5), labels_for(2, 3, 2, 3, OBJECTS)
    both, first = (
        yolo(a.astype(float), b.astype(float), ANCHORS, {}).sum() for a, b in ((y, truth), (y[:1], truth[:1]))
    )
    assert made.evaluate([(y, truth)]) == pytest.approx(both, rel=1e-4)
    got = made.evaluate([(y, truth), (y[:1], truth[:1])])
    assert got == pytest.approx((2 * both + first) / 3, rel=1e-4)


def half_stopped() -> tuple[MLCTrainingGraph, list]:
    """A loss that learns, and behind it one that does not: its predictions are the inputs."""
    graph, x, t, u = MLCGraph(), placeholder(BATCH, 6), placeholder(BATCH, 2), placeholder(BATCH, 6)
    graph.node(loss(), sources=[graph.node(dense(6, 2), source=x)], lossLabels=[t])
    graph.node(loss(), sources=[graph.node(MLCActivationLayer.relu, source=x)], lossLabels=[u])
    made = MLCTrainingGraph(graphObjects=[graph], lossLayer=None, optimizer=sgd())
    assert made.addInputs({"x": x}, lossLabels={"t": t, "u": u}) and made.compile(options=[], device=cpu())
    return made, [(X[:BATCH], [T[:BATCH], X[:BATCH]])]


def test_early_stopping_and_the_best_epoch_look_at_all_losses():
    made, batches = half_stopped()
    history = made.fit(batches, epochs=6, validation=batches, patience=1, progress=False)
    assert len(history) == 6 and history.best is history[-1]


def test_tensorboard_gets_the_sum():
    made, batches = half_stopped()
    written: list[tuple[str, float]] = []

    class Board:
        def add_scalar(self, name, value, step):
            written.append((name, value))

    history = made.fit(batches, validation=batches, progress=False, tensorboard=Board())
    layer, (x, (t, u)) = made.layers[0], batches[0]
    learned = x @ layer.weights.numpy().reshape(2, 6).T.astype(float) + layer.biases.numpy().ravel() - t
    want = (learned**2).mean() + ((np.maximum(x, 0) - u) ** 2).mean()
    assert dict(written)["loss/validation"] == pytest.approx(want, rel=1e-4)
    assert dict(written)["loss/step"] == dict(written)["loss/training"] == history.losses[0]


def test_a_loss_that_is_no_number_is_warned_of_whichever_it_is():
    made, ((x, (t, u)),) = half_stopped()
    t = t.copy()
    t[0, 0] = np.nan  # of the first loss, not of the handler's
    with pytest.warns(MLCTrainingWarning, match="the loss is NaN"):
        assert np.isnan(made.step(x, [t, u]))
