"""The platform's random streams when a signal handler, a fork or another default device comes in between."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

FORKS = pytest.mark.skipif(not hasattr(os, "fork"), reason="processes are not forked here")

DROPOUT = """
import os, signal, sys, threading
import numpy as np, torch
from mlc_torch import *
torch.set_num_threads(1)
cpu = MLCDevice.cpu()

def dropout(seed=0):
    graph, x = MLCGraph(), MLCTensor(shape=[1, 64])
    y = graph.node(MLCDropoutLayer(rate=0.5, seed=seed), source=x)
    training = MLCTrainingGraph(graphObjects=[graph], lossLayer=None, optimizer=None)
    assert training.addInputs({"x": x}, lossLabels={}) and training.addOutputs({"y": y})
    assert training.compile(options=[], device=cpu)
    ones = {"x": np.ones((1, 64), np.float32)}

    def mask():
        assert training.bindAndWriteData(ones, forInputs={"x": x}, to=cpu, synchronous=True)
        assert training.executeForward(batchSize=0), last_refusal()
        return "".join("1" if v else "0" for v in y.numpy().ravel())

    return mask
"""


def run(program: str) -> str:
    """What it prints; one that hangs fails."""
    done = subprocess.run([sys.executable, "-c", DROPOUT + program], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_a_signal_handler_may_draw_and_set_the_seed_in_the_middle_of_a_draw():
    program = """
one, other = dropout(), dropout()
one(), other()

def handler(*_):
    other()
    MLCPlatform.setRNGSeedTo(3)

signal.signal(signal.SIGUSR1, handler)
struck = []

def trace(frame, event, argument):
    if frame.f_code.co_name == "_stream" and not struck:
        struck.append(1)
        sys.settrace(None)
        signal.raise_signal(signal.SIGUSR1)

sys.settrace(trace)
one()
sys.settrace(None)
print(struck, MLCPlatform.getRNGseed())
"""
    assert run(program) == "[1] 3\n"


@FORKS
def test_a_fork_waits_for_no_thread_of_its_parent_and_draws_numbers_of_its_own():
    program = """
mask, own = dropout(), dropout(7)
mask(), own()

def forked(work):
    reads, writes = os.pipe()
    child = os.fork()
    if not child:
        os.write(writes, work().encode())
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
    return os.read(reads, 4096).decode()

made = [forked(mask), forked(mask), mask()]
assert len(set(made)) == 3, made
made = [forked(own), forked(own), own()]
assert len(set(made)) == 1, made  # a layer's own seed says which
MLCPlatform.setRNGSeedTo(5)
made = [forked(mask), forked(mask), mask()]
assert len(set(made)) == 1, made
held, go = threading.Event(), threading.Event()

def hold():
    from mlc_torch.device import randomness
    with randomness._lock:
        held.set()
        go.wait()

thread = threading.Thread(target=hold)
thread.start()
held.wait()
print(forked(lambda: str(MLCPlatform.setRNGSeedTo(4))))
go.set()
thread.join()
"""
    assert run(program) == "None\n"


@pytest.mark.parametrize("device", ["meta", "cpu"])
def test_the_package_is_imported_whatever_torch_s_default_device_is(device):
    code = f"import torch; torch.set_default_device({device!r}); import mlc_torch; print(torch.ones(1).device)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    assert done.stdout == f"{device}\n", done.stderr
