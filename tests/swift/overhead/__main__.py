"""``python -m tests.swift.overhead``: calls from Swift against the same calls from Python, and a second ``swift run``.

Both programs live at the same time and are asked in turn, so that whatever else the machine does meets both alike; many
pairs of processes one after the other, since a process keeps the luck of its addresses, which is worth more than most of
what is measured here. Each line has the medians, the median of the ratios of the rounds, and between which two nine of ten
ratios lie.
"""

from __future__ import annotations

import statistics
import subprocess
import time
from pathlib import Path

from tests.swift.toolbox import command, environment, host

HERE = Path(__file__).parent
NAMES = ("number", "shape", "execute", "with literal", "and literal", "step")
"""Three execute one layer. The second makes its dictionary anew each time; the third makes one too and does not give it to
us, which shows how much of that is spent by Swift's own library."""
PAIRS, ROUNDS, STARTS = 25, 4, 15


class Program:
    def __init__(self, words: list[str]) -> None:
        self.running = subprocess.Popen(
            words, env=environment(), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1
        )

    def __call__(self, name: str) -> float:
        assert self.running.stdin is not None and self.running.stdout is not None
        self.running.stdin.write(f"{name}\n")
        return float(self.running.stdout.readline())

    def end(self) -> None:
        self.running.communicate()


def asked(swift: Program, python: Program) -> dict[str, list[tuple[float, float]]]:
    found: dict[str, list[tuple[float, float]]] = {}
    for name in NAMES:
        for number in range(ROUNDS + 2):
            first, second = (swift, python) if number % 2 else (python, swift)
            times = {first: first(name), second: second(name)}
            if number >= 2:  # before that, both warm up
                found.setdefault(name, []).append((times[swift], times[python]))
    return found


def started(words: list[str]) -> float:
    """Start to exit, in milliseconds of wall time."""
    start = time.perf_counter()
    subprocess.run(words, env=environment(), capture_output=True, check=True)
    return 1e3 * (time.perf_counter() - start)


def compared(name: str, times: list[tuple[float, float]], unit: str) -> None:
    swift, python = (statistics.median(side) for side in zip(*times, strict=True))
    ratios = sorted(a / b for a, b in times)
    low, high = ratios[len(ratios) // 20], ratios[-1 - len(ratios) // 20]
    more = statistics.median(a - b for a, b in times)
    print(
        f"{name:12} Swift {swift:9.3f} {unit}  Python {python:9.3f} {unit}"
        f"  ratio {statistics.median(ratios):.3f} ({low:.3f} to {high:.3f}, {len(times)} rounds)  difference {more:+.3f} {unit}"
    )


def main() -> None:
    program = command("run", "-O", HERE / "program.swift"), [*host(), str(HERE / "program.py")]
    subprocess.run(program[0], env=environment(), stdin=subprocess.DEVNULL, check=True)  # compiles it
    found: dict[str, list[tuple[float, float]]] = {name: [] for name in NAMES}
    for _ in range(PAIRS):
        pair = [Program(words) for words in program]
        for name, times in asked(*pair).items():
            found[name] += times
        for one in pair:
            one.end()
    for name, times in found.items():
        compared(name, times, "us")
    start = command("run", HERE / "start.swift"), [*host(), str(HERE / "start.py")]
    started(start[0])
    compared("second run", [(started(start[0]), started(start[1])) for _ in range(STARTS)], "ms")


if __name__ == "__main__":
    main()
