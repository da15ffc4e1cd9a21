"""Holds every entry of the API list against what is declared, in Swift's spelling and in Objective-C's.

An entry is there when its labels, types, defaults, return type and mutability are those of the list; one that differs
counts as missing, with the difference as the reason.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from mlc_torch import objc
from mlc_torch.coverage.api import api, constants, group
from mlc_torch.enums.functions import FUNCTIONS
from mlc_torch.objc.members import class_members, object_members
from mlc_torch.spelling import CLASSES, static_prop
from mlc_torch.spelling.declaration import Declaration
from mlc_torch.spelling.signature import selector_name


@dataclass(frozen=True, slots=True)
class Entry:
    """One name of the API in one spelling, and what is wrong with it here."""

    owner: str
    spelling: str
    """``swift`` or ``objc``."""
    name: str
    missing: str | None = None
    """Why it does not count; ``None`` when it is there."""

    @property
    def group(self) -> str:
        return group(self.owner)


def entries() -> list[Entry]:
    """Every name of the API list, in the order of the list."""
    found = [entry for name, listed in api()["classes"].items() for entry in _class(name, listed)]
    for kind in ("enums", "option_sets"):
        found += [entry for name, cases in api()[kind].items() for entry in _enumeration(name, cases)]
    for name in api()["functions"]:
        found.append(Entry(name, "objc", f"{name}()", None if name in FUNCTIONS else "not there"))
    package = sys.modules["mlc_torch"]
    for name in api()["typealiases"]:
        found.append(Entry(name, "swift", name, None if hasattr(package, name) else "mlc_torch does not export it"))
    return found


# Classes


def _class(name: str, listed: dict[str, Any]) -> Iterator[Entry]:
    cls = CLASSES.get(name)
    yield Entry(name, "swift", name, _wrong_superclass(cls, listed["superclass"]))
    for member in listed["swift"]:
        check = _property if member["kind"] == "property" else _method
        yield from check(name, cls, member)
    for member in listed["objc_only"]:
        yield _selector(name, cls, member["selector"], of_class=not member["instance"])
    for member in api()["legacy"].get(name, []):
        yield from _legacy(name, cls, member)


def _wrong_superclass(cls: type | None, superclass: str | None) -> str | None:
    if cls is None:
        return "the class is missing"
    if superclass is not None and superclass not in [base.__name__ for base in cls.__mro__]:
        return f"it should be a {superclass}"
    return None


def _method(owner: str, cls: Any, member: dict[str, Any]) -> Iterator[Entry]:
    swift_name = member["name"] + ("Async" if member.get("async") else "")
    labels = [p["label"] for p in member["params"]]
    shown = f"{swift_name}({''.join(f'{label}:' for label in labels)})"
    declared = _declared(cls, swift_name, labels)
    yield Entry(owner, "swift", shown, _difference(cls, declared, member))
    of_class = member["kind"] == "init" or bool(member.get("static"))
    for selector in member.get("objc", []):
        if declared is not None and declared.selector != selector and selector not in _selectors(cls):
            yield Entry(owner, "objc", selector, f"{shown} is declared with the selector {declared.selector}")
        else:
            yield _selector(owner, cls, selector, of_class=of_class)


def _declared(cls: Any, name: str, labels: list[str]) -> Declaration | None:
    known = [] if cls is None else cls.__declared__.get(name, [])
    return next((d for d in known if [p.label for p in d.signature.params] == labels), None)


def _selectors(cls: Any) -> set[str | None]:
    return {d.selector for declarations in cls.__declared__.values() for d in declarations}


def _difference(cls: Any, declared: Declaration | None, member: dict[str, Any]) -> str | None:
    """What a declaration says otherwise than the list, or ``None``."""
    if cls is None:
        return "the class is missing"
    if declared is None:
        return "not there"
    ours = declared.signature
    pairs = [("returns", ours.returns, member["returns"]), ("static", ours.static, bool(member.get("static")))]
    for p, listed in zip(ours.params, member["params"], strict=True):
        pairs.append((f"the type of {p.label}", p.type, listed["type"]))
        pairs.append((f"the default of {p.label}", p.default, listed.get("default")))
    if declared.ours:
        return "declared as ours"
    return _differences(pairs)


def _property(owner: str, cls: Any, member: dict[str, Any]) -> Iterator[Entry]:
    name, static = member["name"], bool(member.get("static"))
    p = None if cls is None else cls.__properties__.get(name)
    wrong: str | None
    if p is None or not p.swift:
        wrong = "the class is missing" if cls is None else "not there"
    else:
        wrong = _differences(
            [
                ("the type", p.type, member["type"]),
                ("settable", p.settable, bool(member.get("settable"))),
                ("static", isinstance(p, static_prop), static),
            ]
        )
    yield Entry(owner, "swift", name, wrong)
    listed = member.get("objc", [])
    for selector in listed:
        yield _selector(owner, cls, selector, of_class=static)
    if not listed and p is not None and p.objc:
        yield Entry(owner, "objc", name, "Objective-C has no such property, and here it has")


def _differences(pairs: list[tuple[str, Any, Any]]) -> str | None:
    found = [f"{what}: {ours} here, {listed} in the list" for what, ours, listed in pairs if ours != listed]
    return "; ".join(found) or None


def _selector(owner: str, cls: Any, selector: str, *, of_class: bool) -> Entry:
    shown = f"{'+' if of_class else '-'} {selector}"
    if cls is None:
        return Entry(owner, "objc", shown, "the class is missing")
    if selector == "init":
        there = cls.__initializers__ is not None and bool(cls.__initializers__.fit(0, ()))
    else:
        table = class_members(cls) if of_class else object_members(cls)
        there = selector_name(selector) in table
    return Entry(owner, "objc", shown, None if there else "not there")


def _legacy(owner: str, cls: Any, member: dict[str, Any]) -> Iterator[Entry]:
    if "swift" in member:
        there = cls is not None and any(d.signature.labels == member["swift"] for d in cls.__declared__.get("init", []))
        yield Entry(owner, "swift", member["swift"], None if there else "not there (a member of the first SDKs)")
    yield _selector(owner, cls, member["objc"], of_class=True)


# Enumerations


def _enumeration(name: str, cases: dict[str, Any]) -> Iterator[Entry]:
    cls: Any = CLASSES.get(name)
    carries_values = hasattr(cls, "cases")
    for constant, case in cases.items():
        if case["swift"] is not None:
            yield Entry(name, "swift", case["swift"], _wrong_case(cls, case))
        known = constants().get(constant)
        shown = getattr(objc, constant, None)
        yield Entry(name, "objc", constant, None if type(shown) is int and shown == known else f"is {shown!r}")
    if not carries_values:
        first = next(case["raw"] for case in cases.values() if case["swift"] is not None)
        works = cls is not None and cls(rawValue=first).rawValue == first
        yield Entry(name, "swift", "init(rawValue:)", None if works else "not there")
    if f"{name}DebugDescription" in api()["functions"]:
        yield Entry(name, "swift", "debugDescription", None if hasattr(cls, "debugDescription") else "not there")


def _wrong_case(cls: Any, case: dict[str, Any]) -> str | None:
    if cls is None:
        return "the enumeration is missing"
    if hasattr(cls, "cases"):
        name, _, labels = case["swift"].rstrip(":)").partition("(")
        return None if cls.cases.get(case["raw"]) == name and _carries(cls, name, labels) else "not there"
    member = cls.__members__.get(case["swift"])
    if member is None:
        return "not there"
    return None if int(member) == case["raw"] else f"raw value: {int(member)} here, {case['raw']} in the list"


def _carries(cls: Any, name: str, labels: str) -> bool:
    """Whether the case takes the values that its Swift name asks for: ``sized(y:x:)``."""
    case = getattr(cls, name)
    return not labels or list(inspect.signature(case).parameters) == labels.split(":")
