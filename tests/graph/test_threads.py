"""Threads: several graphs run side by side, one graph runs its calls one after the other, and nothing waits forever."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor, wait

import numpy as np
import torch

from mlc_torch import (
    MLCDropoutLayer,
    MLCExecutionOptions,
    MLCGraph,
    MLCGraphCompilationOptions,
    MLCInferenceGraph,
    MLCTrainingGraph,
)
from mlc_torch.tensor import TensorState
from tests.graph.networks import NETWORKS, made
from tests.graph.programs import (
    array,
    close,
    compiled,
    cpu,
    data,
    dense,
    loss,
    on,
    placeholder,
    regression,
    sgd,
    slopes,
    values,
)

PLAIN = MLCGraphCompilationOptions.disableLayerFusion
TIMEOUT = 60


def at_once(*works) -> list:
    """Run them on threads that start together; an exception in one is raised here."""
    gate = threading.Barrier(len(works))

    def run(work):
        gate.wait(TIMEOUT)
        return work()

    with ThreadPoolExecutor(len(works)) as pool:
        return [future.result(TIMEOUT) for future in [pool.submit(run, work) for work in works]]


def test_two_graphs_in_two_threads_do_not_disturb_each_other(torch_device):
    def train(network):
        program, params = made(network, sgd(0.05), on(torch_device))
        assert program.compile()
        losses = [program.step() for _ in range(30)]
        program.training.synchronizeUpdates()
        return losses, [array(p) for p in params]

    alone = [train(NETWORKS[i]) for i in (0, 3)]
    together = at_once(*(lambda n=NETWORKS[i]: train(n) for i in (0, 3)))
    for (losses, params), (wanted, want) in zip(together, alone, strict=True):
        np.testing.assert_allclose(losses, wanted, rtol=1e-6)
        for a, b in zip(params, want, strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-6, atol=1e-7)


def test_many_graphs_compile_and_run_in_many_threads():
    def work(number):
        program = regression(widths=(6, 5, 3))
        program.given["x"] = values(4, 6, seed=number)
        assert program.compile(PLAIN if number % 2 else [])
        return [program.step() for _ in range(10)]

    alone = [work(n) for n in range(6)]
    together = at_once(*(lambda n=n: work(n) for n in range(6)))
    np.testing.assert_allclose(together, alone, rtol=1e-5)


def test_one_graph_from_several_threads_runs_one_after_the_other(torch_device):
    program, plain = regression(device=on(torch_device)), regression(device=on(torch_device))
    assert program.compile() and plain.compile()
    losses = []
    known = threading.Barrier(3)

    def work():
        assert program.execute()
        known.wait(TIMEOUT)  # a graph keeps results for their handlers from the second thread's first call on
        for _ in range(10):
            mine = []
            assert program.execute(
                options=MLCExecutionOptions.synchronous, completionHandler=lambda *g, m=mine: m.append(array(g[0])[0])
            )
            losses.extend(mine)

    at_once(work, work, work)
    wanted = [plain.step() for _ in range(33)][3:]
    np.testing.assert_allclose(sorted(losses, reverse=True), wanted, rtol=1e-5)
    program.training.synchronizeUpdates()
    plain.training.synchronizeUpdates()
    np.testing.assert_allclose(array(program.layers[0].weights), array(plain.layers[0].weights), rtol=1e-6)


def test_output_buffers_belong_to_their_call():
    """Each thread feeds its own numbers and finds their result in its own buffer."""
    program = regression()
    inference = MLCInferenceGraph(graphObjects=[program.graph])
    assert inference.addInputs(program.inputs) and inference.addOutputs({"y": program.result})
    assert inference.compile(options=[], device=cpu())
    layer = program.layers[0]
    weights, bias = array(layer.weights).reshape(3, 6), array(layer.biases).ravel()

    known = threading.Barrier(3)

    def work(number):
        x, out = values(4, 6, seed=number), np.zeros((4, 3), np.float32)
        seen = []
        assert inference.execute(inputsData={"x": data(x)}, batchSize=4)
        known.wait(TIMEOUT)  # a graph keeps results for their handlers from the second thread's first call on
        for _ in range(40):
            out[:] = 0
            assert inference.execute(
                inputsData={"x": data(x)},
                outputsData={"y": data(out)},
                batchSize=4,
                completionHandler=lambda *g: seen.append(array(g[0])),
            )
            np.testing.assert_allclose(out, x @ weights.T + bias, rtol=1e-4, atol=1e-5)
        for got in seen:
            np.testing.assert_allclose(got, x @ weights.T + bias, rtol=1e-4, atol=1e-5)
        return len(seen)

    assert at_once(*(lambda n=n: work(n) for n in range(3))) == [40, 40, 40]


def test_training_and_inference_over_one_graph_keep_their_modes():
    """One thread trains with dropout, the other infers without: modules are shared, modes must not be."""
    graph, x, t = MLCGraph(), placeholder(4, 6), placeholder(4, 6)
    layer = dense(6, 6)
    y = graph.node(MLCDropoutLayer(rate=0.8, seed=3), source=graph.node(layer, source=x))
    training = MLCTrainingGraph(graphObjects=[graph], lossLayer=loss(), optimizer=sgd(0.0))
    assert training.addInputs({"x": x}, lossLabels={"t": t}) and training.compile(options=PLAIN, device=cpu())
    inference = MLCInferenceGraph(graphObjects=[graph])
    assert inference.addInputs({"x": x}) and inference.addOutputs({"y": y})
    assert inference.compile(options=PLAIN, device=cpu())
    a, b = values(4, 6), values(4, 6, seed=1)
    want = a @ array(layer.weights).reshape(6, 6).T + array(layer.biases).ravel()

    def train():
        fed = {"inputsData": {"x": data(a)}, "lossLabelsData": {"t": data(b)}, "lossLabelWeightsData": None}
        for _ in range(60):
            assert training.execute(**fed, batchSize=0)

    def infer():
        out = np.zeros((4, 6), np.float32)
        for _ in range(60):
            assert inference.execute(inputsData={"x": data(a)}, outputsData={"y": data(out)}, batchSize=0)
            np.testing.assert_allclose(out, want, rtol=1e-4, atol=1e-5)

    at_once(train, infer)


def test_handlers_that_use_each_other_s_graphs_do_not_lock():
    first, second = regression(), regression()
    assert first.compile() and second.compile()

    def work(mine, other):
        for _ in range(20):
            assert mine.execute(completionHandler=lambda *g: other.execute())

    at_once(lambda: work(first, second), lambda: work(second, first))


def test_a_handler_may_wait_for_another_thread_that_uses_the_graph():
    program = regression()
    assert program.compile()
    answers = []

    def handler(result, error, seconds):
        thread = threading.Thread(target=lambda: answers.append(program.execute()))
        thread.start()
        thread.join(TIMEOUT)
        answers.append(thread.is_alive())

    assert program.execute(completionHandler=handler) and answers == [True, False]


def test_phases_of_several_threads_do_not_mix_with_asking():
    """One thread trains in phases while others ask for gradients, tensors and texts."""
    program = regression(widths=(6, 5, 3))
    assert program.compile() and program.bind()
    stop = threading.Event()

    def train():
        try:
            for _ in range(30):
                assert program.forward() and program.gradient() and program.update()
        finally:
            stop.set()

    def ask():
        while not stop.is_set():
            program.training.resultTensors(for_=program.layers[0])
            program.training.resultGradientTensors(for_=program.layers[0])
            assert "digraph" in program.training.summarizedDOTDescription
            assert program.training.deviceMemorySize > 0

    at_once(train, ask, ask)
    assert program.step() >= 0


def test_asking_for_a_gradient_waits_for_the_call_that_computes_it():
    """In another thread. A gradient phase that has begun has thrown away the gradients of the one before it."""
    program = compiled()
    assert program.compile(MLCGraphCompilationOptions.computeAllGradients) and program.bind()
    inside, goes_on, want = threading.Event(), threading.Event(), slopes(program)

    def hook(gradient):
        inside.set()
        assert goes_on.wait(TIMEOUT)

    program.training.register_gradient_hook(program.result, hook)
    (first, _), x = program.layers, program.inputs["x"]

    def asked(ask):
        assert inside.wait(TIMEOUT)
        return ask()

    with ThreadPoolExecutor(3) as pool:
        step = pool.submit(lambda: program.forward() and program.gradient())
        parameter = pool.submit(asked, lambda: program.training.gradientData(forParameter=first.weights, layer=first))
        given = pool.submit(asked, lambda: program.training.gradientTensor(forInput=x))
        assert inside.wait(TIMEOUT)
        assert not wait([parameter, given], timeout=0.2).done
        goes_on.set()
        assert step.result(TIMEOUT)
        close(np.frombuffer(parameter.result(TIMEOUT), np.float32).reshape(5, 6), want["w1"])
        close(array(given.result(TIMEOUT)), want["x"])


def test_nodes_added_in_several_threads_are_all_there():
    graph, x = MLCGraph(), placeholder(4, 6)

    def work(number):
        for _ in range(20):
            assert graph.node(dense(6, 2, seed=number), source=x) is not None

    at_once(*(lambda n=n: work(n) for n in range(4)))
    assert len(graph.layers) == 80
    assert sorted(layer.layerID for layer in graph.layers) == list(range(1, 81))


def test_a_result_that_is_kept_has_every_field_of_a_tensor():
    """They are copied name by name, so that a new one could be forgotten."""
    state = placeholder(2)._cell
    kept = state.frozen(torch.ones(2))
    assert kept is not state and all(hasattr(kept, name) for name in TensorState.__slots__)
    assert bytes(kept.bytes()) == np.ones(2, np.float32).tobytes() and state.bytes() is None
