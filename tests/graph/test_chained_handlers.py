"""Handlers that start the next call, whose handler starts the next one: as many as there are batches, each with its result."""

from __future__ import annotations

import sys
import threading

import numpy as np
import pytest

from mlc_torch import MLCExecutionOptions, MLCRefusal
from mlc_torch.running import handlers
from tests.graph.programs import array, compiled, data, inferring, regression, sgd, values

Run = MLCExecutionOptions
STEPS = 5000
RATE = 1e-3


class ByHand:
    """Linear regression from six numbers to three, with NumPy in double precision."""

    def __init__(self, program) -> None:
        (layer,) = program.layers
        self.weights = array(layer.weights).reshape(3, 6).astype(float)
        self.bias = array(layer.biases).ravel().astype(float)
        self.x, self.t = (program.given[n].astype(float) for n in "xt")

    def step(self, x=None) -> float:
        x = self.x if x is None else x
        error = x @ self.weights.T + self.bias - self.t
        slope = 2 * error / error.size
        self.weights -= RATE * slope.T @ x
        self.bias -= RATE * slope.sum(0)
        return (error**2).mean()


def trained(rate: float = RATE):
    program = regression(optimizer=sgd(rate))
    assert program.compile()
    return program


def batches(count: int) -> np.ndarray:
    return np.stack([values(4, 6, seed=n) for n in range(count)])


def test_thousands_of_steps_of_training():
    program, inputs = trained(), batches(7)
    by_hand, losses = ByHand(program), []
    given = [{"x": data(x)} for x in inputs]

    def start() -> bool:
        return program.training.execute(
            inputsData=given[len(losses) % 7],
            lossLabelsData=program.labels_data(),
            lossLabelWeightsData=None,
            batchSize=4,
            options=[],
            completionHandler=finished,
        )

    def finished(result, error, seconds):
        assert error is None
        losses.append(float(array(result)[0]))
        if len(losses) < STEPS:
            assert start()

    assert start() and len(losses) == STEPS
    np.testing.assert_allclose(losses, [by_hand.step(inputs[n % 7].astype(float)) for n in range(STEPS)], rtol=1e-3)
    np.testing.assert_allclose(array(program.layers[0].weights).reshape(3, 6), by_hand.weights, rtol=1e-3, atol=1e-4)


def test_thousands_of_inferences():
    program, inputs = trained(), batches(7)
    by_hand, found = ByHand(program), []
    inference = inferring(program.graph, program.inputs["x"])

    def start() -> bool:
        x = inputs[len(found) % 7]
        return inference.execute(inputsData={"x": data(x)}, batchSize=4, options=[], completionHandler=finished)

    def finished(result, error, seconds):
        found.append(array(result))
        if len(found) < STEPS:
            assert start()

    assert start() and len(found) == STEPS
    want = inputs.astype(float) @ by_hand.weights.T + by_hand.bias
    np.testing.assert_allclose(found, want[np.arange(STEPS) % 7], rtol=1e-4, atol=1e-5)


def test_of_two_graphs_in_turn():
    """Training and inference over the same layer: each result is that of its own moment."""
    program = trained()
    by_hand, inputs, seen = ByHand(program), batches(5), []
    inference = inferring(program.graph, program.inputs["x"])

    def trains() -> bool:
        return program.execute(options=[], completionHandler=has_trained)

    def has_trained(result, error, seconds):
        seen.append(float(array(result)[0]))
        x = data(inputs[len(seen) % 5])
        assert inference.execute(inputsData={"x": x}, batchSize=4, options=[], completionHandler=has_inferred)

    def has_inferred(result, error, seconds):
        seen.append(array(result).astype(float))
        if len(seen) < STEPS:
            assert trains()

    assert trains() and len(seen) == STEPS
    for n in range(0, STEPS, 2):
        np.testing.assert_allclose(seen[n], by_hand.step(), rtol=1e-3)
        want = inputs[(n + 1) % 5] @ by_hand.weights.T + by_hand.bias
        np.testing.assert_allclose(seen[n + 1], want, rtol=1e-3, atol=1e-4)


def test_a_result_that_waits_is_that_of_its_call():
    """A handler deep inside others starts several calls: none of the later ones changes what the first one's handler is given."""
    program, inputs = trained(), batches(4)
    by_hand, found = ByHand(program), {}
    inference = inferring(program.graph, program.inputs["x"])

    def finished(number):
        def call(result, error, seconds):
            found.setdefault(number, []).append(array(result))

        return call

    def deep(level):
        def call(result, error, seconds):
            if level:
                start(0, deep(level - 1))
            else:
                for n in range(4):
                    start(n, finished(n))

        return call

    def start(n, handler):
        assert inference.execute(inputsData={"x": data(inputs[n])}, batchSize=4, options=[], completionHandler=handler)

    start(0, deep(60))
    want = inputs.astype(float) @ by_hand.weights.T + by_hand.bias
    assert list(found) == [0, 1, 2, 3]
    for n in range(4):
        np.testing.assert_allclose(found[n], want[n : n + 1], rtol=1e-4, atol=1e-5)


class Own(Exception):
    """The program's."""


@pytest.mark.parametrize("last", [3, 31, 32, 33, 400])
@pytest.mark.parametrize("starts_first", [False, True])
def test_what_one_in_the_middle_raises(last, starts_first):
    """The first call raises it, and whoever was started is still told of his result."""
    program = trained()
    by_hand, losses = ByHand(program), []

    def finished(result, error, seconds):
        losses.append(float(array(result)[0]))
        number = len(losses)
        if number < last or (starts_first and number < last + 5):
            assert program.execute(completionHandler=finished)
        if number >= last and number == len(losses):
            raise Own(number)

    with pytest.raises(Own) as raised:
        program.execute(completionHandler=finished)
    made = last + 5 if starts_first else last
    np.testing.assert_allclose(losses, [by_hand.step() for _ in range(made)], rtol=1e-4)
    assert raised.value.args == (made,)
    assert program.step() == pytest.approx(by_hand.step(), rel=1e-4)  # and nobody is called who was called before
    assert len(losses) == made


def test_several_that_wait_and_raise_stand_behind_each_other():
    program, called = trained(), []

    def failing(number):
        def call(result, error, seconds):
            called.append(number)
            raise Own(number)

        return call

    def deep(level):
        def call(result, error, seconds):
            if level:
                assert program.execute(completionHandler=deep(level - 1))
            else:
                for number in range(3):
                    assert program.execute(completionHandler=failing(number))
                raise Own("the deepest")

        return call

    with pytest.raises(Own) as raised:
        program.execute(completionHandler=deep(31))
    assert called == [0, 1, 2]
    found, error = [], raised.value
    while error is not None and "the deepest" not in found:  # behind it may stand what Python itself was doing (3.13)
        found.append(error.args[0])
        error = error.__context__
    assert found == [2, 1, 0, "the deepest"]


def test_a_synchronous_call_has_its_handler_called_on_return_however_deep():
    program, inner, outer = trained(), [], []

    def finished(result, error, seconds):
        outer.append(1)
        assert program.execute(options=Run.synchronous, completionHandler=lambda *given: inner.append(1))
        assert len(inner) == len(outer)
        if len(outer) < 200:
            assert program.execute(options=[], completionHandler=finished)

    assert program.execute(options=[], completionHandler=finished)
    assert len(outer) == len(inner) == 200


def test_a_refused_call_may_be_followed_by_the_next():
    program = compiled()
    told = []

    def finished(result, error, seconds):
        told.append(error)
        if len(told) < 1000:
            assert not program.training.executeOptimizerUpdate(options=[], completionHandler=finished)

    assert not program.training.executeOptimizerUpdate(options=[], completionHandler=finished)
    assert len(told) == 1000 and all(isinstance(error, MLCRefusal) for error in told)


def test_ctrl_c_ends_a_chain():
    """Also where the next call's handler waits already."""
    program, told = trained(), []

    def finished(result, error, seconds):
        told.append(1)
        if len(told) < 1000:
            assert program.execute(completionHandler=finished)
        if len(told) == 100:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        program.execute(completionHandler=finished)
    assert len(told) == 100
    assert program.execute(completionHandler=lambda *given: told.append(2)) and told[100:] == [2]


def test_a_count_that_a_ctrl_c_left_too_high_keeps_nobody_waiting(monkeypatch):
    program, told = trained(), []
    monkeypatch.setattr(handlers._handlers, "depth", 1000)
    assert program.execute(completionHandler=lambda *given: told.append(1)) and told == [1]
    assert handlers._handlers.depth == 0


def test_each_thread_has_its_own_chain():
    program, told = trained(), {0: 0, 1: 0}

    def run(name):
        def finished(result, error, seconds):
            told[name] += 1
            if told[name] < 600:
                assert program.execute(completionHandler=finished)

        assert program.execute(completionHandler=finished)

    threads = [threading.Thread(target=run, args=(name,)) for name in told]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    assert told == {0: 600, 1: 600}


def test_the_stack_stays_low():
    program, depths = trained(), []

    def finished(result, error, seconds):
        frame, depth = sys._getframe(), 0
        while frame is not None:
            frame, depth = frame.f_back, depth + 1
        depths.append(depth)
        if len(depths) < 300:
            assert program.execute(completionHandler=finished)

    assert program.execute(completionHandler=finished)
    assert max(depths) - depths[0] < 400 and len(set(depths[32:])) == 1
