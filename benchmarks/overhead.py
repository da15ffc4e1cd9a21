"""What a call costs beyond its kernels: ``python -m benchmarks.overhead``.

One sample of a small perceptron on the CPU, microseconds: the call in each of its styles, the same by hand, and the
function that the planned gear generated for the phase, called alone.
"""

from __future__ import annotations

import argparse
import statistics
import time
from typing import Any

import torch

from benchmarks.contenders import HandWritten, MLCompute
from benchmarks.workloads import WORKLOADS
from mlc_torch.engine.planned import Planned

STYLES = ["inference 1", *(n for n in WORKLOADS if n.startswith("call:") and n.endswith("1 sample"))]


class Alone:
    """The generated function over tensors that are there already."""

    def __init__(self, ours: MLCompute) -> None:
        gears = [gear for session in ours.graph._facts().sessions for gear in session.gears()]
        (gear,) = [gear for gear in gears if isinstance(gear, Planned)]
        self.gear, self.feeds = gear, [[torch.from_numpy(a) for a in arrays] for arrays in ours.arrays]

    def run(self, steps: int) -> None:
        function, feeds = self.gear._forward, self.feeds
        for number in range(steps):
            function(list(feeds[number % len(feeds)]))


def microseconds(contenders: dict[str, Any], rounds: int, steps: int) -> dict[str, float]:
    """Medians over interleaved rounds of CPU time."""
    times: dict[str, list[float]] = {name: [] for name in contenders}
    for _ in range(rounds + 1):
        for name, contender in contenders.items():
            begin = time.process_time()
            contender.run(steps)
            times[name].append((time.process_time() - begin) / steps * 1e6)
    return {name: statistics.median(found[1:]) for name, found in times.items()}


def main(arguments: list[str] | None = None) -> dict[str, dict[str, float]]:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.overhead", description=__doc__)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--steps", type=int, default=300)
    options = parser.parse_args(arguments)
    torch.set_num_threads(1)
    device, found = torch.device("cpu"), {}
    print(
        "| call | by hand | mlc_torch | phase function alone | above it | ratio |\n| --- | --- | --- | --- | --- | --- |"
    )
    for name in STYLES:
        ours = MLCompute(WORKLOADS[name], device)
        ours.run(3)
        contenders = {"by hand": HandWritten(WORKLOADS[name], device), "mlc_torch": ours, "alone": Alone(ours)}
        us = found[name] = microseconds(contenders, options.rounds, options.steps)
        row = [us["by hand"], us["mlc_torch"], us["alone"], us["mlc_torch"] - us["alone"]]
        print(f"| {name} | {' | '.join(f'{v:.0f}' for v in row)} | {us['mlc_torch'] / us['by hand']:.2f} |", flush=True)
    return found


if __name__ == "__main__":
    main()
