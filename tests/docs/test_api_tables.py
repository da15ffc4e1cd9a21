"""The API tables hold every public class, member, enumeration and addition of ours."""

from __future__ import annotations

import pytest

import mlc_torch
from mlc_torch.coverage.ours import FOR_USERS
from mlc_torch.enums.functions import FUNCTIONS
from tests.docs.pages import import_extensions

import_extensions()

from api_tables import api_markdown, cases, enumerations, public_classes  # noqa: E402


@pytest.fixture(scope="module")
def sections() -> dict[str, str]:
    """The part of the page below each heading of the third level, and the rest under its own heading."""
    made: dict[str, str] = {}
    for part in f"\n{api_markdown()}".split("\n##")[1:]:
        title, _, text = part.lstrip("#").strip().partition("\n")
        made[title] = text
    return made


def test_every_public_name_is_there(sections):
    names = {name for name in mlc_torch.__all__ if isinstance(getattr(mlc_torch, name), type)}
    shown = {c.__name__ for c in (*public_classes(), *enumerations())}
    assert names - shown == {"MLCRefusal", "MLCTrainingWarning", "RanksLost"} and shown <= set(sections)


@pytest.mark.parametrize("cls", public_classes(), ids=lambda c: c.__name__)
def test_every_member_stands_at_its_class_or_a_base(cls, sections):
    text = "".join(sections[c.__name__] for c in cls.__mro__ if c.__name__ in sections)
    for declarations in cls.__declared__.values():
        for d in declarations:
            if d.selector:
                assert f"`{d.selector}`" in text
            if d.signature.swift and not d.ours:
                assert f"`{d.signature}`" in text
    for name in cls.__properties__:
        assert f"`{name}`" in text or f"`{cls.__name__}.{name}`" in text or f".{name}`" in text


@pytest.mark.parametrize("cls", enumerations(), ids=lambda c: c.__name__)
def test_every_case_has_its_raw_value(cls, sections):
    for name, value in cases(cls):
        assert f"| `{name}` | {value} |" in sections[cls.__name__]


def test_functions_and_our_own(sections):
    assert all(f"`{name}(value)`" in sections["Functions"] for name in FUNCTIONS)
    for names in FOR_USERS.values():
        assert all(f".{name}" in sections["Ours"] for name in names)
    assert all(f"`{name}" in sections["Ours"] for name in ("TorchLayer", "save_checkpoint", "assert_close", "unwrap"))
    rows = [line.split(" | ") for line in sections["Ours"].splitlines()[3:]]
    assert all(len(row) >= 3 and row[2].strip(" |") for row in rows), "each says what it is for"


def test_tables_are_whole(sections):
    """Each row has as many cells as its header."""
    for title, text in sections.items():
        width = 0
        for line in text.splitlines():
            if not line.startswith("|"):
                width = 0
                continue
            cells = line.replace("\\|", "").count("|")
            width = width or cells
            assert cells == width, (title, line)
