"""Peak memory of one training step: ``python -m benchmarks.memory``. On the CPU by torch's own allocation events."""

from __future__ import annotations

import argparse
import gc
import json
import tempfile
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from benchmarks.contenders import HAND_WRITTEN, ONE_CALL, HandWritten, MLCompute
from benchmarks.workloads import WORKLOADS, Workload


def peak_bytes(make: Callable[[], Any], device: torch.device) -> int:
    """The most that is held at a time during a step: on the CPU above what stands before it, on CUDA all of it."""
    return _peak_on_cuda(make) if device.type == "cuda" else _peak_on_cpu(make)


def _settled(make: Callable[[], Any]) -> Any:
    contender = make()
    for number in range(3):
        contender.step(number)
    gc.collect()
    return contender


def _peak_on_cuda(make: Callable[[], Any]) -> int:
    """What the allocator reserves: only that shows the pool a captured step lives in."""
    _settled(make)  # and let go of: cuBLAS and cuDNN take their working memory once, which is no part of a step
    gc.collect()
    torch.cuda.empty_cache()
    before = torch.cuda.memory_reserved()
    contender = _settled(make)
    torch.cuda.synchronize()
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()
    contender.step(3)
    torch.cuda.synchronize()
    return torch.cuda.max_memory_reserved() - before


def _peak_on_cpu(make: Callable[[], Any]) -> int:
    """Sums the profiler's memory events; what a step frees first of the step before counts as standing."""
    contender = _settled(make)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], profile_memory=True) as profiler:
            contender.step(3)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "trace.json"
        profiler.export_chrome_trace(str(path))
        events = [e for e in json.loads(path.read_text())["traceEvents"] if e.get("name") == "[memory]"]
    level = highest = lowest = 0
    for event in sorted(events, key=lambda e: e["ts"]):
        level += event["args"].get("Bytes", 0)
        highest, lowest = max(highest, level), min(lowest, level)
    return highest - min(lowest, 0)


def compare(workload: Workload, device: torch.device) -> dict[str, int]:
    """Peak bytes of the hand-written loop and of one call of ours."""
    return {
        HAND_WRITTEN: peak_bytes(lambda: HandWritten(workload, device), device),
        ONE_CALL: peak_bytes(lambda: MLCompute(workload, device), device),
    }


def memory_line(found: dict[str, int]) -> str:
    """Both peaks and their ratio."""
    ours, hand = found[ONE_CALL], found[HAND_WRITTEN]
    return f"{ours / 2**20:.1f} MiB against {hand / 2**20:.1f} by hand ({ours / hand:.2f})"


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.memory", description=__doc__)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--workload", default="ResNet-20")
    options = parser.parse_args(arguments)
    found = compare(WORKLOADS[options.workload], torch.device(options.device))
    print(f"{options.workload}, {options.device}: {memory_line(found)}")


if __name__ == "__main__":
    main()
