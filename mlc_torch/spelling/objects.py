"""``MLCObject``: the base of every public class. It turns declarations into callable members when a class is made."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any, ClassVar

from mlc_torch.refusals import MLCRefusal, answer, shortened, unwrap, warn_the_program
from mlc_torch.spelling.arguments import CLASSES
from mlc_torch.spelling.closest import hint, near_miss
from mlc_torch.spelling.declaration import Declaration
from mlc_torch.spelling.members import prop, selector_method, static_prop
from mlc_torch.spelling.nsobject import NSObject
from mlc_torch.spelling.overloads import Overloads, documentation, swift_method, tell_of_async_form
from mlc_torch.spelling.python_signature import swift_signature
from mlc_torch.spelling.signature import selector_name


class _ClassSignature:
    """``__signature__`` of a class: its initializers', or those of a subclass's own ``__init__``. Instances have none."""

    def __get__(self, obj: Any, cls: Any) -> inspect.Signature:
        if obj is not None:
            raise AttributeError("__signature__")
        if cls.__init__ is not MLCObject.__init__:
            own = inspect.signature(cls.__init__)
            return own.replace(parameters=list(own.parameters.values())[1:], return_annotation=own.empty)
        known = cls.__initializers__.declarations if cls.__initializers__ is not None else []
        made = swift_signature([d.signature for d in known])
        return made.replace(parameters=list(made.parameters.values())[1:])


class MLCObject(NSObject):
    """The base of the framework's classes. An initializer is chosen by its labels and may answer ``None``."""

    __declared__: ClassVar[dict[str, list[Declaration]]] = {}
    """Swift name to members, inherited ones included; ``""`` holds what only Objective-C has."""
    __properties__: ClassVar[dict[str, prop]] = {}
    __initializers__: ClassVar[Overloads | None] = None
    __signature__ = _ClassSignature()

    if TYPE_CHECKING:
        # Fields are stored by _make, under names that a type checker cannot see. Programs have the stubs.
        def __getattr__(self, name: str) -> Any: ...

    def __init_subclass__(cls, *, inherits_initializers: bool = True, **kw: Any) -> None:
        super().__init_subclass__(**kw)
        if cls.__module__.startswith("mlc_torch."):
            CLASSES.setdefault(cls.__name__, cls)
        own = _own_declarations(cls)
        table = {name: list(known) for name, known in cls.__declared__.items()}
        if not inherits_initializers:
            for declaration in table.pop("init", []):
                if declaration.selector:
                    setattr(cls, selector_name(declaration.selector), _not_inherited(declaration.selector))
        for name, declarations in own.items():
            overridden = {frozenset(d.signature.keywords) for d in declarations}
            kept = [d for d in table.get(name, []) if frozenset(d.signature.keywords) not in overridden]
            table[name] = kept + declarations
        cls.__declared__ = table
        cls.__properties__ = cls.__properties__ | {n: p for n, p in vars(cls).items() if isinstance(p, prop)}
        for name, declarations in own.items():
            for declaration in declarations:
                if declaration.selector and declaration.selector != declaration.signature.name:
                    setattr(cls, selector_name(declaration.selector), selector_method(declaration, cls))
            if name:
                _install(cls, name, table[name])
        for name in own:
            if name.endswith("Async") and name.removesuffix("Async") in own:
                tell_of_async_form(vars(cls)[name.removesuffix("Async")], name)
        if cls.__doc__ and table.get("init"):
            cls.__doc__ = documentation(table["init"], inspect.cleandoc(cls.__doc__))
        for p in vars(cls).copy().values():
            if isinstance(p, static_prop) and p.selector:
                setattr(cls, p.selector, classmethod(lambda c, p=p: p.getter(c)))

    def __new__(cls, *args: Any, **labels: Any) -> Any:
        initializers = cls.__initializers__
        if initializers is None:
            raise TypeError(f"{cls.__name__} has no initializers")
        if cls.__init__ is not MLCObject.__init__ and not initializers.fit(len(args), tuple(labels)):
            # A subclass with an __init__ of its own takes what it likes and reaches ours through super().__init__.
            return object.__new__(cls)
        try:
            door = initializers.doors.get((len(args), *labels) if args else tuple(labels))
            return initializers(cls, args, labels) if door is None else door(cls, args, labels)
        except MLCRefusal as why:
            __tracebackhide__ = True
            raise shortened(why) from why.__cause__

    def __init__(self, *args: Any, **labels: Any) -> None:
        if type(self).__init__ is MLCObject.__init__:
            return  # __new__ has made the object
        assert self.__initializers__ is not None
        try:
            made = unwrap(self.__initializers__(type(self), args, labels))
        except MLCRefusal as why:
            __tracebackhide__ = True
            raise shortened(why) from why.__cause__
        self.__dict__.update(made.__dict__)
        self._adopted()

    def __setattr__(self, name: str, value: Any) -> None:
        """A name that is no member would be set and never read, so it is an error, as in Swift."""
        if name[0] != "_" and not any(name in vars(cls) for cls in type(self).__mro__):
            _unknown_name(self, name)
        object.__setattr__(self, name, value)

    def _adopted(self) -> None:
        """Called when a subclass's own ``__init__`` has taken over the state of an object made for it."""

    @classmethod
    def _make(cls, **fields: Any) -> Any:
        """A new instance with these properties. No initializer is called and nothing is checked."""
        self = object.__new__(cls)
        for name, value in fields.items():
            self.__dict__["_" + name] = value
        return self

    def __reduce__(self) -> Any:
        """For ``copy`` and ``pickle``: an instance made past the initializers, which then takes over these fields."""
        return object.__new__, (type(self),), self.__dict__

    def __repr__(self) -> str:
        shown = ", ".join(f"{n}={getattr(self, n)!r}" for n in self._shown())
        return f"{type(self).__name__}({shown})"

    def _shown(self) -> list[str]:
        """The properties a one-line repr shows."""
        return [n for n, p in self.__properties__.items() if p.swift and not isinstance(p, static_prop)]


def _unknown_name(target: MLCObject, name: str) -> None:
    """An error; for an instance of a program's own class, which may have fields of its own, a warning about near misses."""
    cls = type(target)
    known = [n for n in dir(cls) if not n.startswith("_") and "_" not in n]
    if is_ours(cls):
        settable = ", ".join(n for n, p in cls.__properties__.items() if p.settable)
        there = hint(name, known) or (f"; can be set: {settable}" if settable else "")
        raise AttributeError(f"{cls.__name__} has no property {name!r}{there}")
    inherited = {n for base in cls.__mro__ if is_ours(base) for n in vars(base)}
    meant = near_miss(name, [n for n in known if n in inherited])
    if meant is not None:
        warn_the_program(f"{cls.__name__}.{name} is set, and is no property of ML Compute; it has {meant}")


def is_ours(cls: type) -> bool:
    """Whether a class is the library's own, not one that a program derived."""
    return cls.__module__.partition(".")[0] == "mlc_torch"


def _not_inherited(selector: str) -> Any:
    """Stands where a base class has a factory that its subclass is not made by: Objective-C would find it, and fail."""

    def refused(cls: Any, *args: Any) -> Any:
        made_by = ", ".join(str(d.selector) for d in cls.__declared__.get("init", []))
        return answer(MLCRefusal(f"{cls.__name__} is made by {made_by}"), f"{cls.__name__}.{selector}", None)

    return classmethod(refused)


def _own_declarations(cls: type) -> dict[str, list[Declaration]]:
    found: dict[str, list[Declaration]] = {}
    for value in list(vars(cls).values()):
        for declaration in getattr(value, "__declarations__", ()):
            signature = declaration.signature
            name = signature.called if signature.swift else ""
            found.setdefault(name, []).append(declaration)
    for name, value in list(vars(cls).items()):
        declarations = getattr(value, "__declarations__", ())
        if declarations and declarations[0].binds_class:
            setattr(cls, name, classmethod(value))
    return found


def _install(cls: Any, name: str, declarations: list[Declaration]) -> None:
    overloads = Overloads(cls, name, declarations)
    if name == "init":
        cls.__initializers__ = overloads
        return
    method: Any = swift_method(overloads)
    if declarations[0].binds_class:
        method = classmethod(method)
    shared = vars(cls).get(name)
    if isinstance(shared, static_prop):
        shared.labelled = method
    else:
        setattr(cls, name, method)
