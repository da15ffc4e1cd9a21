"""Measured ratios as tables in Markdown."""

from __future__ import annotations

from typing import Any

from benchmarks.contenders import HAND_WRITTEN, ONE_CALL
from benchmarks.reasons import is_above, reasons

PHASES = "mlc_torch, three phases"


def table(results: dict[str, dict[str, dict[str, float]]]) -> str:
    """Rows are contenders, columns workloads; each cell is the median ratio and its middle half."""
    names = list(dict.fromkeys(name for of_workload in results.values() for name in of_workload))
    head = ["ratio to hand-written", *results]
    rows = [[f"{HAND_WRITTEN}, milliseconds", *(f"{r[HAND_WRITTEN]['seconds'] * 1e3:.3f}" for r in results.values())]]
    for name in names:
        if name == HAND_WRITTEN:
            continue
        row = [name]
        for of_workload in results.values():
            cell = of_workload.get(name)
            row.append(f"{cell['ratio']:.3f} ({cell['low']:.2f}-{cell['high']:.2f})" if cell else "")
        rows.append(row)
    return _drawn(head, rows)


def long_table(runs: list[dict[str, Any]]) -> str:
    """Rows are workloads, columns machines: milliseconds by hand and the ratio of one call, marked; then why.

    ``=`` stands where kernels take more than nine tenths of the time and the ratio is at most 1.03, ``!`` at every other
    ratio above 1.
    """
    workloads = list(dict.fromkeys(name for run in runs for name in run["results"]))
    head = ["workload", *(part for run in runs for part in (f"{run['machine']}: ms by hand", "ratio"))]
    head.append("why it is above 1, and by how much")
    rows = []
    for name in workloads:
        row = [name]
        for run in runs:
            found = run["results"].get(name)
            if found is None or ONE_CALL not in found:
                row += ["", ""]
                continue
            row += [f"{found[HAND_WRITTEN]['seconds'] * 1e3:.3f}", marked(found[ONE_CALL])]
        rows.append([*row, reasons(name, runs)])
    above = [sum(cell.endswith("!") for cell in column) for column in list(zip(*rows, strict=True))[2:-1:2]]
    rows.append(["above 1", *(part for count in above for part in ("", str(count))), ""])
    return _drawn(head, rows)


def phases_table(runs: list[dict[str, Any]]) -> str:
    """What three phases take beyond one call: at most 1.05 of it for steps of 2 ms and more, else at most 80 µs more."""
    workloads = list(dict.fromkeys(n for run in runs for n, cells in run["results"].items() if PHASES in cells))
    rows = []
    for name in workloads:
        row = [name]
        for run in runs:
            cells = run["results"].get(name, {})
            row.append(_phases(cells[ONE_CALL]["seconds"], cells[PHASES]["seconds"]) if PHASES in cells else "")
        rows.append(row)
    return _drawn(["three phases over one call", *(run["machine"] for run in runs)], rows)


_LONG, _PART, _MORE = 2e-3, 1.05, 80e-6


def _phases(one: float, three: float) -> str:
    within = three <= _PART * one if one >= _LONG else three - one <= _MORE
    return f"{three / one:.2f} ({(three - one) * 1e6:+.0f} µs){'' if within else ' !'}"


def marked(cell: dict[str, float]) -> str:
    ratio = cell["ratio"]
    if ratio <= 1:
        return f"{ratio:.2f}"
    return f"{ratio:.2f} {'!' if is_above(cell) else '='}"


def _drawn(head: list[str], rows: list[list[str]]) -> str:
    widths = [max(len(r[i]) for r in [head, *rows]) for i in range(len(head))]
    lines = ["| " + " | ".join(c.ljust(w) for c, w in zip(r, widths, strict=True)) + " |" for r in [head, *rows]]
    lines.insert(1, "| " + " | ".join("-" * w for w in widths) + " |")
    return "\n".join(lines)
