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

_IMPORTED = ("Metal", "Combine")
"""What MLCompute passes on to whoever imports it. Where one is left out, its few types are MLCompute's own."""


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


def module_keys(toolchain: Toolchain, neighbours: tuple[str, ...]) -> dict[str, str]:
    """For each module its name in the cache."""
    ours = our_version()
    keys = {}
    for name in neighbours:
        others = "Combine" in neighbours if name == "SwiftUI" else None
        keys[name] = cache.key(module=name, ours=ours, toolchain=toolchain.identity, others=others)
    imported = [name for name in _IMPORTED if name in neighbours]
    keys["MLCompute"] = cache.key(module="MLCompute", ours=ours, toolchain=toolchain.identity, others=imported)
    return keys


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
            flags += ["-Xlinker", "-init=mlc_torch_loaded"]
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


def module_sources(name: str, neighbours: tuple[str, ...], folder: Path) -> list[Path]:
    """The Swift files of a module; those that are not there as they are needed are written to ``folder``.

    The toolchain need not see where Python's packages lie, so that all of them are.
    """
    texts = {path.name: path.read_text("utf-8") for path in sorted((SOURCES / name).glob("*.swift"))}
    if name == "MLCompute":
        texts["Generated.swift"] = generate()
        for missing in _IMPORTED:
            if missing not in neighbours:
                texts[f"{missing}.swift"] = (SOURCES / missing / f"{missing}.swift").read_text("utf-8")
    place = folder / "sources"
    place.mkdir()
    for file, text in texts.items():
        (place / file).write_text(text, "utf-8")
    return [place / file for file in texts]
