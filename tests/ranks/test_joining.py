"""A device for many processes: where torchrun started none, where it cannot join, and what loading the library costs."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

import mlc_torch as mlc
from mlc_torch import MLCDevice, MLCDeviceType


def test_a_device_for_many_is_an_ordinary_one_without_torchrun(monkeypatch):
    monkeypatch.delenv("WORLD_SIZE", raising=False)
    device = MLCDevice(type=MLCDeviceType.cpu, selectsMultipleComputeDevices=True)
    assert (device.rank, device.rank_count) == (0, 1)
    device.feeds_own_share, device.synchronizes_batch_norm = True, False
    assert device.feeds_own_share and not device.synchronizes_batch_norm
    for name in ("feeds_own_share", "synchronizes_batch_norm"):
        with pytest.raises(TypeError, match=f"MLCDevice.{name}: expected a Bool, got 'yes'"):
            setattr(device, name, "yes")


def test_a_limit_that_is_no_number_is_refused(monkeypatch):
    for name, value in {"RANK": "0", "WORLD_SIZE": "2", "MASTER_ADDR": "localhost", "MASTER_PORT": "1"}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("MLC_TORCH_RANKS_TIMEOUT", "soon")
    assert MLCDevice(type=MLCDeviceType.cpu, selectsMultipleComputeDevices=True) is None
    assert "MLC_TORCH_RANKS_TIMEOUT" in str(mlc.last_refusal()) and "'soon'" in str(mlc.last_refusal())


def test_processes_that_nobody_answers_are_lost(monkeypatch):
    for name, value in {"RANK": "1", "WORLD_SIZE": "2", "MASTER_ADDR": "localhost", "MASTER_PORT": "1"}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("MLC_TORCH_RANKS_TIMEOUT", "1")
    with pytest.raises(mlc.RanksLost, match="could not join"):
        MLCDevice(type=MLCDeviceType.cpu, selectsMultipleComputeDevices=True)


_WITHOUT_TORCHRUN = """
import sys
import torch
before = set(sys.modules)
import mlc_torch
import mlc_torch.commands.training_check as training
assert training.check_training(mlc_torch.MLCDevice(type=mlc_torch.MLCDeviceType.cpu, selectsMultipleComputeDevices=True)) is None
loaded = set(sys.modules) - before
assert not torch.distributed.is_initialized()
print(sorted(n for n in loaded if any(word in n for word in ("distributed", "ranks", "shar", "exchange"))))
"""


def test_without_torchrun_nothing_of_it_is_loaded():
    environment = {k: v for k, v in os.environ.items() if k != "WORLD_SIZE"}
    found = subprocess.run(
        [sys.executable, "-c", _WITHOUT_TORCHRUN], env=environment, capture_output=True, text=True, check=False
    )
    assert found.returncode == 0, found.stderr
    assert found.stdout.strip() == "['mlc_torch.layers.sharing']", "layers ask whether there is a share, and no more"
