"""Every Python block of the documentation runs, and prints what the text block right after it says."""

from __future__ import annotations

import contextlib
import io

import pytest

from mlc_torch import objc
from mlc_torch.seeing import picture_dot, picture_svg
from mlc_torch.testing import seeded
from tests.docs.pages import PAGES, blocks, name

WITH_CODE = [page for page in PAGES if any(b.language == "python" for b in blocks(page))]
LANGUAGES = {"python", "text", "swift", "objc", "sh", "ini"}


@pytest.fixture
def uninstalled():
    """What a page installs is gone after it."""
    yield
    objc.uninstall()


@pytest.mark.parametrize("page", WITH_CODE, ids=name)
def test_the_code_of_a_page_runs_in_order(page, tmp_path, monkeypatch, pytestconfig, uninstalled):
    if any(".draw(" in b.text for b in blocks(page)) and not (picture_dot.installed() or picture_svg.installed()):
        pytest.skip("it draws, which needs Graphviz or the extra viz")
    pytestconfig.addinivalue_line("markers", "mlc_gpu: known by itself only where the plugin is installed")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MLC_TORCH_DEVICE", "cpu")  # what is printed must not depend on the machine
    monkeypatch.delenv("MLC_TORCH_STRICT", raising=False)
    names: dict[str, object] = {"__name__": page.stem}
    with seeded(0):
        for block in blocks(page):
            if block.language != "python":
                continue
            printed = io.StringIO()
            # The lines of a traceback are those of the page.
            code = compile("\n" * (block.line - 1) + block.text, str(page), "exec")
            with contextlib.redirect_stdout(printed):
                exec(code, names)
            assert printed.getvalue() == block.printed, f"{name(page)}, line {block.line}"


def test_most_pages_have_code():
    assert len(WITH_CODE) > len(PAGES) / 2


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_every_block_says_its_language(page):
    """One that does not would be neither run nor coloured, and no test would notice."""
    fences = [
        line for line in page.read_text(encoding="utf-8").splitlines() if line.startswith("```") and line != "```"
    ]
    assert {f.removeprefix("```") for f in fences if "{" not in f} <= LANGUAGES
    text = page.read_text(encoding="utf-8").splitlines()
    assert text.count("```") == len(fences)
