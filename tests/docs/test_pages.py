"""What the pages promise: a page for each family of layers with the same sections, and links that lead somewhere."""

from __future__ import annotations

import importlib
import pkgutil
import re
import subprocess
import sys
from pathlib import Path

import pytest

import mlc_torch
from mlc_torch import commands
from mlc_torch.running.history import Epoch, History
from tests.docs.pages import DOCS, PAGES, ROOT, blocks, name
from tests.plugin.test_plugin import LOAD

LAYER_PAGES = [page for page in PAGES if page.parent.name == "layers" and page.stem != "index"]
LAYERS = {n for n in mlc_torch.__all__ if n.endswith("Layer")} - {"MLCLayer"}
ELSEWHERE = {"loss", "yolo"}


def test_every_family_has_a_page():
    families = {Path(getattr(mlc_torch, n)._build.__code__.co_filename).stem for n in LAYERS}
    pages = {page.stem for page in LAYER_PAGES}
    assert pages == families - ELSEWHERE, "every file of mlc_torch/layers has a page of its name in docs/layers"


def test_every_command_is_on_the_first_page():
    text = (DOCS / "index.md").read_text(encoding="utf-8")
    there = {found.name for found in pkgutil.iter_modules(commands.__path__)}
    shown = {n for n in there if hasattr(importlib.import_module(f"{commands.__name__}.{n}"), "run")}
    assert shown and {n for n in shown if f"| `mlc-torch {n}` |" not in text} == set()
    assert "python -m mlc_torch" in text


@pytest.mark.parametrize("kind", [History, Epoch])
def test_what_fit_gives_is_described(kind):
    text = (DOCS / "graphs.md").read_text(encoding="utf-8")
    public = {n for n in dir(kind) if n[0] != "_"} - {"watched"}  # which early stopping looks at
    assert {n for n in public if f"`{n}`" not in text and f"`history.{n}" not in text} == set()


def test_every_layer_loss_and_optimizer_is_described():
    text = "".join(page.read_text(encoding="utf-8") for page in PAGES if page.stem != "api")
    optimizers = {n for n in mlc_torch.__all__ if n.endswith("Optimizer")} - {"MLCOptimizer"}
    assert {n for n in LAYERS | optimizers if f"`{n}`" not in text} == set(), "no page of docs names these"
    for kind in (
        "MLCActivationType",
        "MLCArithmeticOperation",
        "MLCComparisonOperation",
        "MLCReductionType",
        "MLCLossType",
    ):
        for case in getattr(mlc_torch, kind):
            assert f"`{case.name}`" in text, (kind, case.name)


@pytest.mark.parametrize("page", LAYER_PAGES, ids=name)
def test_a_layers_page_has_its_sections(page):
    titles = re.findall(r"^## (.*)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    assert titles[-1] == "Refused" and "Module" in titles
    assert any("result" in title.lower() for title in titles)
    assert any(b.language == "python" for b in blocks(page))


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_names_in_the_text_exist(page):
    """Every MLC… in the text is a public name, and every example or file that is mentioned is there."""
    text = page.read_text(encoding="utf-8")
    plain = re.sub(r"^```(objc|swift)\n.*?^```$", "", text, flags=re.DOTALL | re.MULTILINE)
    found = set(re.findall(r"\bMLC[A-Z]\w+", plain))
    known = {*mlc_torch.__all__, *_flat_names()}
    assert {n for n in found if n not in known} == set()
    for path in re.findall(r"`((?:examples|benchmarks|mlc_torch|tests)/[\w./]+)`", text):
        assert (ROOT / path).exists(), path


def _flat_names() -> set[str]:
    import mlc_torch.objc as view

    return {*dir(view), "MLC_TORCH_STRICT", "MLC_TORCH_DEVICE", "MLC_TORCH_RANKS_TIMEOUT", "MLCompute"}


def test_the_suite_on_the_testing_page_passes(tmp_path):
    code = next(b.text for b in blocks(DOCS / "testing.md") if b.language == "python")
    (tmp_path / "test_page.py").write_text(code, encoding="utf-8")
    (tmp_path / "pytest.ini").write_text("[pytest]\n", encoding="utf-8")
    found = subprocess.run(
        [sys.executable, "-m", "pytest", *LOAD, "--mlc-device=cpu", "-p", "no:cacheprovider", "-q", str(tmp_path)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert found.returncode == 0, found.stdout + found.stderr
    assert "3 passed, 1 skipped" in found.stdout
