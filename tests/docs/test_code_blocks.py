"""Every Python block of the documentation runs, and prints what the text block right after it says."""

from __future__ import annotations

import contextlib
import io

import pytest

from mlc_torch.testing import seeded
from tests.docs.pages import PAGES, blocks, name

WITH_CODE = [page for page in PAGES if any(b.language == "python" for b in blocks(page))]
KNOWN = {"python", "text", "swift", "objc", "sh", "ini"}


@pytest.mark.parametrize("page", WITH_CODE, ids=name)
def test_the_code_of_a_page_runs_in_order(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MLC_TORCH_DEVICE", "cpu")  # what is printed must not depend on the machine
    monkeypatch.delenv("MLC_TORCH_STRICT", raising=False)
    names: dict[str, object] = {"__name__": page.stem}
    found = blocks(page)
    with seeded(0):
        for block, after in zip(found, [*found[1:], None], strict=True):
            if block.language != "python":
                continue
            printed = io.StringIO()
            # The lines of the traceback are those of the page.
            code = compile("\n" * (block.line - 1) + block.text, str(page), "exec")
            with contextlib.redirect_stdout(printed):
                exec(code, names)
            expected = after.text if after is not None and after.language == "text" else ""
            assert printed.getvalue() == expected, f"{name(page)}, line {block.line}"


def test_most_pages_have_code():
    assert len(WITH_CODE) > len(PAGES) / 2


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_blocks_say_their_language(page):
    """A block that is not marked would neither be run nor be coloured."""
    assert {b.language for b in blocks(page)} <= KNOWN
    assert page.read_text(encoding="utf-8").count("\n```\n") >= len(blocks(page))
