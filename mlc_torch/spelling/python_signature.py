"""The signatures that Python shows: in ``help()``, in IPython, and wherever an editor completes the labels of a call."""

from __future__ import annotations

from collections.abc import Sequence
from inspect import Parameter
from inspect import Signature as PythonSignature

from mlc_torch.spelling.signature import Param, Signature


class _LeftOut:
    """Shown as the default of a label that some overloads do not have, or that Swift has a default for."""

    def __repr__(self) -> str:
        return "..."


LEFT_OUT = _LeftOut()


def swift_signature(overloads: Sequence[Signature]) -> PythonSignature:
    """One signature for all members of a name: every label, in the order of the declarations.

    Labels that every overload requires have no default. Which labels go together only the overloads say; they stand in
    the docstring.
    """
    params: dict[str, Param] = {}
    for signature in sorted(overloads, key=lambda s: len(s.params)):
        for p in signature.params:
            params.setdefault(p.keyword, p)
    first = next((s.params[0] for s in overloads if s.params and s.params[0].may_be_positional), None)
    required = frozenset.intersection(*(s.required for s in overloads)) if overloads else frozenset()
    ordered = sorted(params.values(), key=lambda p: first is None or p.keyword != first.keyword)
    made = [Parameter("self", Parameter.POSITIONAL_ONLY)]
    for p in ordered:
        default = Parameter.empty if p.keyword in required else LEFT_OUT
        if p.label == "_":
            made.append(Parameter(p.name, Parameter.POSITIONAL_ONLY, default=default))
        else:
            may = first is not None and p.keyword == first.keyword
            kind = Parameter.POSITIONAL_OR_KEYWORD if may else Parameter.KEYWORD_ONLY
            made.append(Parameter(p.keyword, kind, default=default))
    return PythonSignature(made)


def selector_signature(signature: Signature) -> PythonSignature:
    """The same for a selector, whose arguments have no labels."""
    names = ["self", *(p.name for p in signature.params)]
    return PythonSignature([Parameter(name, Parameter.POSITIONAL_ONLY) for name in names])
