"""The Async forms under asyncio, and what belongs to a context: strict mode and the last refusal."""

from __future__ import annotations

import asyncio
import inspect
import math
import re
import threading

import numpy as np
import pytest

from mlc_torch import MLCGraph, MLCInferenceGraph, MLCRefusal, MLCTensor, last_refusal, strict
from mlc_torch.running import asynchronous
from tests.graph.programs import array, cpu, data, dense, on, placeholder, regression, values


def test_inference_execute_gives_result_and_time(torch_device):
    program = regression(device=on(torch_device))
    inference = MLCInferenceGraph(graphObjects=[program.graph])
    assert inference.addInputs(program.inputs) and inference.addOutputs({"y": program.result})
    assert inference.compile(options=[], device=program.device)
    out = np.zeros((4, 3), np.float32)

    async def main():
        result, seconds = await inference.executeAsync(inputsData=program.inputs_data(), batchSize=4)
        assert isinstance(result, MLCTensor) and 0 < seconds < 60
        again, _ = await inference.executeAsync(
            inputsData=program.inputs_data(),
            lossLabelsData=None,
            lossLabelWeightsData=None,
            outputsData={"y": data(out)},
            batchSize=0,
            options=[],
        )
        return array(result), array(again)

    first, second = asyncio.run(main())
    np.testing.assert_array_equal(first, second)
    np.testing.assert_array_equal(out, second)


def test_the_phases_and_execute_of_training(torch_device):
    program, plain = regression(device=on(torch_device)), regression(device=on(torch_device))
    assert program.compile() and plain.compile()
    training = program.training

    async def main():
        losses = []
        for _ in range(2):
            assert program.bind()
            result, seconds = await training.executeForwardAsync(batchSize=4)
            losses.append(float(array(result)[0]))
            times = [
                seconds,
                await training.executeGradientAsync(batchSize=4),
                await training.executeOptimizerUpdateAsync(),
            ]
            assert all(0 < t < 60 for t in times)
        result, seconds = await training.executeAsync(
            inputsData=program.inputs_data(), lossLabelsData=program.labels_data(), batchSize=4
        )
        assert 0 < seconds < 60
        return [*losses, float(array(result)[0])]

    np.testing.assert_allclose(asyncio.run(main()), [plain.step() for _ in range(3)], rtol=1e-5)


def test_a_coroutine_runs_when_it_is_awaited():
    program = regression()
    assert program.compile()
    before = array(program.layers[0].weights)
    call = program.training.executeAsync(
        inputsData=program.inputs_data(), lossLabelsData=program.labels_data(), batchSize=0
    )
    assert inspect.iscoroutine(call)
    np.testing.assert_array_equal(array(program.layers[0].weights), before)
    asyncio.run(call)
    assert not np.array_equal(array(program.layers[0].weights), before)


def test_refusals_raise_with_or_without_strict():
    program = regression()

    async def refused(call):
        with pytest.raises(MLCRefusal) as raised:
            await call
        assert last_refusal() is raised.value
        assert re.match(r"MLC\w+Graph\.execute\w*Async\(", str(raised.value))
        return str(raised.value)

    async def main():
        training = program.training
        assert "not compiled" in await refused(training.executeAsync(inputsData={}, lossLabelsData=None, batchSize=0))
        assert program.compile()
        assert "no data for the input 'x'" in await refused(training.executeForwardAsync(batchSize=0))
        assert "executeForward first" in await refused(training.executeGradientAsync(batchSize=0))
        assert "no gradient to apply" in await refused(training.executeOptimizerUpdateAsync())
        with strict():
            assert "batchSize" in await refused(training.executeForwardAsync(batchSize=-1))
        inference = MLCInferenceGraph(graphObjects=[program.graph])
        assert "not compiled" in await refused(inference.executeAsync(inputsData={}, batchSize=0))

    asyncio.run(main())
    assert program.step() > 0


def test_wrong_labels_raise_at_once():
    program = regression()
    with pytest.raises(TypeError, match="executeForwardAsync"):
        program.training.executeForwardAsync(size=3)
    with pytest.raises(TypeError, match="batchSize"):
        program.training.executeForwardAsync(batchSize="4")


def test_many_tasks_use_one_graph_one_after_the_other():
    program, plain = regression(), regression()
    assert program.compile() and plain.compile()

    async def main():
        calls = [
            program.training.executeAsync(
                inputsData=program.inputs_data(), lossLabelsData=program.labels_data(), batchSize=4
            )
            for _ in range(20)
        ]
        return await asyncio.gather(*calls)

    losses = sorted((float(array(result)[0]) for result, _ in asyncio.run(main())), reverse=True)
    np.testing.assert_allclose(losses, [plain.step() for _ in range(20)], rtol=1e-5)
    np.testing.assert_allclose(array(program.layers[0].weights), array(plain.layers[0].weights), rtol=1e-6)


def test_the_event_loop_goes_on_meanwhile():
    program = regression()
    assert program.compile()
    ticks = 0

    async def tick():
        nonlocal ticks
        while True:
            ticks += 1
            await asyncio.sleep(0)

    async def main():
        clock = asyncio.create_task(tick())
        for _ in range(5):
            await program.training.executeAsync(
                inputsData=program.inputs_data(), lossLabelsData=program.labels_data(), batchSize=4
            )
        clock.cancel()

    asyncio.run(main())
    assert ticks > 5


# Little inferences, which are done sooner than handed over


@pytest.fixture(params=[math.inf])
def handed_over(monkeypatch, request):
    """The calls that went to a thread, whatever the machine's speed."""
    monkeypatch.setattr(asynchronous, "_SOON", request.param)
    found, hand_over = [], asyncio.to_thread

    async def listen(*call):
        found.append(call)
        return await hand_over(*call)

    monkeypatch.setattr(asyncio, "to_thread", listen)
    return found


class Dense:
    """One layer, whose results are known."""

    def __init__(self, inputs=6, outputs=3, batch=2):
        self.layer, self.x = dense(inputs, outputs), placeholder(batch, inputs)
        graph = MLCGraph()
        self.y = graph.node(self.layer, source=self.x)
        self.inference = MLCInferenceGraph(graphObjects=[graph])
        assert self.inference.addInputs({"x": self.x}) and self.inference.compile(options=[], device=cpu())
        weights, self.bias = array(self.layer.weights).reshape(outputs, inputs), array(self.layer.biases).ravel()
        self.weights = weights.astype(np.float64)

    async def infer(self, seed):
        given = values(*self.x.descriptor.shape, seed=seed)
        result, seconds = await self.inference.executeAsync(inputsData={"x": data(given)}, batchSize=len(given))
        assert 0 < seconds < 60
        return array(result), given @ self.weights.T + self.bias


def test_a_little_inference_is_done_at_once(handed_over):
    program = Dense()

    async def main():
        return [await program.infer(seed) for seed in range(6)]

    for got, want in asyncio.run(main()):
        np.testing.assert_allclose(got.reshape(want.shape), want, rtol=1e-5, atol=1e-6)
    assert 1 <= len(handed_over) <= 3  # until it is known what is usual


def test_everybody_else_has_a_turn(handed_over):
    program, turns = Dense(), []

    async def take(name):
        for seed in range(6):
            await program.infer(seed)
            turns.append(name)

    async def main():
        await program.infer(0), await program.infer(1), await program.infer(2)
        await asyncio.gather(take("a"), take("b"))

    asyncio.run(main())
    assert turns == ["a", "b"] * 6


@pytest.mark.parametrize("handed_over", [0.0], indirect=True)
def test_what_took_long_goes_to_a_thread(handed_over):
    program = Dense()

    async def main():
        for seed in range(5):
            got, want = await program.infer(seed)
            np.testing.assert_allclose(got.reshape(want.shape), want, rtol=1e-5, atol=1e-6)

    asyncio.run(main())
    assert len(handed_over) == 5


def test_nobody_waits_in_the_event_loop_for_a_graph_that_is_held(handed_over):
    program, taken, enough = Dense(), threading.Event(), threading.Event()

    def hold():
        with program.inference._gate.lock:
            taken.set()
            assert enough.wait(60)

    async def main():
        for seed in range(4):
            await program.infer(seed)
        before = len(handed_over)
        thread = threading.Thread(target=hold)
        thread.start()
        taken.wait(60)
        call = asyncio.create_task(program.infer(5))
        for _ in range(5):
            await asyncio.sleep(0)
        assert not call.done() and len(handed_over) == before + 1
        enough.set()
        got, want = await call
        np.testing.assert_allclose(got.reshape(want.shape), want, rtol=1e-5, atol=1e-6)
        thread.join(60)

    asyncio.run(main())


def test_a_refusal_of_a_little_inference_is_raised(handed_over):
    program = Dense()

    async def main():
        for seed in range(4):
            await program.infer(seed)
        with pytest.raises(MLCRefusal) as raised:
            await program.inference.executeAsync(inputsData={"y": data(values(2, 6))}, batchSize=2)
        assert last_refusal() is raised.value
        return await program.infer(7)

    got, want = asyncio.run(main())
    np.testing.assert_allclose(got.reshape(want.shape), want, rtol=1e-5, atol=1e-6)


# Contexts


def test_strict_belongs_to_its_task():
    program = regression()
    entered, asked = asyncio.Event(), asyncio.Event()

    async def strictly():
        with strict():
            entered.set()
            await asked.wait()
            with pytest.raises(MLCRefusal):
                program.execute()

    async def leniently():
        await entered.wait()
        assert program.execute() is False
        asked.set()

    async def main():
        await asyncio.gather(strictly(), leniently())

    asyncio.run(main())


def test_the_last_refusal_belongs_to_its_task():
    program = regression()

    async def one():
        program.execute()
        mine = last_refusal()
        await asyncio.sleep(0.01)
        assert last_refusal() is mine and "not compiled" in str(mine)

    async def other():
        await asyncio.sleep(0.005)
        program.training.compileOptimizer(program.training.optimizer)
        assert "compile the graph before" in str(last_refusal())

    async def main():
        await asyncio.gather(one(), other())

    asyncio.run(main())


def test_strict_and_the_last_refusal_belong_to_their_thread():
    program, seen = regression(), []

    def elsewhere():
        seen.append(last_refusal())
        seen.append(program.execute())
        seen.append(str(last_refusal()))

    assert program.training.compileOptimizer(program.training.optimizer) is False
    mine = last_refusal()
    with strict():
        thread = threading.Thread(target=elsewhere)
        thread.start()
        thread.join(60)
    assert seen[:2] == [None, False] and "not compiled" in seen[2] and last_refusal() is mine


def test_strict_can_be_left_again():
    program = regression()
    with strict():
        with strict(False):
            assert program.execute() is False
        with pytest.raises(MLCRefusal):
            program.execute()
    assert program.execute() is False and cpu() is not None
