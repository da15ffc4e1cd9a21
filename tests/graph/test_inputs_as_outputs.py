"""An input that is declared as an output, too: its buffer gets what the call was given for it. Warnings are errors here."""

from __future__ import annotations

import asyncio
import threading

import numpy as np
import pytest

from mlc_torch import (
    MLCActivationLayer,
    MLCArithmeticLayer,
    MLCArithmeticOperation,
    MLCExecutionOptions,
    MLCGraph,
    MLCInferenceGraph,
    MLCTrainingWarning,
)
from tests.graph.programs import array, cpu, data, dense, lstm, on, placeholder, regression, values

Run = MLCExecutionOptions
SYNCHRONOUS = [Run.synchronous]


class Rectifier:
    """``y = relu(x)`` as an inference graph; ``x`` and ``y`` are outputs. Above 16 KiB data goes another way."""

    def __init__(self, device=None, width: int = 6, batch: int = 4) -> None:
        self.device, self.shape, graph = device or cpu(), (batch, width), MLCGraph()
        self.x = placeholder(batch, width)
        self.y = graph.node(MLCActivationLayer.relu, source=self.x)
        self.graph = MLCInferenceGraph(graphObjects=[graph])
        assert self.graph.addInputs({"x": self.x}) and self.graph.addOutputs({"x": self.x, "y": self.y})
        assert self.graph.compile(options=[], device=self.device)
        self.outs = {name: np.full(self.shape, 9, np.float32) for name in ("x", "y")}

    def buffers(self, *names: str, samples: int | None = None):
        return {name: data(self.outs[name][:samples]) for name in names or self.outs}

    def bind(self, given) -> None:
        assert self.graph.bindAndWriteData(
            {"x": data(given)}, forInputs={"x": self.x}, to=self.device, synchronous=True
        )

    def holds(self, given) -> None:
        np.testing.assert_array_equal(self.outs["x"][: len(given)], given)
        np.testing.assert_array_equal(self.outs["y"][: len(given)], np.maximum(given, 0))


def rectifier(torch_device, width: int, bound: bool) -> Rectifier:
    """``bound``: to other data than what calls are given."""
    net = Rectifier(on(torch_device), width)
    if bound:
        net.bind(np.full(net.shape, 7, np.float32))
    return net


@pytest.mark.parametrize("width", [6, 5000])
@pytest.mark.parametrize("bound", [False, True])
def test_each_inference_gives_what_it_was_given(torch_device, width, bound):
    net = rectifier(torch_device, width, bound)
    for seed in range(6):
        given = values(*net.shape, seed=seed)
        assert net.graph.execute(
            inputsData={"x": data(given)}, outputsData=net.buffers(), batchSize=4, options=SYNCHRONOUS
        )
        net.holds(given)


def test_the_buffer_of_the_input_alone(torch_device):
    net = Rectifier(on(torch_device))
    for seed in range(4):
        given = values(*net.shape, seed=seed)
        assert net.graph.execute(
            inputsData={"x": data(given)}, outputsData=net.buffers("x"), batchSize=0, options=SYNCHRONOUS
        )
        np.testing.assert_array_equal(net.outs["x"], given)
    assert (net.outs["y"] == 9).all()


@pytest.mark.parametrize("width", [6, 5000])
@pytest.mark.parametrize("bound", [False, True])
def test_short_batches(torch_device, width, bound):
    net = rectifier(torch_device, width, bound)
    for seed, count in enumerate((4, 2, 2, 2, 3, 4, 1)):
        given = values(count, width, seed=seed)
        before = net.outs["x"].copy()
        assert net.graph.execute(
            inputsData={"x": data(given)},
            outputsData=net.buffers(samples=count),
            batchSize=count,
            options=SYNCHRONOUS,
        )
        net.holds(given)
        np.testing.assert_array_equal(net.outs["x"][count:], before[count:])


def test_what_is_bound_stays_bound(torch_device):
    """What a call was given does not take its place: the next call that is given nothing computes with it."""
    net = Rectifier(on(torch_device))
    bound, given = values(*net.shape), values(*net.shape, seed=1)
    net.bind(bound)
    for _ in range(3):
        for inputs, options, want in (
            ({"x": data(given)}, SYNCHRONOUS, given),
            ({}, SYNCHRONOUS, bound),
            ({"x": data(given)}, [Run.synchronous, Run.skipWritingInputDataToDevice], bound),
        ):
            assert net.graph.execute(inputsData=inputs, outputsData=net.buffers(), batchSize=0, options=options)
            net.holds(want)


def test_a_handler_and_a_call_that_is_not_waited_for(torch_device):
    net = Rectifier(on(torch_device))
    given = np.empty(net.shape, np.float32)
    outs = [np.full(net.shape, 9, np.float32) for _ in range(5)]
    for seed, out in enumerate(outs):
        given[:] = values(*net.shape, seed=seed)
        came = threading.Event()
        assert net.graph.execute(
            inputsData={"x": data(given)},
            outputsData={"x": data(out)},
            batchSize=0,
            completionHandler=lambda *_, came=came: came.set(),
        )
        given[:] = 0  # it is the program's own again
        assert came.wait(60)
    for seed, out in enumerate(outs):
        np.testing.assert_array_equal(out, values(*net.shape, seed=seed))


def test_awaited_inferences(torch_device):
    net = Rectifier(on(torch_device))

    async def run() -> None:
        for seed in range(5):
            given = values(*net.shape, seed=seed)
            result, _ = await net.graph.executeAsync(
                inputsData={"x": data(given)}, outputsData=net.buffers(), batchSize=0
            )
            net.holds(given)
            np.testing.assert_array_equal(array(result), np.maximum(given, 0))

    asyncio.run(run())


def test_a_result_may_be_written_over_the_input():
    net = Rectifier()
    for seed in range(3):
        given = values(*net.shape, seed=seed)
        place = given.copy()
        for outputs in ({"y": data(place), "x": data(net.outs["x"])}, {"x": data(net.outs["x"]), "y": data(place)}):
            place[:] = given
            assert net.graph.execute(inputsData={"x": data(place)}, outputsData=outputs, batchSize=0)
            np.testing.assert_array_equal(net.outs["x"], given)
            np.testing.assert_array_equal(place, np.maximum(given, 0))


def test_samples_along_the_second_dimension():
    """An LSTM that takes time first: the buffer is whole, and the places of the samples are written."""
    layer, _ = lstm(batch_first=False)
    size = layer.descriptor.inputSize
    graph, x = MLCGraph(), placeholder(5, 4, size)
    graph.node(layer, source=x)
    inference = MLCInferenceGraph(graphObjects=[graph])
    assert inference.addInputs({"x": x}) and inference.addOutputs({"x": x})
    assert inference.compile(options=[], device=cpu())
    for seed, count in enumerate((4, 2, 2, 3)):
        given, out = values(5, 4, size, seed=seed), np.full((5, 4, size), 9, np.float32)
        assert inference.execute(inputsData={"x": data(given)}, outputsData={"x": data(out)}, batchSize=count)
        np.testing.assert_array_equal(out[:, :count], given[:, :count])
        assert (out[:, count:] == 9).all()


def outputs_of(program):
    assert program.training.addOutputs({"x": program.inputs["x"], "t": program.labels["t"], "y": program.result})
    assert program.compile()
    return {"x": np.full((4, 6), 9, np.float32), "t": np.full((4, 3), 9, np.float32)}


def test_training_gives_what_it_was_given_for_inputs_and_labels(torch_device):
    program = regression(device=on(torch_device))
    outs = outputs_of(program)
    for seed in range(4):
        program.given = {"x": values(4, 6, seed=seed), "t": values(4, 3, seed=seed + 50)}
        for count in (0, 2):
            wanted = {name: data(out[: count or None]) for name, out in outs.items()}
            assert program.execute(batchSize=count, outputsData=wanted, options=SYNCHRONOUS)
            for name, out in outs.items():
                np.testing.assert_array_equal(out[: count or None], program.given[name][: count or None])
                out[:] = 9


def test_an_inference_of_a_training_graph_without_labels():
    program = regression()
    outs = outputs_of(program)
    assert program.training.execute(
        inputsData=program.inputs_data(),
        lossLabelsData=None,
        lossLabelWeightsData=None,
        outputsData={"x": data(outs["x"])},
        batchSize=0,
        options=[Run.synchronous, Run.forwardForInference],
    )
    np.testing.assert_array_equal(outs["x"], program.given["x"])


@pytest.mark.parametrize("count", [0, 3])
def test_phases_give_what_the_pass_was_given(torch_device, count):
    """The gradient phase, too, though other data is bound by then."""
    program = regression(device=on(torch_device))
    outs, short = outputs_of(program), count or 4
    buffers = {name: data(out[:short]) for name, out in outs.items()}
    for seed in range(3):
        program.given = given = {"x": values(4, 6, seed=seed), "t": values(4, 3, seed=seed + 50)}
        assert program.bind() and program.training.executeForward(
            batchSize=count, options=SYNCHRONOUS, outputsData=buffers
        )
        for name, out in outs.items():
            np.testing.assert_array_equal(out[:short], given[name][:short])
            out[:] = 9
        program.given = {name: np.zeros_like(a) for name, a in given.items()}
        assert program.bind()
        # 0 stands for as many as the forward pass had; the buffers are whole, then
        whole = {name: data(out) for name, out in outs.items()}
        assert program.training.executeGradient(batchSize=0, options=SYNCHRONOUS, outputsData=whole)
        for name, out in outs.items():
            np.testing.assert_array_equal(out[:short], given[name][:short])
        assert program.update()


def test_a_result_that_was_declared_as_an_input_is_given_as_it_was_computed():
    graph, x, layer = MLCGraph(), placeholder(4, 6), dense(6, 6)
    inner = graph.node(MLCActivationLayer.relu, source=x)
    graph.node(layer, source=inner)
    inference = MLCInferenceGraph(graphObjects=[graph])
    assert inference.addInputs({"x": x, "inner": inner}) and inference.addOutputs({"inner": inner})
    with pytest.warns(MLCTrainingWarning, match="what is given for it is ignored"):
        assert inference.compile(options=[], device=cpu())
    given, out = values(4, 6), np.full((4, 6), 9, np.float32)
    for _ in range(3):
        inputs = {"x": data(given), "inner": data(np.ones((4, 6), np.float32))}
        assert inference.execute(inputsData=inputs, outputsData={"inner": data(out)}, batchSize=0)
        np.testing.assert_array_equal(out, np.maximum(given, 0))
        out[:] = 9


def test_one_of_two_inputs():
    graph, a, b = MLCGraph(), placeholder(4, 6), placeholder(4, 6)
    total = graph.node(MLCArithmeticLayer(operation=MLCArithmeticOperation.add), sources=[a, b])
    inference = MLCInferenceGraph(graphObjects=[graph])
    assert inference.addInputs({"a": a, "b": b}) and inference.compile(options=[], device=cpu())
    given = {"a": values(4, 6), "b": values(4, 6, seed=1)}
    outs = {"b": np.zeros((4, 6), np.float32), "total": np.zeros((4, 6), np.float32)}
    assert inference.execute(inputsData={n: data(v) for n, v in given.items()}, batchSize=0)
    assert inference.addOutputs({"b": b, "total": total})  # declared when it has run already
    for _ in range(3):
        assert inference.execute(
            inputsData={n: data(v) for n, v in given.items()},
            outputsData={n: data(v) for n, v in outs.items()},
            batchSize=0,
        )
        np.testing.assert_array_equal(outs["b"], given["b"])
        np.testing.assert_array_equal(outs["total"], given["a"] + given["b"])
        outs["b"][:] = 0
