"""Ordinary calls on a GPU: what the program is given is there when it is called, and its own memory is its own again."""

from __future__ import annotations

import asyncio
import threading

import numpy as np
import pytest
import torch

from mlc_torch import (
    MLCActivationLayer,
    MLCArithmeticLayer,
    MLCArithmeticOperation,
    MLCDevice,
    MLCExecutionOptions,
    MLCGraph,
    MLCInferenceGraph,
    MLCTensorData,
    MLCTrainingWarning,
    unwrap,
)
from mlc_torch.engine.captured import Captured
from tests.graph.programs import array, data, dense, placeholder, regression, sgd, values

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs CUDA")

TIMEOUT = 60
SYNCHRONOUS = [MLCExecutionOptions.synchronous]


class Network:
    """A dense layer on the GPU, beside the same product by NumPy."""

    def __init__(self, samples: int, inputs: int) -> None:
        layer, graph = dense(inputs, 5), MLCGraph()
        self.weights, self.biases = array(layer.weights).reshape(5, inputs), array(layer.biases).reshape(5)
        self.samples, self.source = samples, placeholder(samples, inputs)
        self.result = graph.node(with_=layer, source=self.source)
        self.graph = MLCInferenceGraph(graphObjects=[graph])
        assert self.graph.addInputs({"x": self.source}) and self.graph.addOutputs({"y": self.result})
        assert self.graph.compile(options=[], device=unwrap(MLCDevice.gpu()))

    def expected(self, x):
        return x.astype(np.float64) @ self.weights.T.astype(np.float64) + self.biases

    def execute(self, x, options=(), **more):
        assert self.graph.execute(inputsData={"x": data(x)}, batchSize=self.samples, options=list(options), **more)


def close(found, wanted):
    np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("samples", [4096, 140, 120])  # below 320 KiB it is copied first
def test_pinned_memory_may_be_written_to_as_soon_as_a_cuda_call_returns(samples):
    network = Network(samples, 600)
    x = torch.empty(samples, 600, pin_memory=True).numpy()
    for turn in range(6):
        x[:] = given = values(samples, 600, seed=turn)
        network.execute(x)
        x[:] = np.nan
        close(array_of(network.result), network.expected(given))


def test_pinned_memory_beside_a_result_on_the_gpu_may_be_written_to_as_soon_as_the_call_returns():
    """The result comes from a linked graph, and is copied where it lies; so is what is given."""
    device, lower, upper = unwrap(MLCDevice.gpu()), MLCGraph(), MLCGraph()
    source, more = placeholder(64, 600), placeholder(64, 600)
    result = upper.node(
        MLCArithmeticLayer(operation=MLCArithmeticOperation.add),
        sources=[lower.node(MLCActivationLayer.relu, source=source), more],
    )
    first, second = MLCInferenceGraph(graphObjects=[lower]), MLCInferenceGraph(graphObjects=[upper])
    assert first.addInputs({"x": source}) and second.addInputs({"z": more}) and first.link(with_=[second])
    assert all(g.compile(options=[], device=device) for g in (first, second))
    x, z = values(64, 600), torch.empty(64, 600, pin_memory=True).numpy()
    for turn in range(6):
        z[:] = given = values(64, 600, seed=turn)
        assert first.execute(inputsData={"x": data(x)}, batchSize=64, options=[])
        torch.cuda._sleep(20_000_000)
        assert second.execute(inputsData={"z": data(z)}, batchSize=64, options=[])
        z[:] = np.nan
        close(array_of(result), np.maximum(x, 0) + given)


@pytest.mark.parametrize("inputs", [40, 600, 4096])  # 10 KiB, 150 KiB, 1 MiB
@pytest.mark.parametrize("by_phases", [True, False])
def test_what_is_bound_reaches_its_own_pass_behind_a_busy_gpu(inputs, by_phases):
    """Large data waits in pinned memory; it goes to the GPU from there, long after other data was bound."""
    program, made = regression(sgd(0.0), 64, (inputs, 5), device=unwrap(MLCDevice.gpu())), []
    weights, biases = array(program.layers[0].weights).reshape(5, inputs), array(program.layers[0].biases).ravel()
    assert program.training.addOutputs({"y": program.result}) and program.compile()
    given = [values(64, inputs, seed=turn) for turn in range(20)]
    for turn, x in enumerate([given[0], *given]):
        if turn == 1:
            torch.cuda._sleep(100_000_000)
        program.given["x"][:] = x
        assert program.bind()
        program.given["x"][:] = np.nan
        if by_phases:
            assert program.forward(options=[]) and program.gradient(options=[])
        else:
            assert program.training.execute(inputsData={}, lossLabelsData={}, lossLabelWeightsData={}, batchSize=0)
        made.append(program.result._cell.value.clone())  # queued, behind the pass
    for x, y in zip(given, made[1:], strict=True):
        close(y.cpu().numpy().reshape(64, 5), x.astype(np.float64) @ weights.T + biases)


@pytest.mark.parametrize("inputs", [9, 700])
def test_calls_that_wait_for_a_busy_gpu_keep_their_inputs_apart(inputs, monkeypatch):
    """Little data goes from memory that all calls share to one of eight places, each used again once it has been read."""
    network, made = Network(2, inputs), []
    given = [values(2, inputs, seed=turn) for turn in range(30)]
    for x in given[:4]:
        network.execute(x)
    monkeypatch.setattr(Captured, "_run_from_slot", lambda *given: pytest.fail("this is no usual call"))
    torch.cuda._sleep(100_000_000)
    for x in given:
        network.execute(x)
        made.append(network.result._cell.value.clone())  # queued, behind the call
    for x, y in zip(given, made, strict=True):
        close(y.cpu().numpy().reshape(2, 5), network.expected(x))


def array_of(tensor):
    assert tensor.synchronizeData()
    return array(tensor)


@pytest.mark.parametrize("samples", [1, 3])
def test_a_synchronous_cuda_call_gives_its_handler_the_result_for_good(samples):
    network, seen = Network(samples, 7), []
    given = [values(samples, 7, seed=s) for s in range(6)]
    for x in given:
        network.execute(x, SYNCHRONOUS, completionHandler=lambda result, *_: seen.append((result, array(result))))
        assert seen[-1][1].shape == (samples, 5)
    for x, (result, at_once) in zip(given, seen, strict=True):
        close(at_once, network.expected(x))
        close(array(result), network.expected(x))


@pytest.mark.parametrize("options", [[], SYNCHRONOUS])
@pytest.mark.parametrize("handled", [False, True])
def test_a_cuda_call_fills_output_buffers(options, handled):
    network, out = Network(3, 7), np.empty((3, 5), np.float32)
    for seed in range(6):
        x, came = values(3, 7, seed=seed), threading.Event()
        more = {"completionHandler": lambda *_, came=came: came.set()} if handled else {}
        network.execute(x, options, outputsData={"y": MLCTensorData(bytesNoCopy=out, length=out.nbytes)}, **more)
        assert came.wait(TIMEOUT) if handled and not options else came.is_set() == handled
        close(out, network.expected(x))


def test_an_output_that_a_cuda_call_does_not_compute_is_left_alone():
    network, out = Network(3, 7), np.full((3, 7), 5, np.float32)
    more = {"outputsData": {"missing": MLCTensorData(bytesNoCopy=out, length=out.nbytes)}}
    assert network.graph.addOutputs({"missing": placeholder(3, 7)})
    with pytest.warns(MLCTrainingWarning, match="produces the output 'missing'"):
        assert network.graph.compile(options=[], device=unwrap(MLCDevice.gpu()))
    for _ in range(4):
        network.execute(values(3, 7), SYNCHRONOUS, **more)
    assert (out == 5).all()


def test_an_input_that_is_an_output_is_what_each_cuda_call_was_given():
    """Though its array holds other numbers when the buffers are filled."""
    network = Network(3, 7)
    assert network.graph.addOutputs({"given": network.source})
    assert network.graph.compile(options=[], device=unwrap(MLCDevice.gpu()))
    x, outs = np.empty((3, 7), np.float32), [np.full((3, 7), 5, np.float32) for _ in range(6)]
    for seed, out in enumerate(outs):
        x[:] = values(3, 7, seed=seed)
        network.execute(x, (), outputsData={"given": MLCTensorData(bytesNoCopy=out, length=out.nbytes)})
    x[:] = 0
    came = threading.Event()
    network.execute(x, (), completionHandler=lambda *_: came.set())
    assert came.wait(TIMEOUT)
    for seed, out in enumerate(outs):
        np.testing.assert_array_equal(out, values(3, 7, seed=seed))


def test_handlers_of_cuda_calls_keep_their_order_whoever_waits():
    network, order = Network(2, 7), []
    x = values(2, 7)
    for turn in range(40):
        options = SYNCHRONOUS if turn % 5 == 4 else ()
        network.execute(x, options, completionHandler=lambda *_, turn=turn: order.append(turn))
    network.execute(x, SYNCHRONOUS, completionHandler=lambda *_: order.append(40))
    assert order == list(range(41))


def test_awaited_cuda_calls_give_their_own_results():
    network = Network(3, 7)
    given = [values(3, 7, seed=s) for s in range(8)]

    async def all_():
        return [await network.graph.executeAsync(inputsData={"x": data(x)}, batchSize=3) for x in given]

    for x, (result, seconds) in zip(given, asyncio.run(all_()), strict=True):
        close(array(result), network.expected(x))
        assert 0 < seconds < 5
