"""Writes the tables of ``docs/benchmark.md`` and its picture from ``benchmarks/measured``: ``python -m benchmarks.report``.

Each file there is what ``python -m benchmarks --measured`` wrote on one machine with one number of threads.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from benchmarks.contenders import HAND_WRITTEN, ONE_CALL
from benchmarks.memory import memory_line
from benchmarks.picture import draw
from benchmarks.table import PHASES, long_table, phases_table, table
from benchmarks.workloads import FIRST

ROOT = Path(__file__).parents[1]
MEASURED, PAGE, PICTURE = (
    ROOT / "benchmarks" / "measured",
    ROOT / "docs" / "benchmark.md",
    ROOT / "docs" / "benchmark.svg",
)
BEGIN, END = "<!-- measured: written by benchmarks.report -->", "<!-- end of what is measured -->"

TITLES = {
    "arm_1": "ARM, 1 thread",
    "arm_2": "ARM, 2 threads",
    "x86_1": "x86, 1 thread",
    "x86_2": "x86, 2 threads",
    "x86_8": "x86, 8 threads",
    "h200": "H200",
}
DRAWN = ("arm_2", "x86_8", "h200")
SHOWN = (HAND_WRITTEN, "hand-written, fused optimizer", ONE_CALL, PHASES)


def runs() -> dict[str, dict[str, Any]]:
    """What lies in the folder, in the order of the titles."""
    found = {}
    for name, title in TITLES.items():
        path = MEASURED / f"{name}.json"
        if path.exists():
            run = json.loads(path.read_text())
            results = {w: {c: cells[c] for c in SHOWN if c in cells} for w, cells in run["results"].items()}
            found[name] = run | {"title": title, "results": results}
    return found


def conditions(run: dict[str, Any]) -> str:
    """What the numbers of a run hold for."""
    told = [f"torch {run['torch']}"]
    if run.get("version"):
        told.append(f"version {run['version']}")
    if run.get("clock") == "cpu":
        told.append("CPU time")
    return ", ".join(told)


def tables(measured: dict[str, dict[str, Any]]) -> str:
    parts = []
    for name in DRAWN:
        run = measured.get(name)
        if run is None:
            continue
        first = {w.name: run["results"][w.name] for w in FIRST if w.name in run["results"]}
        parts.append(f"{run['title']} ({run['machine']}, {conditions(run)}):\n\n{table(first)}")
    columns = [run | {"machine": run["title"]} for run in measured.values()]
    parts.append(f"All workloads, one call, milliseconds by hand and the ratio:\n\n{long_table(columns)}")
    parts.append("Measured with: " + "; ".join(f"{r['title']}, {conditions(r)}" for r in measured.values()) + ".")
    parts.append(
        "Three phases instead of one call; `!` where they take more than 1.05 of it in a step of 2 ms and more, or more than "
        f"80 µs beyond it in a shorter one:\n\n{phases_table(columns)}"
    )
    peaks = [f"{run['title']} {memory_line(run['memory'])}" for run in measured.values() if run.get("memory")]
    if peaks:
        parts.append(f"Peak memory of a ResNet-20 step: {'; '.join(peaks)}.")
    return "\n\n".join(parts)


def name_of(device: str, machine: str, threads: int) -> str:
    """Under which name a machine's numbers lie in the folder."""
    if device == "cpu":
        return f"{'arm' if machine.startswith(('aarch64', 'arm')) else 'x86'}_{threads}"
    return machine.split()[-1].lower()


def written(page: str, made: str) -> str:
    """The page with ``made`` between its two marks."""
    before, _, rest = page.partition(BEGIN)
    _, found, after = rest.partition(END)
    if not found:
        raise ValueError(f"{PAGE.name} has no {BEGIN!r} and {END!r}")
    return f"{before}{BEGIN}\n\n{made}\n\n{END}{after}"


def main() -> None:
    measured = runs()
    PAGE.write_text(written(PAGE.read_text("utf-8"), tables(measured)), "utf-8")
    draw([measured[name] for name in DRAWN if name in measured], PICTURE)


if __name__ == "__main__":
    main()
