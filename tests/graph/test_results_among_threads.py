"""Threads and forked children over the same layers: each reads its own result, and nobody waits for ever."""

from __future__ import annotations

import os
import signal
import sys
import threading

import numpy as np
import pytest
import torch
from torch import nn

from mlc_torch import (
    MLCGraph,
    MLCGraphCompilationOptions,
)
from mlc_torch.interop import TorchLayer
from tests.graph.programs import (
    close,
    compiled,
    data,
    inferring,
    placeholder,
    sgd,
    values,
)


@pytest.mark.parametrize("kind", ["inference", "training"])
def test_each_of_a_server_s_threads_reads_its_own_result(kind):
    """One thread for each request: every one of them is new to the graph, and another one runs it before the result is read."""
    program = compiled()
    inference = inferring(program.graph, program.inputs["x"])
    labels = np.zeros((4, 3), np.float32)
    assert program.training.compileOptimizer(sgd(0.0))
    numbers = {n: values(4, 6, seed=100 + n) for n in range(6)}
    seen: dict[int, np.ndarray] = {}
    turns = [threading.Event() for _ in range(len(numbers) + 1)]

    def ask(number):
        def handler(result, error, seconds):
            turns[number + 1].set()  # the next one comes while this one is still here
            turns[-1].wait(60)
            seen[number] = result.numpy().copy()

        turns[number].wait(60)
        fed = {"inputsData": {"x": data(numbers[number])}, "batchSize": 4, "completionHandler": handler}
        if kind == "inference":
            assert inference.execute(**fed)
        else:
            assert program.training.execute(**fed, lossLabelsData={"t": data(labels)}, lossLabelWeightsData=None)

    turns[0].set()
    threads = [threading.Thread(target=ask, args=(n,)) for n in numbers]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    first, second = program.layers
    for number, x in numbers.items():
        h = np.maximum(x @ first.weights.numpy().reshape(5, 6).T + first.biases.numpy().ravel(), 0)
        y = h @ second.weights.numpy().reshape(3, 5).T + second.biases.numpy().ravel()
        close(seen[number], y if kind == "inference" else np.reshape((y**2).mean(), seen[number].shape))


@pytest.mark.parametrize("other", ["inference", "training"])
def test_a_graph_over_the_same_layers_changes_no_result_of_another_thread(other):
    program = compiled()
    x = program.inputs["x"]
    mine, theirs = inferring(program.graph, x), inferring(program.graph, x)
    assert program.training.addOutputs({"y": program.result}) and program.compile()
    numbers, others, seen = values(4, 6, seed=1), values(4, 6, seed=2), []
    labels = {"lossLabelsData": {"t": data(np.zeros((4, 3), np.float32))}, "lossLabelWeightsData": None}

    def elsewhere():
        fed = {"inputsData": {"x": data(others)}, "batchSize": 4}
        assert theirs.execute(**fed) if other == "inference" else program.training.execute(**fed, **labels)

    def at_work():
        thread = threading.Thread(target=elsewhere)
        thread.start()
        thread.join(60)

    def handler(result, error, seconds):
        at_work()
        seen.append(result.numpy().copy())

    at_work()
    first, second = program.layers
    h = np.maximum(numbers @ first.weights.numpy().reshape(5, 6).T + first.biases.numpy().ravel(), 0)
    want = h @ second.weights.numpy().reshape(3, 5).T + second.biases.numpy().ravel()
    assert mine.execute(inputsData={"x": data(numbers)}, batchSize=4, completionHandler=handler)
    close(seen[0], want)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")  # from Python 3.12 on: threads and fork
def test_a_child_may_run_what_a_thread_of_its_parent_runs():
    program = compiled()
    inference, fed = (
        inferring(program.graph, program.inputs["x"]),
        {"inputsData": program.inputs_data(), "batchSize": 4},
    )
    assert inference.execute(**fed)
    held, done = threading.Event(), threading.Event()
    thread = threading.Thread(target=program.training._lock.holding, args=(lambda: held.set() or done.wait(60),))
    thread.start()
    assert held.wait(60)
    child = os.fork()
    if child == 0:
        signal.alarm(30)  # ends it if it waits for ever
        os._exit(0 if inference.execute(**fed) else 1)
    _, status = os.waitpid(child, 0)
    done.set()
    thread.join(60)
    assert os.waitstatus_to_exitcode(status) == 0
    assert inference.execute(**fed) and program.execute()


class Forks(nn.Module):
    """Forks in the middle of a run, when the graph is held; the child ends there."""

    asked = False

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.asked:
            self.asked, self.child = False, os.fork()
        return x * 2


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")
def test_a_child_lets_go_of_what_it_holds():
    module, graph, x = Forks(), MLCGraph(), placeholder(4, 6)
    graph.node(TorchLayer(module), source=x)
    inference = inferring(graph, x, [MLCGraphCompilationOptions.disableLayerFusion])
    fed = {"inputsData": {"x": data(values(4, 6))}, "batchSize": 4}
    module.asked = True
    done = inference.execute(**fed)
    if module.child == 0:
        signal.alarm(30)
        os._exit(0 if done and inference.execute(**fed) else 1)
    _, status = os.waitpid(module.child, 0)
    assert done and os.waitstatus_to_exitcode(status) == 0


def test_many_threads_make_graphs_over_the_same_layers():
    program = compiled()
    x = program.inputs["x"]
    failures: list[BaseException] = []

    def work():
        try:
            for _ in range(30):
                inference = inferring(program.graph, x)
                assert inference.execute(inputsData=program.inputs_data(), batchSize=4)
        except BaseException as error:  # noqa: BLE001 - told below
            failures.append(error)

    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    try:
        threads = [threading.Thread(target=work) for _ in range(6)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(120)
    finally:
        sys.setswitchinterval(before)
    assert not failures
