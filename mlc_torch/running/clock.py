"""Measures one call: on a CUDA device by its own events, elsewhere by the wall clock."""

from __future__ import annotations

import time

import torch

from mlc_torch.device import QUEUEING, queueing


class Clock:
    """Starts when made."""

    def __init__(self, device: torch.device) -> None:
        self.kind, self.elapsed = device.type, 0.0
        if self.kind == "cuda":
            self.begin, self.end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            with queueing(device):
                self.begin.record()
        self.started = time.perf_counter()

    def stop(self) -> None:
        """Everything is done, or on a device queued."""
        if self.kind == "cuda":
            with QUEUEING:
                self.end.record()
        else:
            if self.kind == "mps":
                torch.mps.synchronize()
            self.elapsed = time.perf_counter() - self.started

    def seconds(self) -> float:
        """How long it took; waits for the device."""
        if self.kind != "cuda":
            return self.elapsed
        self.end.synchronize()
        return self.begin.elapsed_time(self.end) / 1000
