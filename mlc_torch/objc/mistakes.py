"""The words for what a script got wrong, where those of the Swift spelling would name what a script does not have."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from mlc_torch.coverage.api import api
from mlc_torch.enums.kinds import spoken
from mlc_torch.objc.selectors import Member
from mlc_torch.refusals import MLCRefusal
from mlc_torch.spelling.arguments import CLASSES
from mlc_torch.spelling.closest import near_miss
from mlc_torch.spelling.own import wrong_type


def constants_of(type_: str) -> list[str]:
    """The flat constants of an enumeration or an option set; none of anything else."""
    return list(api()["enums"].get(type_) or api()["option_sets"].get(type_) or ())


def constant_meant(type_: str, name: str) -> str | None:
    """The flat constant of an enumeration or an option set that a script probably means by ``name``."""
    by_ending = {constant.removeprefix(type_): constant for constant in constants_of(type_)}
    meant = near_miss(name.removeprefix(type_), by_ending)
    return None if meant is None else by_ending[meant]


def explain_constant(member: Member, receiver: Any, args: Sequence[Any]) -> None:
    """Raise the sentence for an argument that should be one of the flat constants; return where the error came from elsewhere."""
    for param, value in zip(member.params, args, strict=True):
        type_ = param.type.removesuffix("?")
        cases = constants_of(type_)
        if not cases or value is None:
            continue
        try:
            CLASSES[type_]._coerce(value)  # type: ignore[attr-defined]  # every enumeration has it
        except MLCRefusal:
            continue
        except TypeError:
            owner = receiver if isinstance(receiver, type) else type(receiver)
            meant = constant_meant(type_, spoken(value))
            expected = f"a number ({', '.join(cases)})" if meant is None else meant
            raise wrong_type(f"{owner.__name__}.{member.name}", param.name, expected, value) from None
