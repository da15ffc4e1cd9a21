"""Where modules and programs are kept once they are built. Two commands at once do not harm each other.

Something is built in a folder of its own, which then takes its final name in one step: what has that name is whole.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from mlc_torch.swift.saying import say

_WHOLE = "cache"
"""The lock of the whole cache: shared by those who build something in it, and had alone by the one who empties it."""


def folder() -> Path:
    """``MLC_TORCH_CACHE``, or where programs of this user keep such things."""
    if chosen := os.environ.get("MLC_TORCH_CACHE"):
        return Path(chosen).absolute() / "swift"
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base).absolute() / "mlc_torch" / "swift"


def key(**parts: Any) -> str:
    """A name for everything that ``parts`` say."""
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()[:24]


def digest(files: list[Path]) -> dict[str, str]:
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


def kept(kind: str, name: str, build: Callable[[Path], None]) -> Path:
    """The folder ``kind/name`` of the cache, which ``build`` fills where it is not there."""
    target = folder() / kind / name
    if target.is_dir():
        return target
    with _locked(_WHOLE, fcntl.LOCK_SH), _locked(f"{kind}-{name}", fcntl.LOCK_EX):
        if target.is_dir():  # another command has built it meanwhile
            return target
        target.parent.mkdir(parents=True, exist_ok=True)
        work = Path(tempfile.mkdtemp(prefix=".building-", dir=target.parent))
        try:
            build(work)
            work.chmod(0o755)
            try:
                work.rename(target)
            except OSError:  # a folder that two caches share, each with locks of its own: the other was faster
                if not target.is_dir():
                    raise
        finally:
            shutil.rmtree(work, ignore_errors=True)
    return target


def clear() -> int:
    """Empty the cache, once no other command builds in it; gives the number of bytes that are free again."""
    if not folder().is_dir():
        return 0
    with _locked(_WHOLE, fcntl.LOCK_EX):
        freed = size()
        for entry in folder().iterdir():
            if entry.name != "locks":
                shutil.rmtree(entry) if entry.is_dir() else entry.unlink()
        # Whoever opens one of these has the lock of the whole cache, and keeps it until that one is closed: now nobody does.
        # Its own file stays, since others may have opened it and wait.
        for lock in (folder() / "locks").iterdir():
            if lock.name != _WHOLE:
                lock.unlink()
    return freed


def try_out() -> None:
    """Raises an ``OSError`` where nothing can be written here."""
    folder().mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryFile(dir=folder()):
        pass


def size() -> int:
    return sum(path.lstat().st_size for path in folder().rglob("*") if path.is_file() and not path.is_symlink())


@contextlib.contextmanager
def _locked(name: str, how: int) -> Iterator[None]:
    place = folder() / "locks"
    place.mkdir(parents=True, exist_ok=True)
    with open(place / name, "w") as file:
        try:
            fcntl.flock(file, how | fcntl.LOCK_NB)
        except BlockingIOError:
            say("another mlc-torch is building; waiting for it")
            fcntl.flock(file, how)
        yield
