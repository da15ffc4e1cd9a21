"""The guard for memory: what a first run takes, against what the machine and the control group still have."""

from __future__ import annotations

import numpy as np
import pytest

from mlc_torch import (
    MLCActivationLayer,
    MLCAdamOptimizer,
    MLCGraph,
    MLCInferenceGraph,
    MLCRefusal,
    MLCReshapeLayer,
    MLCTrainingGraph,
    last_refusal,
)
from mlc_torch.running import memory_guard
from mlc_torch.running.memory_guard import available_bytes, check_memory, first_run_needs
from mlc_torch.running.state import Variant
from tests.graph.programs import cpu, data, dense, hyper, loss, placeholder, regression, sgd

GIB = 2**30


def inference(*layers, shape=(4, 6)) -> MLCInferenceGraph:
    graph, x = MLCGraph(), placeholder(*shape)
    y = x
    for layer in layers:
        y = graph.node(layer, source=y)
    made = MLCInferenceGraph(graphObjects=[graph])
    assert made.addInputs({"x": x}) and made.compile(options=[], device=cpu())
    return made


def plan_of(graph):
    return graph._session(Variant.whole).plan


def test_an_inference_takes_its_inputs_and_what_lives_at_one_time():
    """Three results of 1000, 10 and 10 rows of numbers: the first is let go once the second is there."""
    graph = inference(dense(6, 1000), dense(1000, 10), dense(10, 10))
    needs = first_run_needs(plan_of(graph), None)
    assert needs == {"inputs": 4 * 6 * 4, "results": (4 * 1000 + 4 * 10) * 4}


def test_views_take_nothing():
    graph = inference(MLCReshapeLayer(shape=[6, 4]), MLCActivationLayer.relu, MLCReshapeLayer(shape=[24]))
    assert first_run_needs(plan_of(graph), None) == {"inputs": 96, "results": 96}


@pytest.mark.parametrize(("optimizer", "states"), [(sgd(), 0), (MLCAdamOptimizer(descriptor=hyper()), 2)])
def test_training_keeps_results_and_takes_gradients_and_state(optimizer, states):
    program = regression(optimizer, widths=(6, 5, 3))
    assert program.compile()
    plan = program.training._session(Variant.whole).plan
    for cell in (t.cell for t in plan.trained):
        cell.kept_states = None  # as before the compile
    parameters = (6 * 5 + 5 + 5 * 3 + 3) * 4
    results = (4 * 5 + 4 * 5 + 4 * 3 + 1) * 4  # dense, relu, dense, loss
    assert first_run_needs(plan, optimizer) == {
        "inputs": (4 * 6 + 4 * 3) * 4,
        "results": results,
        "gradients": 4 * 5 * 4 + parameters,
        "optimizer state": states * parameters,
    }


def test_state_that_is_bound_or_there_is_not_taken_again():
    program = regression(MLCAdamOptimizer(descriptor=hyper()))
    weights = program.layers[0].weights
    assert weights.bindOptimizerData([data(np.zeros(18, np.float32)) for _ in range(2)], deviceData=None)
    assert program.compile()
    plan = program.training._session(Variant.whole).plan
    for cell in (t.cell for t in plan.trained):
        cell.kept_states = None
    assert first_run_needs(plan, program.training.optimizer)["optimizer state"] == 2 * 3 * 4  # the biases'
    assert program.compile() and program.execute()
    assert (
        first_run_needs(program.training._session(Variant.whole).plan, program.training.optimizer)["optimizer state"]
        == 0
    )


def test_too_much_is_refused_with_the_sum_and_its_parts(monkeypatch):
    plan = plan_of(inference(dense(6, 1000)))
    monkeypatch.setattr(memory_guard, "_SMALL", 0)
    monkeypatch.setattr(memory_guard, "available_bytes", lambda: 16096)
    check_memory(plan, None)
    monkeypatch.setattr(memory_guard, "available_bytes", lambda: 16095)
    with pytest.raises(MLCRefusal) as error:
        check_memory(plan, None)
    assert str(error.value) == (
        "compiling and running the graph once takes 15.7 KiB of memory (96 B for inputs, 15.6 KiB for results); "
        "15.7 KiB are available"
    )


@pytest.mark.parametrize("trains", [True, False])
def test_a_huge_input_is_refused_by_compile_and_a_smaller_one_is_not(trains):
    for count, fits in ((2**38, False), (2**4, True)):
        graph, x, t = MLCGraph(), placeholder(count, 1), placeholder(count, 1)
        graph.node(dense(1, 1), source=x)
        if trains:
            made = MLCTrainingGraph(graphObjects=[graph], lossLayer=loss(), optimizer=sgd())
            assert made.addInputs({"x": x}, lossLabels={"t": t})
        else:
            made = MLCInferenceGraph(graphObjects=[graph])
            assert made.addInputs({"x": x})
        assert made.compile(options=[], device=cpu()) is fits
        inputs = "2.0 TiB" if trains else "1.0 TiB"
        assert fits or f"{inputs} for inputs, 1.0 TiB for results" in last_refusal().reason


# What there is


@pytest.fixture
def machine(tmp_path):
    """A made-up /proc and /sys/fs/cgroup."""

    def write(path: str, text: str):
        place = tmp_path / path
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(text)

    def left() -> int:
        return memory_guard._group_bytes(tmp_path / "cgroup", tmp_path / "sys")

    return write, left


def test_a_group_of_version_two_and_those_above_it(machine):
    write, left = machine
    write("cgroup", "0::/user/app\n")
    write("sys/user/app/memory.max", "max\n")
    write("sys/user/app/memory.stat", "anon 5\nfile 1000\n")
    assert left() >= 2**60
    write("sys/user/memory.max", f"{4 * GIB}\n")
    write("sys/user/memory.stat", f"anon {GIB}\nfile {2 * GIB}\n")
    assert left() == 3 * GIB
    write("sys/user/app/memory.max", f"{GIB}\n")
    assert left() == GIB - 5


def test_a_group_of_version_one(machine):
    write, left = machine
    write("cgroup", "5:devices:/\n4:memory:/box\n0::/\n")
    write("sys/memory/box/memory.limit_in_bytes", f"{2 * GIB}\n")
    write("sys/memory/box/memory.stat", f"cache 7\ntotal_rss {GIB}\n")
    write("sys/memory/memory.limit_in_bytes", "9223372036854771712\n")
    write("sys/memory/memory.stat", "total_rss 7\n")
    assert left() == GIB


def test_inside_a_container_only_the_root_is_to_be_seen(machine):
    write, left = machine
    write("cgroup", "0::/somewhere/else\n")
    write("sys/memory.max", f"{GIB}\n")
    write("sys/memory.stat", "anon 0\n")
    assert left() == GIB


def test_a_group_that_is_over_its_limit_and_what_cannot_be_read(machine):
    write, left = machine
    assert left() >= 2**60  # not Linux
    write("cgroup", "nonsense\n0::/a\n")
    write("sys/a/memory.max", "100\n")
    assert left() >= 2**60  # no memory.stat
    write("sys/a/memory.stat", "anon 200\n")
    assert left() == 0


def test_the_machine_s_own_number(tmp_path):
    file = tmp_path / "meminfo"
    file.write_text("MemTotal: 1000 kB\nMemAvailable:    500 kB\n")
    assert memory_guard._machine_bytes(file) == 512000
    # What is free changes between two looks; the machine's size does not, and is what counts where nothing says more.
    size = memory_guard._machine_bytes(tmp_path / "none")
    assert 2**20 < available_bytes() < size
