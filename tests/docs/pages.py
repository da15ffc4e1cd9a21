"""The pages of the documentation, and the blocks of code in them."""

from __future__ import annotations

import re
import sys
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
PAGES = sorted(p for p in DOCS.rglob("*.md") if "_build" not in p.parts)

_BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$(?:\n+```text\n(.*?)^```$)?", re.DOTALL | re.MULTILINE)


@dataclass(frozen=True)
class Block:
    language: str
    text: str
    printed: str
    """What the text block right after it holds; nothing where there is none."""
    line: int
    """Where its first line stands in the page."""


def blocks(page: Path) -> list[Block]:
    text = page.read_text(encoding="utf-8")
    return [Block(m[1], m[2], m[3] or "", text.count("\n", 0, m.start()) + 2) for m in _BLOCK.finditer(text)]


def name(page: Path) -> str:
    return page.relative_to(DOCS).as_posix()


def import_extensions() -> None:
    """Let the modules in ``docs/_ext`` be imported, as Sphinx does."""
    path = str(DOCS / "_ext")
    if path not in sys.path:
        sys.path.insert(0, path)
