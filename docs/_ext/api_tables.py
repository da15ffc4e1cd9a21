"""The API tables as Markdown, read from the declarations: nothing here is written by hand."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterable, Iterator
from typing import Any

import mlc_torch
from mlc_torch import interop, testing
from mlc_torch.coverage.ours import FOR_USERS
from mlc_torch.enums.descriptions import DEBUG_DESCRIPTIONS
from mlc_torch.enums.functions import FUNCTIONS
from mlc_torch.enums.kinds import MLCEnum, MLCOptionSet
from mlc_torch.spelling import CLASSES, MLCObject, static_prop
from mlc_torch.spelling.members import Declaration
from mlc_torch.spelling.signature import selector_name

GROUPS: dict[str, tuple[str, ...]] = {
    "Graphs": ("Graph",),
    "Tensors": ("MLCTensor",),
    "Devices": ("MLCDevice", "MLCPlatform"),
    "Layers": ("Layer",),
    "Optimizers": ("Optimizer",),
    "Descriptors": ("Descriptor",),
}
"""Heading, and how a class's name begins or ends that stands below it."""


def api_markdown() -> str:
    parts = []
    for title in GROUPS:
        parts.append(f"## {title}")
        parts += [_class(cls) for cls in public_classes() if group_of(cls.__name__) == title]
    parts += ["## Enumerations", *map(_enumeration, enumerations())]
    parts += ["## Functions", _functions()]
    parts += ["## Ours", _ours()]
    return "\n\n".join(parts)


def public_classes() -> list[Any]:
    made = [c for n, c in CLASSES.items() if n in mlc_torch.__all__ and issubclass(c, MLCObject)]
    return sorted(made, key=lambda c: c.__name__)


def group_of(name: str) -> str:
    """``MLCTensorDescriptor`` stands with the tensors: the first group that fits counts."""
    return next(title for title, marks in GROUPS.items() if any(name.startswith(m) or name.endswith(m) for m in marks))


# Classes


def _class(cls: Any) -> str:
    base = next((b for b in cls.__mro__[1:] if b.__name__ in mlc_torch.__all__), None)
    known = {id(d) for members in (base.__declared__.values() if base else ()) for d in members}
    own = [d for members in cls.__declared__.values() for d in members if id(d) not in known]
    properties = {n: p for n, p in cls.__properties__.items() if base is None or n not in base.__properties__}
    parts = [f"### {cls.__name__}", _words((cls.__doc__ or "").partition("\n\n")[0])]
    if base is not None:
        parts.append(f"Has the members of [{base.__name__}](#{base.__name__.lower()}) too.")
    inits = [d for d in own if d.signature.is_init]
    methods = [d for d in own if not d.signature.is_init]
    if inits:
        parts.append(_table(("Python", "Swift and Objective-C", "what it does"), (_member(cls, d) for d in inits)))
    if properties:
        rows = (_property(cls, p) for p in properties.values())
        parts.append(_table(("property", "type and Objective-C", "what it holds"), rows))
    if methods:
        rows = (_member(cls, d) for d in methods)
        parts.append(_table(("Python", "Swift and Objective-C", "what it does"), rows))
    return "\n\n".join(part for part in parts if part)


def _member(cls: Any, d: Declaration) -> tuple[str, ...]:
    signature = d.signature
    swift = _code(str(signature)) if signature.swift and not d.ours else "ours" if d.ours else "not in Swift"
    spellings = f"{swift}<br>{_code(d.selector)}" if d.selector else swift
    words = _words(d.words)
    if signature.is_async:
        words += " Raises when refused."
    elif not signature.is_init:
        words += f" When refused: {_code(repr(d.on_refusal))}."
    elif signature.failable:
        words += " *Failable.*"
    return _python(cls, d), spellings, words


def _python(cls: Any, d: Declaration) -> str:
    signature = d.signature
    if not signature.swift:
        arguments = ", ".join(p.name for p in signature.params)
        owner = f"{cls.__name__}." if signature.static else "."
        return _code(f"{owner}{selector_name(d.selector or '')}({arguments})")
    if signature.is_init:
        return _code(f"{cls.__name__}{d.spelling}")
    owner = f"{cls.__name__}." if signature.static else "."
    name = signature.name + ("Async" if signature.is_async else "")
    call = f"{owner}{name}{d.spelling}"
    return _code(f"await {call.removeprefix('.')}" if signature.is_async else call)


def _property(cls: Any, p: Any) -> tuple[str, ...]:
    name = f"{cls.__name__}.{p.name}" if isinstance(p, static_prop) else p.name
    selectors = ", ".join(_code(s) for s in p.selectors) or "not in Objective-C"
    words = _words(p.about) + (" *Settable.*" if p.settable else "")
    return _code(name) if p.swift else f"{_code(name)} (not in Swift)", f"{_code(p.type)}<br>{selectors}", words


def _words(text: str) -> str:
    """A docstring's first paragraph, as a cell of a table."""
    return " ".join(text.partition("\n\n")[0].split()).replace("``", "`").replace("|", "\\|")


# Enumerations and functions

_MEANING = re.compile(r"^- ``(\w+)``: (.*)$", re.MULTILINE)
"""How the docstring of an enumeration says what a case means."""


def enumerations() -> list[Any]:
    return sorted(
        (c for n, c in CLASSES.items() if n in mlc_torch.__all__ and not issubclass(c, MLCObject)),
        key=lambda c: c.__name__,
    )


def cases(cls: Any) -> Iterator[tuple[str, int]]:
    if issubclass(cls, (MLCEnum, MLCOptionSet)):
        yield from ((member.name, member.value) for member in cls)
    else:
        yield from ((name, value) for value, name in cls.cases.items())


def _enumeration(cls: Any) -> str:
    described, text = DEBUG_DESCRIPTIONS.get(cls.__name__, {}), inspect.cleandoc(cls.__doc__ or "")
    meaning = dict(_MEANING.findall(text))
    rows = ((_code(n), str(value), described.get(value, ""), _words(meaning.get(n, ""))) for n, value in cases(cls))
    words = _words(text)
    if issubclass(cls, MLCOptionSet):
        words += " An option set: give a member, a list of members, or `[]`."
    table = _table(("case", "raw value", "debugDescription", "meaning"), rows)
    return "\n\n".join([f"### {cls.__name__}", words, table])


def _functions() -> str:
    rows = ((_code(f"{name}(value)"), (f.__doc__ or "").replace("``", "`")) for name, f in sorted(FUNCTIONS.items()))
    return _table(("function", ""), rows)


# Our own additions

_ATTRIBUTES = {"torch_device": "Where torch computes."}
"""Attributes that an instance has and its class does not, and which therefore cannot say what they are."""


def _ours() -> str:
    rows = []
    for owner, names in FOR_USERS.items():
        title = "inference and training graphs" if owner == "ExecutableGraph" else _code(owner)
        cls = CLASSES[owner]
        for name in sorted(names):
            found = inspect.getattr_static(cls, name, None)
            rows.append((title, _code(_call(cls, name)), _ATTRIBUTES.get(name) or _first_line(found)))
    for module in (mlc_torch, interop, testing):
        names = [n for n in module.__all__ if not n.startswith("MLC")] if module is mlc_torch else module.__all__
        title = _code(module.__name__)
        rows += [(title, _code(_called(n, getattr(module, n))), _first_line(getattr(module, n))) for n in sorted(names)]
    return _table(("where", "what", ""), rows)


def _call(cls: Any, name: str) -> str:
    found = inspect.getattr_static(cls, name, None)
    if isinstance(found, (classmethod, staticmethod)):
        return f"{cls.__name__}.{_called(name, getattr(cls, name))}"
    return f".{_called(name, found)}" if inspect.isfunction(found) else f".{name}"


def _called(name: str, value: Any) -> str:
    if not inspect.isroutine(value):
        return name
    parameters = inspect.signature(value).parameters.values()
    words = [p.name if p.default is p.empty else f"[{p.name}]" for p in parameters if p.name not in ("self", "cls")]
    return f"{name}({', '.join(words)})"


def _first_line(value: Any) -> str:
    words = inspect.getdoc(value.__func__ if isinstance(value, (classmethod, staticmethod)) else value) if value else ""
    return _words(words or "").replace(":class:", "")


# Markdown


def _table(headers: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    headers = list(headers)
    lines = [headers, ["---"] * len(headers), *(list(row) for row in rows)]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _code(text: str) -> str:
    return f"`{text}`".replace("|", "\\|")
