"""The names of the module ``MLCompute``: classes, flat constants, the types of enumerations, functions, Foundation's."""

from __future__ import annotations

import functools
from typing import Any, NewType

from mlc_torch.coverage.api import api, constants
from mlc_torch.enums.functions import FUNCTIONS
from mlc_torch.objc import foundation
from mlc_torch.objc.mistakes import constant_meant, constants_of
from mlc_torch.objc.nsobject import NSObject
from mlc_torch.objc.selectors import Function
from mlc_torch.objc.views import class_view
from mlc_torch.spelling import CLASSES, MLCObject


class NameForInt(NewType):
    """What PyObjC has for annotations in place of an enumeration."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        there = constant_meant(self.__name__, name) or ", ".join(constants_of(self.__name__))
        raise AttributeError(f"{self.__name__} is only a name for int, without {name!r}; the module has {there}")


@functools.cache
def enumeration_types() -> dict[str, Any]:
    """PyObjC has numbers for the cases and, for annotations, a type each that is only a name for ``int``."""
    return {name: NameForInt(name, int) for kind in ("enums", "option_sets") for name in api()[kind]}


@functools.cache
def functions() -> dict[str, Function]:
    return {
        name: Function(call, name, [name.removesuffix("DebugDescription")], "String?")
        for name, call in FUNCTIONS.items()
    }


def names_passed_on() -> dict[str, Any]:
    """What scripts use of Foundation; PyObjC's frameworks pass its names on."""
    return {"NSObject": NSObject} | {n: v for n, v in vars(foundation).items() if n.startswith("NS")}


def all_names() -> dict[str, Any]:
    """Everything, classes of extensions included that have been made since."""
    classes = {n: class_view(c) for n, c in CLASSES.items() if n.startswith("MLC") and issubclass(c, MLCObject)}
    return names_passed_on() | classes | enumeration_types() | constants() | functions()
