"""Programs whose file is called like a module of the toolchain, and those with a type marked ``@main``."""

from __future__ import annotations

import pytest

from tests.swift.toolbox import run, written

pytestmark = pytest.mark.swift

HELLO = (
    "import MLCompute\nstruct Net {}\nprint(MLCTensor(shape: [2, 3]).descriptor.shape, String(reflecting: Net.self))"
)


@pytest.mark.parametrize("name", ["Dispatch", "Glibc", "_Concurrency", "FoundationEssentials", "CDispatch", "Metal"])
def test_a_file_called_as_a_module(tmp_path, name):
    (tmp_path / f"{name}.swift").write_text(HELLO)
    assert run(tmp_path / f"{name}.swift").stdout == f"[2, 3] {name}Program.Net\n"


@pytest.mark.parametrize("name", ["Array", "Training", "train", "class"])
def test_any_other_name_is_the_modules(tmp_path, name):
    written(tmp_path, **{name: HELLO})
    assert run(tmp_path / f"{name}.swift").stdout == f"[2, 3] {name}.Net\n"


@pytest.mark.parametrize("marked", ["@MainActor @main", "@available(macOS 12.0, *) @main", "/* here */ @main"])
def test_marked_main(tmp_path, marked):
    text = f"import MLCompute\n{marked} struct App {{ static func main() {{ print(MLCTensor(shape: [2]).descriptor.shape) }} }}"
    written(tmp_path, a=text)
    assert run(tmp_path / "a.swift").stdout == "[2]\n"


def test_main_that_is_only_spoken_of(tmp_path):
    written(
        tmp_path, a='import MLCompute\n/*\n@main\n*/\nprint("""\n@main\n""", MLCTensor(shape: [2]).descriptor.shape)'
    )
    assert run(tmp_path / "a.swift").stdout == "@main [2]\n"
