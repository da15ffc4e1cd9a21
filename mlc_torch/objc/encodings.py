"""How Objective-C writes down the types of a member, and PyObjC's ``__metadata__()`` made from them.

Everything comes from the declaration: ``Bool`` is ``Z``, an object is ``@``, a block is ``@?`` with its own arguments. Only
where Swift has one word for what Objective-C tells apart is there a table.
"""

from __future__ import annotations

import functools
from typing import Any

from mlc_torch.coverage.api import api
from mlc_torch.spelling.signature import Param, split_top

BOOL, INTEGER, UNSIGNED, ENUMERATION, FLOAT, DOUBLE = b"Z", b"q", b"Q", b"i", b"f", b"d"
OBJECT, BLOCK, POINTER, SELECTOR, CLASS, VOID = b"@", b"@?", b"^v", b":", b"#", b"v"
IN, OUT = b"n", b"o"

_PLAIN = {
    "Bool": BOOL,
    "Int": UNSIGNED,
    "Float": FLOAT,
    "TimeInterval": DOUBLE,
    "Void": VOID,
    "UnsafeMutableRawPointer": POINTER,
    "UnsafeRawPointer": POINTER,
    "Selector": SELECTOR,
    "AnyClass": CLASS,
    "MLCLSTMResultMode": UNSIGNED,  # the one enumeration of 64 bits
}

_INT_BY_NAME = {
    # Swift's Int is NSUInteger nearly everywhere; these count below zero,
    "axis": INTEGER,
    "bias": INTEGER,
    # and the sizes of an embedding are NSNumbers (evidence.md, section C).
    "embeddingCount": OBJECT,
    "embeddingDimension": OBJECT,
}


@functools.cache
def encoding(type_: str) -> bytes:
    """The type code of a Swift type; what may be nil is an object, numbers included."""
    if "->" in type_ or type_.removesuffix("?") in api()["typealiases"]:
        return BLOCK
    if type_ in _PLAIN:
        return _PLAIN[type_]
    if type_ in api()["option_sets"]:
        return UNSIGNED
    return ENUMERATION if type_ in api()["enums"] else OBJECT


def metadata(selector: str, params: tuple[Param, ...], returns: str, *, of_class: bool) -> dict[str, Any]:
    """What ``__metadata__()`` of a selector gives: its result and its arguments, the two hidden ones first."""
    hidden = ({"type": OBJECT}, {"type": SELECTOR})
    arguments = (*hidden, *(_argument(param, i, of_class) for i, param in enumerate(params, len(hidden))))
    result = _described(_code(selector, returns))
    if result["type"] == POINTER:
        result["c_array_of_variable_length"] = True
    return {
        "arguments": arguments,
        "classmethod": of_class,
        "full_signature": result["type"] + b"".join(a["type"] for a in arguments),
        "hidden": False,
        "retval": result,
    }


def function_metadata(types: list[str], returns: str) -> dict[str, Any]:
    """The same for a function, which has no hidden arguments."""
    arguments = tuple(_described(encoding(type_)) for type_ in types)
    result = _described(encoding(returns))
    signature = result["type"] + b"".join(a["type"] for a in arguments)
    return {"arguments": arguments, "full_signature": signature, "retval": result}


def is_out(param: Param, *, of_class: bool) -> bool:
    """Whether the member fills this memory: a method does, while a factory reads it."""
    return encoding(param.type) == POINTER and not of_class


def _code(name: str, type_: str) -> bytes:
    return _INT_BY_NAME.get(name, UNSIGNED) if type_ == "Int" else encoding(type_)


def _argument(param: Param, i: int, of_class: bool) -> dict[str, Any]:
    code = _code(param.label, param.type)
    if code == POINTER:
        # The framework always says how long a piece of memory is in the argument that follows it.
        modifier = OUT if is_out(param, of_class=of_class) else IN
        return _described(modifier + code) | {"c_array_length_in_arg": i + 1}
    found = _described(code)
    return found | {"callable": _block(param.type), "callable_retained": False} if code == BLOCK else found


def _block(type_: str) -> dict[str, Any]:
    """The signature of a block: itself, then what it is called with."""
    name = type_.removesuffix("?")
    text = api()["typealiases"].get(name, name).removeprefix("@escaping").strip()
    given, _, returns = text.rpartition("->")
    codes = [encoding(part) for part in split_top(given.strip()[1:-1])]
    arguments = [_described(POINTER)]
    for i, code in enumerate(codes, 1):
        arguments.append(
            _described(IN + code) | {"c_array_length_in_arg": i + 1} if code == POINTER else _described(code)
        )
    return {"arguments": tuple(arguments), "retval": _described(encoding(returns.strip()))}


def _described(code: bytes) -> dict[str, Any]:
    return {"null_accepted": True, "type": code} if code.endswith(POINTER) else {"type": code}
