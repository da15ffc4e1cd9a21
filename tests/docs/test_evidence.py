"""``docs/evidence.md``: every section that a comment, a docstring or a divergence cites is there."""

from __future__ import annotations

import re
from pathlib import Path

from tests.docs.pages import DOCS, ROOT, import_extensions

import_extensions()

from divergence_list import SECTION, anchor, linked  # noqa: E402

PAGE = (DOCS / "evidence.md").read_text(encoding="utf-8")
TITLES = re.findall(r"^\((\S+)\)=\n#+ (\S+) ", PAGE, re.MULTILINE)
ROWS = re.findall(r"^\| (C\d+) \|", PAGE, re.MULTILINE)
ROOMS = ("mlc_torch", "tests", "examples", "benchmarks", "tools")
SOURCES = [*sorted(p for room in ROOMS for p in ROOT.glob(f"{room}/**/*.py")), DOCS / "divergences.toml"]
# "evidence.md A.4, D.17", "evidence.md section L", "evidence.md H", but no word that merely follows.
_CITED = re.compile(r"evidence\.md,? ((?:(?:, | and |, and )?(?:section )?(?:0\.\d|[A-L](?:\.\d+|\d+)?)\b(?![\w'’]))+)")
_LETTER = re.compile(r"\b[A-L]\b(?!\.\d)")


def cited(text: str) -> set[str]:
    """The sections that a file cites."""
    found = " ".join(_CITED.findall(text))
    return {m[1] for m in SECTION.finditer(found)} | set(_LETTER.findall(found))


def test_what_counts_as_a_citation():
    assert cited("(evidence.md D.0, B.3)") == {"D.0", "B.3"}
    assert cited("evidence.md, section I: eleven") == {"I"}
    assert cited("evidence.md F.2, and C24 for the norm") == {"F.2", "C24"}
    assert cited('"evidence.md C5, section G: measured"') == {"C5", "G"}
    assert cited("evidence.md H, and after it A") == {"H"}


def test_each_section_stands_there_once_and_in_order():
    names = [name for _, name in TITLES]
    assert [target for target, _ in TITLES] == [anchor(name) for name in names]
    assert names == sorted(names, key=lambda name: (name[0], int(name[2:] or -1))) and len(set(names)) == len(names)
    assert [int(row[1:]) for row in ROWS] == list(range(1, len(ROWS) + 1))


def test_cited_sections_exist():
    there = {*(name for _, name in TITLES), *ROWS}
    found = {path.relative_to(ROOT).as_posix(): cited(path.read_text(encoding="utf-8")) for path in SOURCES}
    assert sum(map(len, found.values())) > 150
    here = Path(__file__).relative_to(ROOT).as_posix()
    assert {path: missing for path, sections in found.items() if (missing := sections - there) and path != here} == {}


def test_nothing_else_is_cited():
    """Notes that are not in the repository help no reader."""
    absent = re.compile(r"\b(behaviour|clients|anchors|DESIGN)\.md\b|\bDESIGN,? (section )?\d")
    here = Path(__file__)
    assert [p for p in SOURCES if p != here and absent.search(p.read_text(encoding="utf-8"))] == []


def test_divergences_link_to_what_they_cite():
    assert linked("evidence.md C5, section G: measured") == "[C5](#0-3), [section G](#g): measured"
    assert linked("evidence.md D.12: header") == "[D.12](#d-12): header"
