"""The benchmarks compare like with like, know their names, and write their tables where they belong."""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest
import torch

from benchmarks import lstm_sizes, report, sweep
from benchmarks.__main__ import add_deterministic, chosen, contenders, parsed, use_threads
from benchmarks.agreement import Disagreement, apart, compared
from benchmarks.contenders import DETERMINISTIC, HAND_WRITTEN, ONE_CALL, HandWritten, MLCompute
from benchmarks.reasons import reasons
from benchmarks.table import PHASES, long_table, marked, phases_table
from benchmarks.workloads import FIRST, WORKLOADS, sequence

CPU = torch.device("cpu")


@pytest.mark.parametrize("name", [n for n in WORKLOADS if n.startswith(("call:", "train small,"))])
def test_the_twins_agree(name):
    assert compared(WORKLOADS[name], CPU) < 0.01


@pytest.mark.slow
@pytest.mark.parametrize("name", WORKLOADS)
def test_all_twins_agree(name, torch_device):
    assert compared(WORKLOADS[name], torch_device) < 0.01


def test_twins_that_differ_are_not_compared():
    workload = WORKLOADS["train small, SGD plain"]
    other = replace(workload, optimizer="nesterov", network=lambda: _scaled(workload.network()))
    with pytest.raises(Disagreement, match="step 0"):
        apart(workload, HandWritten(other, CPU), MLCompute(workload, CPU))


def _scaled(network: torch.nn.Module) -> torch.nn.Module:
    with torch.no_grad():
        next(network.parameters()).mul_(3)
    return network


def test_there_are_enough_of_every_kind():
    kinds = [w.name.split()[0] for w in WORKLOADS.values()]
    assert len(WORKLOADS) >= 40 and kinds.count("train") >= 20 and kinds.count("infer") >= 12
    assert {w.optimizer for w in WORKLOADS.values() if w.trains} >= {"adam", "adamw", "sgd", "rmsprop", "amsgrad"}
    assert {w.style for w in WORKLOADS.values()} >= {"fresh", "handler", "outputs", "async", "selectors", "short"}


def test_workloads_are_chosen_by_name_and_by_part():
    some = ["train small, AdamW", "LSTM", "call: short, 32 samples"]
    assert chosen(parsed(["--workloads", ",".join(some)])) == some
    assert chosen(parsed(["--only", "AdamW,call: user"])) == ["train small, AdamW", "call: user gradient"]
    assert chosen(parsed(["--first"])) == [w.name for w in FIRST] and chosen(parsed([])) == list(WORKLOADS)
    with pytest.raises(SystemExit, match="no workload 'LeNot'"):
        chosen(parsed(["--workloads", "LSTM,LeNot"]))
    with pytest.raises(SystemExit):
        parsed(["--measured", "--first"])


def test_the_first_have_more_contenders():
    options: argparse.Namespace = parsed(["--inductor", "--compile"])
    assert len(contenders(FIRST[0], options)) == 7
    assert list(contenders(WORKLOADS["train words"], options)) == [HAND_WRITTEN, ONE_CALL]
    assert list(contenders(sequence("one", torch.nn.Identity, 1, infers=True), options)) == [HAND_WRITTEN, ONE_CALL]


def test_what_repeats_itself_is_measured_with_the_same_clock(monkeypatch):
    """In a process of its own, which is given every option that the measuring follows."""
    asked: list[argparse.Namespace] = []

    def in_a_process(command: list[str], **_: object) -> None:
        options = parsed(command[3:])
        asked.append(options)
        cell = {"seconds": 3.0, "ratio": 1.0, "low": 0.5, "high": 1.5}
        options.json.write_text(json.dumps({"results": {"LSTM": {DETERMINISTIC: cell}}}))

    monkeypatch.setattr(subprocess, "run", in_a_process)
    given = ["--device", "cpu", "--clock", "cpu", "--rounds", "3", "--block", "0.5", "--threads", "2"]
    results = {"LSTM": {HAND_WRITTEN: {"seconds": 2.0}}}
    add_deterministic(results, parsed(given))
    (options,) = asked
    assert options.alone and options.workloads == "LSTM"
    assert {name: getattr(options, name) for name in ("device", "clock", "rounds", "block", "threads")} == {
        "device": "cpu", "clock": "cpu", "rounds": 3, "block": 0.5, "threads": 2
    }  # fmt: skip
    assert results["LSTM"][DETERMINISTIC] == {"seconds": 3.0, "ratio": 1.5, "low": 0.75, "high": 2.25}


@pytest.mark.parametrize(
    ("ratio", "kernels", "text"),
    [(0.5, 0.1, "0.50"), (1.02, 0.95, "1.02 ="), (1.02, 0.5, "1.02 !"), (1.2, 1.0, "1.20 !")],
)
def test_marks(ratio, kernels, text):
    assert marked({"ratio": ratio, "kernels": kernels}) == text


def test_the_long_table_counts_what_is_above_one():
    cell = {"low": 1.0, "high": 1.0, "seconds": 0.001, "build": 0.0, "kernels": 0.0}
    results = {name: {HAND_WRITTEN: cell, ONE_CALL: cell | {"ratio": r}} for name, r in (("a", 0.5), ("b", 1.5))}
    lines = long_table([{"machine": "here", "device": "cpu", "results": results}]).splitlines()
    assert "1.50 !" in lines[3] and lines[-1].split("|")[3].strip() == "1"


def test_tables_go_between_their_marks():
    page = f"before {report.BEGIN} old {report.END} after"
    assert report.written(page, "new") == f"before {report.BEGIN}\n\nnew\n\n{report.END} after"
    with pytest.raises(ValueError, match="has no"):
        report.written("nothing", "new")
    assert report.BEGIN in report.PAGE.read_text("utf-8") and report.END in report.PAGE.read_text("utf-8")


def ran(ours: float, hand: float, device: str = "cpu", **more: float) -> dict[str, object]:
    """A run of three workloads that took so long."""
    cells = {
        HAND_WRITTEN: {"seconds": hand},
        ONE_CALL: {"seconds": ours, "ratio": ours / hand, "low": ours / hand, **more},
    }
    names = ("infer choice", "infer perceptron 4096", "call: async, 1 sample", "train perceptron 4096")
    return {"machine": "here", "device": device, "results": dict.fromkeys(names, cells)}


def test_every_ratio_above_one_has_its_reason():
    runs = [ran(30e-6, 20e-6), ran(45e-6, 20e-6), ran(10e-6, 20e-6)]
    assert reasons("infer choice", runs) == "the call around the same kernels (10 to 25 µs)"
    assert reasons("infer choice", runs[2:]) == ""
    assert reasons("call: async, 1 sample", runs[:1]) == "an await hands the work to another thread and back (10 µs)"
    on_device = [ran(30e-6, 20e-6, "cuda")]
    assert (
        reasons("infer perceptron 4096", on_device)
        == "the call waits until its inputs are copied, so that the program may write into them (10 µs)"
    )
    assert "within the spread" in reasons("train perceptron 4096", [ran(1.1, 1.0, low=0.9)])
    assert "not known" in reasons("train perceptron 4096", [ran(1.1, 1.0)])


@pytest.mark.parametrize(
    ("one", "three", "text"),
    [(1e-2, 1.04e-2, "1.04 (+400 µs)"), (1e-2, 1.06e-2, "1.06 (+600 µs) !"), (1e-4, 1.7e-4, "1.70 (+70 µs)"),
     (1e-4, 1.9e-4, "1.90 (+90 µs) !")],
)  # fmt: skip
def test_three_phases_are_held_to_one_call(one, three, text):
    cells = {ONE_CALL: {"seconds": one}, PHASES: {"seconds": three}}
    assert phases_table([{"machine": "here", "results": {"a": cells}}]).splitlines()[-1].split("|")[2].strip() == text


def test_numbers_lie_under_the_name_of_their_machine():
    assert report.name_of("cpu", "aarch64, 2 threads", 2) == "arm_2"
    assert report.name_of("cpu", "x86_64, 8 threads", 8) == "x86_8"
    assert report.name_of("cuda", "NVIDIA H200", 16) == "h200"
    assert set(report.TITLES) >= {path.stem for path in report.MEASURED.glob("*.json")}


def test_random_networks_are_the_same_for_the_same_seed():
    names = [w.name for w in sweep.drawn(7, 40)]
    assert names == [w.name for w in sweep.drawn(7, 40)] != [w.name for w in sweep.drawn(8, 40)]
    kinds = [sum(word in name for name in names) for word in ("samples, ", "images", "LSTM", "infer", "train")]
    assert all(kinds) and len(set(names)) == 40


def test_random_networks_are_compared_and_measured(capsys):
    found = sweep.main(["--device", "cpu", "--seed", "5", "--count", "4", "--rounds", "3"])
    *lines, last = capsys.readouterr().out.splitlines()
    assert len(found) == len(lines) == 4 and all(r > 0 for r in found)
    assert last.startswith("4 networks, median ")


def test_lstms_of_every_kind_are_compared_and_measured(monkeypatch, capsys):
    monkeypatch.setattr(lstm_sizes, "SIZES", ((2, 3, 4, 5),))
    found = lstm_sizes.main(["--device", "cpu", "--rounds", "1"])
    titles, _, row, last = capsys.readouterr().out.splitlines()
    assert titles.count("|") == row.count("|") == 8 and "states" in titles and row.startswith("| 2, 3, 4, 5 | ")
    assert len(found) == 12 and last.startswith("12 ratios, above 1: ")


def test_every_lstm_is_called_by_its_size_and_its_kind():
    made = [w.name for infers in (False, True) for w in lstm_sizes.workloads(2, 3, 4, 5, infers).values()]
    assert made[0] == "train LSTM 2, 3, 4, 5, 1 layer" and made[-1] == "infer LSTM 2, 3, 4, 5, states"
    assert len(set(made)) == 12


@pytest.mark.parametrize(("told", "begins"), [("1", 0), ("2", 1), (None, 1)])
def test_a_command_starts_anew_where_openmp_was_told_of_other_threads(monkeypatch, told, begins):
    started = []
    monkeypatch.setattr(os, "execv", lambda path, command: started.append(command))
    monkeypatch.setattr(torch, "set_num_threads", lambda count: None)
    monkeypatch.setattr(sys, "argv", ["sweep.py", "--threads", "1"])
    monkeypatch.setenv("OMP_NUM_THREADS", told) if told else monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    use_threads(1, None, "benchmarks.sweep")
    assert started == [[sys.executable, "-m", "benchmarks.sweep", "--threads", "1"]] * begins
    use_threads(1, ["--threads", "1"], "benchmarks.sweep")  # called by a program, which goes on
    assert len(started) == begins


def test_a_random_network_that_computes_other_numbers_is_not_measured(monkeypatch):
    monkeypatch.setattr(HandWritten, "values", lambda self, number: np.full(320, number, np.float32))
    with pytest.raises(Disagreement):
        sweep.main(["--device", "cpu", "--seed", "5", "--count", "1", "--rounds", "1"])
