"""The generated Swift, read as text and compared with the list. No compiler is needed."""

from __future__ import annotations

import collections
import re

import pytest

import mlc_torch
from mlc_torch.coverage.api import api
from mlc_torch.swift.conversions import from_python, to_python
from mlc_torch.swift.generate import generate
from mlc_torch.swift.members import members
from mlc_torch.swift.modules import SOURCES

TEXT = generate()
BY_HAND = (SOURCES / "MLCompute" / "Values.swift").read_text("utf-8")


def body(kind: str, name: str, text: str = TEXT) -> str:
    """Everything between the braces of a type."""
    found = re.findall(rf"^{kind} {name}\b[^\n]*\{{\n(.*?)^\}}", text, re.MULTILINE | re.DOTALL)
    assert len(found) == 1, f"{name} is declared {len(found)} times"
    return found[0]


def split(text: str) -> list[str]:
    """Parameters, at commas that stand in no brackets."""
    parts, depth = [""], 0
    for sign in text.replace("->", "→"):
        depth += (sign in "([") - (sign in ")]")
        if sign == "," and depth == 0:
            parts.append("")
        else:
            parts[-1] += sign
    return [part.strip().replace("→", "->") for part in parts if part.strip()]


def declared(name: str) -> collections.Counter:
    """Each public declaration of a class as one line, in a spelling that the list can be brought into as well."""
    found = collections.Counter()
    for line in body("open class", name).splitlines():
        if "init(_object:" in line:  # the bridge's own
            continue
        line = line.strip().removeprefix("@discardableResult ").replace("`", "")
        if match := re.fullmatch(r"public (?:convenience |override )*init(\??)\((.*?)\) \{.*", line):
            found["init" + match[1], tuple(split(match[2]))] += 1
        elif match := re.fullmatch(r"open (class )?func (\w+)\((.*?)\)( async throws)?(?: -> (.+))? \{", line):
            found[f"{match[1] or ''}func {match[2]}{match[4] or ''}", tuple(split(match[3])), match[5] or "Void"] += 1
        elif match := re.fullmatch(r"open (class )?var (\w+): (.+?) \{", line):
            found[f"{match[1] or ''}var {match[2]}", match[3]] += 1
        else:
            assert not line.startswith(("open", "public")), line
    return found


def parameter(p: dict) -> str:
    label = p["label"] or "_"
    head = p["name"] if label == p["name"] else f"{label} {p['name']}"
    return f"{head}: {p['type']}" + (f" = {p['default']}" if "default" in p else "")


def listed(name: str) -> collections.Counter:
    """The same for what the list says, without the generator's tables."""
    found = collections.Counter()
    for m in api()["classes"][name]["swift"]:
        parameters = tuple(parameter(p) for p in m.get("params", ()))
        static = "class " if m.get("static") else ""
        if m["kind"] == "init":
            found["init" + ("?" if m.get("failable") else ""), parameters] += 1
        elif m["kind"] == "method":
            found[f"{static}func {m['name']}{' async throws' if m.get('async') else ''}", parameters, m["returns"]] += 1
        else:
            found[f"{static}var {m['name']}", m["type"]] += 1
    return found


OLD = {
    "MLCTensorDescriptor": {("init?", ("shape: [Int]",)): 1},
    "MLCTensor": {
        ("init", ("shape: [Int]", "data: MLCTensorData")): 1,
        ("init", ("shape: [Int]", "fillWithData fillData: NSNumber")): 1,
    },
    "MLCSGDOptimizer": {
        (
            "init",
            (
                "descriptor optimizerDescriptor: MLCOptimizerDescriptor",
                "momentumScale: Float",
                "usesNestrovMomentum usesNesterovMomentum: Bool",
            ),
        ): 1
    },
}
"""What only the first SDKs had, with types; the list gives the labels."""


@pytest.mark.parametrize("name", api()["classes"])
def test_every_member_is_emitted_once(name):
    old = OLD.get(name, {})
    assert len(old) == sum("swift" in entry for entry in api()["legacy"].get(name, []))
    assert declared(name) == listed(name) + collections.Counter(old)


@pytest.mark.parametrize("name", [name for name in api()["legacy"] if name != "about"])
def test_old_members_have_the_types_that_python_declares(name):
    spellings = {entry["swift"] for entry in api()["legacy"][name] if "swift" in entry}
    for member in members(name):
        labels = "".join(f"{p.label}:" for p in member.parameters)
        if f"init({labels})" not in spellings or member.kind != "init":
            continue
        ours = [d.signature for d in getattr(mlc_torch, name).__declared__["init"]]
        twin = next(s for s in ours if "".join(f"{p.label}:" for p in s.params) == labels)
        assert [p.type for p in member.parameters] == [p.type for p in twin.params]


def test_superclasses_are_those_of_the_list():
    heads = dict(re.findall(r"^open class (\w+): (\w+) \{", TEXT, re.MULTILINE))
    assert heads == {name: spec["superclass"] or "_MLCObject" for name, spec in api()["classes"].items()}


@pytest.mark.parametrize("name", api()["enums"])
def test_every_case_is_there_with_its_raw_value(name):
    wanted = [(case["swift"], case["raw"]) for case in api()["enums"][name].values() if case["swift"]]
    if f"enum {name}: " in TEXT:
        found = re.findall(r"case `?(\w+)`? = (-?\d+)", body("public enum", name))
        assert [(case, int(raw)) for case, raw in found] == wanted
        assert f"enum {name}: {'UInt64' if name == 'MLCLSTMResultMode' else 'Int32'}, Sendable" in TEXT
    else:  # cases with values: their labels are in the list, and their raw values are Objective-C's only
        found = re.findall(r"^    case (\w+)(?:\((.*)\))?$", body("public enum", name, BY_HAND), re.MULTILINE)
        labels = [
            case + (f"({''.join(p.split(':')[0] + ':' for p in split(values))})" if values else "")
            for case, values in found
        ]
        assert labels == [re.sub(r"sized$", "sized(y:x:)", case) for case, _ in wanted]


@pytest.mark.parametrize("name", api()["option_sets"])
def test_every_option_is_there(name):
    found = re.findall(rf"static var (\w+): {name} {{ {name}\(rawValue: (\d+)\) }}", body("public struct", name))
    assert [(o, int(raw)) for o, raw in found] == [
        (o["swift"], o["raw"]) for o in api()["option_sets"][name].values() if o["swift"]
    ]


def test_every_function_and_alias_is_there():
    assert re.findall(r"^public func (\w+)\(_ value", TEXT, re.MULTILINE) == list(api()["functions"])
    assert re.findall(r"^public typealias (\w+) = (.+)$", TEXT, re.MULTILINE) == list(api()["typealiases"].items())
    for name in api()["functions"]:
        enum = name.removesuffix("DebugDescription")
        where = TEXT if f"enum {enum}: " in TEXT else BY_HAND
        assert "public var debugDescription: String" in body("public enum", enum, where)


def types(*kinds: str) -> set[str]:
    found = set()
    for spec in api()["classes"].values():
        for m in spec["swift"]:
            if "argument" in kinds:
                found |= {p["type"] for p in m.get("params", ())}
                found |= {m["type"]} if m.get("settable") else set()
            if "answer" in kinds and not m.get("async"):
                found.add(m["type"] if m["kind"] == "property" else m["returns"])
    return found - {"Void"}


@pytest.mark.parametrize("type_", sorted(types("argument")))
def test_every_argument_has_a_way_to_python(type_):
    assert to_python(type_, "value").count("value")


@pytest.mark.parametrize("type_", sorted(types("answer")))
def test_every_answer_has_a_way_back(type_):
    assert from_python(type_, "p").count("p")


def test_an_unknown_type_is_not_taken():
    for convert in (to_python, from_python):
        with pytest.raises(LookupError, match="no conversion for the Swift type MLCFuture"):
            convert("MLCFuture", "value")


def test_labels_that_python_reserves_are_spelled_as_mlc_torch_does():
    tuples = re.search(r"^let labelTable: .*$", TEXT, re.MULTILINE)[0]
    assert '["with_", "source"]' in tuples and '"for_"' in tuples and '"with"' not in tuples
