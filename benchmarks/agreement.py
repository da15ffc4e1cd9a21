"""Before anything is measured: both sides compute the same numbers."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import torch

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


def apart(workload: Workload, by_hand: HandWritten, ours: MLCompute) -> float:
    """The same of contenders that have not run yet; raises where it is more than rounding.

    An LSTM of torch's trains two biases where ML Compute has one, so that its later losses may be further apart.
    """
    worst = 0.0
    for number in range(_STEPS):
        want, got = by_hand.values(number), ours.values(number)
        if want.shape != got.shape:
            raise Disagreement(f"{workload.name}: {got.size} numbers, {want.size} by hand")
        distance = float(np.abs(got - want).max() / max(np.abs(want).max(), 1e-6))
        if not distance <= (2e-4 if number == 0 or not workload.trains else 3e-2):
            raise Disagreement(f"{workload.name}: step {number} is {distance:.1e} apart")
        worst = max(worst, distance)
    return worst
