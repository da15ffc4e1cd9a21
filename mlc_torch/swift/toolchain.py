"""The Swift compiler that is used, and what it says about itself."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mlc_torch.swift import cache
from mlc_torch.swift.saying import SwiftTrouble

OLDEST = (5, 10)

HOW_TO_GET_ONE = (
    "there is no Swift compiler: swiftc is not on PATH. Install Swift 5.10 or newer from https://www.swift.org/install/linux "
    "(or your distribution's package swiftlang), or set MLC_TORCH_SWIFT to the swiftc of one"
)


@dataclass(frozen=True)
class Toolchain:
    swiftc: Path
    version: str
    """``Swift version 6.0.3 (swift-6.0.3-RELEASE)``"""
    target: str
    """``x86_64-unknown-linux-gnu``"""

    @property
    def swift(self) -> Path:
        """SwiftPM's command, beside the compiler."""
        found = self.swiftc.with_name("swift")
        if not found.exists():
            raise SwiftTrouble(f"{self.swiftc} has no command swift beside it, which packages are built with")
        return found

    @property
    def is_too_old(self) -> bool:
        """What does not say its number is tried."""
        found = re.search(r"(\d+)\.(\d+)", self.version)
        return found is not None and (int(found[1]), int(found[2])) < OLDEST

    @property
    def identity(self) -> dict[str, str]:
        """For the keys of what it built."""
        return {"swiftc": str(self.swiftc), "version": self.version, "target": self.target}


def swiftc_path() -> Path | None:
    """``MLC_TORCH_SWIFT`` (a compiler, or the folder that holds one), else ``swiftc`` on PATH."""
    if chosen := os.environ.get("MLC_TORCH_SWIFT"):
        path = Path(chosen).expanduser().absolute()
        for candidate in (path, path / "swiftc", path / "usr" / "bin" / "swiftc"):
            if candidate.is_file() and os.access(candidate, os.X_OK):
                return candidate
        raise SwiftTrouble(f"MLC_TORCH_SWIFT={chosen} is no Swift compiler, nor a folder that holds one")
    found = shutil.which("swiftc")
    return Path(found).absolute() if found else None


def toolchain() -> Toolchain:
    """The toolchain, or :class:`SwiftTrouble` with the sentence that says how to get one."""
    if sys.platform != "linux":
        raise SwiftTrouble("the Swift module is for Linux; on a Mac a Swift program has Apple's own")
    path = swiftc_path()
    if path is None:
        raise SwiftTrouble(HOW_TO_GET_ONE)
    said = _what_it_says(path)
    made = Toolchain(path, said["compilerVersion"], said["target"]["triple"])
    if made.is_too_old:
        raise SwiftTrouble(f"{path} is {made.version}; Swift {'.'.join(map(str, OLDEST))} or newer is needed")
    return made


def _what_it_says(path: Path) -> dict[str, Any]:
    """``swiftc -print-target-info``, asked once for each compiler: asking takes longer than starting a small program."""
    remembered = cache.folder() / "toolchains" / f"{cache.key(seen=_seen(path))}.json"
    with contextlib.suppress(OSError):  # also where the cache cannot be used: whoever builds in it says so
        # swiftly's one file stands for every toolchain it has installed, so it is asked each time.
        if path.resolve().name != "swiftly" and remembered.is_file():
            said = json.loads(remembered.read_text("utf-8"))
            if said["runtime"] == _runtime(said):
                return said
    try:
        answer = subprocess.run([path, "-print-target-info"], capture_output=True, text=True, check=True)
        told = json.loads(answer.stdout)
        said = {name: told[name] for name in ("compilerVersion", "target", "paths")}
    except (OSError, ValueError, KeyError, subprocess.CalledProcessError) as error:
        raise SwiftTrouble(f"{path} does not answer as a Swift compiler does: {_last_line(error)}") from None
    said["runtime"] = _runtime(said)
    with contextlib.suppress(OSError):
        remembered.parent.mkdir(parents=True, exist_ok=True)
        new = remembered.with_suffix(f".{os.getpid()}")
        new.write_text(json.dumps(said), "utf-8")
        new.replace(remembered)
    return said


def _seen(path: Path) -> list[Any]:
    real = path.resolve()
    about = real.stat()
    return [str(path), str(real), about.st_size, about.st_mtime_ns]


def _runtime(said: dict[str, Any]) -> list[Any]:
    """The library that programs need: where it changed, another toolchain has come behind the same name."""
    found = []
    for place in said["paths"].get("runtimeLibraryPaths", []):
        library = Path(place) / "libswiftCore.so"
        if library.is_file():
            about = library.stat()
            found.append([str(library), about.st_size, about.st_mtime_ns])
    return found


def _last_line(error: Exception) -> str:
    said = getattr(error, "stderr", None) or str(error)
    return said.strip().splitlines()[-1] if said.strip() else type(error).__name__
