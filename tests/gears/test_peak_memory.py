"""Training steps need at most 1.1 times the memory of the hand-written loop (`python -m benchmarks.memory`)."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from benchmarks.contenders import HAND_WRITTEN, ONE_CALL
from benchmarks.memory import compare
from benchmarks.workloads import WORKLOADS
from mlc_torch.engine import kernels
from tests.gears.test_kernels import pretend


def test_peak_memory_of_a_resnet(torch_device):
    workload = WORKLOADS["ResNet-20"]
    if torch_device.type == "cpu":
        workload = replace(workload, shape=(8, 3, 32, 32))  # enough to tell; a GPU's allocator only counts large blocks
    found = compare(workload, torch_device)
    assert found[ONE_CALL] <= 1.1 * found[HAND_WRITTEN], found


@pytest.mark.parametrize("threads", [1, 8])
def test_peak_memory_of_a_transformer(monkeypatch, threads):
    """With GELU's gradient in our way, whose pieces grow with the number of threads."""
    pretend(monkeypatch, False)
    monkeypatch.setattr(kernels.torch, "get_num_threads", lambda: threads)
    found = compare(WORKLOADS["transformer"], torch.device("cpu"))
    assert found[ONE_CALL] <= 1.1 * found[HAND_WRITTEN], found
