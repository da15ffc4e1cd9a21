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
from mlc_torch.spelling.receiver import NOBODY
from mlc_torch.spelling.signature import Param

_DEFAULTS = {"nil": "None", "[]": "empty"}
"""Swift's defaults, as the text calls them."""


def is_direct(declarations: list[Declaration]) -> bool:
    return all(PACKING in d.function.__dict__ for d in declarations)


def direct_call(
    declarations: list[Declaration], otherwise: Door, owner: type, *, only: type | None = None
) -> Callable[..., Any]:
    """A function that takes every spelling; ``otherwise`` takes what fits none, and what is not called on ``only``."""
    declarations = sorted(declarations, key=lambda d: len(d.signature.params))
    labels = dict.fromkeys(keyword for d in declarations for keyword in d.signature.keywords)
    known: dict[str, Any] = {"otherwise": otherwise, "only": only, "shortened": shortened}
    known |= {"absent": object(), "empty": [], "nobody": NOBODY}
    lines, called = [], ["not args", "not others", *(["target is only"] if only is not None else [])]
    for number, declaration in enumerate(declarations):
        texts = {p.keyword: _text(p) for p in declaration.signature.params}
        found: list[tuple[Place, str, str]] = [(keyword, keyword, text) for keyword, text in texts.items()]
        given = ", ".join(f"{keyword!r}: {text}" for keyword, text in texts.items())
        needed = [keyword for keyword, text in texts.items() if text == keyword]
        fits = [f"{keyword} is not absent" for keyword in needed]
        fits += [f"{keyword} is absent" for keyword in labels if keyword not in texts]
        body = passing(declaration, owner, found, known, args="()", given=f"{{{given}}}", tag=f"_{number}")
        lines += [f"if {' and '.join([*fits, *called])}:", *(f"    {line}" for line in body)]
    every = ", ".join(f"({keyword!r}, {keyword})" for keyword in labels)
    lines = [
        "try:",
        *(f"    {line}" for line in lines),
        f"    given = {{label: value for label, value in ({every},) if value is not absent}}",
        "    return otherwise(target, args, given | others)",
        "except MLCRefusal as why:",
        "    __tracebackhide__ = True",
        "    raise shortened(why) from why.__cause__",
    ]
    parameters = ", ".join(f"{keyword}=absent" for keyword in labels)
    return written("call", f"target=nobody, /, *args, {parameters}, **others", lines, known)


def _text(param: Param) -> str:
    """What reads a label that was written, or gives its default."""
    default = _DEFAULTS.get(param.default or "")
    return param.keyword if default is None else f"{default} if {param.keyword} is absent else {param.keyword}"
