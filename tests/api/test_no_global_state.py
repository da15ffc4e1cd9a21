"""Nothing global in torch, NumPy or Python is touched: not by importing, not by drawing, not by running."""

from __future__ import annotations

import logging
import random
import subprocess
import sys

import numpy as np
import torch

import mlc_torch as mlc
from mlc_torch.commands.checks import CASES, check
from mlc_torch.commands.training_check import check_training


def state():
    python, numbers = random.getstate(), np.random.get_state()  # noqa: NPY002 - whether it is left alone is the point
    return {
        "default dtype": torch.get_default_dtype(),
        "default device": torch.get_default_device(),
        "torch generator": torch.get_rng_state().tolist(),
        "numpy generator": (numbers[0], numbers[1].tolist(), *numbers[2:]),
        "python generator": python,
        "threads": torch.get_num_threads(),
        "interop threads": torch.get_num_interop_threads(),
        "gradients": torch.is_grad_enabled(),
        "inference mode": torch.is_inference_mode_enabled(),
        "deterministic": torch.are_deterministic_algorithms_enabled(),
        "anomalies": torch.is_anomaly_enabled(),
        "matmul precision": torch.get_float32_matmul_precision(),
        "cudnn": (
            torch.backends.cudnn.enabled,
            torch.backends.cudnn.benchmark,
            torch.backends.cudnn.deterministic,
            torch.backends.cudnn.allow_tf32,
        ),
        "mkldnn": torch.backends.mkldnn.enabled,
        "print options": str(torch.tensor(1 / 3)),
        "root logger": (logging.getLogger().level, len(logging.getLogger().handlers)),
        "excepthook": sys.excepthook,
    }


def test_drawing_and_running_leave_everything_as_it_was():
    before = state()
    mlc.MLCTensor(shape=[8], randomInitializerType=mlc.MLCRandomInitializerType.xavier)
    mlc.MLCPlatform.setRNGSeedTo(3)
    for name in CASES:
        assert check(name, torch.device("cpu")) is None
    dropout = mlc.MLCDropoutLayer(rate=0.5, seed=0).module.train()
    dropout(torch.ones(4))
    assert check_training(mlc.MLCDevice.cpu()) is None
    mlc.device.randomness.reseed(None)
    assert state() == before


_IMPORT = """
import logging, random, sys, warnings
import numpy as np
import torch

def state():
    return (torch.get_default_dtype(), torch.get_rng_state().tolist(), np.random.get_state()[1].tolist(), random.getstate(),
            torch.get_num_threads(), torch.is_grad_enabled(), logging.root.handlers[:], sys.path[:], sys.meta_path[:],
            warnings.filters[:], torch.get_float32_matmul_precision(), torch.cuda.is_initialized())

before = state()
import mlc_torch, mlc_torch.objc
assert state() == before
"""


def test_importing_leaves_everything_as_it_was():
    subprocess.run([sys.executable, "-c", _IMPORT], check=True)


def test_the_seed_of_torch_does_not_steer_us_and_ours_does_not_steer_torch():
    torch_state = torch.get_rng_state()
    try:
        torch.manual_seed(1)
        first = mlc.MLCTensor(shape=[8], randomInitializerType=1).numpy().copy()
        torch.manual_seed(1)
        second = mlc.MLCTensor(shape=[8], randomInitializerType=1).numpy().copy()
        expected = torch.rand(4)
        torch.manual_seed(1)
        mlc.MLCTensor(shape=[8], randomInitializerType=1)
        assert torch.equal(torch.rand(4), expected)
    finally:
        torch.set_rng_state(torch_state)
    assert (first != second).any()


def test_it_works_under_another_default_dtype_and_without_gradients():
    old = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    try:
        assert mlc.MLCTensor(shape=[2], fillWithData=1, dataType=1).torch.dtype == torch.float32
        assert mlc.MLCTensor(shape=[2], randomInitializerType=1).torch.dtype == torch.float32
        with torch.no_grad():
            assert check_training(mlc.MLCDevice.cpu()) is None
    finally:
        torch.set_default_dtype(old)
