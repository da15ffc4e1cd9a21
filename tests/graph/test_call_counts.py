"""How many Python functions one ordinary call runs through: the road is fast because it does little."""

from __future__ import annotations

import asyncio
import sys
import threading

import numpy as np
import pytest

from mlc_torch import (
    MLCActivationLayer,
    MLCAdamOptimizer,
    MLCExecutionOptions,
    MLCGraph,
    MLCLossType,
    MLCTrainingGraph,
)
from mlc_torch.engine import planned, replacements
from tests.graph.programs import cpu, data, dense, hyper, loss, placeholder, values

MOST = 45
BATCH = 32
Run = MLCExecutionOptions
SELECTOR = "executeWithInputsData_lossLabelsData_lossLabelWeightsData_batchSize_options_completionHandler_"


@pytest.fixture(autouse=True)
def _nobody_looks_for_pages(monkeypatch):
    """One pass in sixteen is a few calls longer, and it might be one that is counted."""
    monkeypatch.setattr(planned, "kept", lambda forward, backward, *_: (forward, backward))


class Perceptron:
    """784-128-10, as in the benchmark, with its data made beforehand."""

    def __init__(self) -> None:
        graph, self.x, self.t = MLCGraph(), placeholder(BATCH, 784), placeholder(BATCH, 10)
        hidden = graph.node(dense(784, 128), source=self.x)
        y = graph.node(dense(128, 10), source=graph.node(MLCActivationLayer.relu, source=hidden))
        optimizer = MLCAdamOptimizer(descriptor=hyper(0.001))
        self.training = MLCTrainingGraph(
            graphObjects=[graph], lossLayer=loss(MLCLossType.softmaxCrossEntropy), optimizer=optimizer
        )
        assert self.training.addInputs({"x": self.x}, lossLabels={"t": self.t})
        assert self.training.addOutputs({"y": y}) and self.training.compile(device=cpu())
        labels = np.eye(10, dtype=np.float32)[np.arange(BATCH) % 10]
        self.given = {"inputsData": {"x": data(values(BATCH, 784))}, "lossLabelsData": {"t": data(labels)}}
        self.given |= {"lossLabelWeightsData": None, "batchSize": BATCH}
        self.outputs = {"y": data(np.zeros((BATCH, 10), np.float32))}

    def plain(self) -> None:
        self.training.execute(**self.given, options=[Run.synchronous])

    def handler(self) -> None:
        self.training.execute(**self.given, options=[Run.synchronous], completionHandler=_handler)

    def asynchronous(self) -> None:
        self.training.execute(**self.given, options=[], completionHandler=_handler)

    def with_outputs(self) -> None:
        self.training.execute(
            **self.given, outputsData=self.outputs, options=[Run.synchronous], completionHandler=_handler
        )

    def selector(self) -> None:
        x, t, weights, batch = self.given.values()
        getattr(self.training, SELECTOR)(x, t, weights, batch, Run.synchronous, _handler)


def _handler(result, error, seconds):
    pass


def python_calls(work) -> list[str]:
    """The functions that ``work`` calls, itself, the handler and kernels aside: those depend on processor and threads."""
    for _ in range(5):
        work()
    seen: list[str] = []

    def look(frame, event, argument):
        is_kernel = frame.f_code.co_filename == replacements.__file__
        if event == "call" and not is_kernel and frame.f_code not in (work.__func__.__code__, _handler.__code__):
            seen.append(frame.f_code.co_qualname if sys.version_info >= (3, 11) else frame.f_code.co_name)

    sys.setprofile(look)
    try:
        work()
    finally:
        sys.setprofile(None)
    return seen


STYLES = ["plain", "handler", "asynchronous", "with_outputs", "selector"]


@pytest.mark.parametrize("style", STYLES)
def test_an_ordinary_call_is_short(style):
    calls = python_calls(getattr(Perceptron(), style))
    assert len(calls) <= MOST, calls


def test_after_a_second_thread_too():
    program = Perceptron()
    thread = threading.Thread(target=program.handler)
    thread.start()
    thread.join()
    assert len(python_calls(program.handler)) <= MOST


def test_after_an_async_form_too():
    """Its thread stays in asyncio's pool as long as the loop runs, so that results are kept for their handlers."""
    program = Perceptron()

    async def once() -> int:
        await program.training.executeAsync(**program.given)
        return len(python_calls(program.handler))

    assert asyncio.run(once()) <= MOST + 3  # keeping the result is three more
    assert len(python_calls(program.handler)) <= MOST


def calls_of(work) -> int:
    """How many Python functions ``work`` calls."""
    count = 0

    def look(frame, event, argument):
        nonlocal count
        count += event == "call"

    sys.setprofile(look)
    try:
        work()
    finally:
        sys.setprofile(None)
    return count


FORMS = {"data": lambda given: given, "arrays": lambda given: given._owner}


@pytest.mark.parametrize("form", FORMS)
def test_a_batch_of_fit_is_little_more_than_an_execute(form):
    """A generator that goes on, the batch by name, and the handler: three more than the loop written out has without one."""
    program, make = Perceptron(), FORMS[form]
    x, t = make(program.given["inputsData"]["x"]), make(program.given["lossLabelsData"]["t"])
    given = program.given | {"inputsData": {"x": x}, "lossLabelsData": {"t": t}}

    def fit(count: int) -> None:
        program.training.fit([(x, t)] * count, progress=False)

    def loop(count: int) -> None:
        for _ in range(count):
            program.training.execute(**given, options=Run.synchronous, completionHandler=None)

    for _ in range(3):
        fit(2)
        loop(2)
    in_fit = (calls_of(lambda: fit(15)) - calls_of(lambda: fit(5))) / 10
    in_loop = (calls_of(lambda: loop(15)) - calls_of(lambda: loop(5))) / 10
    by_numpy = 4 if np.lib.NumpyVersion(np.__version__) < "2.0.0" else 0  # whose errstate is Python there
    assert in_fit <= in_loop + 4 + by_numpy, (
        in_fit,
        in_loop,
    )  # and the handle of the result, which a call without handler has not
