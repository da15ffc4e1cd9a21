"""Before anything is measured: both sides compute the same numbers."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

import numpy as np
import torch
from torch import nn

from benchmarks.contenders import HandWritten, MLCompute
from benchmarks.workloads import Workload

_STEPS = 3


class Disagreement(AssertionError):
    """The twins compute different things, so that comparing their times would mean nothing."""


def compared(workload: Workload, device: torch.device) -> float:
    """The largest relative difference of the twins over their first steps.

    Where elements are dropped by chance, the network is compared as it infers.
    """
    if workload.random:
        workload = replace(workload, trains=False, random=False)
    return apart(workload, HandWritten(workload, device), MLCompute(workload, device))


@contextmanager
def _one_bias(network: nn.Module) -> Iterator[None]:
    """Inside, an LSTM of torch's trains one of its two biases: ML Compute has one, and both would move by the same."""
    second = [p for name, p in network.named_parameters() if ".bias_hh_l" in f".{name}"]
    for bias in second:
        bias.requires_grad_(False)
    try:
        yield
    finally:
        for bias in second:
            bias.requires_grad_(True)


def apart(workload: Workload, by_hand: HandWritten, ours: MLCompute) -> float:
    """The same of contenders that have not run yet; raises where it is more than rounding.

    Later losses may be further apart: an optimizer that divides by the size of a gradient moves by rounding, too.
    """
    worst = 0.0
    for number in range(_STEPS):
        with _one_bias(by_hand.network):
            want = by_hand.values(number)
        got = ours.values(number)
        if want.shape != got.shape:
            raise Disagreement(f"{workload.name}: {got.size} numbers, {want.size} by hand")
        distance = float(np.abs(got - want).max() / max(np.abs(want).max(), 1e-6))
        if not distance <= (2e-4 if number == 0 or not workload.trains else 1e-2):
            raise Disagreement(f"{workload.name}: step {number} is {distance:.1e} apart")
        worst = max(worst, distance)
    return worst
