"""``python -m benchmarks``: interleaved rounds of every contender on every workload; ratios to the hand-written loop."""

from __future__ import annotations

import argparse
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
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from benchmarks.table import table
from benchmarks.workloads import DETERMINISTIC, HAND_WRITTEN, ONE_CALL, WORKLOADS, HandWritten, MLCompute, Workload


def contenders(workload: Workload, options: argparse.Namespace) -> dict[str, Callable[[Workload, torch.device], Any]]:
    """Who runs the workload, by name. Optimizers and phases are for those that train."""
    if options.alone:
        return {DETERMINISTIC: MLCompute}
    made: dict[str, Callable[[Workload, torch.device], Any]] = {HAND_WRITTEN: HandWritten}
    if workload.trains:
        made["hand-written, fused optimizer"] = lambda w, d: HandWritten(w, d, fused=True)
    made[ONE_CALL] = MLCompute
    if workload.trains:
        made["mlc_torch, three phases"] = lambda w, d: MLCompute(w, d, phases=True)
    if options.compile:
        made["torch.compile"] = lambda w, d: HandWritten(w, d, fused=True, compiled=True)
    if options.inductor:
        made["mlc_torch, use_inductor"] = lambda w, d: MLCompute(w, d, inductor=True)
    if options.inductor and workload.trains:
        made["mlc_torch, use_inductor, three phases"] = lambda w, d: MLCompute(w, d, inductor=True, phases=True)
    return made


def synchronize(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize()
    elif device.type == "mps":
        torch.mps.synchronize()


def block(contender: Any, steps: int, device: torch.device) -> float:
    """Seconds a step over ``steps`` steps."""
    synchronize(device)
    begin = time.perf_counter()
    for number in range(steps):
        contender.step(number)
    synchronize(device)
    return (time.perf_counter() - begin) / steps


def measure(workload: Workload, device: torch.device, options: argparse.Namespace) -> dict[str, dict[str, float]]:
    """Median and spread of the ratio to the hand-written loop, over rounds that each run everything once."""
    running, steps, compile_seconds = {}, {}, {}
    for name, make in contenders(workload, options).items():
        begin = time.perf_counter()
        try:
            running[name] = make(workload, device)
            block(running[name], 3, device)
        except Exception as error:  # noqa: BLE001 - one contender that cannot run must not end the comparison
            print(f"  {name} does not run {workload.name}: {type(error).__name__}: {str(error)[:120]}", file=sys.stderr)
            running.pop(name, None)
            continue
        compile_seconds[name] = time.perf_counter() - begin
        once = max(block(running[name], 2, device), 1e-7)
        steps[name] = max(1, min(2000, round(options.block / once)))
    times: dict[str, list[float]] = {name: [] for name in running}
    order = list(running)
    shuffle = random.Random(0)
    gc.collect()
    gc.disable()
    try:
        for _ in range(options.rounds):
            shuffle.shuffle(order)
            for name in order:
                times[name].append(block(running[name], steps[name], device))
    finally:
        gc.enable()
    found = {}
    for name, own in times.items():
        base = times.get(HAND_WRITTEN) or [statistics.median(own)] * options.rounds
        ratios = sorted(a / b for a, b in zip(own, base, strict=True))
        quarter = len(ratios) // 4
        found[name] = {
            "ratio": statistics.median(ratios),
            "low": ratios[quarter],
            "high": ratios[-1 - quarter],
            "seconds": statistics.median(own),
            "build": compile_seconds[name],
        }
    return found


def add_deterministic(results: dict[str, dict[str, Any]], options: argparse.Namespace) -> None:
    """Measure ``use_deterministic_algorithms`` in a process of its own.

    cuBLAS repeats itself only by a setting for the whole process, under which the hand-written loop takes longer too.
    """
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "found.json"
        command = [sys.executable, "-m", "benchmarks", "--alone", "--json", str(path)]
        for name in ("device", "workloads", "rounds", "block"):
            command += [f"--{name}", str(getattr(options, name))]
        setting = {"CUBLAS_WORKSPACE_CONFIG": ":4096:8"}
        subprocess.run(command, env=os.environ | setting, check=True, stdout=subprocess.DEVNULL)
        found = json.loads(path.read_text())["results"]
    for name, of_workload in results.items():
        own = found[name].get(DETERMINISTIC)
        if own is None:
            continue
        scale = own["seconds"] / of_workload[HAND_WRITTEN]["seconds"]
        of_workload[DETERMINISTIC] = own | {key: own[key] * scale for key in ("ratio", "low", "high")}


def main(arguments: list[str] | None = None) -> dict[str, Any]:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--workloads", default=",".join(WORKLOADS), help="names, separated by commas")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--block", type=float, default=0.15, help="seconds a contender runs at a time")
    parser.add_argument("--inductor", action="store_true", help="measure use_inductor too")
    parser.add_argument("--compile", action="store_true", help="measure torch.compile too")
    parser.add_argument("--deterministic", action="store_true", help="measure use_deterministic_algorithms too")
    parser.add_argument("--alone", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--json", type=Path, help="write the numbers here")
    parser.add_argument("--picture", type=Path, help="draw the ratios into this SVG or PNG")
    options = parser.parse_args(arguments)
    device = torch.device(options.device)
    if options.alone:
        torch.use_deterministic_algorithms(True)
    warnings.simplefilter("ignore")
    logging.getLogger("mlc_torch").setLevel(logging.ERROR)
    if device.type == "cuda":
        torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
    machine = (
        torch.cuda.get_device_name()
        if device.type == "cuda"
        else f"{platform.machine()}, {torch.get_num_threads()} threads"
    )
    print(f"torch {torch.__version__}, Python {platform.python_version()}, {device.type}: {machine}")
    results = {}
    for name in options.workloads.split(","):
        results[name] = measure(WORKLOADS[name], device, options)
        shown = ", ".join(f"{n} {r['ratio']:.3f}" for n, r in results[name].items() if n != HAND_WRITTEN)
        print(f"{name}: {shown}", flush=True)
    if options.deterministic:
        add_deterministic(results, options)
    if not options.alone:
        print("\n" + table(results))
    made = {"torch": torch.__version__, "device": device.type, "machine": machine, "results": results}
    if options.json:
        options.json.write_text(json.dumps(made, indent=1))
    if options.picture:
        from benchmarks.picture import draw

        draw([made], options.picture)
    return made


if __name__ == "__main__":
    main()
