"""``NSObject``: the root of the view classes, with what every Objective-C object answers to, as far as scripts use it."""

from __future__ import annotations

import copy
import inspect
import keyword
from collections.abc import Callable
from typing import Any

from mlc_torch.descriptors.base import Descriptor, zero_of
from mlc_torch.objc.key_values import own_value, set_value, set_value_for_path, value_for_path
from mlc_torch.objc.members import class_members
from mlc_torch.objc.selectors import Member, Selector
from mlc_torch.objc.views import Allocated, objc_class, objc_object, put_inside
from mlc_torch.spelling import MLCObject, static_prop
from mlc_torch.spelling.own import wrong_type
from mlc_torch.spelling.signature import parse_selector, selector_name


def _answer(member: Member, receiver: Any, args: tuple[Any, ...]) -> Any:
    """These members work on the view itself, so that they see what a script's subclass adds."""
    if len(args) != len(member.params):
        raise TypeError(f"{member.name} takes {len(member.params)} arguments, got {len(args)}")
    return member.function(receiver, *args)


_root: dict[str, Any] = {"__slots__": (), "__module__": __package__, "__doc__": "The root of Objective-C's classes."}


def _selector(text: str, *, both: bool = False) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Declare a selector of NSObject: ``"- isEqual: Any -> Bool"``. Classes are objects, too, and answer to ``both``."""

    def mark(function: Callable[..., Any]) -> Callable[..., Any]:
        signature, selector = parse_selector(text)
        doc = f"{selector}\n\n{function.__doc__ or ''}".strip()
        member = Member(selector, signature.static, signature.params, signature.returns, function, doc, both=both)
        _root[name_of(selector)] = Selector(member, _answer)
        return function

    return mark


def name_of(selector: Any) -> str:
    """PyObjC's name of a selector given as text, as bytes, or as the selector itself."""
    text = selector.selector if isinstance(selector, Selector) else selector
    if isinstance(text, bytes):
        text = text.decode()
    if not isinstance(text, str):
        raise TypeError(f"a selector is text or bytes, got {text!r}")
    # A word that Python reserves takes two underscores.
    return f"{text}__" if keyword.iskeyword(text) else selector_name(text)


def _class_of(receiver: Any) -> Any:
    return receiver if isinstance(receiver, objc_class) else type(receiver)


def _responds(cls: Any, selector: Any, *, itself: bool) -> bool:
    """Whether objects of the class, or the class ``itself``, answer to a selector."""
    found = inspect.getattr_static(cls, name_of(selector), None)
    if isinstance(found, Selector):
        return found.isClassMethod == itself or found.answers_both
    return isinstance(found, classmethod) if itself else callable(found)


# Making


def bare(cls: Any) -> Any:
    """What ``new()`` and ``alloc().init()`` make: the initializer without arguments, else an object with nothing set.

    A descriptor's without arguments is the factory ``descriptor``, which fills in defaults; a plain init does not (measured,
    evidence.md C.7).
    """
    if cls.__initializers__ is None and not hasattr(cls, "_bare"):
        return object.__new__(cls)
    if cls.__initializers__ is not None and cls.__initializers__.fit(0, ()) and not issubclass(cls, Descriptor):
        return cls()
    owner = next((c for c in cls.__mro__ if "_bare" in vars(c)), None)
    if owner is None or (owner.__initializers__ is not None and owner.__initializers__.fit(0, ())):
        factories = ", ".join(sorted(class_members(cls)))
        raise TypeError(f"{cls.__name__} is not made by a plain init, but by: {factories or 'nobody'}")
    made = cls._bare()
    for name, p in cls.__properties__.items():
        if not isinstance(p, static_prop):
            made.__dict__.setdefault(f"_{name}", zero_of(p.type))
    return made


@_selector("+ alloc -> Self")
def _alloc(cls):
    """An object that ``init()`` completes."""
    made = object.__new__(cls)
    put_inside(made, Allocated())
    return made


@_selector("+ new -> Self")
def _new(cls):
    return cls.alloc().init()


@_selector("- init -> Self")
def _init(view):
    early = view._target
    if isinstance(early, Allocated):
        target = bare(type(view)._class)
        if target is None:
            return None
        vars(target).update(vars(early))
        put_inside(view, target)
    return view


@_selector("- copy -> Any")
def _copy(view):
    return copy.copy(view)


# What it is


@_selector("- class -> AnyClass", both=True)
def _class(receiver):
    return _class_of(receiver)


@_selector("- className -> String", both=True)
def _class_name(receiver):
    return _class_of(receiver).__name__


@_selector("- superclass -> AnyClass", both=True)
def _superclass(receiver):
    above = _class_of(receiver).__mro__[1]
    return above if isinstance(above, objc_class) else None


def _is_class(receiver: Any, selector: str, given: Any) -> bool:
    """Whether a class was given: nobody is of the kind nil, and what is neither is a mistake."""
    if given is not None and not isinstance(given, type):
        raise wrong_type(f"{_class_of(receiver).__name__}.{selector}", "class", "a class", given)
    return given is not None


@_selector("- isKindOfClass: AnyClass -> Bool")
def _is_kind(view, cls):
    return _is_class(view, "isKindOfClass_", cls) and isinstance(view, cls)


@_selector("- isMemberOfClass: AnyClass -> Bool")
def _is_member(view, cls):
    return _is_class(view, "isMemberOfClass_", cls) and type(view) is cls


@_selector("+ isSubclassOfClass: AnyClass -> Bool")
def _is_subclass(cls, other):
    return _is_class(cls, "isSubclassOfClass_", other) and issubclass(cls, other)


@_selector("- self -> Self")
def _self(view):
    return view


@_selector("- isEqual: Any -> Bool")
def _is_equal(view, other):
    return view == other


@_selector("- hash -> Int")
def _hash(view):
    return hash(view)


@_selector("- description -> String", both=True)
def _description(receiver):
    return receiver.__name__ if isinstance(receiver, objc_class) else str(receiver)


@_selector("- debugDescription -> String")
def _debug_description(view):
    return repr(view._target)


# Selectors


@_selector("- respondsToSelector: Selector -> Bool", both=True)
def _responds_to(receiver, selector):
    """Text, bytes or a selector; an object does not answer to the selectors of its class."""
    return _responds(_class_of(receiver), selector, itself=isinstance(receiver, objc_class))


@_selector("+ instancesRespondToSelector: Selector -> Bool")
def _instances_respond(cls, selector):
    return _responds(cls, selector, itself=False)


@_selector("- performSelector: Selector -> Any")
def _perform(view, selector):
    return getattr(view, name_of(selector))()


@_selector("- performSelector: Selector, withObject: Any -> Any")
def _perform_with(view, selector, first):
    return getattr(view, name_of(selector))(first)


@_selector("- performSelector: Selector, withObject: Any, withObject: Any -> Any")
def _perform_with_two(view, selector, first, second):
    return getattr(view, name_of(selector))(first, second)


# Key-value coding


@_selector("- valueForKey: String -> Any")
def _value_for_key(view, key):
    return own_value(view, key)


@_selector("- valueForKeyPath: String -> Any")
def _value_for_path(view, path):
    return value_for_path(view, path)


@_selector("- setValue: Any, forKey: String -> Void")
def _set_value(view, value, key):
    set_value(view, value, key)


@_selector("- setValue: Any, forKeyPath: String -> Void")
def _set_value_for_path(view, value, path):
    set_value_for_path(view, value, path)


# Memory, which Python counts


@_selector("- retain -> Self")
def _retain(view):
    """Does nothing: Python counts the references."""
    return view


@_selector("- release -> Void")
def _release(view):
    """Does nothing: Python counts the references."""


@_selector("- autorelease -> Self")
def _autorelease(view):
    """Does nothing: Python counts the references."""
    return view


NSObject: Any = objc_class("NSObject", (objc_object,), _root, shows=MLCObject)

__all__ = ["NSObject", "bare", "name_of"]
