"""The module and its neighbours as a SwiftPM package that others depend on by path."""

from __future__ import annotations

import json
from pathlib import Path

from mlc_torch.swift.modules import LOADED, imported, module_texts
from mlc_torch.swift.saying import SwiftTrouble, say

_OURS = "// Written by `mlc-torch swift package`."
_MANIFEST = """\
// swift-tools-version: 5.9
{ours} Depend on it by path:
//     .package(path: "{folder}")   and   .product(name: "MLCompute", package: "{name}")
import PackageDescription

let package = Package(
    name: "MLCompute",
    products: [
{products}
    ],
    targets: [
{targets}
    ]
)
"""


def write_package(folder: Path, neighbours: tuple[str, ...]) -> None:
    """Write the package, or write it anew; a folder that holds anything else is left alone."""
    if folder.exists() and not (folder.is_dir() and (not any(folder.iterdir()) or _is_ours(folder))):
        raise SwiftTrouble(f"{folder} is there already, and not written by this command", 2)
    names = [*neighbours, "MLCompute"]
    for name in names:
        place = folder / "Sources" / name
        place.mkdir(parents=True, exist_ok=True)
        for old in place.glob("*.swift"):
            old.unlink()
        for file, text in module_texts(name, neighbours).items():
            (place / file).write_text(text, "utf-8")
    manifest = _MANIFEST.format(
        ours=_OURS,
        folder=folder,
        name=folder.name,
        products=",\n".join(f'        .library(name: "{name}", targets: ["{name}"])' for name in names),
        targets=",\n".join(_target(name, neighbours) for name in names),
    )
    (folder / "Package.swift").write_text(manifest, "utf-8")
    say(f'wrote {folder}; depend on it with .package(path: "{folder}")')


def _target(name: str, neighbours: tuple[str, ...]) -> str:
    words = [f'name: "{name}"']
    if needs := imported(name, neighbours):
        words.append(f"dependencies: {json.dumps(needs)}")
    if name == "MLCompute":
        words.append(f'linkerSettings: [.unsafeFlags(["-Xlinker", "{LOADED}"])]')
    return f"        .target({', '.join(words)})"


def _is_ours(folder: Path) -> bool:
    manifest = folder / "Package.swift"
    return manifest.is_file() and _OURS in manifest.read_text("utf-8", "replace")
