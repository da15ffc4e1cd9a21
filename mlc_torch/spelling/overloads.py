"""Choosing among the members of one Swift name by the labels that were written.

The rule: *required ⊆ given ⊆ all labels, fewest labels wins*. No two members of the framework are ambiguous under it,
and two of ours that were would fail when their class is made.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable
from typing import Any

from mlc_torch.spelling.declaration import Declaration
from mlc_torch.spelling.door import Door, make_door

_REMEMBERED = 256
"""How many spellings of one name (orders of keywords) are remembered."""


class Overloads:
    """All members of one class that share a Swift name."""

    def __init__(self, owner: str, name: str, declarations: list[Declaration]) -> None:
        self.owner, self.name = owner, name
        self.declarations = declarations
        self.doors: dict[tuple[int, tuple[str, ...]], Door] = {}
        seen: dict[frozenset[str], Declaration] = {}
        for declaration in declarations:
            labels = frozenset(declaration.signature.keywords)
            if labels in seen:
                raise TypeError(
                    f"{owner}: {declaration.signature.labels} is declared twice "
                    f"({seen[labels].selector} and {declaration.selector})"
                )
            seen[labels] = declaration

    def __call__(self, target: Any, args: tuple[Any, ...], given: dict[str, Any]) -> Any:
        key = (len(args), tuple(given))
        door = self.doors.get(key)
        if door is None:
            door = self._door(*key)
            if len(self.doors) < _REMEMBERED:
                self.doors[key] = door
        return door(target, args, given)

    def fit(self, count: int, keywords: tuple[str, ...]) -> list[tuple[Declaration, tuple[str, ...]]]:
        """The members that can be called so, each with the labels that its unlabelled arguments fill."""
        fits = []
        for declaration in self.declarations:
            positional = positional_keywords(declaration, count)
            if positional is None:
                continue
            given = {*positional, *keywords}
            if len(given) != count + len(keywords):
                continue
            signature = declaration.signature
            if signature.required <= given <= set(signature.keywords):
                fits.append((declaration, positional))
        return fits

    def _door(self, count: int, keywords: tuple[str, ...]) -> Door:
        fits = self.fit(count, keywords)
        if not fits:
            raise TypeError(self._no_such(count, keywords))
        declaration, positional = min(fits, key=lambda fit: len(fit[0].signature.params))
        return make_door(declaration, positional, keywords)

    def _no_such(self, count: int, keywords: tuple[str, ...]) -> str:
        given = ", ".join(["(unlabelled)"] * count + [f"{k}=" for k in keywords])
        spellings = dict.fromkeys(spell_call(d) for d in self.declarations)
        lines = "".join(f"\n  {self.title}{spelling}" for spelling in spellings)
        closest = self._closest(count, keywords)
        hint = f"\nclosest: {self.title}{spell_call(closest)}" if closest.signature.params else ""
        return f"{self.title}({given}) does not exist. There is:{lines}{hint}"

    def _closest(self, count: int, keywords: tuple[str, ...]) -> Declaration:
        """By the labels; where none were written, by the number of arguments."""
        if not keywords:
            return min(self.declarations, key=lambda d: abs(len(d.signature.params) - count))
        known = {", ".join(d.signature.keywords): d for d in self.declarations}
        return known[difflib.get_close_matches(", ".join(keywords), known, 1, 0.0)[0]]

    @property
    def title(self) -> str:
        return self.owner if self.name == "init" else f"{self.owner}.{self.name}"


def positional_keywords(declaration: Declaration, count: int) -> tuple[str, ...] | None:
    """The labels that ``count`` unlabelled arguments fill, or ``None`` where Swift would want labels."""
    params = declaration.signature.params[:count]
    if len(params) < count or not all(p.may_be_positional for p in params):
        return None
    return tuple(p.keyword for p in params)


def spell_call(declaration: Declaration) -> str:
    """The call as Python writes it: ``(with_, source=)``, optional labels in brackets."""
    parts = []
    for i, p in enumerate(declaration.signature.params):
        text = (p.name if p.label == "_" else p.keyword) if i == 0 and p.may_be_positional else f"{p.keyword}="
        parts.append(text if p.default is None else f"[{text}]")
    return f"({', '.join(parts)})"


def swift_method(overloads: Overloads) -> Callable[..., Any]:
    """The function that a class carries under the Swift name."""
    name, doors = overloads.name, overloads.doors

    def call(target: Any, /, *args: Any, **given: Any) -> Any:
        door = doors.get((len(args), tuple(given)))
        return overloads(target, args, given) if door is None else door(target, args, given)

    call.__name__ = name
    call.__qualname__ = f"{overloads.owner}.{name}"
    call.__doc__ = documentation(overloads.declarations)
    return call


def documentation(declarations: list[Declaration]) -> str:
    """What ``help()`` shows: the implementation's own words, then every spelling."""
    words = []
    for d in declarations:
        text = (d.function.__doc__ or "").strip()
        if text and text not in words:
            words.append(text)
    spellings = "\n".join(
        f"    {d.signature}" + (f"\n        {d.selector}" if d.selector else "") for d in declarations
    )
    return "\n\n".join([*words, "Spellings:\n" + spellings])
