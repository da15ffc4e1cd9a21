"""What docs/architecture.md says of the rooms and import-linter cannot see: who names what, and who writes whose fields."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

import mlc_torch

HOUSE = Path(mlc_torch.__file__).parent
FILES = sorted(HOUSE.rglob("*.py"))
OUR_OWN = {"self", "cls", "made"}
"""Names for the object that a method belongs to, and for one that it has just made."""


def room(path: Path) -> str:
    return path.relative_to(HOUSE).parts[0].removesuffix(".py")


def place(path: Path, node: ast.AST) -> str:
    return f"{path.relative_to(HOUSE).as_posix()}:{getattr(node, 'lineno', 0)}"


def parts(path: Path) -> Iterator[ast.AST]:
    return ast.walk(ast.parse(path.read_text("utf-8")))


def names_distributed(node: ast.AST) -> bool:
    if isinstance(node, ast.Import):
        return any(a.name.startswith("torch.distributed") for a in node.names)
    if isinstance(node, ast.ImportFrom):
        named = node.module or ""
        return named.startswith("torch.distributed") or (
            named == "torch" and any(a.name == "distributed" for a in node.names)
        )
    return isinstance(node, ast.Attribute) and ast.unparse(node) == "torch.distributed"


def test_only_ranks_names_torch_distributed():
    found = [place(p, n) for p in FILES if room(p) != "ranks" for n in parts(p) if names_distributed(n)]
    assert not found


def test_the_engine_imports_no_class_of_apple_s():
    """What it does know of other rooms stands in docs/architecture.md, and in the contract of pyproject.toml."""
    found = [
        place(p, n)
        for p in FILES
        if room(p) == "engine"
        for n in parts(p)
        if isinstance(n, ast.ImportFrom) and any(a.name.startswith("MLC") for a in n.names)
    ]
    assert not found


def writes_a_strange_field(node: ast.AST) -> bool:
    """``thing._field = …``, where ``thing`` is not the writer itself."""
    if not isinstance(node, ast.Attribute) or not isinstance(node.ctx, ast.Store) or not node.attr.startswith("_"):
        return False
    return not node.attr.startswith("__") and not (isinstance(node.value, ast.Name) and node.value.id in OUR_OWN)


def test_nobody_writes_the_private_fields_of_others():
    """An object of another room changes by its own methods; then what must follow a change stands in one place."""
    allowed = {
        "objc": "a view and the object it shows are one thing",
        "spelling": "a layer that is read as a property learns which method shares its name",
        "tensor": "a part of a buffer takes over what is known of the whole",
    }
    found = [place(p, n) for p in FILES if room(p) not in allowed for n in parts(p) if writes_a_strange_field(n)]
    assert not found


@pytest.mark.parametrize("line", ["graph._device = d", "self.layer._label = 'x'", "for x._y in z: pass"])
def test_a_strange_field_is_found(line):
    assert any(writes_a_strange_field(n) for n in ast.walk(ast.parse(line)))


@pytest.mark.parametrize(
    "line", ["import torch.distributed as dist", "from torch import distributed", "torch.distributed.init()"]
)
def test_distributed_is_found(line):
    assert any(names_distributed(n) for n in ast.walk(ast.parse(line)))


def looks_inside(node: ast.AST) -> bool:
    """Asks an object which fields it has, instead of a method or a protocol."""
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
        return node.func.id in ("hasattr", "getattr", "vars")
    return isinstance(node, ast.Attribute) and node.attr == "__dict__"


SNIFFING_OF_OTHER_THINGS = {
    "seeing/memory.py": 2,  # gears, whose memory is counted wherever they keep it
    "interop/dry_run.py": 1,  # modules that programs give
    "interop/torch_layer.py": 1,  # whether its own initializer has run
    "interop/torch_optimizer.py": 1,  # past the look at the name: one is written in every step
}


def test_reports_and_interop_ask_graphs_for_facts():
    found: dict[str, int] = {}
    for path in FILES:
        if room(path) in ("seeing", "interop", "commands", "testing"):
            count = sum(looks_inside(node) for node in parts(path))
            if count:
                found[path.relative_to(HOUSE).as_posix()] = count
    assert found == SNIFFING_OF_OTHER_THINGS


@pytest.mark.parametrize("name", ["running", "engine", "graph", "nodes", "seeing"])
def test_no_file_is_one_to_dread(name):
    """About three hundred lines; the rooms where one looks first when something is wrong."""
    sizes = {p.name: len(p.read_text("utf-8").splitlines()) for p in FILES if room(p) == name}
    assert {n: size for n, size in sizes.items() if size > 320} == {}
