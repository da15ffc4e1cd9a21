"""Sentences of the documentation's pages that no other test shows; docs/sentences.toml has them all."""

from __future__ import annotations

import asyncio
import gc

import numpy as np
import pytest
import torch

from mlc_torch import (
    MLCActivationLayer,
    MLCAdamOptimizer,
    MLCBatchNormalizationLayer,
    MLCDataType,
    MLCFullyConnectedLayer,
    MLCGraph,
    MLCInferenceGraph,
    MLCLossLayer,
    MLCLSTMDescriptor,
    MLCLSTMLayer,
    MLCReductionType,
    MLCTensor,
    MLCTrainingGraph,
    last_refusal,
)
from mlc_torch import MLCExecutionOptions as Run
from tests.graph.optimizer_bench import KINDS, Bench, descriptor
from tests.graph.programs import (
    array,
    close,
    cpu,
    data,
    dense,
    hyper,
    loss,
    on,
    placeholder,
    regression,
    sgd,
    tensor,
    values,
)
from tests.graph.reference_optimizers import Settings


def test_a_step_updates_only_where_there_is_an_optimizer():
    graph, x, t = MLCGraph(), placeholder(4, 6), placeholder(4, 3)
    layer = dense(6, 3)
    graph.node(layer, source=x)
    before = array(layer.weights)
    inputs, labels = {"x": data(values(4, 6))}, {"t": data(values(4, 3, seed=1))}

    def step(optimizer):
        training = MLCTrainingGraph(graphObjects=[graph], lossLayer=loss(), optimizer=optimizer)
        assert training.addInputs({"x": x}, lossLabels={"t": t}) and training.compile(options=[], device=cpu())
        assert training.execute(inputsData=inputs, lossLabelsData=labels, lossLabelWeightsData=None, batchSize=4)

    step(None)
    np.testing.assert_array_equal(array(layer.weights), before)
    step(sgd())
    assert not np.array_equal(array(layer.weights), before)


def test_a_node_whose_update_is_disabled_keeps_its_weights():
    graph, x, t = MLCGraph(), placeholder(4, 6), placeholder(4, 3)
    first, second = dense(6, 5), dense(5, 3)
    hidden = graph.node(first, sources=[x], disableUpdate=True)
    graph.node(second, source=hidden)
    before = array(first.weights), array(second.weights)
    training = MLCTrainingGraph(graphObjects=[graph], lossLayer=loss(), optimizer=sgd())
    assert training.addInputs({"x": x}, lossLabels={"t": t}) and training.compile(options=[], device=cpu())
    given = {"x": data(values(4, 6))}, {"t": data(values(4, 3, seed=1))}
    assert training.execute(inputsData=given[0], lossLabelsData=given[1], lossLabelWeightsData=None, batchSize=4)
    np.testing.assert_array_equal(array(first.weights), before[0])
    assert not np.array_equal(array(second.weights), before[1])


@pytest.mark.parametrize("way", ["disableUpdate", "isUpdatable"])
def test_a_frozen_batch_normalization_moves_its_running_statistics(way):
    graph, x, t = MLCGraph(), placeholder(4, 3, 1, 1), placeholder(4, 3, 1, 1)
    start = {"mean": 0, "variance": 1, "beta": 0.5, "gamma": 2}
    held = {name: tensor(np.full(3, value, np.float32), [1, 3, 1, 1]) for name, value in start.items()}
    norm = MLCBatchNormalizationLayer(featureChannelCount=3, **held, varianceEpsilon=1e-3, momentum=0.75)
    assert graph.node(norm, sources=[x], disableUpdate=way == "disableUpdate") is not None
    if way == "isUpdatable":
        norm.betaParameter.isUpdatable = norm.gammaParameter.isUpdatable = False
    after = MLCFullyConnectedLayer(
        weights=tensor(values(9), [1, 9, 1, 1]), biases=None, descriptor=dense(3, 3).descriptor
    )
    graph.node(after, source=graph.resultTensors(for_=norm)[0])
    training = MLCTrainingGraph(graphObjects=[graph], lossLayer=loss(), optimizer=sgd())
    assert training.addInputs({"x": x}, lossLabels={"t": t}) and training.compile(options=[], device=cpu())
    given = values(4, 3, 1, 1, seed=2)
    training.step(given, values(4, 3, 1, 1, seed=1))
    close(array(held["mean"]).ravel(), 0.25 * given.mean((0, 2, 3)))
    close(array(held["variance"]).ravel(), 0.75 + 0.25 * given.var((0, 2, 3)))
    assert (array(held["beta"]) == 0.5).all() and (array(held["gamma"]) == 2).all()


def test_adams_time_step_is_one_for_all_parameters():
    """A layer's first step after 20 updates of another: lr · √(1−β₂²¹)/(1−β₁²¹) · (1−β₁)/√(1−β₂) where torch's is lr."""
    graph, x, t = MLCGraph(), placeholder(4, 6), placeholder(4, 3)
    first, second = dense(6, 5), dense(5, 3)
    graph.node(second, source=graph.node(first, source=x))
    first.weightsParameter.isUpdatable = False
    adam = MLCAdamOptimizer(descriptor=hyper(0.01))
    training = MLCTrainingGraph(graphObjects=[graph], lossLayer=loss(), optimizer=adam)
    assert training.addInputs({"x": x}, lossLabels={"t": t}) and training.compile(options=[], device=cpu())
    given = values(4, 6), values(4, 3, seed=1) + 3
    for _ in range(20):
        training.step(*given)
    before = array(first.weights)
    first.weightsParameter.isUpdatable = True
    training.step(*given)
    want = 0.01 * np.sqrt(1 - 0.999**21) / (1 - 0.9**21) * 0.1 / np.sqrt(0.001)
    assert want == pytest.approx(0.00512, rel=1e-3) and adam.timeStep == 22
    np.testing.assert_allclose(np.abs(array(first.weights) - before), want, rtol=1e-2)


@pytest.mark.parametrize(("weight", "above", "below"), [(1, 1e-7, 1e-4), (1e-2, 1e-4, 1e-2), (1e-4, 1e-2, 1)])
def test_adams_epsilon_differs_from_torchs_the_more_the_smaller_the_gradients(weight, above, below):
    rng = np.random.default_rng(0)
    made = [rng.normal(0, 0.3, s).astype(np.float32) for s in ((32, 10), (1, 32))]
    graph, x, t = MLCGraph(), placeholder(16, 10), placeholder(16, 1)
    layers = []
    for w in made:
        layer = dense(w.shape[1], w.shape[0], bias=False)
        layer = MLCFullyConnectedLayer(weights=tensor(w, [1, w.size, 1, 1]), biases=None, descriptor=layer.descriptor)
        layers.append(layer)
    graph.node(layers[1], source=graph.node(MLCActivationLayer.relu, source=graph.node(layers[0], source=x)))
    error = MLCLossLayer.meanSquaredError(reductionType=MLCReductionType.mean, weight=weight)
    training = MLCTrainingGraph(
        graphObjects=[graph], lossLayer=error, optimizer=MLCAdamOptimizer(descriptor=hyper(0.01))
    )
    assert training.addInputs({"x": x}, lossLabels={"t": t}) and training.compile(options=[], device=cpu())
    twins = [torch.tensor(w, requires_grad=True) for w in made]
    adam = torch.optim.Adam(twins, lr=0.01)
    for _ in range(40):
        given, wanted = rng.normal(size=(16, 10)).astype(np.float32), rng.normal(size=(16, 1)).astype(np.float32)
        training.step(given, wanted)
        result = torch.relu(torch.from_numpy(given) @ twins[0].T) @ twins[1].T
        adam.zero_grad()
        (weight * ((result - torch.from_numpy(wanted)) ** 2).mean()).backward()
        adam.step()
    assert above < np.abs(array(layers[0].weights).ravel() - twins[0].detach().numpy().ravel()).max() < below


def test_the_handler_has_run_when_a_synchronous_call_returns(torch_device):
    program = regression(device=on(torch_device))
    inference = MLCInferenceGraph(graphObjects=[program.graph])
    assert program.compile() and inference.addInputs(program.inputs)
    assert inference.compile(options=[], device=program.device)
    seen = []
    for number in range(5):
        assert program.execute(options=Run.synchronous, completionHandler=lambda *a: seen.append("step"))
        assert inference.execute(
            inputsData=program.inputs_data(),
            batchSize=4,
            options=Run.synchronous,
            completionHandler=lambda *a: seen.append("inference"),
        )
        assert seen == ["step", "inference"] * (number + 1)


def test_the_gradient_pass_fills_memory_for_outputs(torch_device):
    program = regression(widths=(6, 5, 3), device=on(torch_device))
    assert program.training.addOutputs({"y": program.result})
    assert program.compile() and program.bind() and program.forward()
    filled = np.zeros((4, 3), np.float32)
    assert program.gradient(outputsData={"y": data(filled)}, options=Run.synchronous)
    close(filled, array(program.result))
    assert filled.any()


def test_the_asynchronous_gradient_pass_gives_its_time():
    program = regression()
    assert program.compile()

    async def phases(**options):
        assert program.bind() and program.forward()
        return await program.training.executeGradientAsync(batchSize=4, **options)

    assert asyncio.run(phases(options=[Run.profiling])) > 0


def test_device_data_of_an_optimizer_is_bound():
    """State that one run left on the device goes on in another as if there had been no stop."""
    kind = next(kind for kind in KINDS if kind.name == "sgd momentum")
    whole, first, second = (Bench(kind.make(descriptor(Settings())), cpu()) for _ in range(3))
    for bench in (whole, first):
        bench.compile()
        bench.step(0)
    for parameter, left in zip(second.params, first.params, strict=True):
        parameter.torch.copy_(left.torch)
        assert left.optimizerDeviceData
        assert second.training.bindOptimizerData([], deviceData=left.optimizerDeviceData, with_=parameter)
        assert len(parameter.optimizerDeviceData) == len(left.optimizerDeviceData)
    second.compile()
    whole.step(1)
    second.step(1)
    for got, want in zip(second.weights(), whole.weights(), strict=True):
        np.testing.assert_array_equal(got, want)


def test_an_inference_graph_updates_nothing():
    program = regression()
    inference = MLCInferenceGraph(graphObjects=[program.graph])
    assert inference.addInputs(program.inputs) and inference.compile(options=[], device=cpu())
    before = array(program.layers[0].weights)
    for _ in range(3):
        assert inference.execute(inputsData=program.inputs_data(), batchSize=4, options=Run.synchronous)
    np.testing.assert_array_equal(array(program.layers[0].weights), before)


def test_bound_memory_is_kept_alive():
    program = regression()
    assert program.compile()
    want = program.given["x"] @ array(program.layers[0].weights).reshape(3, 6).T
    want += array(program.layers[0].biases).ravel()
    assert program.bind()
    program.given.clear()  # the program lets go of its memory
    gc.collect()
    other = [np.full((4, 6), np.nan, np.float32) for _ in range(50)]  # which somebody else would get
    assert program.forward()
    close(array(program.result), want)
    assert len(other) == 50


def test_results_may_be_asked_for_after_a_pass(torch_device):
    """After a forward pass they are there at once; after a whole step they come with the next, and say so."""
    program = regression(widths=(6, 5, 3), device=on(torch_device))
    assert program.compile() and program.execute(options=Run.synchronous)
    (hidden,) = program.training.resultTensors(for_=program.layers[0])
    assert hidden.data is None and not hidden.synchronizeData()
    assert "did not keep the result" in str(last_refusal())
    program.training.synchronizeUpdates()
    first = program.layers[0]
    want = program.given["x"] @ array(first.weights).reshape(5, 6).T + array(first.biases).ravel()
    assert program.execute(options=Run.synchronous) and hidden.synchronizeData()
    close(array(hidden), want)

    other = regression(widths=(6, 5, 3), device=on(torch_device))
    assert other.compile() and other.bind() and other.forward(options=Run.synchronous)
    (hidden,) = other.training.resultTensors(for_=other.layers[0])
    first = other.layers[0]
    close(array(hidden), other.given["x"] @ array(first.weights).reshape(5, 6).T + array(first.biases).ravel())


def test_lengths_of_sequences_in_training():
    """Steps past the end of a sequence are zero: against the same network without lengths, cut off by hand."""
    x, t = placeholder(3, 4, 2), placeholder(3, 4, 3)
    lengths, given = MLCTensor(shape=[3], dataType=MLCDataType.int32), values(3, 4, 2, seed=5)
    counts, target = np.array([4, 2, 1], np.int32), np.zeros((3, 4, 3), np.float32)
    graph = MLCGraph()
    layer = MLCLSTMLayer(
        descriptor=MLCLSTMDescriptor(inputSize=2, hiddenSize=3, layerCount=1),
        inputWeights=[tensor(values(3, 2, seed=i)) for i in range(4)],
        hiddenWeights=[tensor(values(3, 3, seed=10 + i)) for i in range(4)],
        biases=[tensor(values(3, seed=20 + i)) for i in range(4)],
    )
    result = graph.node(layer, source=x)

    def loss_with(**more):
        training = MLCTrainingGraph(graphObjects=[graph], lossLayer=loss(), optimizer=None)
        assert training.addInputs({"x": x} | dict.fromkeys(more, lengths), lossLabels={"t": t})
        assert training.compile(options=[], device=cpu())
        seen = []
        assert training.execute(
            inputsData={"x": data(given)} | more,
            lossLabelsData={"t": data(target)},
            lossLabelWeightsData=None,
            batchSize=3,
            options=Run.synchronous,
            completionHandler=lambda *answer: seen.append(float(array(answer[0])[0])),
        )
        return seen[0], array(result)

    _, whole = loss_with()
    cut = np.where(np.arange(4)[None, :, None] < counts[:, None, None], whole, 0)
    for name in ("sortedSequenceLength", "sortedSequenceLengths"):
        measured, found = loss_with(**{name: data(counts)})
        close(found, cut)
        close(measured, (cut**2).mean())
