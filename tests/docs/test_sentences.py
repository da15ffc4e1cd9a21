"""``docs/sentences.toml``: every sentence has a test that exists or a reason, and no member of the pages is forgotten."""

from __future__ import annotations

import ast
import functools
import re

import pytest

from mlc_torch.coverage.api import api
from tests.docs.pages import DOCS, ROOT, import_extensions

import_extensions()

from sentence_list import read, sentences_markdown  # noqa: E402

FILE = DOCS / "sentences.toml"
PAGES = {page["title"]: page for page in read(FILE)}
SENTENCES = [(title, sentence) for title, page in PAGES.items() for sentence in page["sentence"]]
METHODS = {
    "executeGradient(batchSize:options:outputsData:)",
    "allocateUserGradient(for:)",
    "gradientData(forParameter:layer:)",
    "bindOptimizerData(_:deviceData:with:)",
}
CLASSES = {"MLCTrainingGraph", "MLCInferenceGraph", "MLCGraph"}


def test_the_pages_are_those_of_graphs_options_and_four_methods():
    assert set(PAGES) == METHODS | CLASSES | set(api()["option_sets"])
    for page in PAGES.values():
        assert page["address"].startswith("https://developer.apple.com/documentation/mlcompute/")


@pytest.mark.parametrize("number", range(len(SENTENCES)))
def test_every_sentence_is_complete(number):
    _, sentence = SENTENCES[number]
    assert set(sentence) <= {"says", "member", "test", "why"} and ("test" in sentence or "why" in sentence)
    for field in ("says", "why"):
        text = sentence.get(field, "A sentence.")
        assert text.endswith((".", "`.")) and "|" not in text and "\n" not in text
    assert isinstance(sentence.get("test", []), list) and all(t.startswith("tests/") for t in sentence.get("test", []))


def _labels(member) -> str:
    if member["kind"] == "property":
        return member["name"]
    return f"{member['name']}({''.join(p['label'] + ':' for p in member['params'])})"


@pytest.mark.parametrize("name", sorted(CLASSES))
def test_every_member_of_a_class_has_its_sentence(name):
    listed = {_labels(member) for member in api()["classes"][name]["swift"]}
    assert {s["member"] for s in PAGES[name]["sentence"] if "member" in s} == listed


@pytest.mark.parametrize("name", sorted(api()["option_sets"]))
def test_every_option_has_its_sentence(name):
    listed = {case["swift"] for case in api()["option_sets"][name].values() if case["swift"]}
    assert {s["member"] for s in PAGES[name]["sentence"] if "member" in s} == listed | {"init(rawValue:)"}


@functools.cache
def _tests_in(file: str) -> set[str]:
    tree = ast.parse((ROOT / file).read_text(encoding="utf-8"))
    return {node.name for node in tree.body if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))}


def test_every_sentence_names_tests_that_exist():
    named = {test for _, sentence in SENTENCES for test in sentence.get("test", [])}
    assert {test for test in named if re.sub(r".*::|\[.*", "", test) not in _tests_in(test.partition("::")[0])} == set()


def test_the_page_shows_every_sentence():
    page = sentences_markdown(FILE)
    for title, sentence in SENTENCES:
        assert f"## {title}" in page and sentence["says"] in page and sentence.get("why", "") in page
