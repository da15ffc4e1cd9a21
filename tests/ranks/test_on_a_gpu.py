"""On a GPU: one process over nccl, recorded; two processes that share it over gloo. (nccl refuses two processes on one.)"""

from __future__ import annotations

import sys

import pytest

from .launching import launch

pytestmark = pytest.mark.gpu
GPU = {"CHECK_DEVICE": "gpu", "NVIDIA_TF32_OVERRIDE": "0", "CUBLAS_WORKSPACE_CONFIG": ":4096:8"}


def test_one_process_over_nccl(tmp_path):
    found = launch(tmp_path, "on_a_gpu.py", seconds=300, ranks=1, **GPU)
    found.assert_all_passed(ranks=1)
    sys.stdout.write(found.output)


def test_two_processes_share_a_gpu(tmp_path):
    found = launch(tmp_path, "sharing_a_gpu.py", seconds=400, MLC_TORCH_RANKS_BACKEND="gloo", **GPU)
    found.assert_all_passed()
