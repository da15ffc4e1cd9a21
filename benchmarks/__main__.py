"""``python -m benchmarks``: interleaved rounds of every contender on every workload; ratios to the hand-written loop."""

from __future__ import annotations

import argparse
import contextlib
import gc
import json
import logging
import os
import platform
import random
import statistics
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from benchmarks.agreement import Disagreement, apart, compared
from benchmarks.contenders import DETERMINISTIC, HAND_WRITTEN, ONE_CALL, HandWritten, MLCompute
from benchmarks.memory import compare, memory_line
from benchmarks.share import kernel_share
from benchmarks.table import PHASES, long_table, phases_table, table
from benchmarks.workloads import FIRST, WORKLOADS, Workload

Makers = dict[str, Callable[[Workload, torch.device], Any]]


def contenders(workload: Workload, options: argparse.Namespace) -> Makers:
    """Who runs the workload, by name. The first workloads are run in more ways than the others."""
    if options.alone:
        return {DETERMINISTIC: MLCompute}
    made: Makers = {HAND_WRITTEN: HandWritten}
    first = workload in FIRST
    if workload.trains and first:
        made["hand-written, fused optimizer"] = lambda w, d: HandWritten(w, d, fused=True)
    made[ONE_CALL] = MLCompute
    if workload.trains and (first or options.phases) and workload.style == "prepared":
        made[PHASES] = lambda w, d: MLCompute(w, d, phases=True)
    if options.compile and first:
        made["torch.compile"] = lambda w, d: HandWritten(w, d, fused=True, compiled=True)
    if options.inductor and first:
        made["mlc_torch, use_inductor"] = lambda w, d: MLCompute(w, d, inductor=True)
    if options.inductor and workload.trains and first:
        made["mlc_torch, use_inductor, three phases"] = lambda w, d: MLCompute(w, d, inductor=True, phases=True)
    return made


def synchronize(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize()
    elif device.type == "mps":
        torch.mps.synchronize()


def block(contender: Any, steps: int, device: torch.device, clock: Callable[[], float] = time.perf_counter) -> float:
    """Seconds a step over ``steps`` steps."""
    synchronize(device)
    begin = clock()
    contender.run(steps)
    synchronize(device)
    return (clock() - begin) / steps


_MOST = 2000
"""Steps that a contender runs at a time."""


def steps_in(seconds: float, contender: Any, device: torch.device) -> int:
    """How many steps take so long: by more and more of them, since one alone is mostly waiting on a GPU.

    Each count is tried twice, for what is still recorded or chosen in the first.
    """
    count = 1
    while True:
        once = max(min(block(contender, count, device) for _ in range(2)), 1e-7)
        if count * once > seconds / 4 or count >= _MOST:
            return max(1, min(_MOST, round(seconds / once)))
        count *= 4


@dataclass
class Runner:
    """A contender that runs a workload."""

    contender: Any
    build: float
    """Seconds until it has run for the first time."""
    steps: int = 0
    """How many of them it runs at a time."""
    times: list[float] = field(default_factory=list)
    """Seconds a step, in each round."""


def measure(workload: Workload, device: torch.device, options: argparse.Namespace) -> dict[str, dict[str, float]]:
    """Median and spread of the ratio to the hand-written loop, over rounds that each run everything once."""
    runners = _made(workload, device, options)
    if HAND_WRITTEN in runners and ONE_CALL in runners:
        if workload.random:
            compared(workload, device)
        else:
            apart(workload, runners[HAND_WRITTEN].contender, runners[ONE_CALL].contender)
    runners = _ready(runners, workload, device, options.block)
    _run_rounds(runners, device, options)
    found = _evaluated(runners)
    if ONE_CALL in found:
        found[ONE_CALL]["kernels"] = kernel_share(runners[ONE_CALL].contender, found[ONE_CALL]["seconds"], device)
    return found


def _made(workload: Workload, device: torch.device, options: argparse.Namespace) -> dict[str, Runner]:
    """Those of the contenders that can be made."""
    found = {}
    for name, make in contenders(workload, options).items():
        with _without_ending_the_comparison(name, workload):
            begin = time.perf_counter()
            found[name] = Runner(make(workload, device), time.perf_counter() - begin)
    return found


def _ready(runners: dict[str, Runner], workload: Workload, device: torch.device, seconds: float) -> dict[str, Runner]:
    """Those that run, each with as many steps as take so many seconds."""
    found = {}
    for name, runner in runners.items():
        with _without_ending_the_comparison(name, workload):
            begin = time.perf_counter()
            block(runner.contender, 2, device)
            runner.build += time.perf_counter() - begin
            runner.steps = steps_in(seconds, runner.contender, device)
            found[name] = runner
    return found


@contextlib.contextmanager
def _without_ending_the_comparison(name: str, workload: Workload) -> Iterator[None]:
    """A contender that cannot run is named, and the others go on."""
    try:
        yield
    except Exception as error:  # noqa: BLE001 - whatever stands in its way
        print(f"  {name} does not run {workload.name}: {type(error).__name__}: {str(error)[:120]}", file=sys.stderr)


def _run_rounds(runners: dict[str, Runner], device: torch.device, options: argparse.Namespace) -> None:
    """Every round in another order: what comes after another contender may run on a warmer machine."""
    clock = time.process_time if options.clock == "cpu" else time.perf_counter
    order = list(runners.values())
    shuffle = random.Random(0)
    gc.collect()
    gc.disable()
    try:
        for _ in range(options.rounds):
            shuffle.shuffle(order)
            for runner in order:
                runner.times.append(block(runner.contender, runner.steps, device, clock))
    finally:
        gc.enable()


def _evaluated(runners: dict[str, Runner]) -> dict[str, dict[str, float]]:
    """Ratios to the hand-written loop of the same round, or where that did not run to a contender's own median."""
    found: dict[str, dict[str, float]] = {}
    for name, runner in runners.items():
        own = statistics.median(runner.times)
        base = runners[HAND_WRITTEN].times if HAND_WRITTEN in runners else [own] * len(runner.times)
        ratios = sorted(a / b for a, b in zip(runner.times, base, strict=True))
        quarter = len(ratios) // 4
        found[name] = {
            "ratio": statistics.median(ratios),
            "low": ratios[quarter],
            "high": ratios[-1 - quarter],
            "seconds": own,
            "build": runner.build,
        }
    return found


def add_deterministic(results: dict[str, dict[str, Any]], options: argparse.Namespace) -> None:
    """Measure ``use_deterministic_algorithms`` in a process of its own.

    cuBLAS repeats itself only by a setting for the whole process, under which the hand-written loop takes longer too.
    """
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "found.json"
        command = [sys.executable, "-m", "benchmarks", "--alone", "--json", str(path)]
        command += ["--workloads", ",".join(w.name for w in FIRST if w.name in results)]
        for name in ("device", "rounds", "block", "threads", "clock"):
            command += [f"--{name}", str(getattr(options, name))]
        setting = {"CUBLAS_WORKSPACE_CONFIG": ":4096:8"}
        subprocess.run(command, env=os.environ | setting, check=True, stdout=subprocess.DEVNULL)
        found = json.loads(path.read_text())["results"]
    for name, of_workload in results.items():
        own = found.get(name, {}).get(DETERMINISTIC)
        if own is None:
            continue
        scale = own["seconds"] / of_workload[HAND_WRITTEN]["seconds"]
        of_workload[DETERMINISTIC] = own | {key: own[key] * scale for key in ("ratio", "low", "high")}


def version() -> str:
    """The commit that is measured, if this is a checkout."""
    command = ["git", "-C", str(Path(__file__).parent), "rev-parse", "--short", "HEAD"]
    try:
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return ""


def chosen(options: argparse.Namespace) -> list[str]:
    """The names of the workloads to run."""
    if options.workloads:
        # Names have commas in them, so that a list is told by what it leaves.
        rest, names = options.workloads, []
        while rest:
            name = max((n for n in WORKLOADS if rest == n or rest.startswith(n + ",")), key=len, default=None)
            if name is None:
                raise SystemExit(f"no workload {rest.split(',')[0]!r}; there are: {'; '.join(WORKLOADS)}")
            names.append(name)
            rest = rest[len(name) + 1 :]
        return names
    if options.only:
        words = [w.strip() for w in options.only.split(",")]
        return [n for n in WORKLOADS if any(word in n for word in words)]
    return [w.name for w in FIRST] if options.first else list(WORKLOADS)


def parsed(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--threads", type=int, default=0, help="CPU threads; torch's own number unless given")
    parser.add_argument("--workloads", help="names, separated by commas")
    parser.add_argument("--only", help="parts of names, separated by commas")
    parser.add_argument("--first", action="store_true", help="the first eight workloads alone")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--block", type=float, default=0.06, help="seconds a contender runs at a time")
    parser.add_argument("--clock", choices=("wall", "cpu"), default="wall", help="cpu: a busy machine, one thread")
    parser.add_argument("--phases", action="store_true", help="measure three phases for every workload that trains")
    parser.add_argument("--inductor", action="store_true", help="measure use_inductor too (the first eight)")
    parser.add_argument("--compile", action="store_true", help="measure torch.compile too (the first eight)")
    parser.add_argument("--deterministic", action="store_true", help="measure use_deterministic_algorithms too")
    parser.add_argument("--alone", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--json", type=Path, help="write the numbers here")
    parser.add_argument(
        "--measured", action="store_true", help="write them into benchmarks/measured, and docs/benchmark.md anew"
    )
    parser.add_argument("--picture", type=Path, help="draw the ratios into this SVG or PNG")
    options = parser.parse_args(arguments)
    if options.measured and (options.only or options.workloads or options.first or options.alone):
        parser.error("--measured is for all workloads: the page shows every one of them")
    return options


def use_threads(threads: int, arguments: list[str] | None, module: str = "benchmarks") -> None:
    """So many threads from now on, if any number is given.

    A command starts anew where OpenMP was not told so: the Arm Compute Library asks it once, and ``set_num_threads`` comes too
    late.
    """
    if not threads:
        return
    if arguments is None and os.environ.get("OMP_NUM_THREADS") != str(threads):
        os.environ["OMP_NUM_THREADS"] = str(threads)
        os.execv(sys.executable, [sys.executable, "-m", module, *sys.argv[1:]])
    torch.set_num_threads(threads)


def main(arguments: list[str] | None = None) -> dict[str, Any]:
    options = parsed(arguments)
    device = torch.device(options.device)
    use_threads(options.threads, arguments)
    _set_up(device, options)
    machine = _machine(device)
    print(f"torch {torch.__version__}, Python {platform.python_version()}, {device.type}: {machine}")
    begin = time.perf_counter()
    results, wrong = _measured(device, options)
    if options.deterministic:
        add_deterministic(results, options)
    if not options.alone:
        _show(results, device, machine)
    made = {
        "torch": torch.__version__,
        "version": version(),
        "device": device.type,
        "machine": machine,
        "clock": options.clock,
        "results": results,
    }
    if "ResNet-20" in results and not options.alone:
        made["memory"] = compare(WORKLOADS["ResNet-20"], device)
        print(f"peak memory of a ResNet-20 step: {memory_line(made['memory'])}")
    print(f"{len(results)} workloads in {time.perf_counter() - begin:.0f} s")
    _keep(made, options)
    if wrong:
        raise SystemExit("the twins disagree:\n" + "\n".join(wrong))
    return made


def _set_up(device: torch.device, options: argparse.Namespace) -> None:
    """What holds for every contender."""
    if options.alone:
        torch.use_deterministic_algorithms(True)
    warnings.simplefilter("ignore")
    logging.getLogger("mlc_torch").setLevel(logging.ERROR)
    if device.type == "cuda":
        torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False


def _machine(device: torch.device) -> str:
    if device.type == "cuda":
        return torch.cuda.get_device_name()
    return f"{platform.machine()}, {torch.get_num_threads()} threads"


def _measured(device: torch.device, options: argparse.Namespace) -> tuple[dict[str, dict[str, Any]], list[str]]:
    """The numbers of every workload whose twins agree, and what is said of the others."""
    results, wrong = {}, []
    for name in chosen(options):
        try:
            results[name] = measure(WORKLOADS[name], device, options)
        except Disagreement as error:
            wrong.append(str(error))
            print(f"  NOT COMPARED: {error}", file=sys.stderr)
            continue
        shown = ", ".join(f"{n} {r['ratio']:.3f}" for n, r in results[name].items() if n != HAND_WRITTEN)
        print(f"{name}: {shown}", flush=True)
    return results, wrong


def _show(results: dict[str, dict[str, Any]], device: torch.device, machine: str) -> None:
    first = {w.name: results[w.name] for w in FIRST if w.name in results}
    print(f"\n{table(first)}\n" if first else "")
    here = [{"machine": machine, "device": device.type, "results": results}]
    print(f"{long_table(here)}\n\n{phases_table(here)}\n")


def _keep(made: dict[str, Any], options: argparse.Namespace) -> None:
    """Write the numbers wherever the options want them."""
    place = options.json
    if options.measured:
        from benchmarks import report

        place = report.MEASURED / f"{report.name_of(made['device'], made['machine'], torch.get_num_threads())}.json"
    if place:
        place.write_text(json.dumps(made, indent=1))
    if options.measured:
        report.main()
    if options.picture:
        from benchmarks.picture import draw

        draw([made], options.picture)


if __name__ == "__main__":
    main()
