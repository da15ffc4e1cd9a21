"""One Swift program from its files: found, compiled once, and run in place of this process."""

from __future__ import annotations

import contextlib
import ctypes
import importlib
import json
import os
import re
import signal
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import NoReturn

from mlc_torch.swift import cache
from mlc_torch.swift.compiling import compile_swift, compiles
from mlc_torch.swift.libpython import libpython
from mlc_torch.swift.modules import Modules, build_modules, module_keys
from mlc_torch.swift.neighbours import chosen_neighbours
from mlc_torch.swift.saying import SwiftTrouble
from mlc_torch.swift.source_text import code, imports, is_marked_main
from mlc_torch.swift.toolchain import Toolchain, toolchain

_PLACE = Path("Contents", "Linux")
"""Where the executable of an application lies."""


@dataclass(frozen=True)
class Program:
    """What is compiled, and how."""

    files: tuple[Path, ...]
    resources: Path
    """The folder whose contents ``Bundle.main`` finds."""
    neighbours: tuple[str, ...] = field(default_factory=chosen_neighbours)
    optimized: bool = False
    flags: tuple[str, ...] = ()
    as_library: bool = False
    """To be called by Python, where Python has no shared library that the program could load."""

    @property
    def name(self) -> str:
        """The program is called as its first file, a playground page as its folder."""
        first = self.files[0]
        return (first.parent if first.name == "Contents.swift" else first).stem

    def module_name(self, tools: Toolchain, modules: Modules, folder: Path) -> str:
        """As its file is called, unless a module is that a program gets with its imports: one module cannot be two."""
        name = re.sub(r"\W", "_", self.name, flags=re.ASCII)
        if not re.match(r"[A-Za-z_]", name) or name == "main":
            return "Program"
        imported = ("Swift", "Foundation", "MLCompute", *self.neighbours)
        taken = name in imported or any(imports(code(path), name) for path in self.files)
        if not taken and not name[0].islower():  # as no module of a toolchain is called; the compiler knows the others
            probe = folder / "imports.swift"
            probe.write_text("".join(f"import {module}\n" for module in imported), "utf-8")
            taken = not compiles([tools.swiftc, "-typecheck", "-module-name", name, *modules.compiler_flags(), probe])
            probe.unlink()
        return f"{name}Program" if taken else name

    def compiled(self, tools: Toolchain) -> Path:
        """The folder of the cache that holds the compiled program."""
        name = cache.key(
            program=[str(path) for path in self.files],
            sources=[cache.digest([path]) for path in self.files],
            resources=str(self.resources),
            modules=module_keys(tools, self.neighbours),
            toolchain=tools.identity,
            how=[self.optimized, self.flags, self.as_library],
        )
        return cache.kept("programs", name, lambda folder: self._compile(tools, folder))

    def _compile(self, tools: Toolchain, folder: Path) -> None:
        """As an application is laid out: ``Bundle.main`` finds whatever the resources are called, and nothing of ours."""
        modules = build_modules(tools, self.neighbours)
        place, contents = folder / _PLACE, folder / "Contents"
        place.mkdir(parents=True)
        (contents / "Resources").symlink_to(self.resources)
        inputs = [self._page_as_main(path, contents) if path.name == "Contents.swift" else path for path in self.files]
        name = self.module_name(tools, modules, folder)
        flags = ["-O" if self.optimized else "-Onone", "-module-name", name, *modules.compiler_flags()]
        if len(self.files) == 1 and is_marked_main(code(self.files[0])):
            flags.append("-parse-as-library")
        if not self.as_library:
            compile_swift(
                [tools.swiftc, *flags, *self.flags, *modules.linker_flags(), "-o", place / self.name, *inputs]
            )
            return
        # A library with top-level code cannot be linked in one step.
        compile_swift([tools.swiftc, *flags, *self.flags, "-wmo", "-c", "-o", contents / "program.o", *inputs])
        compile_swift(
            [
                tools.swiftc,
                "-emit-library",
                *modules.linker_flags(),
                "-o",
                place / f"{self.name}.so",
                contents / "program.o",
            ]
        )

    def _page_as_main(self, page: Path, folder: Path) -> Path:
        """The page of a playground under the name that the compiler expects; its errors name the page itself.

        Byte for byte: what is not UTF-8 is for the compiler to judge, as in any other file.
        """
        where = f"#sourceLocation(file: {json.dumps(str(page), ensure_ascii=False)}, line: 1)\n"
        (folder / "main.swift").write_bytes(os.fsencode(where) + page.read_bytes())
        return folder / "main.swift"


def program(
    files: list[str], with_: list[str], without: list[str], optimized: bool, flags: list[str], in_python: bool
) -> Program:
    """The program that the arguments of ``swift run`` name."""
    paths = [Path(file).absolute() for file in files]
    resources = None
    if len(paths) == 1 and paths[0].is_dir():
        paths = _playground(paths[0])
    first = paths[0]
    if first.name == "Contents.swift" and len(paths) == 1:
        paths, resources = _page(first)
    for path in paths:
        if path.suffix != ".swift":
            raise SwiftTrouble(
                f"{path} is no Swift file, whose name ends in .swift; arguments for the program stand after --", 2
            )
        if not path.is_file():
            raise SwiftTrouble(f"there is no file {path}", 2)
    if len({path.name for path in paths}) < len(paths):
        raise SwiftTrouble("two files have the same name, which Swift does not take", 2)
    main = [path for path in paths if path.name in ("main.swift", "Contents.swift")]
    if len(paths) > 1 and not main and not any(is_marked_main(code(path)) for path in paths):
        raise SwiftTrouble(
            "of several files one is main.swift, which holds the top-level code, or has a type marked @main", 2
        )
    return Program(
        tuple(paths),
        resources or first.parent,
        chosen_neighbours(with_, without),
        optimized,
        tuple(flags),
        in_python or not libpython(),
    )


def _playground(folder: Path) -> list[Path]:
    """The page of a playground, or the page that a folder is."""
    if (folder / "Package.swift").is_file():
        raise SwiftTrouble(
            f"{folder} is a package: `mlc-torch swift build {folder}` builds it, `mlc-torch swift test {folder}` runs its tests",
            2,
        )
    if (folder / "Contents.swift").is_file():
        return [folder / "Contents.swift"]
    pages = sorted(folder.glob("Pages/*.xcplaygroundpage/Contents.swift"))
    if len(pages) == 1:
        return pages
    if pages:
        names = "\n  ".join(str(page.parent) for page in pages)
        raise SwiftTrouble(f"{folder} has several pages; run one of them:\n  {names}", 2)
    raise SwiftTrouble(f"{folder} is no playground and no Swift file", 2)


def _page(contents: Path) -> tuple[list[Path], Path | None]:
    """A page with the sources of its playground, and the folder of its resources."""
    places = [contents.parent]
    if contents.parent.suffix == ".xcplaygroundpage":
        places.append(contents.parent.parent.parent)
    if not any(place.suffix in (".playground", ".xcplaygroundpage") for place in places):
        return [contents], None
    sources = [path for place in places for path in sorted((place / "Sources").rglob("*.swift"))]
    resources = [place / "Resources" for place in places if (place / "Resources").is_dir()]
    return [contents, *sources], resources[0] if resources else None


def run(wanted: Program, arguments: list[str]) -> NoReturn:
    """Compile if that was not done yet, and become the program: status, signals, input and folder are its own."""
    tools = toolchain()
    folder = wanted.compiled(tools)
    place = folder / _PLACE
    _lay_out(wanted.resources, folder, {"Contents"})
    _lay_out(wanted.resources, place, {wanted.name, f"{wanted.name}.so"})
    sys.stdout.flush()
    for name in ("SIGPIPE", "SIGXFSZ"):  # Python ignores these, and a program would inherit that
        signal.signal(getattr(signal, name), signal.SIG_DFL)
    if wanted.as_library:
        _run_inside(place / f"{wanted.name}.so", arguments)
    os.execve(place / wanted.name, [wanted.name, *arguments], environment())


def environment() -> dict[str, str]:
    """What tells a Swift program to use this Python and this mlc_torch."""
    return {
        **os.environ,
        "MLC_TORCH_PYTHON": sys.executable,
        "MLC_TORCH_LIBPYTHON": libpython(),
        "MLC_TORCH_PATH": str(Path(__file__).parents[2]),
    }


def _lay_out(resources: Path, folder: Path, own: set[str]) -> None:
    """Links to what lies beside the source, for programs that open files in the folder of the bundle or of the executable."""
    wanted = {entry.name for entry in resources.iterdir()} - own
    there = {entry.name for entry in folder.iterdir() if entry.is_symlink()}
    for name in there - wanted:
        (folder / name).unlink(missing_ok=True)
    for name in wanted - there:
        with contextlib.suppress(FileExistsError):  # another run of the same program was faster
            (folder / name).symlink_to(resources / name)


def _run_inside(library: Path, arguments: list[str]) -> NoReturn:
    """Call the program's main from this Python, which it finds in its own process."""
    package = sys.modules["mlc_torch"]
    if not hasattr(package, "MLCTensor"):  # the command mlc-torch has only its folder so far
        assert package.__spec__ is not None and package.__spec__.loader is not None
        package.__spec__.loader.exec_module(package)
    importlib.import_module("mlc_torch.swift.inside").own_process()
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # Ctrl-C ends a Swift program
    try:
        loaded = ctypes.CDLL(str(library), mode=ctypes.RTLD_GLOBAL)
    except OSError as error:
        raise SwiftTrouble(f"the program cannot be loaded into Python: {error}") from None
    words = [os.fsencode(word) for word in (library.stem, *arguments)]
    given = (ctypes.c_char_p * (len(words) + 1))(*words, None)
    # Otherwise CommandLine.arguments would be Python's.
    loaded._swift_stdlib_overrideUnsafeArgvArgc(given, len(words))
    status = loaded.main(len(words), given)
    # C's exit, without Python's end: the program's threads may still be using it.
    ctypes.CDLL(None).exit(status)
    raise AssertionError("exit came back")
