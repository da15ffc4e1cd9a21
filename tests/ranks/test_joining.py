"""A device for many processes: where torchrun started none, where it cannot join, and what loading the library costs."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
import torch

import mlc_torch as mlc
from mlc_torch import MLCDevice, MLCDeviceType
from mlc_torch.__main__ import main as command


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


@pytest.fixture
def started(monkeypatch):
    """As torchrun would start a process, the second of three on its machine."""
    given = {"RANK": "1", "LOCAL_RANK": "1", "WORLD_SIZE": "3", "MASTER_ADDR": "localhost", "MASTER_PORT": "1"}
    for name, value in given.items():
        monkeypatch.setenv(name, value)
    for name in ("MLC_TORCH_DEVICE", "MLC_TORCH_RANKS_BACKEND"):
        monkeypatch.delenv(name, raising=False)
    joined = []
    monkeypatch.setattr("mlc_torch.ranks.join", joined.append)
    return joined


@pytest.fixture
def two_gpus(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: False)


def test_a_process_takes_the_gpu_of_its_number(started, two_gpus, monkeypatch):
    second = torch.device("cuda", 1)
    for kind in (MLCDeviceType.any, MLCDeviceType.gpu):
        assert MLCDevice(type=kind, selectsMultipleComputeDevices=True).gpuDevices == [second]
    assert MLCDevice(gpuDevices=["cuda:1", "cuda:0"]).torch_device == torch.device("cuda", 0)
    assert started == [second, second, torch.device("cuda", 0)]
    assert MLCDevice(type=MLCDeviceType.gpu).rank_count == MLCDevice(gpuDevices=["cuda:1"]).rank_count == 1
    monkeypatch.setenv("LOCAL_RANK", "2")
    assert MLCDevice(type=MLCDeviceType.any, selectsMultipleComputeDevices=True) is None
    assert "process 2 of its machine, which offers 2 GPUs" in str(mlc.last_refusal())
    monkeypatch.setenv("MLC_TORCH_RANKS_BACKEND", "gloo")  # which lets processes share a GPU
    assert MLCDevice(type=MLCDeviceType.any, selectsMultipleComputeDevices=True).torch_device.index == 0


def test_a_process_that_its_program_joined_takes_the_gpu_of_its_rank(started, two_gpus, monkeypatch):
    for name in ("RANK", "LOCAL_RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"):
        monkeypatch.delenv(name)
    assert MLCDevice(type=MLCDeviceType.any, selectsMultipleComputeDevices=True) and not started, "no group"
    monkeypatch.setattr(torch.distributed, "is_initialized", lambda: True)
    for world, rank, place in ((4, 3, 1), (4, 2, 0), (2, 1, 1)):
        monkeypatch.setattr(torch.distributed, "get_world_size", lambda world=world: world)
        monkeypatch.setattr(torch.distributed, "get_rank", lambda rank=rank: rank)
        assert MLCDevice(type=MLCDeviceType.gpu, selectsMultipleComputeDevices=True).gpuDevices == [
            torch.device("cuda", place)
        ]
        assert started.pop() == torch.device("cuda", place)
    monkeypatch.setattr(torch.distributed, "get_world_size", lambda: 1)
    assert MLCDevice(type=MLCDeviceType.any, selectsMultipleComputeDevices=True) and not started, "one process alone"


def test_devices_that_cannot_be_shared_are_refused(started, monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: True)
    assert MLCDevice(type=MLCDeviceType.any, selectsMultipleComputeDevices=True) is None
    assert "CUDA devices or the CPU" in str(mlc.last_refusal())
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: False)
    assert MLCDevice(type=MLCDeviceType.gpu, selectsMultipleComputeDevices=True) is None
    assert "no GPU here" in str(mlc.last_refusal())
    assert MLCDevice(type=MLCDeviceType.any, selectsMultipleComputeDevices=True).type is MLCDeviceType.cpu


def test_the_doctor_says_how_to_look_at_ranks(monkeypatch, capsys):
    monkeypatch.delenv("WORLD_SIZE", raising=False)
    assert command(["doctor", "--ranks"]) == 1
    assert "torchrun --nproc-per-node=2 -m mlc_torch doctor --ranks" in capsys.readouterr().out


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
    there = [
        "mlc_torch.engine.shared_module",
        "mlc_torch.layers.sharing",
    ]  # what PyTorch shares; whether there is a share
    assert found.stdout.strip() == str(there)
