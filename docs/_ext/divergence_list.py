"""The divergences as Markdown, from the one file that holds them."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

FIELDS = ("id", "area", "title", "framework", "here", "status", "evidence", "test")
STATUSES = {
    "divergence": "The framework's behaviour is known, and this library does something else.",
    "unverified": "The framework's behaviour is not known, or only in part. This is what the library does until somebody "
    "with a Mac can tell.",
}

SECTION = re.compile(r"\b(?:section )?(0\.\d|[A-L]\.\d+|C\d+|(?<=section )[A-L])\b")
"""A section of evidence.md as entries and comments cite it: ``D.6``, ``section G``, or ``C24``, a row of its table."""


def anchor(section: str) -> str:
    """The target in evidence.md of a section."""
    return "0-3" if re.fullmatch(r"C\d+", section) else section.lower().replace(".", "-")


def read(path: Path) -> list[dict[str, Any]]:
    return tomllib.loads(path.read_text(encoding="utf-8"))["divergence"]


def divergences_markdown(path: Path) -> str:
    """A table of everything, then an entry for each, area by area."""
    entries = read(path)
    areas = list(dict.fromkeys(entry["area"] for entry in entries))
    parts = [_overview(entries)]
    for area in areas:
        parts.append(f"## {area}")
        parts += [_entry(entry) for entry in entries if entry["area"] == area]
    return "\n\n".join(parts)


def _overview(entries: Sequence[dict[str, Any]]) -> str:
    counts = {status: sum(entry["status"] == status for entry in entries) for status in STATUSES}
    rows = [f"| {status} | {counts[status]} | {words} |" for status, words in STATUSES.items()]
    return "\n".join(["| status | entries | meaning |", "| --- | ---: | --- |", *rows])


def _entry(entry: dict[str, Any]) -> str:
    tests = [entry["test"]] if isinstance(entry["test"], str) else entry["test"]
    return "\n".join(
        [
            f"({entry['id']})=",
            f"### {entry['title']}",
            "",
            f"*{entry['status'].capitalize()}*, `{entry['id']}`",
            "",
            "| | |",
            "| --- | --- |",
            f"| ML Compute | {entry['framework']} |",
            f"| here | {entry['here']} |",
            f"| evidence | {linked(entry['evidence'])} |",
            f"| test | {'<br>'.join(f'`{test}`' for test in tests)} |",
        ]
    )


def linked(evidence: str) -> str:
    """The evidence with links to the sections it cites."""
    return SECTION.sub(lambda m: f"[{m[0]}](#{anchor(m[1])})", evidence.replace("evidence.md ", ""))
