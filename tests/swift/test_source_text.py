"""``@main`` and imports are found in a file's code, not in its comments and strings."""

from __future__ import annotations

import pytest

from mlc_torch.swift.source_text import code, imports, is_marked_main

MARKED = {
    "a line of its own": "import A\n@main\nstruct App {}",
    "behind another attribute": "@MainActor @main struct App {}",
    "behind one with arguments": "@available(macOS 12.0, *) @main final class App {}",
    "behind a comment": "/* the /* real */ one */ @main struct App {}",
    "behind a string": r'let a = "\\" ; @main struct App {}',
    "behind a raw string": r'let a = #"\"#; @main struct App {}',
    "behind an interpolation": r'let a = "\(f("(", (1)))"; @main struct App {}',
    "behind strings of several lines": 'let a = """\n  "no\n  """\nlet b = ""\n@main struct App {}',
    "behind a string that nobody closed": 'let a = "\n@main struct App {}',
}
NOT_MARKED = {
    "a comment": "// @main\nprint(1)",
    "comments within comments": "/* /* */ @main */ print(1)",
    "a comment that nobody closed": "print(1) /* @main",
    "a string": 'print("@main")',
    "a string behind a quote": r'print("\"@main")',
    "several lines": 'print("""\n@main "struct" App {}\n""")',
    "a raw string": r'print(#"a "@main" \"#, 1)',
    "a raw string's interpolation": r'print(#"a \#(f("@main")) @main"#)',
    "an interpolation": r'print("a \(f("@main")) @main")',
    "another attribute": "@mainly struct App {}",
}


def written(folder, text):
    path = folder / "a.swift"
    path.write_text(text, "utf-8")
    return code(path)


@pytest.mark.parametrize("text", MARKED.values(), ids=MARKED)
def test_marked_main(tmp_path, text):
    assert is_marked_main(written(tmp_path, text))


@pytest.mark.parametrize("text", NOT_MARKED.values(), ids=NOT_MARKED)
def test_not_marked_main(tmp_path, text):
    assert not is_marked_main(written(tmp_path, text))


def test_imports(tmp_path):
    found = written(
        tmp_path, "import Dispatch\n@testable import class XCTest.XCTestCase\n// import Metal\nimport Foundations"
    )
    assert imports(found, "Dispatch") and imports(found, "XCTest")
    assert not imports(found, "Metal") and not imports(found, "Foundation") and not imports(found, "XCTestCase")
