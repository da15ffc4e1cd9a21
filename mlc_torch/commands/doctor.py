"""``python -m mlc_torch doctor``: versions, devices and what works on each; with ``--check`` every layer on every device."""

from __future__ import annotations

import argparse
import os
import platform
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch

import mlc_torch as mlc
from mlc_torch.commands.checks import check, layers
from mlc_torch.commands.training_check import check_training
from mlc_torch.device import hardware, offered
from mlc_torch.refusals import in_one_line


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--check", action="store_true", help="run one case per layer, and a training, on every device")
    parser.add_argument("--ranks", action="store_true", help="under torchrun: whether the processes can train together")


def run(arguments: argparse.Namespace) -> int:
    if arguments.ranks:
        from mlc_torch.commands.ranks_check import check_ranks

        return check_ranks()
    _print(f"mlc_torch {mlc.__version__}, torch {torch.__version__}, NumPy {np.__version__}")
    _print(f"Python {platform.python_version()} on {platform.system()} {platform.machine()}")
    for name in ("MLC_TORCH_DEVICE", "MLC_TORCH_GPU", "MLC_TORCH_STRICT"):
        if os.environ.get(name):
            _print(f"{name}={os.environ[name]}")
    try:
        gpus = offered()
    except mlc.MLCRefusal as why:
        _print(f"\n{why}")
        return 1
    devices = [mlc.MLCDevice.cpu(), *(mlc.unwrap(mlc.MLCDevice(gpuDevices=[gpu])) for gpu in gpus)]
    for device in devices:
        _print(f"\n{device.torch_device}: {_hardware(device.torch_device)}")
        for line in _works(device):
            _print(f"  {line}")
    for kind, found in (("CUDA", torch.cuda.is_available()), ("MPS", torch.backends.mps.is_available())):
        if not found:
            _print(f"\n{kind}: torch sees none")
    return _check(devices) if arguments.check else 0


def _print(text: str) -> None:
    sys.stdout.write(f"{text}\n")


def _hardware(device: torch.device) -> str:
    if device.type == "cpu":
        return f"{os.cpu_count()} cores, torch uses {torch.get_num_threads()} threads"
    name, memory = hardware(device)
    return f"{name}, {memory / 2**30:.0f} GiB"


def _works(device: mlc.MLCDevice) -> list[str]:
    """Which element types reach the device's memory and come back."""
    moved = {kind.name: _moves(kind, device) for kind in mlc.MLCDataType}
    lines = [f"data types: {', '.join(name for name, why in moved.items() if why is None)}"]
    if device.torch_device.type == "cuda":
        lines.append(tf32())
    elif device.torch_device.type == "cpu" and _PURGE_DELAY not in os.environ and has_mimalloc():
        lines.append(
            "memory: torch's own library (mimalloc) gives it back 10 ms after it was freed, and steps that take longer get it "
            f"anew; with {_PURGE_DELAY}=1000 in the environment of a program it waits a second"
        )
    return lines + [f"not {name}: {why}" for name, why in moved.items() if why is not None]


_PURGE_DELAY = "MIMALLOC_PURGE_DELAY"


def has_mimalloc() -> bool:
    """Whether this torch brings its own library for memory, as its builds for ARM do. (Neoverse-N1, two threads, milliseconds a
    step as it is and with a second's delay: LeNet 35.0 and 29.6, ResNet-20 477 and 399.)"""
    core = Path(torch.__file__).parent / "lib" / "libc10.so"
    return core.exists() and b"mimalloc" in core.read_bytes()


def tf32() -> str:
    """What torch's switches make of float32 on CUDA: with TF32 a factor keeps 10 of its 23 bits after the point."""
    backends: Any = torch.backends
    used = {
        "convolutions": _rounds(backends.cudnn, lambda: backends.cudnn.conv),
        "LSTMs": _rounds(backends.cudnn, lambda: backends.cudnn.rnn),
        "products": _rounds(backends.cuda.matmul, lambda: backends.cuda.matmul),
    }
    rounded, full = ([name for name, on in used.items() if on is which] for which in (True, False))
    if not rounded:
        return "float32: computed in full (TF32 is off)"
    rest = f"; {' and '.join(full)} in full" if full else ""
    return (
        f"float32: {' and '.join(rounded)} round their factors to TF32, about 1e-3 of a value{rest}; "
        "torch.backends.cudnn.allow_tf32 = False and torch.backends.cuda.matmul.allow_tf32 = False turn it off"
    )


def _rounds(backend: Any, part: Callable[[], Any]) -> bool:
    """A switch of TF32; where a program has mixed torch's two ways of setting it, the old one cannot be read."""
    try:
        return bool(backend.allow_tf32)
    except RuntimeError:
        return part().fp32_precision == "tf32"


def _moves(kind: mlc.MLCDataType, device: mlc.MLCDevice) -> str | None:
    tensor = mlc.MLCTensor(shape=[2, 3], dataType=kind)
    values = torch.tensor([[0, 1, 1], [1, 0, 1]], dtype=tensor.dtype)
    back = torch.zeros_like(values)
    size = values.numel() * values.element_size()
    try:
        with mlc.strict():
            tensor.bindAndWriteData(mlc.MLCTensorData(bytesNoCopy=values, length=size), to=device)
            tensor.copyDataFromDeviceMemory(toBytes=back, length=size, synchronizeWithDevice=True)
    except Exception as error:  # noqa: BLE001 - whatever a device cannot do is what the report is about
        return in_one_line(error)
    return None if torch.equal(values, back) else "other values came back"


def _check(devices: list[mlc.MLCDevice]) -> int:
    failed = 0
    for device in devices:
        place = device.torch_device
        found = {name: check(name, place) for name in layers()}
        found["three steps of training"] = check_training(device)
        wrong = {name: why for name, why in found.items() if why is not None}
        _print(f"\n{place}: {len(found) - len(wrong)} of {len(found)} checks passed")
        for name, why in wrong.items():
            _print(f"  FAILED {name}: {why}")
        failed += len(wrong)
    return 1 if failed else 0
