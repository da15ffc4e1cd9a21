"""``memory()`` against what torch itself has: every storage that is alive, or the allocator's statistics."""

from __future__ import annotations

import gc

import pytest
import torch

from mlc_torch import (
    MLCActivationLayer,
    MLCDevice,
    MLCExecutionOptions,
    MLCGraph,
    MLCInferenceGraph,
)
from mlc_torch.testing import device_named
from tests.seeing.graphs import Built, bare, batch_norm, data, perceptron, recurrent, residual, step, training

pytestmark = pytest.mark.usefixtures("warm", "only_what_is_new")

GRAPHS = {"perceptron": perceptron, "residual": residual, "recurrent": recurrent}


def storages() -> dict[int, int]:
    """Address and size of every CPU storage that a Python object of the test refers to."""
    gc.collect()
    found = {}
    for thing in gc.get_objects():
        # Tensors of other kinds, as torch's compilers and oneDNN's packed weights are, have no storage to look at.
        is_plain = type(thing) in (torch.Tensor, torch.nn.Parameter) and thing.layout is torch.strided
        if is_plain and thing.device.type == "cpu":
            storage = thing.untyped_storage()
            if storage.nbytes():
                found[storage.data_ptr()] = storage.nbytes()
    return found


@pytest.fixture
def warm():
    """What torch and the library make once is there before the test begins."""
    once = perceptron()
    step(training(once), once)


def new_bytes() -> int:
    return sum(storages().values())


@pytest.mark.parametrize("name", GRAPHS)
def test_the_total_is_the_sum_of_the_storages(name):
    built = GRAPHS[name]()
    graph = training(built)
    for _ in range(2):
        step(graph, built)
    memory = graph.memory()
    assert memory.total == new_bytes()
    assert memory.total == sum(memory.bytes.values())


def test_what_each_purpose_takes():
    built = perceptron()
    graph = training(built)
    step(graph, built)
    parameters = 4 * (12 * 16 + 16 + 16 * 3 + 3)
    taken = dict(graph.memory().bytes)
    # What the loss is multiplied with, and the gradient of that, are the same numbers in every step; a gear may keep both,
    # and a row of ones to add up each bias' gradient. What lies between the layers, and its gradient, stand in memory of theirs.
    between = 2 * 4 * 8 * 16
    assert taken.pop("workspace") in (0, between + 4 * 2, between + 4 * (2 + 8 * 2))
    assert taken == {
        "parameters": parameters,
        "statistics": 0,
        "optimizer state": 2 * parameters,  # Adam keeps two tensors for each parameter
        "constants": 0,
        "inputs": 4 * 8 * (12 + 3),  # where the data given to execute is copied to, since there is little
        "gradients": parameters,
        "results": 4 * (8 * 3 + 1),  # the scores, which the test holds, and the loss
    }


def test_bound_inputs_and_kept_values_count_between_the_phases():
    built = perceptron()
    graph = training(built)
    given = {n: data(t.descriptor.shape, 1) for n, t in (built.inputs | built.labels).items()}
    graph.bindAndWriteData(
        given, forInputs=built.inputs | built.labels, to=MLCDevice.cpu(), batchSize=8, synchronous=True
    )
    assert graph.executeForward(batchSize=8)
    held = graph.memory()
    assert held["inputs"] == 2 * 4 * 8 * (12 + 3) and held["workspace"] > 0  # bound, and room for data given to execute
    assert graph.executeGradient(batchSize=8)
    assert graph.memory()["gradients"] == held["parameters"] > 0 == held["gradients"]


def test_a_tensor_used_twice_counts_once():
    built = recurrent()
    both = MLCInferenceGraph(graphObjects=[built.graph])
    both.addInputs(built.inputs)
    both.compile(options=[], device=MLCDevice.cpu())
    both.execute(inputsData={"series": data([4, 7, 5])}, batchSize=4)
    memory = both.memory()
    assert memory["parameters"] == 4 * 302 and memory["constants"] == 4 * 6
    assert memory["gradients"] == memory["optimizer state"] == 0


def test_before_compile_there_are_only_the_parameters():
    memory = training(perceptron(), compiled=False).memory()
    assert memory.total == memory["parameters"] == 4 * 259
    assert str(memory).startswith("MLCTrainingGraph, not compiled")


def test_it_reads_well():
    built = residual()
    graph = training(built)
    step(graph, built)
    lines = str(graph.memory()).splitlines()
    assert lines[0] == "MLCTrainingGraph, on cpu"
    assert any(line.split() == ["statistics", "896", "896", "B"] for line in lines)
    assert lines[-1].split() == ["total", f"{graph.memory().total:,}", "1.2", "MiB"]


def test_looking_holds_nothing():
    built = perceptron()
    graph = training(built)
    step(graph, built)
    was = new_bytes()
    reports = [graph.memory() for _ in range(3)]
    assert new_bytes() == was and len({r.total for r in reports}) == 1


def normalized(size: int = 1 << 16) -> Built:
    """Large tensors and no matrix product: cuBLAS takes workspace of its own, which is no graph's."""
    graph, x = MLCGraph(), bare([2, 4, size])
    y = x
    for number in range(3):
        y = graph.node(batch_norm(4, f"norm{number}"), source=y)
        y = graph.node(MLCActivationLayer.tanh, source=y)
    return Built(graph, {"x": x}, y, {"t": bare([2, 4, size])})


def test_it_agrees_with_the_devices_allocator(torch_device):
    """On the CPU torch keeps no statistics, and the storages are counted instead."""
    device = device_named(torch_device.type)
    allocated = {
        "cpu": new_bytes,
        "cuda": torch.cuda.memory_allocated,
        "mps": torch.mps.current_allocated_memory,
    }[torch_device.type]
    warm = normalized(64)
    step(training(warm, device), warm, [MLCExecutionOptions.synchronous])  # what torch allocates once, it has now
    del warm
    gc.collect()
    start = allocated()
    built = normalized()
    graph = training(built, device)
    for _ in range(2):
        step(graph, built, [MLCExecutionOptions.synchronous])
    gc.collect()
    taken = allocated() - start
    memory = graph.memory()
    held = memory.total - memory.bytes.get("captured, idle", 0)
    # Allocators of devices hand out whole blocks, torch's of 512 bytes.
    assert held <= taken <= held + (0 if torch_device.type == "cpu" else 512 * 64)
    assert memory["parameters"] == memory["statistics"] == 4 * 2 * 4 * 3
    assert memory["gradients"] == 4 * 2 * 4 * 3 and memory["optimizer state"] == 2 * memory["parameters"]
    if graph.summary().gear == "captured":
        assert memory["captured, idle"] > 0
