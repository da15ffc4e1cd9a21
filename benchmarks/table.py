"""Measured ratios as tables in Markdown."""

from __future__ import annotations

from typing import Any

from benchmarks.contenders import HAND_WRITTEN, ONE_CALL

EQUAL, KERNELS = 1.03, 0.9
"""Up to here a ratio counts as equal where kernels take more than this part of the time."""


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
    """Rows are workloads, columns machines: milliseconds by hand and the ratio of one call, marked.

    ``=`` stands where kernels take more than nine tenths of the time and the ratio is at most 1.03, ``!`` at every other
    ratio above 1.
    """
    workloads = list(dict.fromkeys(name for run in runs for name in run["results"]))
    head = ["workload", *(part for run in runs for part in (f"{run['machine']}: ms by hand", "ratio"))]
    rows = []
    for name in workloads:
        row = [name]
        for run in runs:
            found = run["results"].get(name)
            if found is None or ONE_CALL not in found:
                row += ["", ""]
                continue
            row += [f"{found[HAND_WRITTEN]['seconds'] * 1e3:.3f}", marked(found[ONE_CALL])]
        rows.append(row)
    above = [sum(cell.endswith("!") for cell in column) for column in list(zip(*rows, strict=True))[2::2]]
    rows.append(["above 1", *(part for count in above for part in ("", str(count)))])
    return _drawn(head, rows)


def marked(cell: dict[str, float]) -> str:
    ratio = cell["ratio"]
    if ratio <= 1:
        return f"{ratio:.2f}"
    return f"{ratio:.2f} {'=' if ratio <= EQUAL and cell.get('kernels', 0.0) > KERNELS else '!'}"


def _drawn(head: list[str], rows: list[list[str]]) -> str:
    widths = [max(len(r[i]) for r in [head, *rows]) for i in range(len(head))]
    lines = ["| " + " | ".join(c.ljust(w) for c, w in zip(r, widths, strict=True)) + " |" for r in [head, *rows]]
    lines.insert(1, "| " + " | ".join("-" * w for w in widths) + " |")
    return "\n".join(lines)
