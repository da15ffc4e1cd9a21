"""Measured ratios as a table in Markdown."""

from __future__ import annotations

from benchmarks.workloads import HAND_WRITTEN


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
    widths = [max(len(r[i]) for r in [head, *rows]) for i in range(len(head))]
    lines = ["| " + " | ".join(c.ljust(w) for c, w in zip(r, widths, strict=True)) + " |" for r in [head, *rows]]
    lines.insert(1, "| " + " | ".join("-" * w for w in widths) + " |")
    return "\n".join(lines)
