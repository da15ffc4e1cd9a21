"""The public surface is that of the API list, and can only grow towards it."""

from __future__ import annotations

import enum
import json
import subprocess
import sys
from dataclasses import replace

import pytest

import mlc_torch
from mlc_torch.__main__ import main
from mlc_torch.coverage import compare
from mlc_torch.coverage.api import api, group
from mlc_torch.coverage.ours import FOR_USERS, OF_NSOBJECT
from mlc_torch.coverage.report import as_data, as_text, by_group, percent
from mlc_torch.objc.members import selector_names
from mlc_torch.spelling import CLASSES, MLCObject, declare, prop

ENTRIES = compare.entries()

# May only go up.
MINIMUM = {
    "descriptors": 100,
    "device": 100,
    "enums": 100,
    "functions": 100,
    "graphs": 100,
    "layers": 100,
    "option_sets": 100,
    "optimizers": 100,
    "platform": 100,
    "tensor": 100,
    "typealiases": 100,
}


def test_every_group_has_a_minimum():
    assert set(by_group(ENTRIES)) == set(MINIMUM)


@pytest.mark.parametrize("name", MINIMUM)
def test_coverage(name):
    members = by_group(ENTRIES)[name]
    missing = [f"{e.owner} ({e.spelling}) {e.name}: {e.missing}" for e in members if e.missing is not None]
    assert percent(members) >= MINIMUM[name], "\n".join(missing)


def test_the_whole_list_is_compared():
    """56 classes, 461 Swift members, 497 selectors, 123 cases, 13 functions, and the members of the first SDKs."""
    classes = api()["classes"]
    swift = sum(len(c["swift"]) for c in classes.values())
    assert (len(classes), swift) == (56, 461)
    of_classes = [e for e in ENTRIES if e.owner in classes]
    old = [m for name in classes for m in api()["legacy"].get(name, [])]
    assert sum(e.spelling == "swift" for e in of_classes) == 56 + swift + sum("swift" in m for m in old)
    listed = sum(len(m.get("objc", [])) for c in classes.values() for m in c["swift"])
    listed += sum(len(c["objc_only"]) for c in classes.values())
    assert sum(e.spelling == "objc" for e in of_classes) == listed + len(old)
    assert sum(len(cases) for cases in api()["enums"].values()) == 123


# What the comparison must notice


class MLCProbe(MLCObject):
    size = prop("Int")

    @declare("init?(size: Int, scale: Float = 1)", "probeWithSize:scale:")
    def _create(cls, size, scale=1.0):
        return cls._make(size=size)


CLASSES.pop("MLCProbe", None)  # a class of the tests is none of the library's


def _member(**changes):
    params = [
        {"label": "size", "name": "size", "type": "Int"},
        {"label": "scale", "name": "scale", "type": "Float", "default": "1"},
    ]
    return {
        "kind": "init",
        "name": "init",
        "params": params,
        "returns": "Self?",
        "objc": ["probeWithSize:scale:"],
    } | changes


def _found(member):
    return list(compare._method("MLCProbe", MLCProbe, member))


def test_an_equal_declaration_counts():
    assert [e.missing for e in _found(_member())] == [None, None]


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"returns": "Self"}, "returns: Self? here, Self in the list"),
        ({"static": True}, "static: False here, True in the list"),
        ({"params": [{"label": "size", "name": "n", "type": "Int"}]}, "not there"),
        (
            {"params": [_member()["params"][0] | {"type": "Float"}, _member()["params"][1]]},
            "the type of size: Int here, Float in the list",
        ),
        (
            {"params": [_member()["params"][0], {"label": "scale", "name": "scale", "type": "Float"}]},
            "the default of scale: 1 here, None in the list",
        ),
    ],
)
def test_a_differing_declaration_counts_as_missing(change, says):
    assert says in _found(_member(**change))[0].missing


def test_a_differing_selector_counts_as_missing():
    assert "probeWithSize:scale:" in _found(_member(objc=["probeWithWidth:scale:"]))[1].missing


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"type": "Float"}, "the type: Int here"),
        ({"settable": True}, "settable"),
        ({"static": True}, "static"),
        ({"name": "length"}, "not there"),
    ],
)
def test_a_differing_property_counts_as_missing(change, says):
    member = {"kind": "property", "name": "size", "type": "Int", "objc": ["size"]} | change
    assert says in next(iter(compare._property("MLCProbe", MLCProbe, member))).missing


# Nothing beyond the list


def test_public_names_are_the_lists_and_a_few_of_ours():
    kinds = ("classes", "enums", "option_sets", "functions", "typealiases")
    listed = {name for kind in kinds for name in api()[kind]}
    ours = {"MLCRefusal", "MLCTrainingWarning", "RanksLost", "last_refusal", "strict", "unwrap"}
    assert set(mlc_torch.__all__) == listed | ours, "public names are Apple's, or stand in this test"


def _ours(cls: type) -> set[str]:
    return {name for c in cls.__mro__ for name in FOR_USERS.get(c.__name__, ())}


@pytest.mark.parametrize("name", api()["classes"])
def test_no_class_has_more_than_the_list_and_ours(name):
    cls = CLASSES[name]
    inherited = [c for c in cls.__mro__ if c.__name__ in api()["classes"]]
    listed = {
        m["name"] + ("Async" if m.get("async") else "")
        for c in inherited
        for m in api()["classes"][c.__name__]["swift"]
    }
    listed |= {name for c in inherited for name in selector_names(c)}
    declared_ours = {n for n, known in cls.__declared__.items() if known and all(d.ours for d in known)}
    public = {n for n in dir(cls) if not n.startswith("_")}
    public |= {n for c in cls.__mro__ for n in vars(c).get("__annotations__", ()) if not n.startswith("_")}
    assert public - listed - declared_ours - OF_NSOBJECT == _ours(cls)


def test_our_names_cannot_be_mistaken_for_apples():
    for names in FOR_USERS.values():
        assert all(name == name.lower() for name in names)


@pytest.mark.parametrize("name", [*api()["enums"], *api()["option_sets"]])
def test_no_enumeration_has_more_cases(name):
    listed = (api()["enums"] | api()["option_sets"])[name]
    cls = CLASSES[name]
    cases = {c["swift"].partition("(")[0] for c in listed.values() if c["swift"]}
    assert set(cls.__members__ if issubclass(cls, enum.Enum) else cls.cases.values()) == cases


# The command


def test_the_table_shows_every_class_and_what_is_missing():
    text = as_text(ENTRIES)
    for name in api()["classes"]:
        assert f"  {name} " in text
    broken = [replace(e, missing="it fell off") if (e.owner, e.name) == ("MLCTensor", "label") else e for e in ENTRIES]
    assert "Swift: label: it fell off" in as_text(broken)
    gone = [replace(e, missing="the class is missing") if e.owner == "MLCTensor" else e for e in ENTRIES]
    assert "all of it is missing" in as_text(gone)


def test_the_data_adds_up():
    data = as_data(ENTRIES)
    assert data["total"]["swift"]["listed"] == sum(c["swift"]["listed"] for c in data["classes"].values())
    assert all(c["group"] == group(name) for name, c in data["classes"].items())


def test_the_command_prints_json(capsys):
    assert main(["coverage", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == json.loads(json.dumps(as_data(ENTRIES)))


def test_the_command_runs_as_a_module():
    found = subprocess.run([sys.executable, "-m", "mlc_torch", "coverage"], capture_output=True, text=True, check=True)
    assert "everything" in found.stdout
