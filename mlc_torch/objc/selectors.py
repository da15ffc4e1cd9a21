"""Selectors and functions as PyObjC shows them: callable objects that know their name, their types and their class."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NoReturn

from mlc_torch.objc.encodings import function_metadata, is_out, metadata
from mlc_torch.spelling.signature import Param, selector_name


@dataclass(frozen=True, slots=True, eq=False)
class Member:
    """One selector: how it is written, its Swift types, and the function that answers it for a class or an object."""

    selector: str
    of_class: bool
    params: tuple[Param, ...]
    returns: str
    function: Callable[..., Any]
    doc: str
    source: Any = None
    """The declaration or property behind it, by which an inherited member is told from one of the class's own."""
    both: bool = False
    """Whether the class answers as well, as it does to ``description``."""

    @property
    def name(self) -> str:
        return selector_name(self.selector)

    @property
    def out(self) -> int | None:
        """Which argument is memory that the member fills, if any."""
        return next((i for i, p in enumerate(self.params) if is_out(p, of_class=self.of_class)), None)


class Selector:
    """A selector of a class, or of an object once it was read from one. ``MLCTensor.label(tensor)`` works, too."""

    def __init__(
        self, member: Member, call: Callable[..., Any], receiver: Any = None, defining: Any = None, of: Any = None
    ) -> None:
        self._member, self._call, self._of = member, call, of
        self.self, self.definingClass = receiver, defining
        self.__name__ = self.__qualname__ = member.name
        self.__doc__ = member.doc

    def __set_name__(self, owner: type, name: str) -> None:
        self.definingClass = self.definingClass or owner

    def __get__(self, obj: Any, cls: Any = None) -> Selector:
        if not self._member.of_class:
            return Selector(self._member, self._call, obj, self.definingClass, cls)
        if obj is not None:
            raise AttributeError(self.__name__)  # an object does not answer to the selectors of its class
        return Selector(self._member, self._call, cls, self.definingClass)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        raise AttributeError(self._not_called(f"has no attribute {name!r}", f".{name}"))

    def refuse_as_argument(self, of: str, name: str) -> NoReturn:
        """Where a member of the name ``of`` is given the selector itself, and takes no function."""
        raise TypeError(self._not_called(f"{of} cannot take for its {name}", ""))

    def _not_called(self, lack: str, then: str) -> str:
        call = f"{self.__name__}({', '.join(p.name for p in self._member.params)})"
        return f"{self.__name__} is a selector, which {lack}; PyObjC calls properties too: {call}{then}"

    def __iter__(self) -> NoReturn:
        raise TypeError(self._not_called("has no elements", ""))

    def __contains__(self, element: object) -> NoReturn:
        raise TypeError(self._not_called("has no elements", ""))

    def __len__(self) -> NoReturn:
        raise TypeError(self._not_called("has no length", ""))

    def __getitem__(self, index: object) -> NoReturn:
        which = "..." if isinstance(index, slice) else repr(index)
        raise TypeError(self._not_called("has no elements", f"[{which}]"))

    def __bool__(self) -> bool:
        return True  # as any function is, although it has ``__len__``

    def __call__(self, *args: Any, **named: Any) -> Any:
        if named:
            order = ", ".join(p.name for p in self._member.params)
            raise TypeError(
                f"{self.__name__} takes no argument by its name ({', '.join(named)}): {self.__name__}({order})"
            )
        if self.self is not None:
            return self._call(self._member, self.self, args)
        if self.answers_both and len(args) == len(self._member.params):
            return self._call(self._member, self._of, args)
        if not args:
            raise TypeError(f"{self.__name__} is a selector of objects: call it on one, or give one first")
        if not isinstance(args[0], self.definingClass):
            raise TypeError(f"{self.__name__} expects a {self.definingClass.__name__} first, got {args[0]!r}")
        return self._call(self._member, args[0], args[1:])

    @property
    def selector(self) -> bytes:
        return self._member.selector.encode()

    @property
    def isClassMethod(self) -> bool:
        return self._member.of_class

    @property
    def answers_both(self) -> bool:
        """Whether a class answers to this selector as its objects do."""
        return self._member.both

    @property
    def signature(self) -> bytes:
        return self.__metadata__()["full_signature"]

    native_signature = signature

    def __metadata__(self) -> dict[str, Any]:
        """Types of the result and of the arguments, as PyObjC describes them."""
        m = self._member
        return metadata(m.selector, m.params, m.returns, of_class=m.of_class)

    @property
    def __signature__(self) -> inspect.Signature:
        kind = inspect.Parameter.POSITIONAL_ONLY
        first = [] if self.self is not None else [inspect.Parameter("self", kind)]
        return inspect.Signature([*first, *(inspect.Parameter(p.name, kind) for p in self._member.params)])

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Selector) and self._member is other._member and self.self is other.self

    def __hash__(self) -> int:
        return hash((self._member.selector, id(self.self)))

    def __repr__(self) -> str:
        sign = "+" if self._member.of_class else "-"
        bound = "" if self.self is None else f" of {self.self!r}"
        return f"<selector {sign}{self._member.selector}{bound}>"


class Function:
    """A function of the framework, ``MLCLossTypeDebugDescription`` and the like."""

    def __init__(self, call: Callable[[int], Any], name: str, types: list[str], returns: str) -> None:
        self._call, self._types = call, (types, returns)
        self.__name__ = self.__qualname__ = name
        self.__doc__ = f"{name}({', '.join(types)}) -> {returns}"

    def __call__(self, *args: Any) -> Any:
        return self._call(*args)

    def __metadata__(self) -> dict[str, Any]:
        return function_metadata(*self._types)

    def __repr__(self) -> str:
        return f"<function {self.__name__}>"
