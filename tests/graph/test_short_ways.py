"""Once a graph has run, ordinary calls take a short way past the door. Nothing else about them may be different."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from mlc_torch import MLCDevice, MLCExecutionOptions, MLCTensorData, last_refusal
from tests.gears.training import BATCH, batch, perceptron, step, training_graph


@pytest.fixture
def running():
    """A training graph that has its short ways, and a twin that never takes them."""
    network, other = perceptron(), perceptron()
    graph, plain = (training_graph(n, MLCDevice.cpu()) for n in (network, other))
    step(graph, batch(network, 0))
    _by_the_door(plain, batch(other, 0))
    assert set(graph._quick) == {"execute", "executeForward", "executeGradient", "executeOptimizerUpdate"}
    return graph, network, plain, other


def _by_the_door(graph, data):
    graph._quick = {}
    step(graph, data)


def _same(network, other):
    return all(torch.equal(a.torch, b.torch) for a, b in zip(network.parameters, other.parameters, strict=True))


def test_the_numbers_are_those_of_the_ordinary_way(running):
    graph, network, plain, other = running
    for number in range(1, 6):
        step(graph, batch(network, number))
        _by_the_door(plain, batch(other, number))
    assert _same(network, other)


def test_the_phases_too(running):
    graph, network, plain, other = running
    for made, its in ((graph, network), (plain, other)):
        labels = type(its.source)._of(next(iter(made._labels.values())))
        tensors = {"x": its.source, "y": labels}
        for number in range(3):
            if made is plain:
                made._quick = {}
            assert made.bindAndWriteData(batch(its, number), forInputs=tensors, to=MLCDevice.cpu(), synchronous=True)
            assert made.executeForward(batchSize=0)
            assert made.executeGradient(batchSize=0)
            gradient = made.gradientData(forParameter=its.parameters[0], layer=made.layers[0])
            assert np.frombuffer(gradient, np.float32).any()
            assert made.executeOptimizerUpdate()
    assert _same(network, other)


def test_handlers_get_the_loss(running):
    graph, network, *_ = running
    data, seen = batch(network, 1), []
    assert graph.execute(
        inputsData={"x": data["x"]},
        lossLabelsData={"y": data["y"]},
        lossLabelWeightsData=None,
        batchSize=BATCH,
        options=[MLCExecutionOptions.synchronous],
        completionHandler=lambda result, error, seconds: seen.append((float(result.numpy()[0]), error, seconds)),
    )
    ((loss, error, seconds),) = seen
    assert loss > 0 and error is None and seconds == 0.0


@pytest.mark.parametrize(
    ("labels", "kind"),
    [
        ({"batchSize": BATCH - 2}, True),
        ({"options": [MLCExecutionOptions.profiling]}, True),
        ({"batchSize": BATCH + 1}, False),
        ({"batchSize": -1}, False),
        ({"inputsData": {}}, True),  # the input still holds what was bound, or is refused with a reason
        ({"batchSize": True}, TypeError),
        ({"inputsData": 3}, TypeError),
        ({"nonsense": 1}, TypeError),
        ({"inputsData": {"x": "text"}}, TypeError),
        ({"completionHandler": 7}, TypeError),
    ],
    ids=str,
)
def test_whatever_is_special_goes_through_the_door(running, labels, kind):
    graph, network, *_ = running
    data = batch(network, 1)
    given = {
        "inputsData": {"x": data["x"]},
        "lossLabelsData": {"y": data["y"]},
        "lossLabelWeightsData": None,
        "batchSize": BATCH,
    } | labels
    if kind is TypeError:
        with pytest.raises(TypeError):
            graph.execute(**given)
    else:
        answered = graph.execute(**given)
        assert answered is kind or (answered is False and "no data for the input 'x'" in str(last_refusal()))
    step(graph, data)


def test_short_data_is_refused(running):
    graph, network, *_ = running
    data = batch(network, 1)
    short = MLCTensorData(bytesNoCopy=bytearray(8), length=8)
    assert not graph.execute(
        inputsData={"x": short}, lossLabelsData={"y": data["y"]}, lossLabelWeightsData=None, batchSize=BATCH
    )
    assert "8 bytes" in str(last_refusal())


def test_a_hook_registered_later_fires(running):
    graph, network, *_ = running
    calls = []
    handle = graph.layers[0].module.register_forward_hook(lambda *a: calls.append(1))
    step(graph, batch(network, 1))
    assert calls == [1]
    handle.remove()
    step(graph, batch(network, 2))
    assert calls == [1]


def test_weights_bound_anew_are_used(running):
    graph, network, plain, other = running
    for its in (network, other):
        weights = its.parameters[0]
        array = np.full(weights.descriptor.shape, 0.01, np.float32)
        assert weights.bindAndWriteData(MLCTensorData(bytesNoCopy=array, length=array.nbytes), to=MLCDevice.cpu())
    step(graph, batch(network, 1))
    _by_the_door(plain, batch(other, 1))
    assert _same(network, other)


def test_phases_out_of_order_are_still_refused(running):
    graph, network, *_ = running
    step(graph, batch(network, 1))
    assert not graph.executeGradient(batchSize=0)
    assert "executeForward" in str(last_refusal())
