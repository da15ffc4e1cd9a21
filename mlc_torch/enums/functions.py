"""The C functions that give a case in words: ``MLCLossTypeDebugDescription`` and the like."""

from __future__ import annotations

from numbers import Integral
from typing import Any

from mlc_torch.enums.descriptions import DEBUG_DESCRIPTIONS
from mlc_torch.enums.kinds import PayloadEnum


def _description_function(enumeration: str) -> Any:
    def describe(value: Any) -> str | None:
        if isinstance(value, bool) or not isinstance(value, (Integral, PayloadEnum)):
            raise TypeError(f"{describe.__name__} expects {enumeration} or its raw value, got {value!r}")
        return DEBUG_DESCRIPTIONS[enumeration].get(int(value))

    describe.__name__ = describe.__qualname__ = f"{enumeration}DebugDescription"
    describe.__doc__ = f"The framework's own words for a case of {enumeration}; ``None`` for an unknown value."
    return describe


FUNCTIONS = {f"{name}DebugDescription": _description_function(name) for name in DEBUG_DESCRIPTIONS}
