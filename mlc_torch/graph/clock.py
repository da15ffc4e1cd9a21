"""Measures one call: on the device by its own events, on the CPU by the wall clock."""

from __future__ import annotations

import time

import torch

from mlc_torch.device import MLCDevice


class Clock:
    """Starts when made. ``seconds`` waits for the device, and is 0.0 unless the call asked to be timed."""

    def __init__(self, device: MLCDevice | None, timed: bool) -> None:
        kind = device.torch_device.type if device is not None else "cpu"
        self.on_cpu, self.cuda, self.timed = kind == "cpu", kind == "cuda", timed
        self.started = time.perf_counter() if timed else 0.0
        self.elapsed = 0.0
        if self.cuda:
            self.end = torch.cuda.Event(enable_timing=timed)
            if timed:
                self.begin = torch.cuda.Event(enable_timing=True)
                self.begin.record()

    def stop(self) -> None:
        """Everything is queued."""
        if self.cuda:
            self.end.record()
        elif self.on_cpu and self.timed:
            self.elapsed = time.perf_counter() - self.started

    def wait(self) -> None:
        """Until everything queued is done."""
        if self.cuda:
            self.end.synchronize()
        elif not self.on_cpu:
            torch.mps.synchronize()
            self.elapsed = time.perf_counter() - self.started

    def seconds(self) -> float:
        self.wait()
        if not self.timed:
            return 0.0
        return self.begin.elapsed_time(self.end) / 1000 if self.cuda else self.elapsed
