"""Completion handlers: once each, in order, with the result readable, and never hurting anybody else."""

from __future__ import annotations

import asyncio
import logging
import re
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import lru_cache, partial, wraps
from types import SimpleNamespace
from unittest.mock import AsyncMock

import numpy as np
import pytest
import torch

from mlc_torch import MLCExecutionOptions, MLCInferenceGraph, MLCRefusal, last_refusal, strict, unwrap
from mlc_torch.objc.views import view_of
from mlc_torch.running import completion
from mlc_torch.running.completion import CompletionQueue, Queued
from tests.graph.programs import array, cpu, data, inferring, on, regression, values

Run = MLCExecutionOptions


class Gate(threading.Barrier):
    """Lets those through that waited in vain for others, too."""

    def wait(self, timeout=None):
        with suppress(threading.BrokenBarrierError):
            super().wait(timeout)


def test_result_and_intermediate_tensors_are_readable_inside(torch_device):
    program = regression(widths=(6, 5, 3), device=on(torch_device))
    (hidden,) = program.training.resultTensors(for_=program.layers[0])
    assert program.compile()
    seen = {}

    def handler(result, error, seconds):
        for name, held in (("loss", result), ("hidden", hidden), ("prediction", program.result)):
            target = np.zeros(held.descriptor.shape, np.float32)
            assert held.copyDataFromDeviceMemory(toBytes=target, length=target.nbytes, synchronizeWithDevice=False)
            np.testing.assert_array_equal(target, array(held))
            seen[name] = target

    first, second = ((array(p.weights), array(p.biases)) for p in program.layers)
    assert program.execute(options=Run.synchronous, completionHandler=handler)
    want = program.given["x"] @ first[0].reshape(5, 6).T + first[1].ravel()
    np.testing.assert_allclose(seen["hidden"], want, rtol=1e-4, atol=1e-5)
    predicted = np.maximum(want, 0) @ second[0].reshape(3, 5).T + second[1].ravel()
    np.testing.assert_allclose(seen["prediction"], predicted, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(seen["loss"], [((predicted - program.given["t"]) ** 2).mean()], rtol=1e-4)


def test_every_call_has_its_handler_called_once_and_in_order(torch_device):
    """Asynchronously too: each handler sees the loss of its own step."""
    program, plain = regression(device=on(torch_device)), regression(device=on(torch_device))
    assert program.compile() and plain.compile()
    order, losses, done = [], [], threading.Event()

    def handler(number):
        def call(result, error, seconds):
            order.append(number)
            losses.append(float(array(result)[0]))
            if number == 29:
                done.set()

        return call

    for number in range(30):
        assert program.execute(completionHandler=handler(number))
    assert done.wait(60) and order == list(range(30))
    np.testing.assert_allclose(losses, [plain.step() for _ in range(30)], rtol=1e-5)


def test_output_buffers_are_filled_before_the_handler_runs(torch_device):
    program = regression(device=on(torch_device))
    assert program.training.addOutputs({"y": program.result}) and program.compile()
    buffers, filled, done = [np.zeros((4, 3), np.float32) for _ in range(10)], [], threading.Event()

    def handler(buffer):
        def call(result, error, seconds):
            filled.append(bool(np.abs(buffer).sum() > 0))
            if len(filled) == 10:
                done.set()

        return call

    for buffer in buffers:
        assert program.execute(outputsData={"y": data(buffer)}, completionHandler=handler(buffer))
    assert done.wait(60) and all(filled)
    plain = regression()
    assert plain.compile()
    for buffer in buffers:
        plain.step()
        np.testing.assert_allclose(buffer, array(plain.result), rtol=1e-4, atol=1e-5)


def _failing(result, error, seconds):
    raise ZeroDivisionError("in the handler")


def test_what_a_handler_raises_the_call_raises_and_the_step_was_made(torch_device):
    program, plain = regression(device=on(torch_device)), regression(device=on(torch_device))
    assert program.compile() and plain.compile()
    calls = [
        lambda: program.execute(options=Run.synchronous, completionHandler=_failing),
        lambda: program.bind() and program.forward(options=Run.synchronous, completionHandler=_failing),
        lambda: program.gradient(options=Run.synchronous, completionHandler=_failing),
        lambda: program.update(options=Run.synchronous, completionHandler=_failing),
    ]
    for call in calls:
        with pytest.raises(ZeroDivisionError, match="in the handler"):
            call()
    plain.step()
    plain.step()
    assert program.step() == pytest.approx(plain.step(), rel=1e-5)


@pytest.mark.parametrize("strictly", [False, True])
def test_a_handler_that_fails_on_a_refused_call(strictly):
    program = regression()
    assert program.compile()
    with strict(strictly), pytest.raises(ZeroDivisionError) as raised:
        program.training.executeGradient(batchSize=0, completionHandler=_failing)
    assert isinstance(raised.value.__cause__, MLCRefusal) and "executeForward" in str(raised.value.__cause__)
    assert last_refusal() is raised.value.__cause__
    assert program.execute()


def test_a_refusal_that_a_handler_raises_is_no_answer():
    program = regression()
    assert program.compile()
    with pytest.raises(MLCRefusal, match="unexpectedly found None"):
        program.execute(completionHandler=lambda result, error, seconds: unwrap(None))
    assert program.execute()


@pytest.mark.parametrize("handler", [lambda result: None, lambda a, b, c, d: None], ids=["too few", "too many"])
def test_a_handler_with_other_parameters_is_a_type_error(handler):
    """A graph's first handler is looked at before anything is run; a later one is told what it is called with."""
    program, says = regression(), r"called with \(result, error, executionTime\), this one takes \("
    assert program.compile()
    before = array(program.layers[0].weights).copy()
    with pytest.raises(TypeError, match=says):
        program.execute(completionHandler=handler)
    assert np.array_equal(array(program.layers[0].weights), before)
    assert program.execute()
    with pytest.raises(TypeError, match="positional argument") as found:
        program.execute(completionHandler=handler)
    assert re.search(says, found.value.__notes__[0])


async def _waits(result, error, seconds):
    """Nobody would await it."""


def _yields(result, error, seconds):
    yield result


async def _waits_and_yields(result, error, seconds):
    yield result


class _Waiting:
    async def __call__(self, result, error, seconds):
        """Nobody would await it."""

    async def told(self, result, error, seconds):
        """Nor this."""


_NEVER_RUN = {
    "async": (_waits, "an async one"),
    "yields": (_yields, "one with yield in it"),
    "async and yields": (_waits_and_yields, "an async one"),
    "lambda": (lambda result, error, seconds: (yield result), "one with yield in it"),
    "partial": (partial(_waits), "an async one"),
    "method": (_Waiting().told, "an async one"),
    "object": (_Waiting(), "an async one"),
    "partial of an object": (partial(_Waiting()), "an async one"),
    "remembered": (lru_cache(_waits), "an async one"),
    "mock": (AsyncMock(), "an async one"),
}


@pytest.mark.parametrize("later", [False, True], ids=["first call", "later call"])
@pytest.mark.parametrize(("handler", "kind"), _NEVER_RUN.values(), ids=_NEVER_RUN)
@pytest.mark.parametrize("view", [False, True], ids=["Swift", "PyObjC"])
def test_a_handler_that_a_call_would_not_run_is_a_type_error(view, handler, kind, later):
    program = regression()
    assert program.compile() and (not later or program.execute(completionHandler=lambda *given: None))
    before = array(program.layers[0].weights).copy()
    selector = "executeWithInputsData_lossLabelsData_lossLabelWeightsData_batchSize_options_completionHandler_"
    execute = getattr(view_of(program.training) if view else program.training, selector)
    with pytest.raises(TypeError, match=f"expects an ordinary function .of {kind}, a call runs nothing"):
        execute(program.inputs_data(), program.labels_data(), None, 0, int(Run.synchronous), handler)
    assert np.array_equal(array(program.layers[0].weights), before) and program.execute()


def test_an_inference_like_the_one_before_it_runs_no_handler_that_a_call_would_not_run():
    program = regression()
    inference = inferring(program.graph, program.inputs["x"])
    given = {"inputsData": {"x": data(program.given["x"])}, "batchSize": 0, "options": Run.synchronous}
    assert all(inference.execute(**given) for _ in range(3))
    with pytest.raises(
        TypeError, match=r"argument 'completionHandler' expects an ordinary function .* got functools.partial"
    ):
        inference.execute(**given, completionHandler=partial(_waits))


def test_a_handler_that_runs_an_async_function_is_an_ordinary_one():
    program, told = regression(), []

    async def waits(result, error, seconds):
        told.append(array(result).shape)

    @wraps(waits)
    def handler(*given):
        asyncio.run(waits(*given))

    assert program.compile() and program.execute(completionHandler=handler) and told == [(1,)]


def test_in_the_pyobjc_view_the_scripts_own_parameters_are_looked_at():
    program = regression()
    assert program.compile()
    before = array(program.layers[0].weights).copy()
    selector = "executeWithInputsData:lossLabelsData:lossLabelWeightsData:batchSize:options:completionHandler:"
    execute = getattr(view_of(program.training), selector.replace(":", "_"))
    given = program.inputs_data(), program.labels_data(), None, 0, int(Run.synchronous)
    with pytest.raises(TypeError, match=r"\(result, error, executionTime\), this one takes \(result, error\)"):
        execute(*given, lambda result, error: None)
    assert np.array_equal(array(program.layers[0].weights), before)
    told = []
    assert execute(*given, lambda result, error, seconds: told.append(result.descriptor().shape())) and told == [[1]]


def test_a_type_error_inside_a_handler_is_its_own():
    program = regression()
    assert program.compile()
    for _ in range(2):
        with pytest.raises(TypeError, match="unsupported operand") as found:
            program.execute(completionHandler=lambda result, error, seconds: seconds + "")
        assert not hasattr(found.value, "__notes__")


@pytest.mark.parametrize("handler", [print, lambda *given: None, [].insert])
def test_what_takes_three_is_a_handler(handler):
    program = regression()
    assert program.compile()
    if handler is print or handler.__name__ == "<lambda>":
        assert program.execute(completionHandler=handler)
    else:  # it tells its parameters, and takes two
        with pytest.raises(TypeError, match="executionTime"):
            program.execute(completionHandler=handler)


def test_on_the_completion_thread_the_next_call_raises_it_once(monkeypatch):
    """As on a GPU: the queue is told not to wait."""
    from mlc_torch.running.completion import wait_for_handlers

    seen = []
    monkeypatch.setattr("threading.excepthook", lambda args: seen.append(args.exc_value))
    program = regression()
    assert program.compile()
    queue = program.training._queue
    queue.finish(lambda: _failing(None, None, 0.0), wait=False)
    queue.finish(lambda: None, wait=True)
    assert [type(error) for error in seen] == [ZeroDivisionError]
    weights = array(program.layers[0].weights)
    for number, call in enumerate((program.execute, program.compile)):
        if number:
            queue.finish(lambda: _failing(None, None, 0.0), wait=False)
            queue.finish(lambda: None, wait=True)
        with pytest.raises(ZeroDivisionError):
            call()
        np.testing.assert_array_equal(array(program.layers[0].weights), weights)
    assert program.execute() and wait_for_handlers() == []


def test_two_threads_that_begin_at_once_share_the_completion_thread(monkeypatch):
    """Else handlers would be called at the same time, and in no order."""

    class Slow(ThreadPoolExecutor):
        def __init__(self, *given) -> None:
            gate.wait(0.5)  # one thread alone, or the two, if nobody stops them
            super().__init__(*given)

    gate, queue, found = Gate(2), CompletionQueue(), []
    monkeypatch.setattr(completion, "ThreadPoolExecutor", Slow)

    def begin():
        queue.finish(lambda: found.append(threading.get_ident()), wait=False)

    threads = [threading.Thread(target=begin) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert queue.drain() == [] and len(found) == 2 and len(set(found)) == 1


def test_what_another_thread_has_just_raised_is_not_raised_again():
    queue = CompletionQueue()
    queue.failures += [ZeroDivisionError("first"), KeyError("second")]
    with pytest.raises(ZeroDivisionError):
        queue.raise_failure()
    assert [type(error) for error in queue.drain()] == [KeyError]
    assert queue.raise_failure() is None


def test_a_handler_may_execute_the_same_graph(torch_device):
    program, plain = regression(device=on(torch_device)), regression(device=on(torch_device))
    assert program.compile() and plain.compile()
    inference = MLCInferenceGraph(graphObjects=[program.graph])
    assert inference.addInputs(program.inputs) and inference.compile(options=[], device=program.device)
    losses, inferred, done = [], [], threading.Event()

    def handler(result, error, seconds):
        losses.append(float(array(result)[0]))
        assert inference.execute(
            inputsData=program.inputs_data(),
            batchSize=0,
            options=Run.synchronous,
            completionHandler=lambda *g: inferred.append(array(g[0])),
        )
        if len(losses) < 5:
            assert program.execute(completionHandler=handler)
        else:
            done.set()

    assert program.execute(completionHandler=handler) and done.wait(60)
    np.testing.assert_allclose(losses, [plain.step() for _ in range(5)], rtol=1e-5)
    assert len(inferred) == 5


def test_a_handler_may_run_phases_and_compile():
    program = regression()
    assert program.compile() and program.bind()
    answers = []

    def after_forward(result, error, seconds):
        answers.append(program.gradient(completionHandler=after_gradient))

    def after_gradient(result, error, seconds):
        answers.append(program.update())
        answers.append(program.compile())

    assert program.forward(completionHandler=after_forward) and answers == [True, True, True]
    assert program.step() > 0


def test_a_refused_call_tells_its_handler_once():
    program = regression()
    answers = []

    def handler(*given):
        answers.append(given)

    assert not program.execute(completionHandler=handler)
    assert not program.forward(completionHandler=handler)
    assert not program.gradient(completionHandler=handler)
    assert not program.update(completionHandler=handler)
    inference = MLCInferenceGraph(graphObjects=[program.graph])
    assert not inference.execute(inputsData={}, batchSize=0, completionHandler=handler)
    assert len(answers) == 5
    for result, error, seconds in answers:
        assert result is None and isinstance(error, MLCRefusal) and seconds == 0.0
    assert answers[-1][1] is last_refusal() and "MLCInferenceGraph.execute" in str(last_refusal())


def test_in_strict_mode_a_refused_call_tells_its_handler_and_raises():
    program = regression()
    answers = []
    with strict(), pytest.raises(MLCRefusal, match="not compiled") as raised:
        program.execute(completionHandler=lambda *given: answers.append(given))
    assert len(answers) == 1 and answers[0][1] is raised.value and last_refusal() is raised.value


def test_each_refusal_is_logged_once(caplog):
    program = regression()
    with caplog.at_level(logging.WARNING, "mlc_torch"):
        assert not program.execute() and not program.execute()
    assert [r.message for r in caplog.records] == [f"refused: {last_refusal()}"] * 2


def test_the_result_stays_readable_after_the_call():
    program = regression()
    assert program.compile()
    kept = []
    assert program.execute(completionHandler=lambda *g: kept.append((g[0], array(g[0]))))
    held, then = kept[0]
    np.testing.assert_array_equal(array(held), then)
    program.given["x"] = values(4, 6, seed=77)
    assert program.execute() and not np.array_equal(array(held), then)
    assert held.device.torch_device.type == cpu().torch_device.type


def test_buffers_that_are_filled_soon_do_not_wait_for_older_handlers(monkeypatch):
    """On a GPU: a handler may wait for the very thread whose call would wait for it."""
    monkeypatch.setattr(completion, "wait_for", lambda device: None)
    queue, goes_on = CompletionQueue(), threading.Event()

    def filling(out):
        cell = SimpleNamespace(value=torch.ones(2))
        return Queued(torch.device("cpu"), None, [(cell, torch.from_numpy(out))], None, None, lambda value: None)

    first, second = np.zeros(2, np.float32), np.zeros(2, np.float32)
    assert filling(first).finish(queue, wait=False, soon=True)
    assert first.all()  # nothing was queued before
    queue.finish(lambda: goes_on.wait(60), wait=False)
    assert filling(second).finish(queue, wait=False, soon=True)
    assert not second.any()
    goes_on.set()
    assert queue.drain() == [] and second.all()
