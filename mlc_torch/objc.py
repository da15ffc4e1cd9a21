"""ML Compute as PyObjC shows it: ``import mlc_torch.objc as MLCompute``.

PyObjC calls properties (``tensor.descriptor().shape()``), sets them with ``setX_``, spells selectors with underscores
and has constants in place of enumerations. One proxy shows every class and object that way; there is no second class
tree. What a script passes in is taken out of its proxy, what comes back is put into one, in lists, dictionaries and the
arguments of completion handlers too. Members of ours (``tensor.numpy()``) stay as Python spells them.
"""

from __future__ import annotations

import copy
import difflib
import enum
import functools
import importlib.abc
import importlib.machinery
import inspect
import sys
import types
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NoReturn

from torch import nn

from mlc_torch.coverage.api import constants
from mlc_torch.descriptors.base import zero_of
from mlc_torch.enums import FUNCTIONS, MLCPaddingPolicy, MLCPoolingType
from mlc_torch.refusals import MLCRefusal
from mlc_torch.spelling import CLASSES, MLCObject, prop, static_prop
from mlc_torch.spelling.signature import selector_name

Member = Callable[..., Any]


class View:
    """A class or an object as PyObjC shows it. ``unwrap`` gives back what is inside."""

    __slots__ = ("__weakref__", "_target")
    _target: Any

    def __init__(self, target: Any) -> None:
        object.__setattr__(self, "_target", target)

    def __getattr__(self, name: str) -> Any:
        target = self._target
        found = members(target).get(name)
        if found is not None:
            return _called(found, target, name)
        if _is_ours(target, name):
            value = getattr(target, name)
            return _called(lambda _, *a, **k: value(*a, **k), target, name) if inspect.isroutine(value) else wrap(value)
        _no_such(target, name)

    def __setattr__(self, name: str, value: Any) -> None:
        raise AttributeError(f"PyObjC sets properties by calling: set{name[:1].upper()}{name[1:]}_(...)")

    def __dir__(self) -> Iterable[str]:
        ours = (name for name in dir(self._target) if _is_ours(self._target, name))
        return sorted({*members(self._target), *ours})

    def __eq__(self, other: object) -> bool:
        return self._target == unwrap(other)

    def __hash__(self) -> int:
        return hash(self._target)

    def __instancecheck__(self, instance: Any) -> bool:
        return isinstance(self._target, type) and isinstance(unwrap(instance), self._target)

    def __subclasscheck__(self, cls: Any) -> bool:
        return isinstance(self._target, type) and issubclass(unwrap(cls), self._target)

    def __copy__(self) -> Any:
        return wrap(self._target if isinstance(self._target, type) else copy.copy(self._target))

    def __deepcopy__(self, memo: dict[int, Any]) -> Any:
        return wrap(copy.deepcopy(self._target, memo))

    def __reduce__(self) -> Any:
        return wrap, (self._target,)

    def __str__(self) -> str:
        return str(self._target)

    def __repr__(self) -> str:
        return f"<objc {self._target.__name__ if isinstance(self._target, type) else repr(self._target)}>"


# In and out of the view


@functools.cache
def _class_view(cls: Any) -> View:
    return View(cls)


def wrap(value: Any) -> Any:
    """``value`` as a PyObjC script sees it: objects and classes as views, enumerations as their raw values."""
    if isinstance(value, (MLCObject, MLCRefusal)):
        return View(value)
    if isinstance(value, type):
        cls: Any = value
        return _class_view(cls) if issubclass(cls, MLCObject) else cls
    if isinstance(value, (enum.IntEnum, enum.IntFlag, MLCPaddingPolicy, MLCPoolingType)):
        return int(value)
    if isinstance(value, list):
        return [wrap(item) for item in value]
    if isinstance(value, tuple):
        return tuple(wrap(item) for item in value)
    if isinstance(value, dict):
        return {key: wrap(item) for key, item in value.items()}
    return value


def unwrap(value: Any) -> Any:
    """What the library works with: the object inside a view, also in lists, tuples and dictionaries.

    A function becomes one that is called with views, since a completion handler of the script expects them.
    """
    if isinstance(value, View):
        return value._target
    if isinstance(value, list):
        return [unwrap(item) for item in value]
    if isinstance(value, tuple):
        items = (unwrap(item) for item in value)
        return type(value)(*items) if hasattr(value, "_fields") else tuple(items)
    if isinstance(value, dict):
        return {key: unwrap(item) for key, item in value.items()}
    if callable(value) and not isinstance(value, (type, MLCObject, nn.Module)):
        return lambda *args: unwrap(value(*map(wrap, args)))
    return value


def _called(member: Member, target: Any, name: str) -> Member:
    def call(*args: Any, **kw: Any) -> Any:
        return wrap(member(target, *map(unwrap, args), **{key: unwrap(item) for key, item in kw.items()}))

    call.__name__ = call.__qualname__ = name
    call.__doc__ = member.__doc__
    return call


# What a class or an object answers to


def members(target: Any) -> dict[str, Member]:
    """The selectors of a class or of an object, as PyObjC spells them."""
    cls: Any = target if isinstance(target, type) else type(target)
    if cls is target:
        return _class_members(cls)
    return _ERROR_MEMBERS if issubclass(cls, MLCRefusal) else _object_members(cls)


@functools.cache
def _class_members(cls: Any) -> dict[str, Member]:
    found: dict[str, Member] = {"alloc": _Allocated, "new": lambda target: bare(target)}
    for p in cls.__properties__.values():
        if isinstance(p, static_prop):
            found[p.selectors[0]] = _reader(p)
    return found | _selectors(cls, of_class=True)


@functools.cache
def _object_members(cls: Any) -> dict[str, Member]:
    found = dict(_NSOBJECT)
    for p in cls.__properties__.values():
        if p.objc and not isinstance(p, static_prop):
            getter, *setter = p.selectors
            found[getter] = _reader(p)
            for selector in setter:
                found[selector_name(selector)] = _writer(p)
    return found | _selectors(cls, of_class=False)


def _selectors(cls: Any, *, of_class: bool) -> dict[str, Member]:
    found: dict[str, Member] = {}
    for declarations in cls.__declared__.values():
        for d in declarations:
            # "init" belongs to alloc(), which has it already.
            if d.selector and d.binds_class == of_class and d.selector != "init":
                found[selector_name(d.selector)] = _method(selector_name(d.selector))
    return found


def _method(name: str) -> Member:
    return lambda target, *args: getattr(target, name)(*args)


def _reader(p: prop) -> Member:
    def read(target: Any) -> Any:
        return p.__get__(None, target) if isinstance(p, static_prop) else getattr(target, p.name)

    read.__doc__ = p.__doc__
    return read


def _writer(p: prop) -> Member:
    return lambda target, value: setattr(target, p.name, value)


def bare(cls: Any) -> Any:
    """What ``new()`` and ``alloc().init()`` make: the initializer without arguments, else an object with nothing set."""
    if cls.__initializers__ is not None and cls.__initializers__.fit(0, ()):
        return cls()
    owner = next((c for c in cls.__mro__ if "_bare" in vars(c)), None)
    if owner is None or (owner.__initializers__ is not None and owner.__initializers__.fit(0, ())):
        factories = sorted(name for name in _class_members(cls) if name not in ("alloc", "new"))
        raise TypeError(f"{cls.__name__} is not made by a plain init, but by: {', '.join(factories) or 'nobody'}")
    made = cls._bare()
    for name, p in cls.__properties__.items():
        if not isinstance(p, static_prop):
            made.__dict__.setdefault(f"_{name}", zero_of(p.type))
    return made


class _Allocated:
    """What ``alloc()`` gives: an object that ``init()`` completes."""

    def __init__(self, cls: type) -> None:
        self._class = cls

    def init(self) -> Any:
        return wrap(bare(self._class))

    def __getattr__(self, name: str) -> NoReturn:
        raise AttributeError(
            f"alloc() is followed by init(); factories are called on the class: {self._class.__name__}.{name}"
        )


_NSOBJECT: dict[str, Member] = {
    "copy": copy.copy,
    "description": repr,
    "hash": hash,
    "init": lambda target: target,
    "isEqual_": lambda target, other: target == other,
    "isKindOfClass_": isinstance,
    "respondsToSelector_": lambda target, selector: selector_name(selector) in members(target),
}
"""What every Objective-C object answers to, as far as scripts use it."""

_ERROR_MEMBERS: dict[str, Member] = {"localizedDescription": str, "description": str}


def _is_ours(target: Any, name: str) -> bool:
    """Whether ``name`` is a member of ours, which PyObjC would not know and which this view leaves alone."""
    if name.startswith("_") or not isinstance(target, (MLCObject, type)):
        return False
    cls: Any = target if isinstance(target, type) else type(target)
    if name in cls.__declared__ or name in cls.__properties__ or name in _apples(cls):
        return False
    # Looking without asking keeps properties from being computed.
    found = inspect.getattr_static(target, name, None)
    return isinstance(found, (classmethod, staticmethod)) if isinstance(target, type) else found is not None


@functools.cache
def _apples(cls: Any) -> frozenset[str]:
    return frozenset({*_class_members(cls), *_object_members(cls)})


def _no_such(target: Any, name: str) -> NoReturn:
    cls = target if isinstance(target, type) else type(target)
    there = members(target)
    swift = cls.__declared__.get(name, []) if issubclass(cls, MLCObject) else []
    spelt = [selector_name(d.selector) for d in swift if d.selector]
    close = spelt or difflib.get_close_matches(name, there, 3, 0.5)
    hint = f"; close: {', '.join(close)}" if close else f"; see dir({cls.__name__})"
    if swift or (issubclass(cls, MLCObject) and name in cls.__properties__):
        hint = f" ({name} is Swift's spelling)" + hint
    raise AttributeError(f"{cls.__name__} has no selector {name!r} in the PyObjC view{hint}")


# The module itself


def _names() -> dict[str, Any]:
    classes = {n: c for n, c in CLASSES.items() if n.startswith("MLC") and issubclass(c, MLCObject)}
    return {n: wrap(c) for n, c in classes.items()} | constants() | FUNCTIONS


def __getattr__(name: str) -> Any:
    if name == "__all__":
        return sorted(_names())
    found = _names().get(name) if name.startswith("MLC") else None
    if found is None:
        close = difflib.get_close_matches(name, _names(), 3) if not name.startswith("__") else []
        hint = f"; close: {', '.join(close)}" if close else ""
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}{hint}")
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *_names()})


class _Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Finds ``import MLCompute`` after everybody else has failed to, so that Apple's own always wins."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: types.ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        return importlib.machinery.ModuleSpec(fullname, self, origin=__name__) if fullname == "MLCompute" else None

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> None:
        return None

    def exec_module(self, module: types.ModuleType) -> None:
        module.__doc__ = __doc__
        module.__dict__.update(__getattr__=functools.partial(getattr, sys.modules[__name__]), __dir__=__dir__)


_finder = _Finder()


def install() -> None:
    """Let ``import MLCompute`` find this module where the real one is absent."""
    if _finder not in sys.meta_path:
        sys.meta_path.append(_finder)


def uninstall() -> None:
    """Undo :func:`install`."""
    if _finder in sys.meta_path:
        sys.meta_path.remove(_finder)
    module = sys.modules.get("MLCompute")
    if module is not None and getattr(module.__spec__, "loader", None) is _finder:
        del sys.modules["MLCompute"]
