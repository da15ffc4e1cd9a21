"""One function for all spellings of a name, with their labels as its parameters.

Labels that a function names are handed over as they are; for all others Python makes a dictionary, and the door is looked
up by it. A small inference notices (Neoverse-N1: 1.6 of 52 µs), so what programs call for every batch is written this way:
members whose arguments become one request, and the initializers of data. What no spelling fits goes the long way, which
has the words for it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from mlc_torch.refusals import shortened
from mlc_torch.spelling.declaration import Declaration
from mlc_torch.spelling.door import PACKING, Door, Place, passing, written

_DEFAULTS = {"nil": "None", "[]": "empty"}
"""Swift's defaults, as the text calls them."""


def is_direct(declarations: list[Declaration]) -> bool:
    return all(PACKING in d.function.__dict__ for d in declarations)


def direct_call(declarations: list[Declaration], otherwise: Door, only: type | None = None) -> Callable[..., Any]:
    """A function that takes every spelling; ``otherwise`` takes what fits none, and what is not called on ``only``."""
    declarations = sorted(declarations, key=lambda d: len(d.signature.params))
    defaults = _defaults(declarations)
    known: dict[str, Any] = {"otherwise": otherwise, "only": only, "shortened": shortened}
    known |= {"absent": object(), "empty": []}
    lines, called = [], ["not args", "not others", *(["target is only"] if only is not None else [])]
    for number, declaration in enumerate(declarations):
        own = declaration.signature.keywords
        found: list[tuple[Place, str, str]] = [(keyword, keyword, keyword) for keyword in own]
        given = ", ".join(f"{keyword!r}: {keyword}" for keyword in own)
        fits = [
            f"{keyword} {'is not' if keyword in own else 'is'} absent"
            for keyword, default in defaults.items()
            if default == "absent"
        ]
        body = passing(declaration, found, known, args="()", given=f"{{{given}}}", tag=f"_{number}")
        lines += [f"if {' and '.join([*fits, *called])}:", *(f"    {line}" for line in body)]
    every = ", ".join(f"({keyword!r}, {keyword}, {default})" for keyword, default in defaults.items())
    lines = [
        "try:",
        *(f"    {line}" for line in lines),
        f"    given = {{label: value for label, value, unwritten in ({every},) if value is not unwritten}}",
        "    return otherwise(target, args, given | others)",
        "except MLCRefusal as why:",
        "    __tracebackhide__ = True",
        "    raise shortened(why) from why.__cause__",
    ]
    parameters = ", ".join(f"{keyword}={default}" for keyword, default in defaults.items())
    return written("call", f"target, /, *args, {parameters}, **others", lines, known)


def _defaults(declarations: list[Declaration]) -> dict[str, str]:
    """For each label of any of the spellings what stands for it where it is not written: the default that all give it."""
    defaults: dict[str, set[str | None]] = {}
    for declaration in declarations:
        for param in declaration.signature.params:
            defaults.setdefault(param.keyword, set()).add(param.default)
    everywhere = frozenset.intersection(*(frozenset(d.signature.keywords) for d in declarations))
    return {
        keyword: _DEFAULTS.get(str(*given), "absent") if len(given) == 1 and keyword in everywhere else "absent"
        for keyword, given in defaults.items()
    }
