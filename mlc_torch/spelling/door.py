"""The door: what every public call passes. It converts the arguments, calls, and answers a refusal as Swift would.

A spelling is always called with the same labels, so its door is written as straight-line code the first time it is
used: an argument that is already what the member takes costs one look at its type, and only another one is converted.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Flag
from types import FunctionType
from typing import Any

from numpy import ndarray

from mlc_torch.refusals import MLCRefusal, answer, calls, pass_on_signals, why_none
from mlc_torch.spelling.arguments import CLASSES, RUNS_NOTHING, Converter, converter, describe
from mlc_torch.spelling.declaration import Declaration
from mlc_torch.spelling.receiver import expect_receiver
from mlc_torch.spelling.signature import Signature, split_top

Door = Callable[[Any, tuple[Any, ...], dict[str, Any]], Any]
"""Takes the object or class, the unlabelled arguments and the labelled ones."""

Place = int | str
"""Where an argument of a call stands: its position among the unlabelled ones, or its label."""

Arguments = tuple[tuple[Place, str, str, Converter], ...]
"""For each argument of a call: where it stands, its name in messages, its Swift type, its converter."""

PACKING = "__packing__"
"""A function that carries one of these is not called with its arguments one by one."""


@dataclass(frozen=True)
class Packing:
    """How the arguments of a call become one object, and who is given it."""

    names: frozenset[str]
    """The parameters that a spelling may have."""
    call: Callable[[str, dict[str, str], str], str]
    """Takes the spelling's name, the variable behind each parameter and the variable of the function; gives the expression
    that the door evaluates."""
    known: dict[str, Any]
    """What the expression refers to besides ``target`` and those."""


def make_door(declaration: Declaration, unlabelled: tuple[str, ...], labelled: tuple[str, ...], owner: type) -> Door:
    """The door for calls of ``declaration`` with these arguments, named by their labels."""
    found: list[tuple[Place, str, str]] = [(n, keyword, f"args[{n}]") for n, keyword in enumerate(unlabelled)]
    found += [(keyword, keyword, f"given[{keyword!r}]") for keyword in labelled]
    known: dict[str, Any] = {}
    lines = passing(declaration, owner, found, known, args="args", given="given")
    return written("door", "target, args, given", lines, known)


def written(name: str, parameters: str, lines: list[str], known: dict[str, Any]) -> Callable[..., Any]:
    """The function of these lines, in which the names of ``known`` are known."""
    text = "\n".join([f"def {name}({parameters}):", *(f"    {line}" for line in lines)])
    known["__name__"] = __name__  # which the function takes for its module
    exec(compile(text, "<mlc_torch door>", "exec"), known)  # written here, from our own declarations
    return known[name]


def passing(
    declaration: Declaration,
    owner: type,
    found: list[tuple[Place, str, str]],
    known: dict[str, Any],
    *,
    args: str,
    given: str,
    tag: str = "",
) -> list[str]:
    """The lines of one door, which go to the member and return what it answers.

    ``found`` says for each argument where it stands, its label, and the text that reads it; ``args`` and ``given`` are the
    text of all of them, as :class:`Door` takes them. What the lines refer to is added to ``known``, under names with ``tag``.
    """
    params = {p.keyword: p for p in declaration.signature.params}
    known |= {f"function{tag}": declaration.function, "MLCRefusal": MLCRefusal, "calls": calls}
    packing: Packing | None = declaration.function.__dict__.get(PACKING)
    lines, handed, arguments = [], {}, []
    for number, (place, keyword, text) in enumerate(found):
        param, value, convert = params[keyword], f"a{number}", f"convert{tag}_{number}"
        known[convert] = _converter(param.type)
        lines += [f"{value} = {text}", *_converted(value, param.type, convert, known, packing is not None)]
        handed[param.name] = value
        named = param.name if keyword == "_" or not declaration.signature.swift else keyword
        arguments.append((place, named, param.type, converter(param.type)))
    for name, fixed in declaration.fixed.items():
        known[f"fixed{tag}_{name}"] = fixed
        handed[name] = f"fixed{tag}_{name}"
    if packing is not None:
        known |= packing.known
        call = packing.call(declaration.signature.labels, handed, f"function{tag}")
    else:
        call = f"function{tag}({', '.join(['target', *(f'{name}={value}' for name, value in handed.items())])})"
    known[f"explain{tag}"] = _Explainer(declaration, owner, tuple(arguments))
    return [
        "number = next(calls)",
        "try:",
        *(f"    {line}" for line in lines),
        f"    return {call}",
        "except MLCRefusal as why:",
        f"    return explain{tag}.refusal(why, target)",
        "except TypeError:",
        f"    explain{tag}.wrong_type(target, {args}, {given}, number)",
        "    raise",
        "except AttributeError:",
        f"    explain{tag}.no_receiver(target)",
        "    raise",
    ]


def _converted(value: str, type_: str, convert: str, known: dict[str, Any], packed: bool) -> list[str]:
    """Lines that leave ``value`` as the member takes it, without a call where it comes so; ``packed``: options as bits."""
    if type_.endswith("?"):
        inner = _converted(value, type_[:-1], convert, known, packed)
        return [f"if {value} is not None:", *(f"    {line}" for line in inner)]
    change = f"{value} = {convert}({value})"
    if type_ == "Int":  # of 64 bits; negative ones are rare, and looked at again
        return [f"if type({value}) is not int or {value} >> 63: {change}"]
    if type_ in _EXACT:
        return [f"if type({value}) is not {_EXACT[type_]}: {change}"]
    if type_ in ("UnsafeMutableRawPointer", "UnsafeRawPointer"):
        known["ndarray"] = ndarray
        return [f"if type({value}) is not ndarray: {change}"]
    if type_ == "MLCGraphCompletionHandler":
        known["function_type"] = FunctionType
        return [f"if type({value}) is not function_type or {value}.__code__.co_flags & {RUNS_NOTHING}: {change}"]
    if _is_ours(type_):
        known[type_] = CLASSES[type_]
        if issubclass(CLASSES[type_], Flag):
            return _options(value, type_, change, known, packed)
        return [f"if type({value}) is not {type_}: {change}"]
    pair = split_top(type_[1:-1], ":") if type_.startswith("[") else []
    if len(pair) == 2 and pair[0].strip() == "String" and _is_ours(entry := pair[1].strip()):
        known[entry] = CLASSES[entry]
        return [
            f"if type({value}) is not dict: {change}",
            "else:",
            f"    for key, item in {value}.items():",
            f"        if type(item) is not {entry} or type(key) is not str:",
            f"            {change}",
            "            break",
        ]
    return [change]


def _options(value: str, type_: str, change: str, known: dict[str, Any], packed: bool) -> list[str]:
    """An option set: a member, or a list of members."""
    if packed:
        made, given = [f"{value} = bits"], [f"{value} = {value}._value_"]
        change += "._value_"
    else:
        known[f"{type_}_members"] = CLASSES[type_]._value2member_map_  # type: ignore[attr-defined]
        made, given = [f"{value} = {type_}_members.get(bits)", f"if {value} is None: {value} = {type_}(bits)"], []
    return [
        f"if type({value}) is list:",
        "    bits = 0",
        f"    for item in {value}:",
        f"        if type(item) is not {type_}:",
        f"            {change}",
        "            break",
        "        bits |= item._value_",
        "    else:",
        *(f"        {line}" for line in made),
        f"elif type({value}) is not {type_}: {change}",
        *(f"else: {line}" for line in given),
    ]


def _converter(type_: str) -> Converter:
    """Enumerations and option sets convert by themselves; everything else as ``arguments`` says."""
    coerce: Converter | None = getattr(CLASSES.get(type_), "_coerce", None)
    return coerce if coerce is not None else converter(type_)


_EXACT = {"Bool": "bool", "String": "str"}


def _is_ours(type_: str) -> bool:
    return type_ in CLASSES and type_.isidentifier()


class _Explainer:
    """The words for a call that did not go through."""

    def __init__(self, declaration: Declaration, owner: type, arguments: Arguments) -> None:
        self.declaration, self.owner, self.arguments = declaration, owner, arguments

    def no_receiver(self, target: Any) -> None:
        """Raise the sentence for a call without an object; return where the error came from elsewhere."""
        expect_receiver(target, self.owner, self.declaration)

    def refusal(self, why: MLCRefusal, target: Any) -> Any:
        """The answer for a refusal. What a completion handler raised is the program's own, and goes on."""
        if why.from_handler:
            raise why
        self.no_receiver(target)
        who = member_name(target, self.declaration.signature)
        return answer(why, who, self.declaration.on_refusal, self.declaration.answers(target))

    def wrong_type(self, target: Any, args: tuple[Any, ...], given: dict[str, Any], number: int) -> None:
        """Raise the sentence for an argument of the wrong type; return where the error came from elsewhere."""
        self.no_receiver(target)
        for place, name, type_, convert in self.arguments:
            value = args[place] if isinstance(place, int) else given[place]
            try:
                convert(value)
            except MLCRefusal:
                continue
            except TypeError as expected:
                who = member_name(target, self.declaration.signature)
                came = f"{describe(value)}{_why_none(type_, value, number)}"
                raise TypeError(f"{who}: argument {name!r} expects {expected}, got {came}") from None


def _why_none(type_: str, value: Any, number: int) -> str:
    """Where a ``None`` came from, alone or as an entry of a list or dictionary."""
    try:
        entries = list(
            value.values() if isinstance(value, Mapping) else value if isinstance(value, (list, tuple)) else [value]
        )
    except Exception as error:  # noqa: BLE001 - one that cannot be read, as the message says already
        pass_on_signals(error)
        return ""
    wanted = CLASSES.get(type_.strip("[]?").rpartition(":")[2].strip())
    return why_none(wanted, number) if wanted is not None and any(entry is None for entry in entries) else ""


def member_name(target: Any, signature: Signature) -> str:
    """Who is speaking: ``MLCGraph.node(with:source:)``, ``MLCReshapeLayer(shape:)``, by selector if there is no more."""
    owner = target.__name__ if isinstance(target, type) else type(target).__name__
    if not signature.swift:
        return f"{owner}.{''.join(f'{p.label}:' for p in signature.params) or signature.name}"
    return f"{owner}{signature.labels.removeprefix('init')}" if signature.is_init else f"{owner}.{signature.labels}"
