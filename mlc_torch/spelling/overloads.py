"""Choosing among the members of one Swift name by the labels that were written.

The rule: *required ⊆ given ⊆ all labels, fewest labels wins*. No two members of the framework are ambiguous under it,
and two of ours that were would fail when their class is made.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from mlc_torch.refusals import MLCRefusal, shortened
from mlc_torch.spelling.arguments import converter
from mlc_torch.spelling.closest import likeness
from mlc_torch.spelling.declaration import Declaration
from mlc_torch.spelling.direct import direct_call, is_direct
from mlc_torch.spelling.door import Door, make_door
from mlc_torch.spelling.python_signature import swift_signature
from mlc_torch.spelling.receiver import NOBODY, expect_receiver

_REMEMBERED = 256
"""How many spellings of one name (orders of keywords) are remembered."""


class Overloads:
    """All members of one class that share a Swift name."""

    def __init__(self, owner: type, name: str, declarations: list[Declaration]) -> None:
        self.owner, self.name = owner, name
        self.declarations = declarations
        self.doors: dict[tuple[int | str, ...], Door] = {}
        """By how a call is written: its labels, behind the number of its unlabelled arguments where there are any."""
        seen: dict[frozenset[str], Declaration] = {}
        for declaration in declarations:
            labels = frozenset(declaration.signature.keywords)
            if labels in seen:
                raise TypeError(
                    f"{owner.__name__}: {declaration.signature.labels} is declared twice "
                    f"({seen[labels].selector} and {declaration.selector})"
                )
            seen[labels] = declaration

    def __call__(self, target: Any, args: tuple[Any, ...], given: dict[str, Any]) -> Any:
        key: tuple[int | str, ...] = (len(args), *given) if args else tuple(given)
        door = self.doors.get(key)
        if door is None:
            door = self._door(target, args, tuple(given))
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

    def _door(self, target: Any, args: tuple[Any, ...], keywords: tuple[str, ...]) -> Door:
        fits = self.fit(len(args), keywords)
        if not fits:
            expect_receiver(target, self.owner, self.declarations[0])
            raise TypeError(self._no_such(self.title(target), args, keywords))
        declaration, positional = min(fits, key=lambda fit: len(fit[0].signature.params))
        return make_door(declaration, positional, keywords, self.owner)

    def _no_such(self, title: str, args: tuple[Any, ...], keywords: tuple[str, ...]) -> str:
        given = ", ".join(["(unlabelled)"] * len(args) + [f"{k}=" for k in keywords])
        spellings = dict.fromkeys(d.spelling for d in self.declarations)
        lines = "".join(f"\n  {title}{spelling}" for spelling in spellings)
        closest = max(self.declarations, key=lambda d: _closeness(d, args, keywords))
        hint = f"\nclosest: {title}{closest.spelling}" if closest.signature.params else ""
        return f"{title}({given}) does not exist{_difference(closest, len(args), keywords)}. There is:{lines}{hint}"

    def title(self, target: Any) -> str:
        """The member as the program calls it: by the object's own class, not by the one that declares the member."""
        owner = target.__name__ if isinstance(target, type) else type(target).__name__
        return owner if self.name == "init" else f"{owner}.{self.name}"


def _difference(closest: Declaration, count: int, keywords: tuple[str, ...]) -> str:
    """Which labels a call has that the closest member has not, and which it lacks."""
    signature = closest.signature
    positional = positional_keywords(closest, count)
    if positional is None:
        return ""  # unlabelled arguments where labels belong: the closest spelling shows them
    unknown = [f"{k}=" for k in keywords if k not in signature.keywords]
    lacking = [f"{k}=" for k in signature.keywords if k in signature.required - {*positional, *keywords}]
    said = [f"no label {', '.join(unknown)}"] if unknown else []
    said += [f"{', '.join(lacking)} {'is' if len(lacking) == 1 else 'are'} missing"] if lacking else []
    return f" ({'; '.join(said)})" if said else ""


_MISSING = 0.3
"""What a label that a member demands, and nobody wrote, counts against one that was written rightly."""


def _closeness(declaration: Declaration, args: tuple[Any, ...], keywords: tuple[str, ...]) -> float:
    """How near a call comes to a member: labels that are there or nearly, and unlabelled values of a fitting type."""
    params = declaration.signature.params
    score, met = 0.0, set()
    for param, value in zip(params, args, strict=False):
        if _takes(param.type, value):
            score += 1
            met.add(param.keyword)
    for keyword in keywords:
        left = [p.keyword for p in params if p.keyword not in met]
        best = max(left, key=lambda label: _alike(keyword, label), default="")
        alike = _alike(keyword, best)
        if alike >= 0.6:
            score += alike
            met.add(best)
        else:
            score -= _MISSING
    return score - _MISSING * len(declaration.signature.required - met)


def _alike(keyword: str, label: str) -> float:
    """As ``likeness``; the beginning of a label is meant for it: ``fill`` for ``fillWithData``."""
    begins = len(keyword) > 2 and label.lower().startswith(keyword.lower())
    return max(likeness(keyword, label), 0.75 if begins else 0.0)


def _takes(type_: str, value: Any) -> bool:
    try:
        converter(type_)(value)
    except (TypeError, MLCRefusal):
        return False
    return True


def positional_keywords(declaration: Declaration, count: int) -> tuple[str, ...] | None:
    """The labels that ``count`` unlabelled arguments fill, or ``None`` where Swift would want labels."""
    params = declaration.signature.params[:count]
    if len(params) < count or not all(p.may_be_positional for p in params):
        return None
    return tuple(p.keyword for p in params)


def swift_method(overloads: Overloads) -> Callable[..., Any]:
    """The function that a class carries under the Swift name."""
    direct = is_direct(overloads.declarations)
    call = direct_call(overloads.declarations, overloads, overloads.owner) if direct else _looked_up(overloads)
    call.__name__ = overloads.name
    call.__qualname__ = f"{overloads.owner.__name__}.{overloads.name}"
    call.__doc__ = documentation(overloads.declarations)
    call.__signature__ = swift_signature([d.signature for d in overloads.declarations])  # type: ignore[attr-defined]
    return call


def _looked_up(overloads: Overloads) -> Callable[..., Any]:
    """Finds the door for each call by the labels that were written."""
    doors = overloads.doors

    def call(target: Any = NOBODY, /, *args: Any, **given: Any) -> Any:
        door = doors.get((len(args), *given) if args else tuple(given))
        try:
            return overloads(target, args, given) if door is None else door(target, args, given)
        except MLCRefusal as why:
            __tracebackhide__ = True
            raise shortened(why) from why.__cause__

    return call


def tell_of_async_form(method: Callable[..., Any], name: str) -> None:
    """Add to ``help()`` what to await: the plain form answers at once, and awaiting its answer can only fail."""
    method.__doc__ = f"{method.__doc__}\n\nIn a coroutine: await {name}(...)"


def documentation(declarations: list[Declaration], *words: str) -> str:
    """What ``help()`` shows: what the members do, each thing once, then every spelling."""
    said = dict.fromkeys([*words, *(d.words for d in declarations)])
    spellings = "\n".join(
        f"    {d.signature.here}" + (f"\n        {d.selector}" if d.selector else "") for d in declarations
    )
    return "\n\n".join([*filter(None, said), f"Spellings, as Swift and Objective-C write them:\n\n{spellings}"])
