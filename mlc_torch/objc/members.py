"""The selectors of a class and of its objects, read from what the class declares."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from mlc_torch.objc.selectors import Member
from mlc_torch.spelling import prop, static_prop
from mlc_torch.spelling.declaration import Declaration
from mlc_torch.spelling.signature import Param, selector_name

Members = dict[str, Member]
"""By the name that PyObjC gives a selector: ``nodeWithLayer_source_``."""


@functools.cache
def class_members(cls: Any) -> Members:
    """What the class itself answers to: factories and class properties."""
    found = [_reader(p) for p in cls.__properties__.values() if isinstance(p, static_prop)]
    return {m.name: m for m in (*found, *_methods(cls, of_class=True))}


@functools.cache
def object_members(cls: Any) -> Members:
    """What its objects answer to: properties, their setters, methods."""
    found = []
    for p in cls.__properties__.values():
        if p.objc and not isinstance(p, static_prop):
            found += [_reader(p), *([_writer(p)] if p.settable else [])]
    return {m.name: m for m in (*found, *_methods(cls, of_class=False))}


@functools.cache
def selector_names(cls: Any) -> frozenset[str]:
    """Every selector of the class and of its objects."""
    return frozenset({*class_members(cls), *object_members(cls)})


def swift_only(cls: Any, name: str) -> bool:
    """Whether a name of Swift's has no selector of the same spelling."""
    declared = name in cls.__declared__ or name in cls.__properties__
    return declared and name not in selector_names(cls)


def _methods(cls: Any, *, of_class: bool) -> list[Member]:
    declared = (d for declarations in cls.__declared__.values() for d in declarations)
    # A plain "init" is what every object has after alloc().
    return [_method(d) for d in declared if d.selector and d.binds_class == of_class and d.selector != "init"]


def _method(d: Declaration) -> Member:
    name, signature = selector_name(d.selector or ""), d.signature
    swift = f"Swift: {signature}" if signature.swift else "Swift has no such member."
    return Member(
        d.selector or "",
        d.binds_class,
        signature.params,
        signature.returns,
        lambda target, *args: getattr(target, name)(*args),
        "\n\n".join(part for part in (d.selector, d.words, swift) if part),
        d,
    )


def _reader(p: prop) -> Member:
    read: Callable[[Any], Any] = (
        (lambda target: p.__get__(None, target))
        if isinstance(p, static_prop)
        else (lambda target: getattr(target, p.name))
    )
    doc = f"{p.selectors[0]}: {p.type}\n\n{p.__doc__}"
    return Member(p.selectors[0], isinstance(p, static_prop), (), p.type, read, doc, p)


def _writer(p: prop) -> Member:
    value = Param(p.name, p.name, p.type)
    doc = f"Sets {p.name}: {p.type}\n\n{p.__doc__}"
    return Member(p.selectors[1], False, (value,), "Void", lambda target, v: setattr(target, p.name, v), doc, p)
