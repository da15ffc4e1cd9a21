"""The sentences of Apple's documentation as tables, from the one file that holds them."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any


def read(path: Path) -> list[dict[str, Any]]:
    return tomllib.loads(path.read_text(encoding="utf-8"))["page"]


def sentences_markdown(path: Path) -> str:
    """A section for each page, with a row for each of its sentences."""
    return "\n\n".join(_section(page) for page in read(path))


def _section(page: dict[str, Any]) -> str:
    rows = ["| the page says | member | shown by |", "| --- | --- | --- |"]
    rows += [f"| {s['says']} | {_code(s.get('member'))} | {_shown_by(s)} |" for s in page["sentence"]]
    return f"## {page['title']}\n\n[The page](<{page['address']}>).\n\n" + "\n".join(rows)


def _shown_by(sentence: dict[str, Any]) -> str:
    tests = [_code(test.removeprefix("tests/")) for test in sentence.get("test", [])]
    return "<br>".join([*tests, *([sentence["why"]] if "why" in sentence else [])])


def _code(text: str | None) -> str:
    return f"`{text}`" if text else ""
