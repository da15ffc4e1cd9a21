"""What descriptors share: they are values. Two with the same fields are equal, and nothing about them changes."""

from __future__ import annotations

from typing import Any, ClassVar

from mlc_torch.refusals import refuse
from mlc_torch.spelling import CLASSES, MLCObject


class Descriptor(MLCObject):
    """A frozen value object; ``==`` and ``hash`` go by its fields."""

    _bare_fields: ClassVar[dict[str, Any]] = {}
    """What Objective-C's plain ``init`` gives where it is not zero (behaviour.md, section C)."""

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other) and self.__dict__ == other.__dict__

    def __hash__(self) -> int:
        return hash((type(self).__name__, *self.__dict__.values()))

    def __setattr__(self, name: str, value: Any) -> None:
        prop = self.__properties__.get(name)
        if prop is None or not prop.settable:
            raise AttributeError(f"{type(self).__name__}.{name} is read-only")
        super().__setattr__(name, value)

    @classmethod
    def _bare(cls) -> Any:
        """What ``new`` and ``alloc().init()`` give: everything zero."""
        zero = {n: _zero(p.type) for n, p in cls.__properties__.items() if p.getter is None}
        return cls._make(**(zero | cls._bare_fields))


def _zero(type_: str) -> Any:
    known = {"Int": 0, "Float": 0.0, "Bool": False, "Data": b""}
    if type_ in known:
        return known[type_]
    cls: Any = CLASSES.get(type_)
    return cls._value2member_map_.get(0, 0) if hasattr(cls, "_value2member_map_") else None


def positive(who: str, value: int) -> int:
    if value < 1:
        refuse(f"{who} must be at least 1, got {value}")
    return value


def not_negative(who: str, value: int) -> int:
    if value < 0:
        refuse(f"{who} must not be negative, got {value}")
    return value
