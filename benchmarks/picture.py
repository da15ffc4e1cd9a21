"""Draws measured ratios: ``python -m benchmarks.picture x86_2.json h200.json picture.svg``."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

from benchmarks.table import table
from benchmarks.workloads import FIRST

COLOURS = {
    "mlc_torch, one call": "#1f5fd0",
    "mlc_torch, three phases": "#8db8f7",
    "hand-written, fused optimizer": "#b0b0b0",
    "mlc_torch, use_inductor": "#16a085",
    "torch.compile": "#e0a030",
}
MOST = 1.3
"""Longer bars are cut, and say so."""


def title_of(run: dict[str, Any]) -> str:
    return run.get("title") or f"{run['device'].upper()}: {run['machine']}, torch {run['torch']}"


def draw(measured: list[dict[str, Any]], path: Path) -> None:
    """One panel a machine: bars of time relative to the hand-written loop. Made to be read at 500 pixels."""
    from matplotlib.figure import Figure

    shown = [{w.name: run["results"][w.name] for w in FIRST if w.name in run["results"]} for run in measured]
    names = [n for n in COLOURS if any(n in cells for results in shown for cells in results.values())]
    longest = max(
        [1.0, *(cells[n]["ratio"] for results in shown for cells in results.values() for n in names if n in cells)]
    )
    reach = MOST + 0.4 if longest > MOST else longest + 0.15
    heights = [len(results) * (0.14 * len(names) + 0.08) + 0.5 for results in shown]
    figure = Figure(figsize=(5.2, sum(heights) + 0.9), layout="constrained")
    panels = figure.subplots(len(measured), 1, squeeze=False, height_ratios=heights)[:, 0]
    for axes, run, results in zip(panels, measured, shown, strict=True):
        _panel(axes, results, names, reach)
        axes.set_title(title_of(run), fontsize=10, loc="left", fontweight="bold")
    figure.suptitle("Time of a step, relative to hand-written PyTorch: less is better", fontsize=10)
    handles = [panels[0].barh(0, 0, color=COLOURS[name], label=name) for name in names]
    figure.legend(handles, names, loc="outside lower center", ncols=2, fontsize=9, frameon=False)
    figure.savefig(path)


def _panel(axes: Any, results: dict[str, dict[str, dict[str, float]]], names: list[str], reach: float) -> None:
    thick = 0.84 / len(names)
    for row, cells in enumerate(results.values()):
        there = [name for name in names if name in cells]
        for k, name in enumerate(there):
            ratio, place = cells[name]["ratio"], row + (k - (len(there) - 1) / 2) * thick
            axes.barh(place, min(ratio, MOST), thick, color=COLOURS[name])
            cut = ratio > MOST
            text = f"{ratio:.2f}" + (" (bar cut)" if cut else "")
            if cut:
                axes.plot([MOST - 0.045, MOST - 0.015], [place + thick / 2, place - thick / 2], color="white", lw=2)
            behind = {"facecolor": "white", "edgecolor": "none", "pad": 0.4}
            axes.text(min(ratio, MOST) + 0.015, place, text, va="center", fontsize=8, bbox=behind)
    axes.axvline(1, color="black", linewidth=1, zorder=1.5)
    axes.text(1.015, len(results) - 1.5, "by hand", va="center", fontsize=8)  # between two rows, where no title is
    axes.set_xlim(0, reach)
    axes.set_ylim(len(results) - 0.45, -0.6)
    axes.set_yticks(range(len(results)), list(results), fontsize=9)
    axes.tick_params(axis="x", labelsize=8)
    axes.spines[["top", "right"]].set_visible(False)


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.picture", description=__doc__)
    parser.add_argument("files", nargs="+", type=Path, help="what --json wrote, then the picture to write")
    *files, picture = parser.parse_args(arguments).files
    measured = [json.loads(f.read_text()) for f in files]
    draw(measured, picture)
    for run in measured:
        print(table(run["results"]) + "\n")


if __name__ == "__main__":
    main()
