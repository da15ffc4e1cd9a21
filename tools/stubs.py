"""Writes ``mlc_torch/__init__.pyi`` and those of the rooms that programs import from; ``--check`` exits with 1 when one is stale.

Run it from anywhere after a public member was added or changed: ``python tools/stubs.py``.
"""

from __future__ import annotations

import argparse
import importlib
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "tools")]

from stub_ours import Ours, docstring, names_a_class, said  # noqa: E402
from stub_types import given, returned  # noqa: E402

import mlc_torch  # noqa: E402
from mlc_torch.enums.descriptions import DEBUG_DESCRIPTIONS  # noqa: E402
from mlc_torch.enums.functions import FUNCTIONS  # noqa: E402
from mlc_torch.enums.kinds import MLCEnum, MLCOptionSet  # noqa: E402
from mlc_torch.spelling import CLASSES, MLCObject, prop, static_prop  # noqa: E402
from mlc_torch.spelling.declaration import Declaration  # noqa: E402
from mlc_torch.spelling.nsobject import NSObject  # noqa: E402
from mlc_torch.spelling.signature import Param, selector_name  # noqa: E402

ROOMS = ("mlc_torch.interop", "mlc_torch.testing")
"""Beside the package itself, where programs find functions and classes."""
ALIAS = "MLCGraphCompletionHandler"
_OVERRIDES = "  # type: ignore[override]  # pyright: ignore[reportIncompatibleMethodOverride]"

HEADER = """\
# Written by tools/stubs.py from the declarations. Do not edit; run the tool again.
import enum as _enum
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, TypeAlias, TypeVar, overload

import numpy as _np
import torch as _torch
from typing_extensions import Buffer as _TypedBuffer
from typing_extensions import Self
{imports}
_Int: TypeAlias = int | _np.integer[Any]
_Float: TypeAlias = float | _np.floating[Any] | _np.integer[Any]
_Buffer: TypeAlias = _TypedBuffer | _np.ndarray[Any, Any] | _torch.Tensor
_T = TypeVar("_T")

class _HeightWidth(NamedTuple):
    height: int
    width: int

class _YX(NamedTuple):
    y: int
    x: int

class _EnumType(_enum.EnumMeta):
    @overload  # type: ignore[override]
    def __call__(cls: type[_T], value: _Int, names: None = None) -> _T: ...
    @overload
    def __call__(cls: type[_T], *, rawValue: _Int) -> _T | None: ...  # pyright: ignore[reportIncompatibleMethodOverride]

class _OptionSetType(_enum.EnumMeta):
    @overload  # type: ignore[override]
    def __call__(cls: type[_T], value: _Int | Sequence[_T] = ..., names: None = None) -> _T: ...
    @overload
    def __call__(cls: type[_T], *, rawValue: _Int) -> _T: ...  # pyright: ignore[reportIncompatibleMethodOverride]

class _Object:
{root}
"""

_WRITTEN = HEADER.partition("\n")[0]
_SHARED = {
    "Any": "from typing import Any",
    "Self": "from typing_extensions import Self",
    "TYPE_CHECKING": "from typing import TYPE_CHECKING",
    "_os": "import os as _os",
    "_torch": "import torch as _torch",
    **{name: f"from mlc_torch import {name}" for name in CLASSES},
}
"""Where a room's stub takes a name from, if it uses it."""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="say whether the file is fresh, and change nothing")
    check = parser.parse_args().check
    stale = 0
    for target, text in {ROOT / "mlc_torch" / "__init__.pyi": stub(), **rooms()}.items():
        if not check:
            target.write_text(text, "utf-8")
        elif not target.exists() or target.read_text("utf-8") != text:
            sys.stderr.write(f"{target.relative_to(ROOT)} is stale: run python tools/stubs.py\n")
            stale = 1
    return stale


def stub() -> str:
    """What the package itself holds."""
    writer = Writer()
    names = "\n".join(f'    "{name}",' for name in mlc_torch.__all__)
    body, imports = [f"__all__ = [\n{names}\n]\n__version__: str\n"], []
    for name in sorted(mlc_torch.__all__):
        value: Any = getattr(mlc_torch, name)
        if name == ALIAS:
            body.append(f"{ALIAS}: TypeAlias = Callable[[MLCTensor | None, Exception | None, float], object]\n")
        elif name in FUNCTIONS:
            kind = name.removesuffix("DebugDescription")
            body.append(f"def {name}(value: {kind} | int, /) -> str | None:{said(value.__doc__)}\n")
        elif isinstance(value, type) and issubclass(value, (MLCEnum, MLCOptionSet)):
            body.append("\n".join(enumeration(value)) + "\n")
        elif isinstance(value, type) and issubclass(value, MLCObject) and CLASSES.get(name) is value:
            body.append("\n".join(writer.object_class(value)) + "\n")
        else:
            imports.append(f"from {_home(name, value)} import {name} as {name}")
    imports += [f"from {module} import {name} as _{name}" for name, module in sorted(writer.imports.items())]
    root = "\n".join(writer.members(NSObject, object))
    header = HEADER.format(imports="".join(f"{line}\n" for line in sorted(imports)), root=root)
    return "\n".join([header, *body])


def rooms() -> dict[Path, str]:
    """The other files. What knows a class of ours is written out: its own module means the class behind the stub."""
    return {ROOT.joinpath(*name.split("."), "__init__.pyi"): room(importlib.import_module(name)) for name in ROOMS}


def room(module: Any) -> str:
    writer = Writer()
    body, imports = [], []
    for name in module.__all__:
        value = getattr(module, name)
        if isinstance(value, type) and issubclass(value, MLCObject):
            body.append("\n".join(writer.object_class(value)) + "\n")
        elif names_a_class(value):
            body.append(writer.function(name, value) + "\n")
        else:
            imports.append(f"from {_home(name, value)} import {name} as {name}")
    imports += [f"from {home} import {name} as _{name}" for name, home in writer.imports.items()]
    used = set(re.findall(r"\w+", "\n".join(body))).difference(module.__all__)
    imports += [line for name, line in _SHARED.items() if name in used]
    names = "\n".join(f'    "{name}",' for name in module.__all__)
    return "\n".join([_WRITTEN, *sorted(imports), f"\n__all__ = [\n{names}\n]\n", *body])


def _home(name: str, value: Any) -> str:
    """The module that a public name comes from; a plain constant has no say in it and is looked for."""
    module = getattr(value, "__module__", None)
    if module and module.startswith("mlc_torch.") and getattr(sys.modules[module], name, None) is value:
        return module
    return next(
        m for m in sorted(sys.modules) if m.startswith("mlc_torch.") and vars(sys.modules[m]).get(name) is value
    )


def enumeration(cls: Any) -> Iterator[str]:
    options = issubclass(cls, MLCOptionSet)
    base, meta = ("IntFlag", "_OptionSetType") if options else ("IntEnum", "_EnumType")
    yield f"class {cls.__name__}(_enum.{base}, metaclass={meta}):"
    yield f"    {docstring(cls.__doc__)}"
    for member in cls.__members__.values():
        yield f"    {member.name} = {member.value}"
    yield from _overloaded(
        [
            f"    def __new__(cls, value: {'_Int | Sequence[Self] = ...' if options else '_Int'}) -> Self: ...",
            "    def __new__(cls, *, rawValue: _Int) -> Self"
            + (": ..." if options else " | None: ...  # type: ignore[misc]"),
        ]
    )
    yield from _property("rawValue", "int", MLCEnum.rawValue.__doc__)
    if cls.__name__ in DEBUG_DESCRIPTIONS:
        yield from _property("debugDescription", "str", cls.debugDescription.__doc__)


def _overloaded(lines: list[str]) -> Iterator[str]:
    indent = lines[0][: len(lines[0]) - len(lines[0].lstrip())]
    for line in lines:
        if len(lines) > 1:
            yield f"{indent}@overload"
        yield line


def _property(name: str, type_: str, words: str | None) -> Iterator[str]:
    yield "    @property"
    yield f"    def {name}(self) -> {type_}:{said(words)}"


class Writer(Ours):
    """Writes the classes."""

    def object_class(self, cls: Any) -> Iterator[str]:
        bases = [b for b in cls.__mro__[1:] if b in vars(mlc_torch).values()]
        labelled: list[str] = []
        body = list(self._members(cls, bases[0] if bases else MLCObject, labelled))
        yield from labelled
        yield f"class {cls.__name__}({bases[0].__name__ if bases else '_Object'}):"
        yield f"    {docstring(cls.__doc__)}"
        yield from body

    def _members(self, cls: Any, base: Any, labelled: list[str]) -> Iterator[str]:
        inits = cls.__declared__.get("init", [])
        if inits and inits != base.__declared__.get("init"):
            yield from _overloaded([_swift(d, "__new__") for d in _in_order(inits)])
            # jedi completes the labels of a class from __init__ and knows no __new__; type checkers do not see this.
            yield "    if not TYPE_CHECKING:"
            yield from (f"    {line}" for line in _overloaded([_swift(d, "__init__") for d in _in_order(inits)]))
        for name, p in cls.__properties__.items():
            if base.__properties__.get(name) is not p:
                yield from self._prop(cls, name, p, labelled)
        for name, declarations in cls.__declared__.items():
            if name in ("", "init") or declarations == base.__declared__.get(name):
                continue
            if not isinstance(cls.__properties__.get(name), static_prop):
                yield from _methods(declarations, name)
        yield from self._selectors(cls, base)
        yield from self.members(cls, base)

    def _prop(self, cls: Any, name: str, p: prop, labelled: list[str]) -> Iterator[str]:
        type_ = returned(p.type)
        if p.type == "Data" and p.getter is None:
            type_ = "bytes"  # stored as the door converted it
        if not isinstance(p, static_prop):
            if not p.settable:
                yield from _property(name, type_, p.about)
                return
            yield f"    {name}: {type_}"
            if p.about:
                yield f"    {docstring(p.about)}"
            return
        if p.labelled is not None:
            # A ready-made layer that its own labelled form can be called on: MLCActivationLayer.celu(a=2).
            special = f"_{cls.__name__}_{name}"
            forms = _overloaded([_swift(d, "__call__") for d in _in_order(cls.__declared__[name])])
            labelled += [
                f"class {special}({cls.__name__}):",
                *(line.replace("Self", cls.__name__) for line in forms),
                "",
            ]
            type_ = special
        yield f"    {name}: ClassVar[{type_}]"
        if p.about:
            yield f"    {docstring(p.about)}"
        if p.selector:
            yield "    @classmethod"
            yield f"    def {p.selector}(cls) -> {returned(p.type)}:{said(p.about)}"

    def _selectors(self, cls: Any, base: Any) -> Iterator[str]:
        inherited = [d for declarations in base.__declared__.values() for d in declarations]
        taken = {d.selector for d in inherited}
        for declarations in cls.__declared__.values():
            for d in declarations:
                if d in inherited or not d.selector or d.selector == d.signature.name:
                    continue
                # YOLO's factory takes another descriptor than the loss layer's that it inherits from.
                note = _OVERRIDES if d.selector in taken else ""
                args = [f"{p.name}: {given(p.type, raw_values=True)}" for p in d.signature.params]
                if d.binds_class:
                    yield "    @classmethod"
                me = "cls" if d.binds_class else "self"
                signature = ", ".join([me, *args, "/"] if args else [me])
                name, result = selector_name(d.selector), returned(d.signature.returns)
                if note:  # a comment for the type checkers must stand on the line of the signature
                    yield f"    def {name}({signature}) -> {result}: ...{note}"
                else:
                    yield f"    def {name}({signature}) -> {result}:{said(d.words)}"


def _in_order(declarations: list[Declaration]) -> list[Declaration]:
    return sorted(declarations, key=lambda d: len(d.signature.params))


def _methods(declarations: list[Declaration], name: str) -> Iterator[str]:
    for line in _overloaded([_swift(d, name) for d in _in_order(declarations)]):
        if declarations[0].binds_class and line.lstrip().startswith(("def", "async def")):
            yield "    @classmethod"
        yield line


def _swift(declaration: Declaration, name: str) -> str:
    """One Swift-spelt overload: labels are keywords, a first label that may be left out is positional too."""
    signature = declaration.signature
    on_class = declaration.binds_class and name not in ("__call__", "__init__")
    parts = ["cls" if name == "__new__" or on_class else "self"]
    required = [p for p in signature.params if p.default is None]
    optional = [p for p in signature.params if p.default is not None]
    first = signature.params[0] if signature.params and signature.params[0].may_be_positional else None
    if first is not None:
        parts.append(_argument(first, first.name if first.label == "_" else first.keyword))
        if first.label == "_":
            parts.append("/")
    rest = [p for p in [*required, *optional] if p is not first]
    if rest:
        parts += ["*", *(_argument(p, p.keyword) for p in rest)]
    result = "None" if name == "__init__" else returned(signature.returns)
    note = "  # type: ignore[misc]" if name == "__new__" and result.endswith("| None") else ""
    prefix = "async def" if signature.is_async else "def"
    body = f" ...{note}" if note else said(declaration.words)
    return f"    {prefix} {name}({', '.join(parts)}) -> {result}:{body}"


def _argument(p: Param, name: str) -> str:
    return f"{name}: {given(p.type)}" + ("" if p.default is None else " = ...")


if __name__ == "__main__":
    sys.exit(main())
