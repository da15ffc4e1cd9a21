"""Labels that programs may give, and that break what takes them for names, for lines or for text."""

from __future__ import annotations

import builtins
import keyword

AWKWARD = {
    "keyword": "class",
    "constant": "None",
    "self": "self",
    "builtin": "print",
    "read by code": "getattr",
    "module": "torch",
    "member": "forward",
    "own member": "inputs",
    "private member": "_modules",
    "dunder": "__init__",
    "number": "0",
    "infinity": "inf",
    "operation": "linear",
    "weights": "dense.weights",
    "empty": "",
    "space": " ",
    "underscores": "___",
    "quotes": "a\"b'c`d",
    "backslash": "a\\nb\\",
    "percent": "%s %d {0} {x!r}",
    "markup": "<b>&amp;</b>]]>--",
    "path": "../../a/b",
    "line break": "a\nWARNING mlc_torch: refused: everything",
    "carriage return": "a\r\nb",
    "separator": "a\u2028b\u2029c\x85d",
    "escape": "\x1b[31mred\x1b[0m",
    "null": "a\0b",
    "half a character": "\ud800",
    "other half": "a\udfffb",
    "emoji": "🧪👩\u200d🔬",
    "accents": "é\u0301ü",
    "other digits": "０１",
    "ligature": "ﬁne",
    "bidi": "\u202eabc\u2066d",
    "right to left": "שלום",
    "long": "a" * 10_000,
    "long and broken": "a\n" * 5_000,
}

EVERY_WORD = sorted({*keyword.kwlist, *keyword.softkwlist, *dir(builtins)})
"""Python's own."""

LINE_BREAKERS = "\n\r\x0b\x0c\x1c\x1d\x1e\x85\u2028\u2029"
MARKS_OF_DIRECTION = "\u061c\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069"
