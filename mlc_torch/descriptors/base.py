"""What descriptors share: they are values. Two with the same fields are equal; only what is declared settable changes."""

from __future__ import annotations

import inspect
import math
from typing import Any, ClassVar

from mlc_torch.descriptors.brief import brief
from mlc_torch.refusals import MLCRefusal, refuse
from mlc_torch.spelling import CLASSES, MLCObject


class Descriptor(MLCObject):
    """A frozen value object; ``==`` and ``hash`` go by its fields."""

    _bare_fields: ClassVar[dict[str, Any]] = {}
    """What Objective-C's plain ``init`` gives where it is not zero (evidence.md, section C)."""

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other) and self.__dict__ == other.__dict__

    def __hash__(self) -> int:
        values = (tuple(value) if isinstance(value, list) else value for value in self.__dict__.values())
        return hash((type(self).__name__, *values))

    def __setattr__(self, name: str, value: Any) -> None:
        prop = self.__properties__.get(name)
        if (prop is None and (name[0] == "_" or hasattr(self, name))) or (prop is not None and not prop.settable):
            raise AttributeError(f"{type(self).__name__}.{name} is read-only")
        super().__setattr__(name, value)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(self._repr_words())})"

    def _repr_words(self, without: frozenset[str] = frozenset()) -> list[str]:
        """What a one-line repr says; layers say it of their descriptors."""
        return brief({name: getattr(self, name) for name in self._shown() if name not in without})

    def _shown(self) -> list[str]:
        """What an initializer demands, and what differs from the values that it fills in itself."""
        stored = {n: p.stored for n, p in self.__properties__.items() if p.getter is None}
        needed = [p.name for p in inspect.signature(self._create).parameters.values() if p.default is p.empty]
        # A parameter ``type`` is stored as convolutionType, poolingType and so on.
        fields = {n: n if n in stored else next(s for s in stored if s.endswith("Type")) for n in needed}
        try:
            usual = self._usual({n: getattr(self, field) for n, field in fields.items()})
        except MLCRefusal:  # what plain ``init`` gives, no initializer with labels would
            return list(stored)
        same = {n for n in stored if n not in fields.values() and getattr(self, n) == getattr(usual, n)}
        return [*fields.values(), *(n for n in stored if n not in same and n not in fields.values())]

    def _usual(self, needed: dict[str, Any]) -> Any:
        """A descriptor that was given only what an initializer demands."""
        return self._create(**needed)

    @classmethod
    def _bare(cls) -> Any:
        """What ``new`` and ``alloc().init()`` give: everything zero."""
        zero = {n: zero_of(p.type) for n, p in cls.__properties__.items() if p.getter is None}
        return cls._make(**(zero | cls._bare_fields))


def zero_of(type_: str) -> Any:
    """What a property of a Swift type holds before anything was set."""
    known = {"Int": 0, "Float": 0.0, "Bool": False, "Data": b""}
    if type_ in known:
        return known[type_]
    if type_.startswith("[") and not type_.endswith("?"):
        return []
    cls: Any = CLASSES.get(type_)
    return cls._value2member_map_.get(0, 0) if hasattr(cls, "_value2member_map_") else None


def positive(who: str, value: int) -> int:
    if value < 1:
        refuse(f"{who} must be at least 1, got {value}")
    return value


def finite(who: str, value: float) -> float:
    if not math.isfinite(value):
        refuse(f"{who} must be finite, got {value}")
    return value


def not_negative(who: str, value: int) -> int:
    if value < 0:
        refuse(f"{who} must not be negative, got {value}")
    return value
