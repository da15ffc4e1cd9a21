"""The few names of ``objc``, ``Foundation`` and ``Metal`` that scripts for ML Compute use."""

from __future__ import annotations

import contextlib
import platform
import re
import sys
from collections.abc import Callable
from typing import Any, NamedTuple

from mlc_torch.device import offered
from mlc_torch.objc import encodings, module_names
from mlc_torch.objc.foundation import NSArray, StandIn
from mlc_torch.objc.selectors import Function, Selector
from mlc_torch.objc.views import objc_class, objc_object
from mlc_torch.shown_by_default import standard_error

# objc


class error(Exception):
    """PyObjC's exception."""


class nosuchclass_error(error):
    """There is no class of this name."""


def lookUpClass(name: str) -> Any:
    found = (module_names.all_names() | foundation_names()).get(name)
    if not isinstance(found, type):
        raise nosuchclass_error(name)
    return found


def getClassList(ignore_invalid_identifiers: bool = False) -> tuple[Any, ...]:
    return tuple(value for value in module_names.all_names().values() if isinstance(value, objc_class))


def loadBundle(module_name: str, module_globals: dict[str, Any], **where: Any) -> None:
    """``objc.loadBundle("MLCompute", globals(), ...)``, how scripts reach a framework that has no Python module."""
    if not any("MLCompute" in str(word) for word in (module_name, *where.values())):
        raise error(f"{module_name} is not here: only ML Compute is")
    module_globals.update(module_names.all_names())


def python_method(function: Callable[..., Any]) -> Callable[..., Any]:
    """Marks a method that is no selector. Here methods of a script are Python's own in any case."""
    return function


def typedSelector(signature: bytes) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Gives a method of a script its types. Here they are not needed."""
    return python_method


def objc_names() -> dict[str, Any]:
    codes = {
        "_C_BOOL": b"B",
        "_C_NSBOOL": encodings.BOOL,
        "_C_ID": encodings.OBJECT,
        "_C_CLASS": encodings.CLASS,
        "_C_SEL": encodings.SELECTOR,
        "_C_VOID": encodings.VOID,
        "_C_INT": encodings.ENUMERATION,
        "_C_FLT": encodings.FLOAT,
        "_C_DBL": encodings.DOUBLE,
        "_C_LNG": b"l",
        "_C_ULNG": b"L",
        "_C_LNG_LNG": encodings.INTEGER,
        "_C_ULNG_LNG": encodings.UNSIGNED,
        "_C_NSInteger": encodings.INTEGER,
        "_C_NSUInteger": encodings.UNSIGNED,
        "_C_PTR": b"^",
        "_C_CHARPTR": b"*",
        "_C_CHR": b"c",
        "_C_STRUCT_B": b"{",
        "_C_IN": encodings.IN,
        "_C_OUT": encodings.OUT,
        "_C_INOUT": b"N",
    }
    return codes | {
        "NO": False,
        "NULL": None,
        "arch": platform.machine(),
        "YES": True,
        "autorelease_pool": contextlib.nullcontext,
        "error": error,
        "function": Function,
        "getClassList": getClassList,
        "loadBundle": loadBundle,
        "lookUpClass": lookUpClass,
        "nil": None,
        "nosuchclass_error": nosuchclass_error,
        "objc_class": objc_class,
        "objc_object": objc_object,
        "python_method": python_method,
        "selector": Selector,
        "super": super,
        "typedSelector": typedSelector,
    }


# Foundation


class NSRange(NamedTuple):
    location: int
    length: int


class NSNumber(metaclass=StandIn):
    """Numbers are Python's."""

    numberWithBool_ = staticmethod(bool)
    numberWithInt_ = numberWithInteger_ = numberWithLong_ = staticmethod(int)
    numberWithUnsignedInt_ = numberWithUnsignedInteger_ = numberWithUnsignedLong_ = staticmethod(int)
    numberWithFloat_ = numberWithDouble_ = staticmethod(float)


class NSString(metaclass=StandIn):
    """Text is Python's."""

    stringWithString_ = staticmethod(str)

    @staticmethod
    def stringWithFormat_(text: str, *values: Any) -> str:
        return formatted(text, *values)

    @staticmethod
    def stringWithUTF8String_(text: str | bytes) -> str | None:
        """Bytes up to the 0 that ends text in C; ``None``, which is Foundation's answer, where they are no UTF-8."""
        if not isinstance(text, (bytes, bytearray)):
            return str(text)
        try:
            return text.partition(b"\0")[0].decode()
        except UnicodeDecodeError:
            return None


class NSAutoreleasePool(metaclass=StandIn):
    """Python counts the references; a pool has nothing to do."""

    @classmethod
    def alloc(cls) -> NSAutoreleasePool:
        return cls()

    new = alloc

    def init(self) -> NSAutoreleasePool:
        return self

    def drain(self) -> None:
        """Nothing waits here."""

    release = drain


_SIGN = re.compile(r"%(?:%|([-+#0]*\d*(?:\.\d+)?)(?:hh|h|ll|l|q|z|t|j|L)?([@diouxXeEfFgGcs]))")
"""A place for a value, or a percent sign. C would also take "% o" for one, which is more often the middle of a sentence."""


def formatted(text: str, *values: Any) -> str:
    """``%@`` is Foundation's sign for any object. What fits no value stands as it is."""
    left = list(values)

    def shown(sign: re.Match[str]) -> str:
        form, kind = sign.groups()
        if kind is None or not left:
            return "%" if kind is None else sign.group()
        value = left.pop(0)
        try:
            return f"%{form}{kind.replace('@', 's')}" % (value,)
        except (TypeError, ValueError, OverflowError):  # text where a number belongs, infinity where a whole one does
            return str(value)

    return _SIGN.sub(shown, str(text))


def NSLog(text: str, *values: Any) -> None:
    """Prints to standard error."""
    there = standard_error()
    if there is not None:
        there.write(f"{formatted(text, *values)}\n")


def foundation_names() -> dict[str, Any]:
    return module_names.names_passed_on() | {
        "NSAutoreleasePool": NSAutoreleasePool,
        "NSLog": NSLog,
        "NSMakeRange": NSRange,
        "NSNotFound": sys.maxsize,
        "NSNumber": NSNumber,
        "NSRange": NSRange,
        "NSString": NSString,
    }


# Metal


def MTLCopyAllDevices() -> NSArray:
    """The GPUs that torch knows; ``MLCDevice.deviceWithGPUDevices_`` takes them."""
    return NSArray(offered())


def MTLCreateSystemDefaultDevice() -> Any:
    return MTLCopyAllDevices().firstObject()


def metal_names() -> dict[str, Any]:
    return {"MTLCopyAllDevices": MTLCopyAllDevices, "MTLCreateSystemDefaultDevice": MTLCreateSystemDefaultDevice}
