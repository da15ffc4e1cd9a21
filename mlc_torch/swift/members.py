"""The members of a class as Swift sees them: those of the list, and those that only the first SDKs had."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from mlc_torch.coverage.api import api


@dataclass(frozen=True)
class Parameter:
    label: str
    """``_`` where a caller writes none."""
    name: str
    type: str
    default: str | None = None


@dataclass(frozen=True)
class Member:
    owner: str
    kind: str
    """``init``, ``method`` or ``property``."""
    name: str
    type: str
    """What a property holds or a method gives."""
    parameters: tuple[Parameter, ...] = field(default=())
    static: bool = False
    settable: bool = False
    failable: bool = False
    is_async: bool = False

    @property
    def swift_name(self) -> str:
        """As Apple's documentation writes it: ``MLCGraph.node(with:source:)``."""
        if self.kind == "property":
            return f"{self.owner}.{self.name}"
        labels = "".join(f"{p.label}:" for p in self.parameters)
        return f"{self.owner}({labels})" if self.kind == "init" else f"{self.owner}.{self.name}({labels})"


def members(owner: str) -> Iterator[Member]:
    """Every member that ``owner`` itself declares."""
    for entry in api()["classes"][owner]["swift"]:
        yield _member(owner, entry)
    for old in api()["legacy"].get(owner, []):
        if "swift" in old:
            yield _legacy(owner, old["swift"])


def _member(owner: str, entry: dict[str, Any]) -> Member:
    return Member(
        owner,
        entry["kind"],
        entry["name"],
        entry["type"] if entry["kind"] == "property" else entry["returns"],
        tuple(Parameter(p["label"] or "_", p["name"], p["type"], p.get("default")) for p in entry.get("params", ())),
        static=bool(entry.get("static")),
        settable=bool(entry.get("settable")),
        failable=bool(entry.get("failable")),
        is_async=bool(entry.get("async")),
    )


def _legacy(owner: str, spelling: str) -> Member:
    """An initializer of which only the labels are listed. Its twin, which took its place, has the types."""
    labels = re.findall(r"(\w+):", spelling)
    twins = [_member(owner, e) for e in api()["classes"][owner]["swift"] if e["kind"] == "init"]
    for twin in twins:
        # Today's form has one more parameter, dataType, or spells one label better (usesNestrovMomentum).
        ours = [p for p in twin.parameters if p.label != "dataType"]
        if len(ours) == len(labels) and all(_same(a, p.label) for a, p in zip(labels, ours, strict=True)):
            parameters = tuple(Parameter(a, p.name, p.type, p.default) for a, p in zip(labels, ours, strict=True))
            return Member(owner, "init", "init", twin.type, parameters, failable=twin.failable)
    raise LookupError(f"{owner}.{spelling} has no twin among today's initializers")


def _same(a: str, b: str) -> bool:
    return a == b or difflib.SequenceMatcher(a=a, b=b).ratio() > 0.95
