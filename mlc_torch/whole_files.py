"""Files that are there whole, or as they were before: whatever strikes in the middle of writing leaves no half of one.

A block that holds a file or its lock stands on the line of its ``with``: see ``Locks`` in graph/locks.py.
"""

from __future__ import annotations

import errno
import os
import secrets
import shutil
from pathlib import Path
from typing import BinaryIO

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]

_UNFINISHED = ".mlc_torch-{}.tmp"


def write_whole(path: Path, contents: bytes) -> None:
    """Write beside ``path``, wait for the disk, then take its place: ``path`` holds the old file or the new one.

    A symbolic link stays one, and what it points to is written.
    """
    target = Path(os.path.realpath(path))
    if target.is_dir():
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
    if target.exists() and not target.is_file():
        target.write_bytes(contents)  # a device or a pipe: nothing may take its place
        return
    _remove_unfinished(target.parent)
    try:
        while not _replaced(target, contents):
            pass  # another process took the new file for an unfinished one before it was locked
    except OSError as error:  # which names the file beside it, or none
        if error.errno is None:
            raise
        raise OSError(error.errno, error.strerror, str(path)) from error
    _to_disk(target.parent)


def _replaced(path: Path, contents: bytes) -> bool:
    beside = path.with_name(_UNFINISHED.format(secrets.token_hex(8)))
    try:
        with beside.open("xb") as file: written = _written(file, contents, beside, path)  # noqa: E701  # fmt: skip
        if written and fcntl is None:
            os.replace(beside, path)  # Windows does not rename open files
    finally:
        beside.unlink(missing_ok=True)
    return written


def _written(file: BinaryIO, contents: bytes, beside: Path, path: Path) -> bool:
    if not _locked(file, beside):
        return False
    file.write(contents)
    file.flush()
    if path.exists():
        shutil.copymode(path, beside)
    os.fsync(file.fileno())
    if fcntl is not None:
        os.replace(beside, path)  # while the lock is held
    return True


def _locked(file: BinaryIO, path: Path) -> bool:
    """Lock a new file, so that other processes see that its writer lives; whether it is still there."""
    if fcntl is None:
        return True
    try:
        fcntl.flock(file, fcntl.LOCK_EX)
    except OSError:
        return True  # a file system without locks, where nobody removes unfinished files either
    try:
        return os.path.samestat(os.fstat(file.fileno()), path.stat())
    except FileNotFoundError:
        return False


def _remove_unfinished(folder: Path) -> None:
    """Remove what killed processes left behind. The files of living ones are locked, and stay."""
    for left in folder.glob(_UNFINISHED.format("*")) if fcntl is not None else ():
        try:
            with left.open("r+b") as file: _remove(file, left)  # noqa: E701  # fmt: skip
        except OSError:
            continue  # locked, gone, or somebody else's


def _remove(file: BinaryIO, path: Path) -> None:
    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    path.unlink()


def _to_disk(folder: Path) -> None:
    """Wait until the entries of a folder are on the disk. Windows cannot open folders."""
    if os.name == "nt":
        return
    opened = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(opened)
    finally:
        os.close(opened)
