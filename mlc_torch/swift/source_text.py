"""What can be told from the text of a Swift file without a compiler."""

from __future__ import annotations

import re
from pathlib import Path

_OPENING = re.compile(r'//[^\n]*|/\*|(?P<marks>#*)(?P<quote>"""|")|[()]')


def code(path: Path) -> str:
    """A file without its comments and strings."""
    return _code(path.read_text("utf-8", "replace"), 0)[0]


def is_marked_main(code: str) -> bool:
    """Whether a type has the attribute ``@main``."""
    return re.search(r"@main\b", code) is not None


def imports(code: str, module: str) -> bool:
    """Whether there is an ``import`` of the module, or of something in it."""
    return re.search(rf"\bimport\s+(?:\w+\s+)?{re.escape(module)}\b", code) is not None


def _code(text: str, at: int, *, inside: bool = False) -> tuple[str, int]:
    """The code from ``at`` on, and where it ends: with the file or, inside a string, with the parenthesis that closes it."""
    pieces, depth = [], 0
    while opening := _OPENING.search(text, at):
        pieces.append(text[at : opening.start()])
        at = opening.end()
        if opening[0] == "(":
            depth += 1
        elif opening[0] == ")":
            if inside and not depth:
                return " ".join(pieces), at
            depth -= 1
        elif opening[0] == "/*":
            at = _after_comment(text, at)
        elif opening["quote"]:
            at = _after_string(text, at, opening["marks"], opening["quote"])
    return " ".join([*pieces, text[at:]]), len(text)


def _after_comment(text: str, at: int) -> int:
    """Comments of this kind stand within each other."""
    depth = 1
    for found in re.compile(r"/\*|\*/").finditer(text, at):
        depth += 1 if found[0] == "/*" else -1
        if not depth:
            return found.end()
    return len(text)


def _after_string(text: str, at: int, marks: str, quote: str) -> int:
    """``#`` marks before the quote also stand behind it, and between a backslash and what it announces."""
    end_of_line = "|$" if quote == '"' else ""
    ending = re.compile(rf"\\{marks}(.)|{quote}{marks}{end_of_line}", re.DOTALL | re.MULTILINE)
    while found := ending.search(text, at):
        if found[1] is None:
            return found.end()
        at = _code(text, found.end(), inside=True)[1] if found[1] == "(" else found.end()
    return len(text)
