"""Why a workload takes longer than by hand, in a few words for the table."""

from __future__ import annotations

import math
from typing import Any

from benchmarks.contenders import HAND_WRITTEN, ONE_CALL
from benchmarks.workloads import WORKLOADS, Workload

_GATES = "the gates are joined, or compared, in every call, since a program may write into its weights at any time"
_WEIGHTS = "the weights are laid out in every call, since a program may write into them at any time"
_APART = "query, key and value have weights of their own, so that there are three products where by hand there is one"
KNOWN = {
    "infer LSTM 1x100": _GATES,
    "infer LSTM 32x50": _GATES,
    "infer convolutions 64": _WEIGHTS,
    "infer ResNet-20 1": _WEIGHTS,
    "infer transformer 1": _APART,
}
"""Of single workloads."""
_MUCH, _LITTLE = 1 << 20, 2e-3
"""Bytes of inputs, seconds of a step."""


def reason(workload: Workload, device: str, cells: dict[str, dict[str, float]]) -> str:
    """Why one call of it is slower than by hand on a device."""
    ours, hand = cells[ONE_CALL], cells[HAND_WRITTEN]["seconds"]
    if workload.style == "async":
        return "an await hands the work to another thread and back"
    if device == "cuda" and 4 * sum(map(math.prod, workload.shapes)) >= _MUCH:
        return "the call waits until its inputs are copied, so that the program may write into them"
    if workload.name in KNOWN:
        return KNOWN[workload.name]
    if hand < _LITTLE:
        return "the call around the same kernels"
    return "within the spread" if ours["low"] <= 1 else "not known"


def reasons(name: str, runs: list[dict[str, Any]]) -> str:
    """Those of one row of the table, each with how much longer it takes."""
    found: dict[str, list[float]] = {}
    for run in runs:
        cells = run["results"].get(name, {})
        if name not in WORKLOADS or ONE_CALL not in cells or not is_above(cells[ONE_CALL]):
            continue
        more = cells[ONE_CALL]["seconds"] - cells[HAND_WRITTEN]["seconds"]
        found.setdefault(reason(WORKLOADS[name], run["device"], cells), []).append(max(more, 0.0) * 1e6)
    return "; ".join(f"{why} ({_span(more)} µs)" for why, more in found.items())


def _span(more: list[float]) -> str:
    least, most = f"{min(more):.0f}", f"{max(more):.0f}"
    return least if least == most else f"{least} to {most}"


EQUAL, KERNELS = 1.03, 0.9
"""Up to here a ratio counts as equal where kernels take more than this part of the time."""


def is_above(cell: dict[str, float]) -> bool:
    """Whether a ratio is above 1 and not by a spread of the kernels."""
    ratio = cell["ratio"]
    return ratio > 1 and not (ratio <= EQUAL and cell.get("kernels", 0.0) > KERNELS)
