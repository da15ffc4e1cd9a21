"""Draws measured ratios, and prints them as tables: ``python -m benchmarks.picture cpu.json cuda.json docs/benchmark.svg``."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

from benchmarks.table import table

COLOURS = {
    "mlc_torch, one call": "#2f6fdb",
    "mlc_torch, three phases": "#7fb0f5",
    "mlc_torch, use_inductor": "#16a085",
    "hand-written, fused optimizer": "#b8b8b8",
    "torch.compile": "#e0a030",
}


def draw(measured: list[dict[str, Any]], path: Path) -> None:
    """One panel a machine: bars of time relative to the hand-written loop, shorter is better."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9, 3.4 * len(measured)), layout="constrained")
    for row, run in enumerate(measured):
        axes = figure.add_subplot(len(measured), 1, row + 1)
        results = run["results"]
        names = [n for n in COLOURS if any(n in r for r in results.values())]
        width = 0.8 / len(names)
        for k, name in enumerate(names):
            places = [i + (k - (len(names) - 1) / 2) * width for i, r in enumerate(results.values()) if name in r]
            cells = [r[name] for r in results.values() if name in r]
            heights = [c["ratio"] for c in cells]
            spread = [[max(c["ratio"] - c["low"], 0) for c in cells], [max(c["high"] - c["ratio"], 0) for c in cells]]
            axes.bar(places, heights, width, yerr=spread, label=name, color=COLOURS[name], error_kw={"lw": 0.8})
            for x, y in zip(places, heights, strict=True):
                axes.text(x, min(y, 1.3) + 0.02, f"{y:.2f}", ha="center", va="bottom", fontsize=6.5, rotation=90)
        axes.axhline(1, color="black", linewidth=1)
        axes.set_ylim(0, 1.4)
        axes.set_xticks(range(len(results)), list(results))
        axes.set_ylabel("time / hand-written PyTorch")
        axes.set_title(f"{run['device'].upper()}: {run['machine']}, torch {run['torch']}", fontsize=10)
        axes.spines[["top", "right"]].set_visible(False)
        axes.legend(fontsize=7, ncols=len(names), loc="upper center", bbox_to_anchor=(0.5, -0.1), frameon=False)
    figure.savefig(path)


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
