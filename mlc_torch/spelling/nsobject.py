"""What every class of the framework has from ``NSObject``, as Swift spells it. The PyObjC view has the rest."""

from __future__ import annotations


class NSObject:
    """The root of the framework's classes."""

    @property
    def description(self) -> str:
        """The object in words."""
        return str(self)

    @property
    def debugDescription(self) -> str:
        """The object in words for somebody who looks for a mistake."""
        return repr(self)

    def isEqual(self, object: object, /) -> bool:
        """Whether both are the same; descriptors are the same when their values are."""
        same = self.__eq__(object)  # not ==, which lets an array answer, element by element
        if same is NotImplemented and hasattr(type(object), "_as_argument"):
            same = object == self  # in PyObjC's spelling, which knows what it shows
        return same is not NotImplemented and bool(same)

    @property
    def hash(self) -> int:
        """A number that equal objects share."""
        return hash(self)
