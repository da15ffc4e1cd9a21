"""``docs/divergences.toml``: every entry is complete, unique, and names a test that exists."""

from __future__ import annotations

import os
import re
import subprocess
import sys

import pytest

from tests.docs.pages import DOCS, ROOT, import_extensions

import_extensions()

from divergence_list import FIELDS, STATUSES, divergences_markdown, read  # noqa: E402

FILE = DOCS / "divergences.toml"
ENTRIES = read(FILE)


def named_by(entry) -> list[str]:
    return [entry["test"]] if isinstance(entry["test"], str) else entry["test"]


@pytest.mark.parametrize("entry", ENTRIES, ids=lambda e: e.get("id", "?"))
def test_every_entry_is_complete(entry):
    assert set(entry) == set(FIELDS)
    assert re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*", entry["id"])
    assert entry["status"] in STATUSES
    for field in FIELDS:
        values = named_by(entry) if field == "test" else [entry[field]]
        assert values and all(isinstance(v, str) and v.strip() == v != "" for v in values), field
    # The page shows these in a table.
    assert not any("|" in entry[field] or "\n" in entry[field] for field in FIELDS if field != "test")
    assert entry["evidence"] == "no evidence" or re.search(r"evidence\.md|client", entry["evidence"])


def test_ids_and_titles_are_unique():
    for field in ("id", "title"):
        seen = [entry[field] for entry in ENTRIES]
        assert sorted(set(seen)) == sorted(seen)


def test_areas_stand_together():
    areas = [entry["area"] for entry in ENTRIES]
    changes = [area for area, before in zip(areas, [None, *areas], strict=False) if area != before]
    assert len(changes) == len(set(changes))


@pytest.fixture(scope="module")
def collected() -> set[str]:
    """The ids of all tests in the files that entries name, with and without their parameters."""
    files = sorted({test.partition("::")[0] for entry in ENTRIES for test in named_by(entry)})
    found = subprocess.run(
        [
            sys.executable,
            "-m",
            "pytest",
            "--collect-only",
            "-q",
            "-m",
            "",
            "-p",
            "no:cacheprovider",
            "-p",
            "no:benchmark",
            *files,
        ],
        cwd=ROOT,
        env=os.environ | {"PYTHONPATH": str(ROOT), "PYTHONDONTWRITEBYTECODE": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert found.returncode == 0, found.stdout[-2000:] + found.stderr
    ids = {line for line in found.stdout.splitlines() if line.startswith("tests/") and "::" in line}
    return ids | {re.sub(r"\[.*", "", one) for one in ids}


def test_every_entry_names_tests_that_exist(collected):
    missing = {entry["id"]: [t for t in named_by(entry) if t not in collected] for entry in ENTRIES}
    assert {name: tests for name, tests in missing.items() if tests} == {}


def test_the_page_shows_every_entry():
    page = divergences_markdown(FILE)
    for entry in ENTRIES:
        assert f"({entry['id']})=" in page and f"### {entry['title']}" in page and entry["here"] in page
