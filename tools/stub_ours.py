"""Our own members in the type stubs, by the annotations they carry in the source."""

from __future__ import annotations

import ast
import builtins
import inspect
import re
import sys
import types
from collections.abc import Iterator
from typing import Any

from mlc_torch.coverage.ours import FOR_USERS, OF_NSOBJECT
from mlc_torch.spelling import CLASSES

_DUNDER = frozenset(
    {"__array__", "__contains__", "__dlpack__", "__dlpack_device__", "__float__", "__getitem__", "__len__"}
)


def said(words: str | None) -> str:
    """The body of a function in a stub: its docstring, which editors show, or nothing."""
    return f" {docstring(words)}" if words else " ..."


def docstring(words: str | None) -> str:
    """The first paragraph, in one line."""
    first = " ".join((words or "").partition("\n\n")[0].split())
    return f'"""{first}"""' if not first.endswith('"') else f'"""{first} """'


class Ours:
    """Writes the members of ours that programs may use, and remembers what their annotations need imported."""

    def __init__(self) -> None:
        self.imports: dict[str, str] = {}

    def members(self, cls: Any, base: Any) -> Iterator[str]:
        """Our own members, by the annotations they carry."""
        classes = [c for c in cls.__mro__ if c not in base.__mro__]
        ours = _DUNDER.union(OF_NSOBJECT, *(FOR_USERS.get(c.__name__, ()) for c in classes))
        seen: set[str] = set()
        for c in classes:
            for name in sorted(ours & vars(c).get("__annotations__", {}).keys()):
                yield f"    {name}: {self._annotation(c.__annotations__[name], sys.modules[c.__module__])}"
            for name, value in vars(c).items():
                if name in seen or name not in ours:
                    continue
                seen.add(name)
                if isinstance(value, property):
                    yield "    @property"
                    yield f"    {self.function(name, value.fget)}"
                    if value.fset is not None:
                        yield f"    @{name}.setter"
                        yield f"    {self.function(name, value.fset)}"
                elif isinstance(value, (classmethod, staticmethod)):
                    if _hand_written(value.__func__):
                        yield f"    @{type(value).__name__}"
                        yield f"    {self.function(name, value.__func__)}"
                elif _hand_written(value):
                    yield f"    {self.function(name, value)}"

    def function(self, name: str, function: Any) -> str:
        """A function by its annotations, in one line."""
        function = inspect.unwrap(function)  # its annotations use the names where they are written
        parts, starred = [], False
        parameters = list(inspect.signature(function).parameters.values())
        for i, p in enumerate(parameters):
            if p.kind is p.KEYWORD_ONLY and not starred:
                parts.append("*")
                starred = True
            star = "*" if p.kind is p.VAR_POSITIONAL else "**" if p.kind is p.VAR_KEYWORD else ""
            starred |= p.kind is p.VAR_POSITIONAL
            bare = i == 0 and p.name in ("self", "cls")
            annotation = "" if bare else f": {self._annotation(p.annotation, function)}"
            parts.append(f"{star}{p.name}{annotation}" + ("" if p.default is p.empty else " = ..."))
            after = parameters[i + 1].kind if i + 1 < len(parameters) else None
            if p.kind is p.POSITIONAL_ONLY and after is not p.POSITIONAL_ONLY:
                parts.append("/")
        result = self._annotation(inspect.signature(function).return_annotation, function)
        prefix = "async def" if inspect.iscoroutinefunction(function) else "def"
        return f"{prefix} {name}({', '.join(parts)}) -> {result}:{said(inspect.getdoc(function))}"

    def _annotation(self, text: Any, written_in: Any) -> str:
        """An annotation as the stub writes it; ``written_in`` is the function or module whose names it uses."""
        if text is inspect.Parameter.empty:
            return "Any"
        tree = ast.parse(text if isinstance(text, str) else inspect.formatannotation(text), mode="eval")

        class Rename(ast.NodeTransformer):
            def visit_Name(inner, node: ast.Name) -> ast.AST:
                return ast.copy_location(ast.Name(self._name(node.id, written_in)), node)

            def visit_Constant(inner, node: ast.Constant) -> ast.AST:
                # A quoted annotation is an expression of its own; the strings of Literal[...] are not met here.
                quoted = isinstance(node.value, str)
                return ast.parse(self._annotation(node.value, written_in), mode="eval").body if quoted else node

        return ast.unparse(Rename().visit(tree))

    def _name(self, name: str, written_in: Any) -> str:
        if name in ("np", "os", "torch"):
            return f"_{name}"
        if name == "numpy":
            return "_np"
        if name == "nn":
            return "_torch.nn"
        if hasattr(builtins, name) or name in ("Any", "Self", "Callable", "Mapping", "Sequence") or name in CLASSES:
            return name
        names = getattr(written_in, "__globals__", None) or vars(written_in)
        value = names.get(name)
        if value is None:
            return "Any"
        home = sys.modules.get(
            getattr(value, "__module__", "").removesuffix("._local")
        )  # Python 3.13 keeps paths in one
        # An alias such as list[int] claims to come from builtins; the module that uses it has it in any case.
        self.imports[name] = home.__name__ if home and vars(home).get(name) is value else names["__name__"]
        return f"_{name}"


def names_a_class(function: Any) -> bool:
    """Whether an annotation of a function names one of the framework's classes."""
    written = " ".join(map(str, inspect.get_annotations(function).values()))
    return not CLASSES.keys().isdisjoint(re.findall(r"\w+", written))


def _hand_written(value: Any) -> bool:
    """Whether a function was written in a class body by us, and not installed from a declaration."""
    if not isinstance(value, types.FunctionType) or hasattr(value, "__declarations__"):
        return False
    file = value.__code__.co_filename
    return "/mlc_torch/spelling/" not in file or file.endswith("/nsobject.py")
