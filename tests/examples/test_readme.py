"""The README's Python runs, prints what it says, and names what there is."""

from __future__ import annotations

import configparser
import contextlib
import io
import re
from pathlib import Path

import pytest

import mlc_torch
from mlc_torch.seeing import picture_dot, picture_svg

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.DOTALL | re.MULTILINE)


draws = pytest.mark.skipif(
    not (picture_dot.installed() or picture_svg.installed()), reason="it draws, which needs Graphviz or the extra viz"
)


@draws
def test_the_code_prints_what_the_readme_says(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MLC_TORCH_DEVICE", "cpu")
    blocks = BLOCK.findall(README)
    assert sum(kind == "python" for kind, _ in blocks) >= 5
    names: dict[str, object] = {}
    for (kind, code), (next_kind, text) in zip(blocks, [*blocks[1:], ("", "")], strict=True):
        if kind != "python":
            continue
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            exec(compile(code, "README.md", "exec"), names)
        assert printed.getvalue() == (text if next_kind == "text" else "")
    assert sorted(p.name for p in tmp_path.iterdir()) == ["graph.svg", "line.safetensors"]


def test_the_swift_and_the_python_column_have_the_same_lines():
    (_, swift), (_, python) = [block for block in BLOCK.findall(README) if block[0] in ("swift", "python")][:2]
    assert len(swift.splitlines()) == len(python.splitlines())


def test_every_layer_and_optimizer_stands_in_the_table():
    bases = {"MLCLayer", "MLCOptimizer"}
    there = {name for name in mlc_torch.__all__ if name.endswith(("Layer", "Optimizer"))} - bases
    table = README.partition("## What is supported")[2].partition("\n## ")[0]
    assert set(re.findall(r"`(MLC\w+(?:Layer|Optimizer))`", table)) == there


def test_the_counts_in_the_table_are_right():
    kinds = {
        "MLCActivationLayer": mlc_torch.MLCActivationType,
        "MLCArithmeticLayer": mlc_torch.MLCArithmeticOperation,
        "MLCComparisonLayer": mlc_torch.MLCComparisonOperation,
        "MLCLossLayer": mlc_torch.MLCLossType,
    }
    said = {name: int(count) for name, count in re.findall(r"`(MLC\w+)` \((\d+)", README)}
    assert said == {name: len(kind) for name, kind in kinds.items()}
    listed = re.search(r"^\| Data types \| (.*), each", README, re.MULTILINE)
    assert listed is not None and listed[1].split(", ") == [kind.name for kind in mlc_torch.MLCDataType]


def test_the_commands_name_environments_that_exist():
    tox = configparser.ConfigParser()
    tox.read(ROOT / "tox.ini")
    for names in re.findall(r"tox run -e ([\w,]+)", README):
        for name in names.split(","):
            assert name == "py" or f"testenv:{name}" in tox


def test_links_lead_somewhere():
    for target in re.findall(r"\]\(((?!https?:)[^)#]+)\)", README):
        assert (ROOT / target).exists(), target
