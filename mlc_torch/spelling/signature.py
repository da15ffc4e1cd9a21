"""Reads a member's declaration, written as Swift writes it, into data.

``"node(with layer: MLCLayer, source: MLCTensor) -> MLCTensor?"`` holds everything that the Swift call, the stubs, the
documentation and the coverage report need: labels, Python parameter names, types, defaults and what may be nil.
"""

from __future__ import annotations

import keyword
import re
from dataclasses import dataclass, replace


def split_top(text: str, separator: str = ",") -> list[str]:
    """``text`` cut at separators that stand outside every bracket."""
    parts, depth, start = [], 0, 0
    for i, c in enumerate(text):
        if c in "([{<":
            depth += 1
        elif c in ")]}" or (c == ">" and text[i - 1] != "-"):
            depth -= 1
        elif c == separator and depth == 0:
            parts.append(text[start:i].strip())
            start = i + 1
    tail = text[start:].strip()
    return [*parts, tail] if tail else parts


@dataclass(frozen=True, slots=True)
class Param:
    """One argument: Swift's label, the name of the Python parameter it fills, its Swift type, its default as text."""

    label: str
    name: str
    type: str
    default: str | None = None

    @property
    def keyword(self) -> str:
        """The label as a Python keyword argument: reserved words take a trailing underscore."""
        return self.label + "_" if keyword.iskeyword(self.label) else self.label

    @property
    def may_be_positional(self) -> bool:
        return self.label in ("_", "with", "for")


@dataclass(frozen=True, slots=True)
class Signature:
    """One initializer or method as Swift declares it (or, with ``swift`` false, as only Objective-C has it)."""

    name: str
    params: tuple[Param, ...]
    returns: str
    static: bool = False
    is_async: bool = False
    swift: bool = True

    @property
    def is_init(self) -> bool:
        return self.name == "init"

    @property
    def failable(self) -> bool:
        return self.returns.endswith("?")

    @property
    def keywords(self) -> tuple[str, ...]:
        return tuple(p.keyword for p in self.params)

    @property
    def required(self) -> frozenset[str]:
        return frozenset(p.keyword for p in self.params if p.default is None)

    @property
    def called(self) -> str:
        """The name that Python calls: ``async`` overloads have the suffix ``Async``."""
        return f"{self.name}Async" if self.is_async else self.name

    @property
    def labels(self) -> str:
        """The name that Python calls with Swift's labels: ``node(with:source:)``."""
        return f"{self.called}({''.join(p.label + ':' for p in self.params)})"

    @property
    def here(self) -> str:
        """The signature by the name that Python calls."""
        return str(replace(self, name=self.called))

    def __str__(self) -> str:
        params = ", ".join(
            (p.label if p.label == p.name else f"{p.label} {p.name}")
            + f": {p.type}"
            + (f" = {p.default}" if p.default is not None else "")
            for p in self.params
        )
        prefix = ("static " if self.static else "") + ("async " if self.is_async else "")
        if self.is_init:
            return f"{prefix}init{'?' if self.failable else ''}({params})"
        return f"{prefix}{self.name}({params})" + ("" if self.returns == "Void" else f" -> {self.returns}")


_HEAD = re.compile(r"^(?P<flags>(?:(?:static|async)\s+)*)(?P<name>\w+)(?P<failable>\?)?\((?P<params>.*)$", re.DOTALL)


def _param(text: str) -> Param:
    head, _, rest = text.partition(":")
    label, *name = head.split()
    type_, _, default = (piece.strip() for piece in rest.partition(" = "))
    return Param(label, name[0] if name else label, type_, default or None)


def _closing(body: str) -> int | None:
    """Where the bracket that stands before ``body`` is closed."""
    depth = 1
    for i, c in enumerate(body):
        depth += (c in "([") - (c in ")]")
        if depth == 0:
            return i
    return None


def parse(text: str) -> Signature:
    """Reads ``"init?(shape: [Int])"`` or ``"static log(…) -> Self"``."""
    found = _HEAD.match(text.strip())
    if not found:
        raise ValueError(f"not a Swift declaration: {text!r}")
    body = found["params"]
    end = _closing(body)
    if end is None:
        raise ValueError(f"unbalanced brackets in {text!r}")
    returns = body[end + 1 :].strip().removeprefix("->").strip()
    if found["name"] == "init":
        returns = "Self?" if found["failable"] else "Self"
    flags = found["flags"].split()
    return Signature(
        found["name"],
        tuple(_param(p) for p in split_top(body[:end])),
        returns or "Void",
        static="static" in flags,
        is_async="async" in flags,
    )


def parse_selector(text: str) -> tuple[Signature, str]:
    """Reads a member that only Objective-C has: ``"+ layerWithA: Int, b: Int -> Self"``; gives its selector too."""
    sign, rest = text[0], text[1:].strip()
    if sign not in "+-":
        raise ValueError(f"an Objective-C declaration starts with + or -: {text!r}")
    head, _, returns = rest.rpartition(" -> ")
    pieces = [tuple(part.strip() for part in piece.split(":", 1)) for piece in split_top(head or rest)]
    selector = "".join(f"{piece[0]}:" for piece in pieces) if len(pieces[0]) == 2 else pieces[0][0]
    # The first keyword of a selector carries the member's own name, so the Python parameter is what follows "With".
    params = tuple(
        Param(label, _first_name(label) if i == 0 else label, rest[0])
        for i, (label, *rest) in enumerate(pieces)
        if rest
    )
    return Signature(
        selector.split(":")[0], params, returns if head else "Void", static=sign == "+", swift=False
    ), selector


def _first_name(keyword_: str) -> str:
    noun = keyword_.rpartition("With")[2] or keyword_
    return noun[0].lower() + noun[1:]


def selector_name(selector: str) -> str:
    """PyObjC's spelling of a selector."""
    return selector.replace(":", "_")
