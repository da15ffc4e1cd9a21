"""Labels are free text; what people read stands on one line and holds nothing that a terminal or a parser obeys."""

from __future__ import annotations

_JOINER = "\u200d"  # of emoji; it has no width, and nothing changes its direction by it


def printable(text: str, longest: int | None = None) -> str:
    """``text`` with line breaks, marks of direction and whatever else has no shape written out (``\\n``, ``\\u202e``).

    What goes over ``longest`` characters is cut off.
    """
    if not text.isprintable():
        text = "".join(c if c.isprintable() or c == _JOINER else c.encode("unicode_escape").decode() for c in text)
    return text if longest is None or len(text) <= longest else f"{text[: longest - 1]}…"
