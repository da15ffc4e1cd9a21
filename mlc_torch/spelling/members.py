"""Declaring a member once.

A public member is declared by its Swift signature and its Objective-C selector, side by side, above the one Python
function that implements it::

    @declare("init?(shape: [Int])", "layerWithShape:")
    def _create(cls, shape): ...

From the declaration come the Swift call (chosen by labels), the selector call, ``help()``, the stubs and the coverage
report. Every call passes one *door* (``door.py``).
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from operator import attrgetter
from typing import Any, Self

from mlc_torch.refusals import MLCRefusal, answer, shortened
from mlc_torch.spelling.arguments import converter, describe
from mlc_torch.spelling.declaration import Declaration
from mlc_torch.spelling.door import PACKING, Door, make_door
from mlc_torch.spelling.python_signature import selector_signature
from mlc_torch.spelling.receiver import NOBODY, expect_receiver
from mlc_torch.spelling.signature import Signature, parse, parse_selector, selector_name

_NO_LABELS: dict[str, Any] = {}


def declare(
    swift: str,
    selector: str | None = None,
    *,
    ours: bool = False,
    nil: tuple[str, ...] = (),
    about: str = "",
    **fixed: Any,
) -> Callable[[Callable], Callable]:
    """Give the function below a Swift spelling and a selector. May be stacked: one function, several spellings.

    ``ours`` marks what the framework does not have and the API list therefore does not name. ``fixed`` arguments are
    what this spelling stands for: ``celu(a:)`` is the activation layer with ``type=celu``. ``nil`` names the arguments for
    which Objective-C's nil was measured to have an answer; Swift would not compile it. ``about`` says what this spelling
    does where one function stands behind several that differ; otherwise the function's docstring says it.
    """
    signature = parse(swift)
    if selector is not None and selector.count(":") != len(signature.params):
        raise TypeError(f"{swift!r} and {selector!r} differ in the number of arguments")
    return _declares(signature, selector, ours, fixed, about, nil)


def objc_only(text: str, *, about: str = "", **fixed: Any) -> Callable[[Callable], Callable]:
    """Declare a selector that has no Swift spelling: ``"+ poolingWithType: MLCPoolingType, kernelSize: Int -> Self"``."""
    signature, selector = parse_selector(text)
    return _declares(signature, selector, False, fixed, about)


def _declares(
    signature: Signature,
    selector: str | None,
    ours: bool,
    fixed: dict[str, Any],
    about: str,
    nil: tuple[str, ...] = (),
) -> Callable[[Callable], Callable]:
    def mark(function: Callable) -> Callable:
        known, takes_any, has_default = _parameters(function)
        packing = function.__dict__.get(PACKING)
        if packing is not None:
            known, has_default = packing.names, packing.names
        for param in signature.params:
            if param.name not in known:
                if takes_any:
                    continue
                raise TypeError(f"{signature.labels}: {function.__qualname__} has no parameter {param.name!r}")
            if param.default is not None and param.name not in has_default:
                raise TypeError(f"{signature.labels}: {param.name} needs its default {param.default} in Python too")
        declarations = function.__dict__.setdefault("__declarations__", [])
        declarations.insert(0, Declaration(signature, selector, function, ours, fixed, nil, about))
        return function

    return mark


def _parameters(function: Callable) -> tuple[tuple[str, ...], bool, set[str]]:
    """The names of a function's parameters, whether it takes any others, and which have a default.

    Read from the code itself: ``inspect`` takes 50 µs, and there are two hundred of them when the package is imported.
    """
    code = function.__code__
    known = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
    ordinary = known[: code.co_argcount]
    with_default = ordinary[len(ordinary) - len(function.__defaults__ or ()) :]
    return known, bool(code.co_flags & inspect.CO_VARKEYWORDS), {*with_default, *(function.__kwdefaults__ or ())}


class prop(property):
    """A property: stored under the name with an underscore, or computed by the function it decorates.

    ``prop("Int", "How many.")`` is readable in both spellings; ``swift=False`` or ``objc=False`` leaves one out. What
    it holds is said in its second argument, or by the docstring of the function. Python's own ``property`` reads it.
    """

    def __init__(
        self, type_: str, about: str = "", *, settable: bool = False, swift: bool = True, objc: bool = True
    ) -> None:
        super().__init__()
        self.type, self.about, self.settable, self.swift, self.objc = type_, about, settable, swift, objc
        self.getter: Callable[[Any], Any] | None = None  # type: ignore[assignment]
        self.setter: Callable[[Any, Any], None] | None = None  # type: ignore[assignment]
        self.name = ""

    def __call__(self, getter: Callable[[Any], Any]) -> Self:
        self.getter, self.about = getter, self.about or inspect.cleandoc(getter.__doc__ or "")
        return self

    def writes(self, setter: Callable[[Any, Any], None]) -> Callable[[Any, Any], None]:
        """Decorator for what happens on assignment. The function keeps its own name, which is not the property's."""
        self.setter = setter
        return setter

    def __set_name__(self, owner: type, name: str) -> None:
        self.name, self.stored = name, "_" + name
        super().__init__(self.getter or attrgetter(self.stored))
        self.__doc__ = "\n\n".join(filter(None, [self.about, f"Swift: {name}: {self.type}"]))

    @property
    def selectors(self) -> list[str]:
        if not self.objc:
            return []
        return [self.name, f"set{self.name[0].upper()}{self.name[1:]}:"] if self.settable else [self.name]

    def __set__(self, obj: Any, value: Any) -> None:
        who = f"{type(obj).__name__}.{self.name}"
        if not self.settable:
            raise AttributeError(f"{who} is read-only")
        try:
            value = converter(self.type)(value)
        except TypeError as expected:
            raise TypeError(f"{who}: expected {expected}, got {describe(value)}") from None
        except MLCRefusal as why:
            # Assignment has no answer to give, so the property keeps its value and the reason is recorded.
            answer(why, who, None)
            return
        if self.setter is not None:
            self.setter(obj, value)
        else:
            obj.__dict__[self.stored] = value  # past the __setattr__ of descriptors, which are frozen but for this


class static_prop(prop):
    """A property of the class itself. Where a labelled method shares the name, calling the value reaches that method."""

    def __init__(self, type_: str, selector: str | None = None, about: str = "") -> None:
        super().__init__(type_, about)
        self.selector = selector
        self.labelled: Callable[..., Any] | None = None

    @property
    def selectors(self) -> list[str]:
        return [self.selector or self.name]

    def __get__(self, obj: Any, cls: type | None = None, /) -> Any:
        value = self.getter(cls)  # type: ignore[misc]
        if self.labelled is not None:
            value._labelled = self.labelled.__get__(None, cls)
            value.__dict__["__signature__"] = inspect.signature(value._labelled)
        return value


def selector_method(declaration: Declaration, owner: type) -> Any:
    """The member as PyObjC spells it: positional arguments, in order."""
    signature = declaration.signature
    count, name = len(signature.params), selector_name(declaration.selector or "")
    door: Door | None = None

    def call(target: Any = NOBODY, /, *args: Any) -> Any:
        nonlocal door
        if len(args) != count:
            expect_receiver(target, owner, declaration)
            raise TypeError(f"{name} takes {count} arguments, got {len(args)}")
        if door is None:
            door = make_door(declaration.taking_nil(), signature.keywords, (), owner)
        try:
            return door(target, args, _NO_LABELS)
        except MLCRefusal as why:
            __tracebackhide__ = True
            raise shortened(why) from why.__cause__

    call.__name__ = name
    call.__qualname__ = name
    swift = f"Swift: {signature}" if signature.swift else "Swift has no spelling of it."
    call.__doc__ = "\n\n".join(filter(None, [declaration.words, f"Objective-C: {declaration.selector}\n{swift}"]))
    call.__signature__ = selector_signature(signature)  # type: ignore[attr-defined]
    return classmethod(call) if declaration.binds_class else call
