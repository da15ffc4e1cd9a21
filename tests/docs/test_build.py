"""The documentation builds without a warning, where Sphinx is installed."""

from __future__ import annotations

import re
import subprocess
import sys
from importlib.util import find_spec

import pytest

from tests.docs.pages import DOCS, PAGES, ROOT

NEEDED = ("sphinx", "myst_parser", "furo", "sphinx_copybutton", "sphinx_design", "latex2mathml")


@pytest.mark.skipif(any(find_spec(name) is None for name in NEEDED), reason="needs what `tox run -e docs` installs")
def test_it_builds_without_warnings(tmp_path):
    found = subprocess.run(
        [
            sys.executable,
            "-m",
            "sphinx",
            "-W",
            "--keep-going",
            "-q",
            "-d",
            tmp_path / "trees",
            "-b",
            "html",
            DOCS,
            tmp_path,
        ],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert found.returncode == 0, found.stderr
    made = {p.relative_to(tmp_path).with_suffix(".md") for p in tmp_path.rglob("*.html")}
    assert {p.relative_to(DOCS) for p in PAGES} - made == {DOCS.joinpath("benchmark.md").relative_to(DOCS)}
    formulas = (tmp_path / "layers" / "lstm.html").read_text(encoding="utf-8")
    assert "<math" in formulas and "<mi>&#x003C3;</mi>" in formulas, "drawn when the pages are built"
    loaded = {p.name: _loaded(p.read_text(encoding="utf-8")) for p in tmp_path.rglob("*.html")}
    assert {name: addresses for name, addresses in loaded.items() if addresses} == {}, "nothing comes from a network"
    assert (tmp_path / "porting.html").read_text(encoding="utf-8").count('class="sd-tab-label"') == 3
    assert "MLCTrainingGraph" in (tmp_path / "api.html").read_text(encoding="utf-8")
    assert "order-of-phases" in (tmp_path / "divergences.html").read_text(encoding="utf-8")


def _loaded(html: str) -> list[str]:
    """What a browser would fetch from elsewhere to show a page; links that a reader may follow do not count."""
    return re.findall(
        r'<(?:script|img|iframe)[^>]* src="((?:https?:)?//[^"]*)"|<link[^>]* href="((?:https?:)?//[^"]*)"', html
    )
