"""CUDA graphs are recorded in one thread while others record, run, allocate and let go."""

from __future__ import annotations

import gc
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, nullcontext
from functools import partial
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from mlc_torch import MLCInferenceGraph
from mlc_torch.engine import recording
from tests.graph.networks import NETWORKS, made
from tests.graph.programs import array, data, on, regression, sgd, slopes, values

THREADS, ROUNDS, STEPS, TIMEOUT = 8, 4, 6, 240


def train(number: int, device: torch.device) -> tuple[list[float], list[np.ndarray]]:
    """A new graph, compiled and trained; the way it ran is the usual one."""
    program, params = made(NETWORKS[number % len(NETWORKS)], sgd(0.05), on(device))
    assert program.compile()
    losses = [program.step() for _ in range(STEPS)]
    assert "captured" in str(program.training.summary()), program.training.summary()
    program.training.synchronizeUpdates()
    return losses, [array(p) for p in params]


def train_by_phases(number: int, device: torch.device) -> tuple[list[float], list[np.ndarray]]:
    """The same with data that is bound for each step, much of it, which the GPU fetches by itself, and little; by gradients that
    NumPy finds, too."""
    program = regression(sgd(1e-4), 64, (600, 8, 3), device=on(device))
    assert program.compile()
    losses = []
    for seed in range(number, number + STEPS):
        program.given = {"x": values(64, 600, seed=seed), "t": values(64, 3, seed=seed + 1)}
        want = slopes(program)["w1"]
        assert program.bind() and program.forward() and program.gradient()
        found = program.gradient_of(program.layers[0].weights, program.layers[0])
        np.testing.assert_allclose(found.reshape(want.shape), want, rtol=1e-4, atol=1e-4 * np.abs(want).max())
        losses.append(float(array(program.result).sum()))
        assert program.update()
    assert "captured" in str(program.training.summary()), program.training.summary()
    program.training.synchronizeUpdates()
    return losses, [array(layer.weights) for layer in program.layers]


KINDS = [*(partial(train, n) for n in range(len(NETWORKS))), *(partial(train_by_phases, n) for n in range(2))]


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs CUDA")
def test_eight_threads_record_and_run_side_by_side():
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
    device = torch.device("cuda")
    wanted = [kind(device) for kind in KINDS]
    gate, stop = threading.Barrier(THREADS), threading.Event()

    def work(thread: int) -> None:
        gate.wait(TIMEOUT)
        for round_ in range(ROUNDS):
            number = (thread + round_) % len(KINDS)
            losses, params = KINDS[number](device)
            np.testing.assert_allclose(losses, wanted[number][0], rtol=1e-4)
            for got, want in zip(params, wanted[number][1], strict=True):
                np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-5)
            gc.collect()  # recordings that are gone are let go of while others are made

    def disturb() -> None:
        """What the rest of a program does meanwhile: new device and pinned memory, waiting for its own stream."""
        stream, size = torch.cuda.Stream(), 1 << 20
        while not stop.is_set():
            with torch.cuda.stream(stream):
                pinned = torch.ones(size, pin_memory=True)
                total = pinned.to(device, non_blocking=True).sum()
                stream.synchronize()
                assert total.item() == size
            size = size * 3 // 2 if size < 1 << 26 else 1 << 20

    with ThreadPoolExecutor(THREADS + 1) as pool:
        beside = pool.submit(disturb)
        try:
            for future in [pool.submit(work, n) for n in range(THREADS)]:
                future.result(TIMEOUT)
        finally:
            stop.set()
        beside.result(TIMEOUT)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs CUDA")
def test_small_inferences_that_are_let_go_of_during_a_recording():
    """Their pinned memory waits until nothing is recorded, and is given back then."""
    device = torch.device("cuda", torch.cuda.current_device())  # as graphs name theirs

    def infer() -> None:
        program, _ = made(NETWORKS[0], sgd(0.05), on(device))
        inference = MLCInferenceGraph(graphObjects=[program.graph])
        assert inference.addInputs(program.inputs) and inference.compile(options=[], device=on(device))
        given = {name: data(program.given[name]) for name in program.inputs}
        for _ in range(20):
            assert inference.execute(inputsData=given, batchSize=0)

    with ThreadPoolExecutor(4) as pool:
        for future in [pool.submit(lambda: [infer() for _ in range(3)]) for _ in range(4)]:
            future.result(TIMEOUT)
    gc.collect()
    recording.release(device)
    assert not recording._unreleased


_FRESH = """
import threading, warnings
import torch
from mlc_torch.device import meet
device = torch.device("cuda", 0)
x = torch.ones(3, 4, device=device)
told = []

def product():
    meet(device)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        torch.mm(x.t(), x)
    told.extend(str(warning.message) for warning in caught)

thread = threading.Thread(target=product)
thread.start()
thread.join()
assert not told, told
"""


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs CUDA")
def test_a_product_may_be_the_first_thing_that_a_thread_does_with_a_gpu():
    """torch 2.11 warns there, once in a process, unless the thread has met the device before."""
    run = subprocess.run([sys.executable, "-c", _FRESH], capture_output=True, text=True, check=False, timeout=TIMEOUT)
    assert run.returncode == 0, run.stderr


class _Guarded:
    """Stands for ``torch.cuda`` where there is none: says who waits and whether something is recorded."""

    def __init__(self, capturing: bool = False) -> None:
        self.capturing, self.waited = capturing, 0

    def is_current_stream_capturing(self) -> bool:
        return self.capturing

    def synchronize(self, device: torch.device) -> None:
        assert not self.capturing
        self.waited += 1


@pytest.mark.parametrize("capturing", [False, True])
def test_pinned_memory_is_kept_while_something_is_recorded(monkeypatch, capturing):
    cuda, device = _Guarded(capturing), torch.device("cuda")
    monkeypatch.setattr(recording, "cuda", cuda)
    monkeypatch.setattr(recording, "_unreleased", {})
    memory = ["memory"]
    recording.release_later(memory, device)
    assert cuda.waited == (not capturing) and [*recording._unreleased.values()] == (
        [(device, ["memory"])] if capturing else []
    )
    cuda.capturing = False
    recording.release(device)
    assert not recording._unreleased and memory == []


def test_memory_that_another_device_reads_is_kept(monkeypatch):
    cuda, first, second = _Guarded(True), torch.device("cuda", 0), torch.device("cuda", 1)
    monkeypatch.setattr(recording, "cuda", cuda)
    monkeypatch.setattr(recording, "_unreleased", {})
    recording.release_later(["memory"], first)
    recording.release_later(["more"], second)
    cuda.capturing = False
    recording.release(first)
    assert [*recording._unreleased.values()] == [(second, ["more"])]


def test_a_finalizer_never_waits_for_the_thread_that_records(monkeypatch):
    cuda, device = _Guarded(), torch.device("cuda")
    monkeypatch.setattr(recording, "cuda", cuda)
    monkeypatch.setattr(recording, "_unreleased", {})
    with recording.LOCK, ThreadPoolExecutor(1) as other:
        other.submit(recording.release_later, ["memory"], device).result(10)
        assert cuda.waited == 0 and [*recording._unreleased.values()] == [(device, ["memory"])]
    recording.release(device)
    assert cuda.waited == 1 and not recording._unreleased


def test_memory_is_released_once_if_something_is_collected_meanwhile(monkeypatch):
    """A finalizer that runs while the device is waited for, or while a list is emptied, releases what waits, too."""
    device, released = torch.device("cuda"), []

    class Holds:
        def __init__(self, name: str) -> None:
            self.name = name

        def __eq__(self, other: object) -> bool:
            raise AssertionError("tensors are not compared")

        def __del__(self) -> None:
            released.append(self.name)
            if self.name == "first":
                recording.release_later([Holds("of a finalizer")], device)

    class Collecting(_Guarded):
        def synchronize(self, device: torch.device) -> None:
            super().synchronize(device)
            if self.waited == 1:
                recording.release_later([Holds("meanwhile")], device)

    cuda = Collecting(capturing=True)
    monkeypatch.setattr(recording, "cuda", cuda)
    monkeypatch.setattr(recording, "_unreleased", type(recording._unreleased)())
    for name in ("first", "second"):
        recording.release_later([Holds(name)], device)
    cuda.capturing = False
    recording.release(device)
    assert not recording._unreleased
    assert sorted(released) == ["first", "meanwhile", "of a finalizer", "second"]


class _Streams:
    """Stands for ``torch.cuda`` where there is none: which stream is current, and a recording that fails as torch's does."""

    CUDAGraph = object

    def __init__(self, fails: bool) -> None:
        self.now, self.fails = "the program's", fails

    def current_stream(self, device: str) -> str:
        return self.now

    @contextmanager
    def stream(self, wanted: str):
        before, self.now = self.now, wanted
        try:
            yield
        finally:
            self.now = before

    @contextmanager
    def graph(self, graph, pool, stream, capture_error_mode):
        before, self.now = self.now, stream
        yield
        if self.fails:
            raise RuntimeError("operation failed due to a previous error during capture")  # and the stream stays
        self.now = before


@pytest.mark.parametrize("fails", [False, True])
@pytest.mark.parametrize("collects", [False, True])
def test_a_recording_leaves_stream_and_collector_as_they_were(monkeypatch, fails, collects):
    cuda, seen = _Streams(fails), []
    monkeypatch.setattr(recording, "cuda", cuda)

    def work() -> None:
        seen.append((gc.isenabled(), cuda.now.name))

    before = gc.isenabled()
    (gc.enable if collects else gc.disable)()
    try:
        with pytest.raises(RuntimeError, match="previous error") if fails else nullcontext():
            recording.recorded(work, None, SimpleNamespace(device="cuda", name="the recording's"))
        assert (gc.isenabled(), cuda.now) == (collects, "the program's")
    finally:
        (gc.enable if before else gc.disable)()
    assert seen == [(False, "the recording's")]


class _Owner:
    """Stands for a graph's recordings."""


def test_streams_of_graphs_that_are_gone_serve_again(monkeypatch):
    """cuBLAS keeps working memory for every stream, so that graphs compiled again and again must not take new ones."""
    monkeypatch.setattr(recording, "cuda", SimpleNamespace(Stream=lambda device: SimpleNamespace(of=device)))
    monkeypatch.setattr(recording, "_unused", {})
    device, another, owners = torch.device("cuda", 0), torch.device("cuda", 1), [_Owner() for _ in range(4)]
    first, second = (recording.stream_for(owner, device) for owner in owners[:2])
    assert first is not second
    del owners[0]
    gc.collect()
    assert recording.stream_for(owners[1], another).of == another
    assert recording.stream_for(owners[2], device) is first
