"""Classes and objects as PyObjC shows them.

Each class of the library has one view class, made when it is first asked for; there is no second class tree to keep up. An
object's view holds the object. What a script passes in is taken out of its view, what comes back is put into one, in
lists, dictionaries and the arguments of completion handlers too. Members of ours (``tensor.numpy()``) stay as Python
spells them.
"""

from __future__ import annotations

import copy
import enum
import inspect
import weakref
from collections.abc import Callable, Iterable
from typing import Any, NoReturn

from torch import nn

from mlc_torch.enums import MLCPaddingPolicy, MLCPoolingType
from mlc_torch.objc.foundation import NSArray, NSData, NSDictionary, NSError
from mlc_torch.objc.members import class_members, object_members, selector_names, swift_only
from mlc_torch.objc.mistakes import explain_constant
from mlc_torch.objc.selectors import Member, Selector
from mlc_torch.refusals import MLCRefusal
from mlc_torch.spelling import MLCObject
from mlc_torch.spelling.arguments import runs_nothing
from mlc_torch.spelling.closest import hint
from mlc_torch.spelling.signature import selector_name


class objc_class(type):
    """The type of the view classes. A script may derive from one of them as from any class."""

    _class: Any
    """The class of the library that is shown."""
    _of_script: bool

    def __new__(meta, name: str, bases: tuple[type, ...], namespace: dict[str, Any], shows: Any = None) -> Any:
        # Attributes of a script's objects live with the object inside, which outlasts its views.
        made: Any = super().__new__(meta, name, bases, {"__slots__": (), **namespace})
        made._of_script = shows is None
        made._class = shows if shows is not None else _derived(made, namespace.get("__module__", ""))
        _class_views[made._class] = made
        return made

    def __init__(cls, name: str, bases: tuple[type, ...], namespace: dict[str, Any], shows: Any = None) -> None:
        super().__init__(name, bases, namespace)

    def __call__(cls, *unnamed: Any, **arguments: Any) -> Any:
        """PyObjC's newer spelling: ``MLCTensor(shape=[2], dataType=1)`` calls ``tensorWithShape_dataType_``.

        As there, the order counts, and of several selectors with the same words the last by name is meant.
        """
        if not arguments and not unnamed:
            return cls.alloc().init()
        factories = sorted(n for n, m in class_members(cls._class).items() if m.params and m.returns.startswith("Self"))
        made_by = {_keywords(class_members(cls._class)[name]): name for name in factories}
        found = None if unnamed else made_by.get(tuple(arguments))
        if found is None:
            there = "".join(f"\n  {cls.__name__}({', '.join(f'{k}=' for k in keywords)})" for keywords in made_by)
            given = ", ".join([*("…" for _ in unnamed), *(f"{k}=" for k in arguments)])
            raise TypeError(f"{cls.__name__}({given}) does not exist. There is:{there or ' nothing'}")
        return getattr(cls, found)(*arguments.values())

    def __getattr__(cls, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return _member_of_ours(cls._class, name)

    def __dir__(cls) -> Iterable[str]:
        ours = (name for name in dir(cls._class) if _is_ours(cls._class, name))
        return sorted({*_selectors_in(cls), *ours})

    def __instancecheck__(cls, instance: Any) -> bool:
        return super().__instancecheck__(instance) or isinstance(inside(instance), cls._class)

    def __subclasscheck__(cls, other: Any) -> bool:
        return super().__subclasscheck__(other) or issubclass(inside(other), cls._class)

    def __repr__(cls) -> str:
        return f"<objc {cls.__name__}>"

    @property
    def pyobjc_classMethods(cls) -> Any:
        """The selectors of the class alone, where an object has some of the same name."""
        return _Namespace(cls, of_class=True)

    @property
    def pyobjc_instanceMethods(cls) -> Any:
        return _Namespace(cls, of_class=False)


class _Namespace:
    """The selectors of one kind, as attributes."""

    def __init__(self, cls: Any, *, of_class: bool) -> None:
        for name in _selectors_in(cls):
            found = inspect.getattr_static(cls, name)
            if isinstance(found, Selector) and found.isClassMethod == of_class:
                self.__dict__[name] = found.__get__(None, cls)


class Allocated:
    """Stands inside a view between ``alloc()`` and ``init()``."""


class objc_object:
    """An object as PyObjC shows it. ``inside`` gives back what is shown."""

    __slots__ = ("__weakref__", "_target")
    _target: Any
    _of_script = False
    _as_argument = (
        " (two spellings are mixed: this is one of the PyObjC view; mlc_torch.objc.unwrap(object) takes it out)"
    )
    """What a member says that is called by Swift's spelling and given a view."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        kept = vars(self._target).get("_attributes", {}) if hasattr(self._target, "__dict__") else {}
        if name in kept:
            return kept[name]
        if isinstance(self._target, Allocated):
            _no_initializer(type(self), name)
        return _member_of_ours(self._target, name)

    def __setattr__(self, name: str, value: Any) -> None:
        if not self._of_script:
            _not_assigned(self, name)
        vars(self._target).setdefault("_attributes", {})[name] = value

    def __delattr__(self, name: str) -> None:
        if vars(self._target).get("_attributes", {}).pop(name, self) is self:
            raise AttributeError(name)

    def __dir__(self) -> Iterable[str]:
        ours = (name for name in dir(self._target) if _is_ours(self._target, name))
        kept = vars(self._target).get("_attributes", ())
        return sorted({*_selectors_in(type(self), of_objects=True), *ours, *kept})

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        target = inside(other)
        return isinstance(target, MLCObject) and bool(self._target == target)

    def __hash__(self) -> int:
        return hash(self._target)

    def __copy__(self) -> Any:
        made = copy.copy(self._target)
        if "_attributes" in vars(made):
            vars(made)["_attributes"] = dict(vars(made)["_attributes"])
        return wrap(made)

    def __deepcopy__(self, memo: dict[int, Any]) -> Any:
        return wrap(copy.deepcopy(self._target, memo))

    def __reduce__(self) -> Any:
        return wrap, (self._target,)

    def __str__(self) -> str:
        return str(self._target)

    def __repr__(self) -> str:
        shown = type(self).__name__ if isinstance(self._target, Allocated) else repr(self._target)
        return f"<objc {shown}>"


# In and out


_class_views: dict[type, Any] = {}
_views: weakref.WeakValueDictionary[int, objc_object] = weakref.WeakValueDictionary()
"""The view that somebody holds on an object, by the object's id: as in PyObjC, one object has one."""


def class_view(cls: Any) -> Any:
    """The view class of a class of the library, or of one that a program has derived from it."""
    found = _class_views.get(cls)
    if found is None:
        shown = next(c for c in cls.__mro__[1:] if c in _class_views or _is_shown(c))
        parent = class_view(shown)
        own = {
            member.name: Selector(member, send)
            for table in (class_members, object_members)
            for member in table(cls).values()
            if getattr(table(shown).get(member.name), "source", None) is not member.source
        }
        module = __package__ if cls.__module__.partition(".")[0] == "mlc_torch" else cls.__module__
        found = objc_class(cls.__name__, (parent,), {"__module__": module, "__doc__": cls.__doc__, **own}, shows=cls)
    return found


def _is_shown(cls: type) -> bool:
    """The rooms' own base classes are not part of the framework's tree."""
    return issubclass(cls, MLCObject) and (
        cls.__name__.startswith("MLC") or not cls.__module__.startswith("mlc_torch.")
    )


def _derived(view: Any, module: str) -> type:
    """The class that stands behind a script's subclass of a view class."""
    base = next(b for b in view.__mro__[1:] if isinstance(b, objc_class))
    return type(view.__name__, (base._class,), {"__module__": module})


def view_of(target: MLCObject) -> Any:
    found = _views.get(id(target))
    if found is None or found._target is not target:
        found = object.__new__(class_view(type(target)))
        put_inside(found, target)
    return found


def put_inside(view: Any, target: Any) -> None:
    """Make ``view`` the view of ``target``."""
    object.__setattr__(view, "_target", target)
    if isinstance(target, MLCObject):
        _views[id(target)] = view


def inside(value: Any) -> Any:
    """The object or class inside a view; anything else is itself."""
    if isinstance(type(value), objc_class):
        return value._target
    return value._class if type(value) is objc_class else value


def wrap(value: Any) -> Any:
    """``value`` as a PyObjC script sees it: objects and classes as views, enumerations as their raw values."""
    if isinstance(value, MLCObject):
        return view_of(value)
    if isinstance(value, MLCRefusal):
        return NSError(value)
    if isinstance(value, type):
        cls: Any = value
        return class_view(cls) if issubclass(cls, MLCObject) else cls
    if isinstance(value, (enum.IntEnum, enum.IntFlag, MLCPaddingPolicy, MLCPoolingType)):
        return int(value)
    if isinstance(value, list):
        return NSArray(wrap(item) for item in value)
    if isinstance(value, tuple):
        return tuple(wrap(item) for item in value)
    if isinstance(value, dict):
        return NSDictionary({key: wrap(item) for key, item in value.items()})
    return value


_DEEPEST = 32
"""How deep lists of arguments may be nested; no selector takes more than two levels."""


def unwrap(value: Any, _depth: int = 0) -> Any:
    """What the library works with: the object inside a view, also in lists, tuples and dictionaries.

    A function becomes one that is called with views, since a completion handler of the script expects them.
    """
    if isinstance(type(value), objc_class):
        if isinstance(value._target, Allocated):
            raise TypeError(f"this {type(value).__name__} was allocated, but init() was not called")
        return value._target
    if type(value) is objc_class:
        return value._class
    if isinstance(value, NSError):
        return value.refusal
    if _depth > _DEEPEST:
        raise TypeError(f"an argument holds itself, or lists that are nested more than {_DEEPEST} deep")
    if isinstance(value, list):
        return [unwrap(item, _depth + 1) for item in value]
    if isinstance(value, tuple):
        items = (unwrap(item, _depth + 1) for item in value)
        return type(value)(*items) if hasattr(value, "_fields") else tuple(items)
    if isinstance(value, dict):
        return {key: unwrap(item, _depth + 1) for key, item in value.items()}
    if callable(value) and not isinstance(value, (type, MLCObject, nn.Module)) and not runs_nothing(value):
        return _called_with_views(value)
    return value


def _called_with_views(function: Callable[..., Any]) -> Callable[..., Any]:
    def call(*args: Any) -> Any:
        return unwrap(function(*map(wrap, args)))

    call.__dict__["__wrapped__"] = function  # who asks for the parameters is shown the script's own
    return call


def send(member: Member, receiver: Any, args: tuple[Any, ...]) -> Any:
    """Call what a selector stands for on the object inside ``receiver``."""
    if len(args) != len(member.params):
        raise TypeError(f"{member.name} takes {len(member.params)} arguments, got {len(args)}")
    for param, arg in zip(member.params, args, strict=True):
        if isinstance(arg, Selector) and not param.type.endswith(("Handler?", "Void")):
            arg.refuse_as_argument(member.name, param.name)
    given = [unwrap(arg) for arg in args]
    if member.out is not None and given[member.out] is None:
        # PyObjC's way with memory that is to be filled: None goes in, and the filled memory comes out beside the answer.
        given[member.out] = memory = _memory(given[member.out + 1])
        return _answer(member, receiver, given), NSData.over(memory)
    answer = _answer(member, receiver, given)
    if member.returns.startswith("Data") and answer is not None:
        return NSData.over(answer)
    return wrap(answer)


def _answer(member: Member, receiver: Any, given: list[Any]) -> Any:
    try:
        return member.function(unwrap(receiver), *given)
    except TypeError:
        explain_constant(member, receiver, given)
        raise


def _memory(length: Any) -> bytearray:
    """New memory; none where there cannot be so much, which the member then refuses in its own words."""
    try:
        return bytearray(length) if isinstance(length, int) else bytearray()
    except (ValueError, OverflowError, MemoryError):
        return bytearray()


# Names


def _keywords(member: Member) -> tuple[str, ...]:
    """How PyObjC names the arguments of a factory: what follows "With", then the other parts of the selector."""
    first, *others = member.selector.rstrip(":").split(":")
    noun = first.rpartition("With")[2]
    return noun if noun[1:2].isupper() else noun[:1].lower() + noun[1:], *others


def _selectors_in(cls: Any, *, of_objects: bool = False) -> set[str]:
    """The public names of a view class, for objects without the selectors of the class."""
    found = set()
    for base in cls.__mro__:
        for name, value in vars(base).items():
            if (
                not name.startswith("_")
                and base is not object
                and not (of_objects and getattr(value, "isClassMethod", False))
            ):
                found.add(name)
    return found


def _is_ours(target: Any, name: str) -> bool:
    """Whether ``name`` is a member of ours, which PyObjC would not know and which this view leaves alone."""
    if name.startswith("_") or not isinstance(target, (MLCObject, type)):
        return False
    cls: Any = target if isinstance(target, type) else type(target)
    if name in cls.__declared__ or name in cls.__properties__ or name in selector_names(cls):
        return False
    # Looking without asking keeps properties from being computed.
    found = inspect.getattr_static(target, name, None)
    return isinstance(found, (classmethod, staticmethod)) if isinstance(target, type) else found is not None


def _member_of_ours(target: Any, name: str) -> Any:
    if not _is_ours(target, name):
        _no_such(target, name)
    value = getattr(target, name)
    return _called(value, name) if inspect.isroutine(value) else wrap(value)


def _called(function: Callable[..., Any], name: str) -> Callable[..., Any]:
    def call(*args: Any, **kw: Any) -> Any:
        return wrap(function(*map(unwrap, args), **{key: unwrap(item) for key, item in kw.items()}))

    call.__name__ = call.__qualname__ = name
    call.__doc__ = function.__doc__
    return call


def _not_assigned(view: Any, name: str) -> NoReturn:
    cls, setter = type(view)._class, f"set{name[:1].upper()}{name[1:]}_"
    if setter in object_members(cls):
        raise AttributeError(f"PyObjC sets properties by calling: {setter}(...)")
    known = [n for n in cls.__properties__ if n in object_members(cls)]
    if name in known:
        raise AttributeError(f"{cls.__name__}.{name} is read-only")
    if _is_ours(view._target, name):
        raise AttributeError(
            f"{cls.__name__}.{name} is no property of PyObjC's; it is one of mlc_torch.objc.unwrap(object)"
        )
    raise AttributeError(f"{cls.__name__} has no property {name!r} in the PyObjC view{hint(name, known)}")


def _no_initializer(cls: Any, name: str) -> NoReturn:
    """What Objective-C would call ``initWithShape:`` is only there as the factory ``tensorWithShape:``, if at all."""
    known, ending = class_members(cls._class), name.removeprefix("init")
    meant = [n for n in known if n == name or (ending.startswith("With") and n.endswith(ending))]
    named = f": {', '.join(f'{cls.__name__}.{n}' for n in sorted(meant))}" if meant else ""
    raise AttributeError(
        f"{cls.__name__}.alloc() is followed by init(), and not by {name}; factories are called on the class{named}"
    )


def _no_such(target: Any, name: str) -> NoReturn:
    cls: Any = target if isinstance(target, type) else type(target)
    there = _selectors_in(class_view(cls), of_objects=cls is not target)
    spelt = [selector_name(d.selector) for d in cls.__declared__.get(name, []) if d.selector]
    meant = f"; its selectors: {', '.join(spelt)}" if spelt else hint(name, there) or f"; see dir({cls.__name__})"
    if cls is not target and name in class_members(cls):
        meant = f": it is one of the class, {cls.__name__}.{name}"
    elif swift_only(cls, name):
        meant = f" ({name} is Swift's spelling)" + meant
    raise AttributeError(f"{cls.__name__} has no selector {name!r} in the PyObjC view{meant}")
