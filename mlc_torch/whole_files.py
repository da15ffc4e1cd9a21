"""Files that are there whole, or as they were before: whatever strikes in the middle of writing leaves no half of one."""

from __future__ import annotations

import errno
import os
import secrets
import shutil
from pathlib import Path


def write_whole(path: Path, contents: bytes) -> None:
    """Write beside ``path``, then take its place. A symbolic link stays one, and what it points to is written."""
    target = Path(os.path.realpath(path))
    if target.is_dir():
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
    if target.exists() and not target.is_file():
        target.write_bytes(contents)  # a device or a pipe: nothing may take its place
        return
    beside = target.with_name(f".{secrets.token_hex(8)}.tmp")
    try:
        try:
            beside.write_bytes(contents)
            if target.exists():
                shutil.copymode(target, beside)
            os.replace(beside, target)
        finally:
            beside.unlink(missing_ok=True)
    except OSError as error:  # which names the file beside it
        raise OSError(error.errno, error.strerror, str(path)) from error
