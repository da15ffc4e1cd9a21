"""Puts what is written from data into the pages, when Sphinx reads them: the API tables, the divergences and the sentences.

A page says where with a line of its own, ``<!-- generated: api -->``.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from api_tables import api_markdown
from divergence_list import divergences_markdown
from gallery_list import gallery_markdown
from sentence_list import sentences_markdown

HERE = Path(__file__).parent
DIVERGENCES = HERE.parent / "divergences.toml"
SENTENCES = HERE.parent / "sentences.toml"

WRITERS: dict[str, Callable[[], str]] = {
    "api": api_markdown,
    "divergences": lambda: divergences_markdown(DIVERGENCES),
    "gallery": lambda: gallery_markdown(HERE.parents[1] / "examples" / "gallery"),
    "sentences": lambda: sentences_markdown(SENTENCES),
}


def fill(app: Any, page: str, source: list[str]) -> None:
    """Sphinx's ``source-read``: ``source`` holds the page's text, which may be replaced."""
    for name, write in WRITERS.items():
        place = f"<!-- generated: {name} -->"
        if place in source[0]:
            source[0] = source[0].replace(place, write())
            app.env.note_dependency(str(DIVERGENCES))
            app.env.note_dependency(str(SENTENCES))


def setup(app: Any) -> dict[str, bool]:
    app.connect("source-read", fill)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
