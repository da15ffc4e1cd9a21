"""``doctor --ranks``: whether processes that torchrun started can train together, and how fast they talk."""

from __future__ import annotations

import platform
import statistics
import sys
import time

import torch

import mlc_torch as mlc
from mlc_torch.commands.training_check import check_training
from mlc_torch.ranks import Ranks, joined, was_started

_LARGE = 64 << 20
"""Bytes of the sum that bandwidth is measured with."""
_TRIES = 5


def check_ranks() -> int:
    """Join, train three steps together, measure; what was found is printed by rank 0."""
    device = mlc.MLCDevice(type=mlc.MLCDeviceType.any, selectsMultipleComputeDevices=True)
    if device is None:
        sys.stdout.write(f"the processes cannot join: {mlc.last_refusal()}\n")
        return 1
    ranks = joined() if was_started() else None
    if ranks is None:
        sys.stdout.write(
            "--ranks looks at several processes; start them with\n"
            "  torchrun --nproc-per-node=2 -m mlc_torch doctor --ranks\n"
        )
        return 1
    places = ranks.told(f"{device.torch_device} of {platform.node()}")
    wrong = ranks.told(check_training(device))
    latency = _seconds(ranks, 4, device.torch_device, 20)
    large = _seconds(ranks, _LARGE, device.torch_device, _TRIES)
    if ranks.rank == 0:
        _print(places, wrong, latency, large, ranks.backend)
    return 1 if any(wrong) else 0


def _print(places: list[str], wrong: list[str | None], latency: float, large: float, backend: str) -> None:
    lines = [f"{len(places)} processes over {backend}"]
    lines += [f"  rank {rank}: {place}" for rank, place in enumerate(places)]
    failed = [f"  FAILED on rank {rank}: {why}" for rank, why in enumerate(wrong) if why]
    lines += failed or ["three steps of training: the same as on one process"]
    lines.append(f"a sum over all ranks takes {latency * 1e6:.0f} µs at least")
    lines.append(f"gradients travel at {_LARGE / large / 2**30:.2f} GiB/s")
    sys.stdout.write("\n".join(lines) + "\n")


def _seconds(ranks: Ranks, size: int, device: torch.device, tries: int) -> float:
    """How long it takes to add up ``size`` bytes of float32 over all ranks."""
    x = torch.zeros(size // 4, device=device)
    found = []
    for _ in range(tries + 2):
        started = time.perf_counter()
        ranks.wait(ranks.start_sum(x))
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        found.append(time.perf_counter() - started)
    return statistics.median(found[2:])
