"""The two enumerations whose cases carry values."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

from mlc_torch.enums.kinds import PayloadEnum, labelled, whole_number
from mlc_torch.spelling import YX
from mlc_torch.spelling.arguments import describe, is_list, to_bool


class MLCPaddingPolicy(PayloadEnum):
    """How an image is padded for a window: ``same``, ``valid`` or ``sized(y=, x=)``.

    - ``same``: enough for a result of the source's size divided by the stride
    - ``valid``: no padding
    - ``sized``: ``y`` rows above and below, ``x`` columns left and right
    """

    cases = {0: "same", 1: "valid", 2: "sized"}
    _usual_payload = YX(0, 0)
    __slots__ = ()
    same: ClassVar[MLCPaddingPolicy]
    valid: ClassVar[MLCPaddingPolicy]

    def __init__(self, raw: int, payload: Sequence[int] | None = None) -> None:
        super().__init__(raw, payload)

    @staticmethod
    def _checked(payload: Any) -> YX:
        if not is_list(payload) or len(payload) != 2:
            raise TypeError(f"MLCPaddingPolicy.sized: expects two sizes (y, x), got {describe(payload)}")
        sizes = zip(("y", "x"), payload, strict=True)
        return YX(*(whole_number(f"MLCPaddingPolicy.sized: argument {name!r}", size) for name, size in sizes))

    @classmethod
    @labelled("MLCPaddingPolicy.sized(y=1, x=1)", required=("y", "x"))
    def sized(cls, *, y: int, x: int) -> MLCPaddingPolicy:
        return cls(2, (y, x))

    @property
    def sizes(self) -> YX:
        """The padding sizes that this policy asks for: zero unless it is ``sized``."""
        return self.payload or YX(0, 0)

    def __repr__(self) -> str:
        return f"MLCPaddingPolicy.sized(y={self.payload.y}, x={self.payload.x})" if self.payload else super().__repr__()


MLCPaddingPolicy.same = MLCPaddingPolicy(0)
MLCPaddingPolicy.valid = MLCPaddingPolicy(1)


class MLCPoolingType(PayloadEnum):
    """What a pooling layer takes from a window: ``max``, ``average``, ``average(countIncludesPadding=True)`` or ``l2Norm``."""

    cases = {1: "max", 2: "average", 3: "l2Norm"}
    _usual_payload = False
    __slots__ = ()
    max: ClassVar[MLCPoolingType]
    average: ClassVar[MLCPoolingType]
    l2Norm: ClassVar[MLCPoolingType]

    def __init__(self, raw: int, payload: bool | None = None) -> None:
        super().__init__(raw, payload)

    @staticmethod
    def _checked(payload: Any) -> bool:
        try:
            return to_bool(payload)
        except TypeError as expected:
            who = "MLCPoolingType.average: argument 'countIncludesPadding'"
            raise TypeError(f"{who} expects {expected}, got {describe(payload)}") from None

    @property
    def countIncludesPadding(self) -> bool:
        return bool(self.payload)

    @labelled("MLCPoolingType.average(countIncludesPadding=True)", optional=("countIncludesPadding",))
    def __call__(self, *, countIncludesPadding: bool = False) -> MLCPoolingType:
        if self.rawValue != 2:
            raise TypeError(f"{self!r} carries no values")
        # Checked here, too, since None written out is no Bool, and only beside a raw value stands for the usual one.
        return MLCPoolingType(2, self._checked(countIncludesPadding))

    def __repr__(self) -> str:
        return "MLCPoolingType.average(countIncludesPadding=True)" if self.payload else super().__repr__()


MLCPoolingType.max = MLCPoolingType(1)
MLCPoolingType.average = MLCPoolingType(2)
MLCPoolingType.l2Norm = MLCPoolingType(3)
