"""The type stubs are those the declarations give, and say what the type checkers are to believe."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from pathlib import Path

import pytest

import mlc_torch
from mlc_torch.coverage.api import api
from mlc_torch.coverage.ours import FOR_USERS
from mlc_torch.spelling import CLASSES
from mlc_torch.spelling.signature import selector_name

ROOT = Path(__file__).parents[2]
STUB = ROOT / "mlc_torch" / "__init__.pyi"


@pytest.fixture(scope="module")
def classes() -> dict[str, ast.ClassDef]:
    tree = ast.parse(STUB.read_text("utf-8"))
    return {node.name: node for node in tree.body if isinstance(node, ast.ClassDef)}


def members(classes, name) -> set[str]:
    """Names of the class and its bases in the stub."""
    node = classes[name]
    found = {n.name for n in node.body if isinstance(n, (ast.FunctionDef, ast.AsyncFunctionDef))}
    found |= {n.target.id for n in node.body if isinstance(n, ast.AnnAssign)}
    return found.union(*(members(classes, base.id) for base in node.bases if isinstance(base, ast.Name)))


def test_the_stub_is_fresh():
    check = [sys.executable, str(ROOT / "tools" / "stubs.py"), "--check"]
    found = subprocess.run(check, capture_output=True, text=True, check=False)
    assert found.returncode == 0, found.stderr


_STALE = """
import pathlib, sys
import stubs
stubs.ROOT = pathlib.Path(sys.argv[1])
target = stubs.ROOT / "mlc_torch" / "interop" / "__init__.pyi"
target.parent.mkdir(parents=True)
target.parent.with_name("testing").mkdir()
answers = []
for arguments in (["--check"], [], ["--check"]):
    sys.argv[1:] = arguments
    answers.append(stubs.main())
target.write_text("old")
answers.append(stubs.main())
print(answers)
"""


def test_a_stale_stub_is_noticed(tmp_path):
    path = {"PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "tools")])}
    command = [sys.executable, "-c", _STALE, str(tmp_path)]
    found = subprocess.run(command, env=os.environ | path, capture_output=True, text=True, check=False)
    assert found.stdout == "[1, 0, 0, 1]\n", found.stderr
    assert "mlc_torch/interop/__init__.pyi is stale: run python tools/stubs.py" in found.stderr


def test_every_public_name_is_in_the_stub(classes):
    tree = ast.parse(STUB.read_text("utf-8"))
    names = {n.name for n in tree.body if isinstance(n, (ast.ClassDef, ast.FunctionDef))}
    names |= {n.target.id for n in tree.body if isinstance(n, ast.AnnAssign)}
    names |= {alias.asname for n in tree.body if isinstance(n, ast.ImportFrom) for alias in n.names if alias.asname}
    assert set(mlc_torch.__all__) <= names


@pytest.mark.parametrize("name", api()["classes"])
def test_every_member_is_in_the_stub(classes, name):
    cls, found = CLASSES[name], members(classes, name)
    for swift, declarations in cls.__declared__.items():
        for d in declarations:
            assert swift in ("", "init") or swift in found
            if d.selector and d.selector != "init":
                assert selector_name(d.selector) in found
    assert set(cls.__properties__) <= found
    assert FOR_USERS.get(name, frozenset()) <= found
    if cls.__declared__.get("init"):
        assert "__new__" in found


@pytest.mark.parametrize("name", api()["classes"])
def test_failable_initializers_may_give_none(classes, name):
    own = [n for n in classes[name].body if isinstance(n, ast.FunctionDef) and n.name == "__new__"]
    given = {frozenset(a.arg for a in n.args.kwonlyargs): ast.unparse(n.returns) for n in own}
    for d in CLASSES[name].__declared__.get("init", []):
        assert given[frozenset(d.signature.keywords)] == ("Self | None" if d.signature.failable else "Self")
