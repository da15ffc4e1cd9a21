"""What an argument of a given Swift type accepts in Python, and what it becomes.

A converter takes a value and gives the value the implementation works with. Where Swift would not compile it raises a
``TypeError`` whose text says only what was expected: the door adds who asked and what came. Classes and enumerations are
looked up by name when they are first needed, so that this room knows none.
"""

from __future__ import annotations

import enum
import functools
import inspect
import math
import operator
from collections import namedtuple
from collections.abc import Callable, Iterable, Mapping, Sequence
from numbers import Integral, Real
from types import CodeType
from typing import Any

from mlc_torch.refusals import MLCRefusal, in_one_line, pass_on_signals
from mlc_torch.spelling.signature import split_top

Converter = Callable[[Any], Any]

CLASSES: dict[str, type] = {}
"""Every public class and enumeration by its Swift name, filled in as the classes are made."""

HeightWidth = namedtuple("HeightWidth", "height width")
YX = namedtuple("YX", "y x")
_TUPLES: dict[tuple[str, ...], Any] = {("height", "width"): HeightWidth, ("y", "x"): YX}

_INT_MIN, _INT_MAX, _UINT_MAX = -(2**63), 2**63 - 1, 2**64 - 1


def _is_case(value: Any) -> bool:
    """Whether it is a case of an enumeration of the framework, which in Python is a number and in Swift is none."""
    return isinstance(value, enum.Enum) and CLASSES.get(type(value).__name__) is type(value)


def to_int(value: Any) -> int:
    if type(value) is int:
        number = value
    elif isinstance(value, bool) or not isinstance(value, Integral) or _is_case(value):
        raise TypeError("Int (a whole number)")
    else:
        number = operator.index(value)
    if not _INT_MIN <= number <= _INT_MAX:
        raise TypeError("Int (a whole number of 64 bits)")
    return number


_TOO_LARGE = 2.0**128 - 2.0**103
"""What Swift's Float rounds to infinity."""


def to_float(value: Any) -> float:
    if type(value) is not float and (isinstance(value, bool) or not isinstance(value, Real) or _is_case(value)):
        raise TypeError("Float (a number)")
    try:
        number = float(value)
    except OverflowError:
        number = _TOO_LARGE
    if _TOO_LARGE <= abs(number) < math.inf:
        raise TypeError("Float (a number up to 3.4e38 in size, which 32 bits hold, or infinity)")
    return number


def is_bool(value: Any) -> bool:
    """NumPy has a bool of its own, which numpy 1 and numpy 2 name differently."""
    return type(value).__name__ in ("bool", "bool_")


def to_bool(value: Any) -> bool:
    if value is True or value is False:
        return value
    # Objective-C's BOOL is 0 or 1.
    if is_bool(value) or (isinstance(value, Integral) and value in (0, 1) and not _is_case(value)):
        return bool(value)
    raise TypeError("Bool (True or False)")


def to_string(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError("String")
    return value


def to_number(value: Any) -> int | float | bool:
    if is_bool(value):
        return bool(value)
    if isinstance(value, Integral) and not _is_case(value):
        number = operator.index(value)
        if not _INT_MIN <= number <= _UINT_MAX:
            raise TypeError("NSNumber (a whole number of 64 bits, with or without a sign)")
        return number
    if isinstance(value, Real) and not _is_case(value):
        return to_float(value)
    raise TypeError("NSNumber (a number or a bool)")


def to_callable(value: Any) -> Callable[..., Any]:
    if not callable(value):
        raise TypeError("a callable")
    return value


RUNS_NOTHING = inspect.CO_COROUTINE | inspect.CO_GENERATOR | inspect.CO_ASYNC_GENERATOR
"""Marks the code of functions of which a call only makes something that somebody else would have to run."""


def runs_nothing(function: Callable[..., Any]) -> int:
    """Which of these marks a function carries, or what is called like one."""
    while isinstance(function, functools.partial):
        function = function.func
    code = _code_of(function) or _code_of(type(function).__call__)
    if code is None and hasattr(function, "__wrapped__"):  # by functools.lru_cache, which hands on what it is given
        code = _code_of(function.__wrapped__)
    return 0 if code is None else code.co_flags & RUNS_NOTHING


def _code_of(function: Any) -> CodeType | None:
    try:
        code = function.__code__
    except Exception as error:  # noqa: BLE001 - it is the program's object, which may raise anything
        pass_on_signals(error)
        return None
    return code if isinstance(code, CodeType) else None


def to_handler(value: Any) -> Callable[..., Any]:
    marks = runs_nothing(to_callable(value))
    if marks & inspect.CO_GENERATOR:
        raise TypeError("an ordinary function (of one with yield in it, a call runs nothing)")
    if marks:
        raise TypeError(
            "an ordinary function (of an async one, a call runs nothing; await the async form instead, executeAsync for execute)"
        )
    return value


def as_it_is(value: Any) -> Any:
    return value


def to_buffer(value: Any) -> Any:
    """Which buffers serve, and why one does not, is for ``MLCTensorData`` to say; here only what is no buffer at all."""
    if not hasattr(value, "data_ptr"):  # torch's tensors do not speak the buffer protocol
        try:
            memoryview(value)
        except TypeError:
            raise TypeError("a buffer (NumPy array, torch CPU tensor, bytes, bytearray or memoryview)") from None
        except (ValueError, BufferError):
            pass
    return value


def to_data(value: Any) -> Any:
    """As it is: what it says of its elements is for whoever reads them to judge."""
    try:
        return to_buffer(value)
    except TypeError:
        raise TypeError("Data (bytes, a NumPy array or a torch tensor)") from None


def to_hardware(value: Any) -> Any:
    """A GPU as the caller names it: a ``torch.device``, ``"cuda:0"`` or an index. Only the device room knows torch."""
    if isinstance(value, str) or type(value).__name__ == "device":
        return value
    if isinstance(value, bool) or not isinstance(value, Integral):
        raise TypeError("a torch.device, its name, or an index")
    return operator.index(value)


_SIMPLE: dict[str, Converter] = {
    "Int": to_int,
    "Float": to_float,
    "Bool": to_bool,
    "String": to_string,
    "NSNumber": to_number,
    "Data": to_data,
    "UnsafeMutableRawPointer": to_buffer,
    "UnsafeRawPointer": to_buffer,
    "MLCGraphCompletionHandler": to_handler,
    "any MTLDevice": to_hardware,
    "Any": as_it_is,
}


def _optional(inner: Converter) -> Converter:
    return lambda value: None if value is None else inner(value)


def is_list(value: Any) -> bool:
    """Lists, tuples and arrays of one dimension or more."""
    if isinstance(value, (str, bytes, Mapping)) or getattr(value, "_is_no_list", False):
        return False
    return isinstance(value, Sequence) or bool(
        hasattr(value, "__len__") and hasattr(value, "__getitem__") and getattr(value, "ndim", 1)
    )


def _entries(value: Any, expected: str) -> list[Any]:
    """What stands in a list. A nested torch tensor is one and has no length."""
    try:
        if is_list(value):
            return list(value)
    except Exception as error:  # noqa: BLE001 - it is the program's class, which may raise anything
        pass_on_signals(error)
        expected += f"; to read this one raised {in_one_line(error)}"
    raise TypeError(f"{expected})")


def _pairs(value: Any, expected: str) -> dict[Any, Any]:
    """The same for a dictionary."""
    try:
        if isinstance(value, Mapping):
            return dict(value.items())
    except Exception as error:  # noqa: BLE001 - it is the program's class, which may raise anything
        pass_on_signals(error)
        expected += f"; to read this one raised {in_one_line(error)}"
    raise TypeError(f"{expected})")


def _misfit(inner: Converter, entries: Iterable[tuple[Any, Any]]) -> str:
    """The words for the first entry of a list or dictionary that its converter does not take."""
    for place, item in entries:
        try:
            inner(item)
        except TypeError as expected:
            return f"entry {place!r} must be {expected}, it is {describe(item)}"
    raise AssertionError("every entry fits")


def _refused(inner: Converter, entries: Iterable[tuple[Any, Any]]) -> MLCRefusal:
    """The refusal of the first entry that is of the right type and cannot be taken, an array that is not contiguous say."""
    for place, item in entries:
        try:
            inner(item)
        except MLCRefusal as why:
            return MLCRefusal(f"entry {place!r}: {why.reason}")
    raise AssertionError("every entry is taken")


def _array(inner: Converter, type_: str) -> Converter:
    def convert(value: Any) -> list[Any]:
        entries = value if type(value) is list else _entries(value, f"{type_} (a list")
        try:
            return [inner(item) for item in entries]
        except TypeError:
            raise TypeError(f"{type_} ({_misfit(inner, enumerate(entries))})") from None
        except MLCRefusal:
            raise _refused(inner, enumerate(entries)) from None

    return convert


def _dictionary(inner: Converter, type_: str) -> Converter:
    def convert(value: Any) -> dict[str, Any]:
        pairs = value if type(value) is dict else _pairs(value, f"{type_} (a dictionary")
        for key in pairs:
            if not isinstance(key, str):
                raise TypeError(f"{type_} (with names as keys, not {describe(key)})")
        try:
            return {key: inner(item) for key, item in pairs.items()}
        except TypeError:
            raise TypeError(f"{type_} ({_misfit(inner, pairs.items())})") from None
        except MLCRefusal:
            raise _refused(inner, pairs.items()) from None

    return convert


def _tuple(fields: tuple[str, ...], type_: str) -> Converter:
    made = _TUPLES[fields]

    def convert(value: Any) -> Any:
        entries = _entries(value, f"{type_} (a pair")
        if len(entries) != len(fields):
            raise TypeError(f"{type_} (a pair)")
        try:
            return made(*map(to_int, entries))
        except TypeError:
            raise TypeError(f"{type_} ({_misfit(to_int, zip(fields, entries, strict=True))})") from None

    return convert


def _named(name: str) -> Converter:
    """An instance of one of our classes; an enumeration converts by itself, since it also takes raw values."""

    def convert(value: Any) -> Any:
        try:
            cls = CLASSES[name]
        except KeyError:
            raise LookupError(
                f"{name!r}, in a declaration, is no Swift type that spelling/arguments.py knows"
            ) from None
        if type(value) is cls:
            return value
        coerce = getattr(cls, "_coerce", None)
        if coerce is not None:
            return coerce(value)
        if not isinstance(value, cls):
            meant = getattr(cls, "_meant_by", None)
            if isinstance(value, type) and issubclass(value, cls):
                raise TypeError(f"{name} (an object, not the class {value.__name__} itself)")
            other_spelling = getattr(type(value), "_as_argument", "")
            raise TypeError(f"{name}{other_spelling or (meant(value) if meant is not None else '')}")
        return value

    return convert


@functools.cache
def converter(type_: str) -> Converter:
    """The converter for a Swift type such as ``[String : MLCTensor]?``."""
    if type_.endswith("?"):
        return _optional(converter(type_[:-1]))
    if type_ in _SIMPLE:
        return _SIMPLE[type_]
    if type_.startswith("["):
        key_value = split_top(type_[1:-1], ":")
        if len(key_value) == 2:
            return _dictionary(converter(key_value[1]), type_)
        return _array(converter(type_[1:-1]), type_)
    if "->" in type_:
        return to_callable
    if type_.startswith("("):
        return _tuple(tuple(field.split(":")[0].strip() for field in split_top(type_[1:-1])), type_)
    return _named(type_)


def _is_tensor_of_ours(value: Any) -> bool:
    """In either spelling: its repr says more than its shape."""
    return hasattr(value, "_cell") or hasattr(type(value), "_as_argument")


def describe(value: Any) -> str:
    """A value as error messages show it: short, and with its type."""
    try:
        return f"{_in_words(value)} ({type(value).__name__})"
    except Exception as error:  # noqa: BLE001 - a mistake of the program's class, which must not hide the one that is told
        pass_on_signals(error)
        return f"an object of {type(value).__name__}"


def _in_words(value: Any) -> str:
    """Of an array the shape says more than the first numbers."""
    try:
        shape = getattr(value, "shape", None)
    except RuntimeError:  # of a nested torch tensor
        shape = None
    if isinstance(shape, tuple) and hasattr(value, "dtype") and not _is_tensor_of_ours(value):
        return f"an array of shape {list(shape)} and type {value.dtype}"
    text = repr(value)
    if "\n" in text:
        text = " ".join(text.split())
    return text if len(text) <= 60 else text[:57] + "..."
