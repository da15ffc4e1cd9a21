"""Which part of a step torch's kernels take: where they take nearly all of it, nobody's calls can be faster."""

from __future__ import annotations

import warnings
from typing import Any

import torch
from torch.profiler import ProfilerActivity, profile

_STEPS = 3


def kernel_share(contender: Any, seconds: float, device: torch.device) -> float:
    """The time inside kernels over the time of a step. What it takes to call one is not the kernel's."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        if device.type == "cuda":
            with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA], acc_events=True) as seen:
                contender.run(_STEPS)
                torch.cuda.synchronize()
            total = sum(e.self_device_time_total for e in seen.key_averages())
            return min(total / 1e6 / _STEPS / seconds, 1.0)
        with profile(activities=[ProfilerActivity.CPU], acc_events=True) as seen:
            contender.run(_STEPS)
        call = _cost_of_a_call()
    found = [e for e in seen.key_averages() if e.key.startswith(("aten::", "mlc_torch::"))]
    total = sum(max(e.self_cpu_time_total - call * e.count, 0.0) for e in found)
    return min(total / 1e6 / _STEPS / seconds, 1.0)


def _cost_of_a_call() -> float:
    """Microseconds that the profiler sees of an operation on nothing."""
    nothing = torch.zeros(1)
    with profile(activities=[ProfilerActivity.CPU], acc_events=True) as seen:
        for _ in range(200):
            torch.relu(nothing)
    return min(e.self_cpu_time_total / e.count for e in seen.key_averages() if e.key == "aten::relu")
