"""The Swift modules that are built here: ``MLCompute`` and its neighbours."""

from __future__ import annotations

import time
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from mlc_torch.swift import cache
from mlc_torch.swift.compiling import compile_quietly
from mlc_torch.swift.generate import generate
from mlc_torch.swift.saying import say
from mlc_torch.swift.toolchain import Toolchain

SOURCES = Path(__file__).with_name("sources")

_PASSED_ON = {"MLCompute": ("Metal", "Combine"), "SwiftUI": ("Combine",)}
"""What a module imports, and passes on to whoever imports it. What MLCompute has to do without becomes its own."""

LOADED = "-init=mlc_torch_loaded"
"""For the linker: the function of MLCompute that runs when it is loaded."""


@dataclass(frozen=True)
class Modules:
    """Folders that hold a module and its library each."""

    folders: tuple[Path, ...]

    def compiler_flags(self) -> list[str]:
        return [flag for folder in self.folders for flag in ("-I", str(folder))]

    def linker_flags(self) -> list[str]:
        """For ``swiftc``; the module's own file names the library."""
        flags = []
        for folder in self.folders:
            flags += ["-L", str(folder), "-Xlinker", "-rpath", "-Xlinker", str(folder)]
        return flags


def our_version() -> dict[str, object]:
    """Everything of ours that a module is made from."""
    here = Path(__file__).parent
    makers = ("conversions.py", "generate.py", "libpython.py", "members.py", "modules.py")
    files = [
        *sorted(SOURCES.rglob("*.swift")),
        *(here / name for name in makers),
        here.parent / "coverage" / "mlcompute.json",
    ]
    try:
        number = version("mlc_torch")
    except PackageNotFoundError:  # a checkout
        number = ""
    return {"version": number, "files": cache.digest(files)}


def imported(name: str, neighbours: tuple[str, ...]) -> list[str]:
    """The neighbours that a module imports."""
    return [other for other in _PASSED_ON.get(name, ()) if other in neighbours]


def module_keys(toolchain: Toolchain, neighbours: tuple[str, ...]) -> dict[str, str]:
    """For each module its name in the cache."""
    about = {"ours": our_version(), "toolchain": toolchain.identity}
    return {
        name: cache.key(module=name, others=imported(name, neighbours), **about) for name in (*neighbours, "MLCompute")
    }


def build_modules(toolchain: Toolchain, neighbours: tuple[str, ...]) -> Modules:
    """Build what is not there yet, neighbours first, and say where everything lies."""
    folders: list[Path] = []
    for name, key in module_keys(toolchain, neighbours).items():
        folders.append(cache.kept("modules", f"{name}-{key}", _Build(name, toolchain, neighbours, tuple(folders))))
    return Modules(tuple(reversed(folders)))


@dataclass(frozen=True)
class _Build:
    name: str
    toolchain: Toolchain
    neighbours: tuple[str, ...]
    before: tuple[Path, ...]

    def __call__(self, folder: Path) -> None:
        started = time.monotonic()
        large = self.name == "MLCompute"
        if large:
            say(
                f"building the module MLCompute for {self.toolchain.version.partition(' (')[0]}, once; this takes about a minute"
            )
        compile_quietly(f"the module {self.name}", self.command(folder), cwd=folder)
        if large:
            say(f"built in {time.monotonic() - started:.0f} s")

    def command(self, folder: Path) -> list[str | Path]:
        flags = ["-swift-version", "5", "-O", "-wmo", "-enforce-exclusivity=unchecked", "-parse-as-library"]
        if self.name == "MLCompute":
            flags += ["-Xlinker", LOADED]
        for other in self.before:
            # $ORIGIN: the folders stand beside each other wherever the cache is.
            flags += ["-I", str(other), "-L", str(other), "-Xlinker", "-rpath", "-Xlinker", f"$ORIGIN/../{other.name}"]
        return [
            self.toolchain.swiftc,
            *flags,
            "-emit-module",
            "-emit-library",
            "-module-name",
            self.name,
            "-module-link-name",
            self.name,
            "-emit-module-path",
            folder / f"{self.name}.swiftmodule",
            "-o",
            folder / f"lib{self.name}.so",
            *module_sources(self.name, self.neighbours, folder),
        ]


def module_texts(name: str, neighbours: tuple[str, ...]) -> dict[str, str]:
    """The Swift files of a module, by name."""
    texts = {path.name: path.read_text("utf-8") for path in sorted((SOURCES / name).glob("*.swift"))}
    if name == "MLCompute":
        texts["Generated.swift"] = generate()
        for other in _PASSED_ON[name]:
            if other not in neighbours:
                texts |= module_texts(other, neighbours)
    return texts


def module_sources(name: str, neighbours: tuple[str, ...], folder: Path) -> list[Path]:
    """The files of a module, written to ``folder``: the toolchain need not see where Python's packages lie."""
    place = folder / "sources"
    place.mkdir()
    texts = module_texts(name, neighbours)
    for file, text in texts.items():
        (place / file).write_text(text, "utf-8")
    return [place / file for file in texts]
