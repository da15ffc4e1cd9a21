"""The way past the road that an inference takes which is like the one before it: when it is taken, and what it leaves."""

from __future__ import annotations

import asyncio
import enum
import gc
import itertools
import sys
import threading
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest

from mlc_torch import (
    MLCActivationLayer,
    MLCDataType,
    MLCExecutionOptions,
    MLCGraph,
    MLCInferenceGraph,
    MLCTensor,
    last_refusal,
)
from mlc_torch.running import inference
from mlc_torch.running.state import Variant
from tests.graph.programs import cpu, data, dense, placeholder, values

MOST = 45
BATCH = 32
Run = MLCExecutionOptions
SELECTOR = "executeWithInputsData_outputsData_batchSize_options_completionHandler_"


class Perceptron:
    """784-128-10, as in the benchmark. The styles are what programs ordinarily write."""

    def __init__(self, name: str = "x", batch: int = BATCH) -> None:
        self.graph, self.x, self.name, self.batch = MLCGraph(), placeholder(batch, 784), name, batch
        self.layers = [dense(784, 128), dense(128, 10)]
        hidden = self.graph.node(self.layers[0], source=self.x)
        self.y = self.graph.node(self.layers[1], source=self.graph.node(MLCActivationLayer.relu, source=hidden))
        self.inference = MLCInferenceGraph(graphObjects=[self.graph])
        assert self.inference.addInputs({name: self.x}) and self.inference.addOutputs({"y": self.y})
        assert self.inference.compile(device=cpu())
        self.array, self.buffer = values(batch, 784), np.zeros((batch, 10), np.float32)
        self.given, self.outputs = {name: data(self.array)}, {"y": data(self.buffer)}

    def hidden(self) -> np.ndarray:
        """What the first layer must give, by NumPy."""
        return self.array @ self.layers[0].weights.numpy().reshape(128, 784).T + self.layers[0].biases.numpy().ravel()

    def expected(self) -> np.ndarray:
        weights, biases = self.layers[1].weights.numpy().reshape(10, 128), self.layers[1].biases.numpy().ravel()
        return np.maximum(self.hidden(), 0) @ weights.T + biases

    def plain(self) -> None:
        assert self.inference.execute(inputsData=self.given, batchSize=self.batch, options=[Run.synchronous])

    def fresh(self) -> None:
        assert self.inference.execute(inputsData={self.name: data(self.array)}, batchSize=self.batch, options=[])

    def handler(self) -> None:
        assert self.inference.execute(
            inputsData=self.given, batchSize=self.batch, options=Run.synchronous, completionHandler=_handler
        )

    def asynchronous(self) -> None:
        assert self.inference.execute(
            inputsData=self.given, batchSize=self.batch, options=[], completionHandler=_handler
        )

    def with_outputs(self) -> None:
        given = {"inputsData": self.given, "outputsData": self.outputs, "batchSize": self.batch}
        assert self.inference.execute(**given, options=[], completionHandler=_handler)

    def selector(self) -> None:
        getattr(self.inference, SELECTOR)(self.given, self.outputs, self.batch, Run.synchronous, _handler)


def _handler(result, error, seconds):
    pass


@contextmanager
def looking_on() -> Iterator[tuple[list[str], list[object]]]:
    """The functions that are called, and what the usual way answered."""
    called: list[str] = []
    answers: list[object] = []

    def look(frame, event, argument):
        code = frame.f_code
        if event == "call" and code not in (_handler.__code__, looking_on.__wrapped__.__code__):
            called.append(code.co_qualname)
        if event == "return" and (code.co_name, code.co_filename) == ("usual", "<mlc_torch inference>"):
            answers.append(argument)

    sys.setprofile(look)
    try:
        yield called, answers
    finally:
        sys.setprofile(None)


STYLES = ["plain", "fresh", "handler", "asynchronous", "with_outputs", "selector"]


def assert_usual(work: Callable[[], None], most: int = MOST) -> None:
    """It is short, and goes past the road."""
    for _ in range(10):  # the first runs of much data are kept for results that are asked for late
        work()
    with looking_on() as (called, answers):
        work()
    assert answers == [True]
    assert len(called) <= most and "travel" not in called, called


@pytest.mark.parametrize("batch", [1, BATCH], ids=["little", "much"])
@pytest.mark.parametrize("style", STYLES)
def test_an_ordinary_inference_goes_past_the_road(style, batch):
    assert_usual(getattr(Perceptron(batch=batch), style))


@pytest.mark.parametrize("batch", [4, BATCH], ids=["little", "much"])
@pytest.mark.parametrize("style", STYLES)
def test_short_batches_go_past_the_road_where_one_follows_the_other(style, batch):
    """The result keeps the other samples as they were."""
    program = Perceptron(batch=batch)
    program.plain()
    before = program.y.numpy().copy()
    program.batch = batch - 1
    program.array[:] = values(batch, 784, seed=9)
    assert_usual(getattr(program, style))
    want = program.expected()
    np.testing.assert_allclose(program.y.numpy()[:-1], want[:-1], rtol=1e-4, atol=1e-4)
    np.testing.assert_array_equal(program.y.numpy()[-1:], before[-1:])
    program.batch = batch
    assert_usual(getattr(program, style))
    np.testing.assert_allclose(program.y.numpy(), want, rtol=1e-4, atol=1e-4)


def test_a_result_of_a_short_batch_that_is_asked_for_late():
    """What it was given is kept where it is little, whatever the program writes into its array."""
    program = Perceptron(batch=4)
    program.batch = 3
    assert_usual(program.plain)
    want = program.hidden()
    program.array[:] = 0
    (hidden,) = program.inference.resultTensors(for_=program.layers[0])  # nobody held it while the graph ran
    np.testing.assert_allclose(hidden.numpy()[:3], want[:3], rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("batch", [4, BATCH], ids=["little", "much"])
def test_short_batches_are_usual_again_after_any_other(batch):
    program = Perceptron(batch=batch)
    for count in (batch, 3, 2):
        program.batch = count
        assert_usual(program.plain)
    hook = program.layers[0].module.register_forward_hook(lambda *_: None)
    program.plain()
    hook.remove()
    for count in (3, batch, 2, 3, batch):
        program.batch = count
        program.plain()
        with looking_on() as (_, answers):
            program.plain()
        assert answers == [True]


def test_whole_and_short_batches_in_turn_make_no_way_anew():
    program = Perceptron(batch=4)
    for batch in (4, 3) * 4:
        program.batch = batch
        program.plain()
    with looking_on() as (called, _):
        for batch in (4, 3) * 4:
            program.batch = batch
            program.plain()
    assert "usual_inference" not in called and "travel" not in called


def test_an_input_of_indices_goes_past_the_road_too():
    graph, table = MLCGraph(), placeholder(4, 3)
    places = MLCTensor(shape=[2], dataType=MLCDataType.int32)
    result = graph.gather(withDimension=0, source=table, indices=places)
    inference = MLCInferenceGraph(graphObjects=[graph])
    assert inference.addInputs({"table": table, "places": places}) and inference.compile(device=cpu())
    given = {"table": data(values(4, 3)), "places": data(np.array([3, 1], np.int32))}
    assert_usual(lambda: inference.execute(inputsData=given, batchSize=0))
    np.testing.assert_array_equal(result.numpy(), values(4, 3)[[3, 1]])


def test_a_result_that_is_asked_for_late_is_of_the_last_indices():
    """They have no memory that stands ready; a copy is kept of those of each run."""
    graph, table = MLCGraph(), placeholder(4, 3)
    places = MLCTensor(shape=[2], dataType=MLCDataType.int32)
    result = graph.node(MLCActivationLayer.absolute, source=graph.gather(withDimension=0, source=table, indices=places))
    inference = MLCInferenceGraph(graphObjects=[graph])
    assert inference.addInputs({"table": table, "places": places}) and inference.compile(device=cpu())
    array = np.array([0, 2], np.int32)
    given = {"table": data(values(4, 3)), "places": data(array)}
    assert_usual(lambda: inference.execute(inputsData=given, batchSize=0))
    array[:] = [3, 1]
    assert_usual(lambda: inference.execute(inputsData=given, batchSize=0))
    array[:] = 0
    (gathered,) = inference.resultTensors(for_=graph.layers[0])
    np.testing.assert_array_equal(gathered.numpy(), values(4, 3)[[3, 1]])
    np.testing.assert_array_equal(result.numpy(), np.abs(values(4, 3)[[3, 1]]))


def test_a_result_that_is_asked_for_late_after_a_run_without_data():
    program = Perceptron(batch=1)
    assert program.x.bindAndWriteData(program.given["x"], to=cpu())
    assert program.inference.execute(inputsData={}, batchSize=1, options=[Run.skipWritingInputDataToDevice])
    program.array[:] = values(1, 784, seed=7)
    assert_usual(program.plain)
    want = program.hidden()
    (hidden,) = program.inference.resultTensors(for_=program.layers[0])
    np.testing.assert_allclose(hidden.numpy(), want, rtol=1e-4, atol=1e-4)


def test_after_threads_and_async_forms_too():
    program = Perceptron()
    thread = threading.Thread(target=program.handler)
    thread.start()
    thread.join()
    assert_usual(program.handler)
    asyncio.run(program.inference.executeAsync(inputsData=program.given, batchSize=BATCH, options=[]))
    assert_usual(program.handler)


@pytest.mark.parametrize("batch", [4, BATCH], ids=["little", "much"])
def test_after_everything_unusual(batch):
    program = Perceptron(batch=batch)
    for count, options in ((3, []), (3, []), (0, []), (batch, [Run.perLayerProfiling]), (batch, [Run.profiling])):
        assert program.inference.execute(inputsData=program.given, batchSize=count, options=options)
        assert_usual(program.plain)
    hook = program.layers[0].module.register_forward_hook(lambda *_: None)
    program.plain()
    hook.remove()
    assert_usual(program.plain)
    assert program.layers[0].weights.bindAndWriteData(data(values(128, 784)), to=cpu())
    assert_usual(program.plain)
    assert program.inference.compile(device=cpu())
    assert_usual(program.plain)


def test_what_is_never_usual_is_not_prepared_again_and_again():
    """Arrays in place of data take the road, and nothing is made for a way that they do not go."""
    program = Perceptron(batch=1)
    for _ in range(3):
        program.plain()
    with looking_on() as (called, answers):
        for _ in range(3):
            assert program.inference.execute(inputsData={"x": program.array}, batchSize=1, options=[])
    assert answers == [False] * 3
    assert called.count("travel") == 3 and "usual_inference" not in called


class Names(enum.StrEnum):
    image = "image"


@pytest.mark.parametrize("name", [Names.image, np.str_("image"), "'}{\n\"", "d0"], ids=repr)
def test_an_input_may_have_any_name(name):
    program = Perceptron(name)
    assert_usual(program.with_outputs)
    want = program.buffer.copy()
    program.buffer[:] = 0
    assert program.inference.execute(
        inputsData={name: program.array}, outputsData=program.outputs, batchSize=BATCH, options=[]
    )
    np.testing.assert_array_equal(program.buffer, want)


@pytest.mark.parametrize("way", ["past the road", "on the road"])
def test_a_graph_that_has_run_goes_without_the_collector(way, monkeypatch):
    if way == "on the road":
        monkeypatch.setattr(inference, "usual_inference", lambda *given: None)
    program = Perceptron()
    for _ in range(12):
        program.with_outputs()
    gone = [weakref.ref(o) for o in (program.inference, program.inference._runs.sessions[Variant.whole], program.graph)]
    gc.disable()
    try:
        del program
        assert [known() for known in gone] == [None] * 3
    finally:
        gc.enable()


def test_an_old_session_is_not_held_by_it():
    """New memory for the weights makes a new session; hooks then keep any inference from being usual."""
    program = Perceptron()
    assert_usual(program.plain)
    old = weakref.ref(program.inference._runs.sessions[Variant.whole])
    hook = program.layers[0].module.register_forward_hook(lambda *_: None)
    assert program.layers[0].weights.bindAndWriteData(data(values(128, 784)), to=cpu())
    program.plain()
    gc.collect()
    assert old() is None
    hook.remove()
    assert_usual(program.plain)


def test_a_call_that_waited_while_the_graph_was_compiled_finds_it_compiled():
    """Another thread compiles between the door and the lock: the result is that of the node that came last."""
    program, results = Perceptron(batch=1), []
    last = program.graph.node(MLCActivationLayer.relu, source=program.y)
    for _ in range(3):
        program.plain()
    runs = program.inference._runs
    waiting = runs.usual  # what the door had in its hand
    assert program.inference.compile(device=cpu())
    runs.usual = waiting
    given = {"inputsData": program.given, "batchSize": 1, "options": []}
    assert program.inference.execute(**given, completionHandler=lambda result, error, seconds: results.append(result))
    assert results == [last]


def test_the_lock_is_let_go_wherever_a_call_is_interrupted():
    """Ctrl-C at every line of a usual call, each in a program of its own."""
    places = itertools.count(1)
    struck = True
    while struck:
        program, place = Perceptron(batch=1), next(places)
        for _ in range(3):
            program.plain()
        struck = _interrupted(program.plain, place)
        assert _can_be_taken(program.inference._gate.lock), f"held after an interruption at line {place}"
        assert_usual(program.plain)
    assert place > 30


def _interrupted(work: Callable[[], None], place: int) -> bool:
    """Run ``work`` and raise KeyboardInterrupt at the line of the library's that comes as number ``place``, if there is one."""
    lines = itertools.count(1)

    def at_line(frame, event, argument):
        if event == "line" and next(lines) == place:
            raise KeyboardInterrupt
        return at_line

    before = sys.gettrace()
    sys.settrace(lambda frame, event, argument: at_line if "mlc_torch" in frame.f_code.co_filename else None)
    try:
        work()
    except KeyboardInterrupt:
        return True
    finally:
        sys.settrace(before)
    return False


def _can_be_taken(lock: Any) -> bool:
    """By another thread than this one."""
    answers = []

    def take() -> None:
        answers.append(lock.acquire(blocking=False))
        if answers[0]:
            lock.release()

    thread = threading.Thread(target=take)
    thread.start()
    thread.join()
    return answers[0]


def test_threads_get_what_they_asked_for():
    """Each with data, a buffer and a handler of its own, on one graph."""
    program, wrong, count = Perceptron(batch=1), [], 150
    weights = [layer.weights.numpy().reshape(rows, -1) for layer, rows in zip(program.layers, (128, 10), strict=True)]
    biases = [layer.biases.numpy().ravel() for layer in program.layers]

    def work(seed: int) -> None:
        for n in range(count):
            x, buffer, seen = values(1, 784, seed=seed * count + n), np.zeros((1, 10), np.float32), []
            given = {"inputsData": {"x": data(x)}, "outputsData": {"y": data(buffer)}, "batchSize": 1, "options": []}

            def handler(result: MLCTensor, error: object, seconds: float, seen: list = seen) -> None:
                seen.append(result.numpy().copy())

            answer = program.inference.execute(**given, completionHandler=handler)
            want = np.maximum(x @ weights[0].T + biases[0], 0) @ weights[1].T + biases[1]
            near = all(np.allclose(got, want, rtol=1e-3, atol=1e-3) for got in (buffer, *seen))
            if not (answer and len(seen) == 1 and near):
                wrong.append((seed, n, last_refusal()))

    program.plain()
    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
