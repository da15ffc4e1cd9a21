"""The compiled module, as the compiler itself describes it, against the list."""

from __future__ import annotations

import collections
import json
import subprocess
from pathlib import Path

import pytest

from mlc_torch.coverage.api import api
from mlc_torch.swift.modules import build_modules, module_sources
from mlc_torch.swift.neighbours import chosen_neighbours
from mlc_torch.swift.toolchain import toolchain
from tests.swift.test_generated import OLD, parameter

pytestmark = pytest.mark.swift


@pytest.fixture(scope="module")
def symbols(tmp_path_factory) -> list[dict]:
    """The symbol graph: every public declaration with its own text."""
    tools, folder = toolchain(), tmp_path_factory.mktemp("symbols")
    modules = build_modules(tools, chosen_neighbours())
    # From the compiled module. The compiler's own -emit-symbol-graph, 6.0 with assertions, stops at conditional conformances.
    words = [tools.swift, "symbolgraph-extract", "-skip-synthesized-members", "-module-name", "MLCompute"]
    words += ["-target", tools.target, "-output-dir", folder, *modules.compiler_flags()]
    subprocess.run(words, check=True, cwd=folder)
    return json.loads((folder / "MLCompute.symbols.json").read_text("utf-8"))["symbols"]


def text(symbol: dict) -> str:
    return "".join(piece["spelling"] for piece in symbol["declarationFragments"])


def path(symbol: dict) -> tuple[str, ...]:
    return tuple(symbol["pathComponents"])


def written_as_the_compiler_does(owner: str) -> collections.Counter:
    found = collections.Counter()
    for m in api()["classes"][owner]["swift"]:
        parameters = ", ".join(parameter(p) for p in m.get("params", ()))
        static = "class " if m.get("static") else ""
        if m["kind"] == "init":
            convenience = "convenience " if m["params"] else ""
            found[f"{convenience}init{'?' if m.get('failable') else ''}({parameters})"] += 1
        elif m["kind"] == "method":
            arrow = "" if m["returns"] == "Void" else f" -> {m['returns']}"
            discardable = "@discardableResult " if arrow else ""
            found[
                f"{discardable}{static}func {m['name']}({parameters}){' async throws' if m.get('async') else ''}{arrow}"
            ] += 1
        else:
            found[f"{static}var {m['name']}: {m['type']} {{ get{' set' if m.get('settable') else ''} }}"] += 1
    for kind, parameters in OLD.get(owner, {}):
        found[f"convenience {kind}({', '.join(parameters)})"] += 1
    return found


@pytest.mark.parametrize("owner", api()["classes"])
def test_members(symbols, owner):
    """Names, labels, types, optionality and defaults."""
    found = collections.Counter()
    for symbol in symbols:
        if path(symbol)[0] == owner and len(path(symbol)) == 2:
            line = " ".join(text(symbol).replace("`", "").split()).replace("override ", "")
            if "init(_object" in line or "copy(with" in line:
                continue
            found[line] += 1
    assert found == written_as_the_compiler_does(owner)


def test_superclasses_and_protocols(symbols):
    heads = {path(s)[0]: text(s) for s in symbols if s["kind"]["identifier"] == "swift.class"}
    assert {name for name in heads if name.startswith("MLC")} == set(api()["classes"])
    assert all(head == f"class {name}" for name, head in heads.items())


@pytest.mark.parametrize("kind", ["enums", "option_sets"])
def test_enumerations(symbols, kind):
    for name, cases in api()[kind].items():
        found = {
            path(s)[1].split("(")[0]
            for s in symbols
            if path(s)[0] == name
            and len(path(s)) == 2
            and s["kind"]["identifier"] in ("swift.enum.case", "swift.type.property")
        }
        assert found == {case["swift"].split("(")[0] for case in cases.values() if case["swift"]}


def test_functions_and_aliases(symbols):
    found = {path(s)[0].split("(")[0] for s in symbols if s["kind"]["identifier"] == "swift.func"}
    assert set(api()["functions"]) <= found
    aliases = {path(s)[0]: text(s).partition(" = ")[2] for s in symbols if s["kind"]["identifier"] == "swift.typealias"}
    assert {name: aliases[name] for name in api()["typealiases"]} == api()["typealiases"]


@pytest.mark.parametrize("mode", ["5", "6"])
def test_the_module_compiles_without_a_warning(tmp_path, mode):
    tools, neighbours = toolchain(), chosen_neighbours(["UIKit", "SwiftUI", "Cocoa", "CoreGraphics"])
    flags = build_modules(tools, neighbours).compiler_flags()
    for name in (*neighbours, "MLCompute"):
        folder = tmp_path / name
        folder.mkdir()
        own = Path(flags[1]).name.startswith("MLCompute")
        assert own
        words = [tools.swiftc, "-typecheck", "-swift-version", mode, "-warnings-as-errors", "-parse-as-library"]
        words += ["-module-name", name, *flags[2:], *module_sources(name, neighbours, folder)]
        done = subprocess.run(words, cwd=folder, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
