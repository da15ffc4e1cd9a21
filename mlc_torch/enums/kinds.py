"""What the framework's enumerations are made of: plain ones, ones whose cases carry values, sets of options."""

from __future__ import annotations

import enum
import functools
from collections.abc import Callable, Mapping, Sequence
from numbers import Integral
from typing import Any, ClassVar, TypeVar

from mlc_torch.enums.descriptions import DEBUG_DESCRIPTIONS
from mlc_torch.refusals import refuse
from mlc_torch.spelling import CLASSES
from mlc_torch.spelling.arguments import describe, to_int
from mlc_torch.spelling.closest import hint, hint_or_all, near_miss

_MISSING: Any = object()
_OPTION_BITS = 2**64 - 1
"""All options that there could be: in Objective-C a set of them is an ``NSUInteger``."""
F = TypeVar("F", bound=Callable[..., Any])


class _EnumType(enum.EnumType):
    """Adds Swift's ``init(rawValue:)``, which is failable for enumerations: ``MLCDataType(rawValue=99)`` is ``None``.

    A set of options is also made from a list, or from nothing.
    """

    def __call__(cls: Any, value: Any = _MISSING, *args: Any, rawValue: Any = _MISSING, **kw: Any) -> Any:
        options = issubclass(cls, enum.Flag)
        if rawValue is not _MISSING:
            raw = whole_number(f"{cls.__name__}: argument 'rawValue'", rawValue)
            return super().__call__(raw) if options else cls._value2member_map_.get(raw)
        if options and (value is _MISSING or isinstance(value, (list, tuple, set, frozenset))):
            return cls._coerce([] if value is _MISSING else value)
        if options and isinstance(value, Integral) and abs(int(value)) > _OPTION_BITS:
            raise TypeError(f"{cls.__name__} expects {_options_of(cls)}, got {describe(value)}")
        if value is _MISSING:
            raise TypeError(f"{cls.__name__}() does not exist. There is:\n  {cls.__name__}(rawValue=)")
        return super().__call__(value, *args, **kw)

    def __init__(cls: Any, *args: Any, **kw: Any) -> None:
        super().__init__(*args, **kw)
        for name, case in cls.__dict__.get("_member_map_", {}).items():
            type.__setattr__(cls, name, case)  # as Python 3.12 does; 3.11 would ask __getattr__ for it each time
        if issubclass(cls, enum.Flag):
            for name in ("__or__", "__and__", "__xor__"):  # Python gives each class of flags its own when it is made
                type.__setattr__(cls, name, _of_one_kind(getattr(enum.Flag, name)))
        type.__setattr__(cls, "_made", True)  # all cases are there

    def __getattr__(cls: Any, name: str) -> Any:
        """Only what is no case comes here."""
        raise AttributeError(f"{cls.__name__} has no case {name!r}{_hint(cls, name)}")

    def __setattr__(cls: Any, name: str, value: Any) -> None:
        if name[0] != "_" and cls.__dict__.get("_made") and not hasattr(cls, name):
            raise AttributeError(f"{cls.__name__} has no case {name!r} to be set{_hint(cls, name)}")
        super().__setattr__(name, value)


def _of_one_kind(combine: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    """An operator of option sets that takes raw values, and no options of another set, whose bits mean something else."""

    @functools.wraps(combine)
    def checked(self: Any, other: Any) -> Any:
        if isinstance(other, enum.Enum) and not isinstance(other, type(self)):
            raise TypeError(f"{self!r} cannot be combined with {other!r}, which is no {type(self).__name__}")
        return combine(self, other)

    return checked


def _hint(cls: Any, name: str) -> str:
    return hint_or_all(name, cls.__dict__.get("_member_map_", ()))


def spoken(value: Any) -> str:
    """The name that a value was probably meant by: of a string itself, of ``torch.float32`` and ``np.float32`` the last part."""
    return value if isinstance(value, str) else getattr(value, "__name__", str(value)).removeprefix("torch.")


def _expected(cls: Any, cases: Sequence[str], value: Any) -> TypeError:
    """What was expected where a value is no case: the case of that name where one is, as for ``"float32"``."""
    if hasattr(value, "example"):  # a case that carries values, without them
        return TypeError(value.example)
    meant = near_miss(spoken(value), cases)
    listed = f"{cls.__name__} ({', '.join(cases)})" if isinstance(value, str) else cls.__name__
    return TypeError(f"{cls.__name__}.{meant}" if meant is not None else listed)


def _case_of(cls: Any, value: Any, cases: Mapping[int, str]) -> Any:
    """A case as it is, or the one whose raw value came; ``cases`` are the names by these."""
    if isinstance(value, cls):
        return value
    if isinstance(value, (bool, enum.Enum)) or not isinstance(value, Integral):
        raise _expected(cls, list(cases.values()), value)
    if value not in cases:
        refuse(f"{value} is no {cls.__name__}; there is {', '.join(f'{n} ({v})' for v, n in cases.items())}")
    return cls(int(value))


def _options_of(cls: Any) -> str:
    return f"{cls.__name__} (an option, or a list of options, as a raw value of up to 64 bits)"


class _Fixed:
    """What enumerations and option sets share: a raw value, and no names that they do not have."""

    __slots__ = ()

    @property
    def rawValue(self) -> int:
        """The number that stands for this case in the framework."""
        return int(self)  # type: ignore[call-overload]  # of the classes below, which are numbers

    def __setattr__(self, name: str, value: Any) -> None:
        if name[0] != "_":
            cls = type(self)
            known = [n for n in dir(cls) if not n.startswith("_") and n not in cls.__dict__["_member_map_"]]
            raise AttributeError(f"{self!r} has no property {name!r} that can be set{hint(name, known)}")
        object.__setattr__(self, name, value)


def whole_number(who: str, value: Any) -> int:
    try:
        return to_int(value)
    except TypeError as expected:
        raise TypeError(f"{who} expects {expected}, got {describe(value)}") from None


class MLCEnum(_Fixed, enum.IntEnum, metaclass=_EnumType):
    """An enumeration of the framework. Members compare equal to their raw values, as Objective-C's constants do."""

    def __init_subclass__(cls, **kw: Any) -> None:
        super().__init_subclass__(**kw)
        CLASSES.setdefault(cls.__name__, cls)

    @classmethod
    def _coerce(cls, value: Any) -> MLCEnum:
        return _case_of(cls, value, {case.value: case.name for case in cls})

    def __repr__(self) -> str:
        return f"{type(self).__name__}.{self.name}"

    __str__ = __repr__


class DescribedEnum(MLCEnum):
    """An enumeration whose cases have a ``debugDescription``."""

    @property
    def debugDescription(self) -> str:
        """The framework's own words for this case."""
        return DEBUG_DESCRIPTIONS[type(self).__name__][int(self)]


def labelled(example: str, required: Sequence[str] = (), optional: Sequence[str] = ()) -> Callable[[F], F]:
    """Marks a case that takes values by their labels: a call without them is told how it is written."""

    def mark(function: F) -> F:
        @functools.wraps(function)
        def call(owner: Any, *unlabelled: Any, **labels: Any) -> Any:
            if unlabelled or not {*required} <= labels.keys() <= {*required, *optional}:
                raise TypeError(f"{example.partition('(')[0]} takes its values by their labels: {example}")
            return function(owner, **labels)

        call.__dict__["example"] = example
        return call  # type: ignore[return-value]

    return mark


class _PayloadType(type):
    def __getattr__(cls: Any, name: str) -> Any:
        cases = cls.__dict__.get("cases", {}).values()
        raise AttributeError(f"{cls.__name__} has no case {name!r}{hint_or_all(name, cases)}")


class PayloadEnum(metaclass=_PayloadType):
    """A Swift enumeration of which one case, number 2 in both, carries values.

    Objective-C sees the raw value and passes the rest beside it.
    """

    cases: ClassVar[dict[int, str]]
    _usual_payload: ClassVar[Any]
    """What the case that carries values has where none are given."""
    rawValue: int
    payload: Any
    __slots__ = ("payload", "rawValue")

    def __init__(self, raw: int, payload: Any = None) -> None:
        cls = type(self).__name__
        number = whole_number(f"{cls}: argument 'raw'", raw)
        if number not in self.cases:
            raise ValueError(f"{number} is not a valid {cls}")
        if number == 2:
            payload = self._usual_payload if payload is None else self._checked(payload)
        elif payload is not None:
            raise TypeError(f"{cls}.{self.cases[number]} carries no values, got {describe(payload)}")
        object.__setattr__(self, "rawValue", number)
        object.__setattr__(self, "payload", payload)

    @staticmethod
    def _checked(payload: Any) -> Any:
        """The values of a case, converted; a ``TypeError`` where Swift would not compile them."""
        raise NotImplementedError

    def __init_subclass__(cls) -> None:
        CLASSES.setdefault(cls.__name__, cls)

    def __setattr__(self, name: str, value: Any) -> None:
        raise AttributeError(f"{type(self).__name__} is immutable")

    @property
    def name(self) -> str:
        return self.cases[self.rawValue]

    @property
    def debugDescription(self) -> str:
        """The framework's own words for this case."""
        return DEBUG_DESCRIPTIONS[type(self).__name__][self.rawValue]

    @classmethod
    def _coerce(cls, value: Any) -> Any:
        return _case_of(cls, value, cls.cases)

    def __int__(self) -> int:
        return self.rawValue

    __index__ = __int__

    def __eq__(self, other: object) -> bool:
        if isinstance(other, type(self)):
            return (self.rawValue, self.payload) == (other.rawValue, other.payload)
        return NotImplemented

    def __hash__(self) -> int:
        return hash((type(self).__name__, self.rawValue, self.payload))

    def __reduce__(self) -> Any:
        return type(self), (self.rawValue, self.payload)

    def __repr__(self) -> str:
        return f"{type(self).__name__}.{self.name}"


class MLCOptionSet(_Fixed, enum.IntFlag, metaclass=_EnumType, boundary=enum.KEEP):
    """A set of options. Where one is expected, a member, ``[]`` or a list of members serves, as in Swift."""

    def __init_subclass__(cls, **kw: Any) -> None:
        super().__init_subclass__(**kw)
        CLASSES.setdefault(cls.__name__, cls)

    @classmethod
    def _coerce(cls, value: Any) -> MLCOptionSet:
        if isinstance(value, cls):
            return value
        if isinstance(value, (list, tuple, set, frozenset)):
            combined = 0
            for option in value:
                combined |= (option if type(option) is cls else cls._option(option))._value_
            found: Any = cls._value2member_map_.get(combined)  # a call of the class costs ten times as much
            return found if found is not None else cls(combined)
        return cls._option(value)

    @classmethod
    def _option(cls, value: Any) -> MLCOptionSet:
        """What is no list: a list holds options alone, and no lists."""
        if isinstance(value, cls):
            return value
        if isinstance(value, str):
            raise _expected(cls, list(cls.__members__), value)
        if isinstance(value, (bool, enum.Enum)) or not isinstance(value, Integral) or value < 0:
            raise TypeError(f"{cls.__name__} (an option, or a list of options)")
        if int(value) > _OPTION_BITS:
            raise TypeError(_options_of(cls))
        return cls(int(value))

    def __repr__(self) -> str:
        return f"{type(self).__name__}([{', '.join(m.name or '' for m in self)}])"

    __str__ = __repr__
