"""``python -m tests.swift.overhead``: calls from Swift against the same calls from Python, and a second ``swift run``.

Both programs run in turn; each line has the medians, the median of the ratios of the pairs, and their spread.
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import time
from pathlib import Path

from tests.swift.toolbox import command, environment, host

HERE = Path(__file__).parent
RUNS = 15


def measured(words: list[str]) -> dict[str, float]:
    done = subprocess.run(words, env=environment(), capture_output=True, text=True, check=True)
    return {name: float(value) for name, value in (line.split() for line in done.stdout.splitlines())}


def quick(words: list[str]) -> float:
    """Start to exit, in milliseconds of wall time."""
    start = time.perf_counter()
    subprocess.run(words, env=environment(), capture_output=True, check=True)
    return 1e3 * (time.perf_counter() - start)


def compared(name: str, swift: list[float], python: list[float], unit: str) -> None:
    ratios = sorted(a / b for a, b in zip(swift, python, strict=True))
    more = statistics.median(a - b for a, b in zip(swift, python, strict=True))
    print(
        f"{name:12} Swift {statistics.median(swift):9.3f} {unit}  Python {statistics.median(python):9.3f} {unit}"
        f"  ratio {statistics.median(ratios):.3f} ({ratios[0]:.3f} to {ratios[-1]:.3f})  difference {more:+.3f} {unit}"
    )


def main(runs: int) -> None:
    swift, python = command("run", "-O", HERE / "program.swift"), [*host(), str(HERE / "program.py")]
    measured(swift)
    pairs = [(measured(swift), measured(python)) for _ in range(runs)]
    for name in pairs[0][0]:
        compared(name, [a[name] for a, _ in pairs], [b[name] for _, b in pairs], "us")
    starts = [command("run", HERE / "start.swift"), [*host(), str(HERE / "start.py")]]
    quick(starts[0])
    times = [(quick(starts[0]), quick(starts[1])) for _ in range(runs)]
    compared("second run", [a for a, _ in times], [b for _, b in times], "ms")


if __name__ == "__main__":
    main(int(sys.argv[1]) if sys.argv[1:] else RUNS)
