"""Checkpoint files: safetensors with a digest, written so that no reader ever sees half of one."""

from __future__ import annotations

import errno
import hashlib
import json
import os
import struct
from pathlib import Path
from typing import Any, BinaryIO, NoReturn

import torch

from mlc_torch.extras import install
from mlc_torch.refusals import pass_on_signals, refuse
from mlc_torch.whole_files import write_whole

FORMAT = 1
_ABOUT, _DIGEST = "mlc_torch", "sha256"
_LENGTH = struct.Struct("<Q")
"""How a file begins: the length of its header, which is JSON."""
_LONGEST_HEADER = 100_000_000
"""The format's own limit."""


def _safetensors() -> Any:
    try:
        import safetensors.torch
    except ModuleNotFoundError:
        raise ModuleNotFoundError(
            f"checkpoints need the package safetensors: {install('checkpoint')}", name="safetensors"
        ) from None
    return safetensors


def write_file(path: Path, tensors: dict[str, torch.Tensor], about: dict[str, Any]) -> None:
    """``path`` holds the old file or the new one, whatever happens; see ``write_whole``."""
    library = _safetensors()
    _plain_file(path)
    text = json.dumps({"format": FORMAT, **about}, sort_keys=True)
    write_whole(path, library.torch.save(tensors, {_ABOUT: text, _DIGEST: _digest(tensors, text)}))


# Reading


def read_file(path: Path) -> tuple[dict[str, torch.Tensor], dict[str, Any]]:
    """The tensors, in host memory, and what is said about them; a file that is not exactly what was written is refused.

    The file is read once, into memory of our own: nobody can change or shorten what was checked.
    """
    library = _safetensors()
    _plain_file(path)
    contents = _contents(path)
    said = _metadata(path, contents)
    try:
        tensors = library.torch.load(contents)
    except Exception as error:  # noqa: BLE001 - whatever a hostile file makes the parser say
        pass_on_signals(error)
        _broken(path, f"{type(error).__name__}: {error}")
    text = said[_ABOUT]
    if _digest(tensors, text) != said[_DIGEST]:
        _broken(path, "its contents are not what was written; the file is damaged")
    try:
        about = json.loads(text)
    except (ValueError, RecursionError) as error:
        _broken(path, f"its description cannot be read ({error})")
    if not isinstance(about, dict) or about.get("format") != FORMAT:
        written = about.get("format") if isinstance(about, dict) else None
        _broken(path, f"its format is {written!r}, this version reads {FORMAT}")
    return tensors, about


def _contents(path: Path) -> bytes:
    """All bytes of a file that begins as ours do; others may be too large to be read to no purpose."""
    with path.open("rb") as file: return _contents_of(file, path)  # noqa: E701  # fmt: skip


def _contents_of(file: BinaryIO, path: Path) -> bytes:
    start = file.read(_LENGTH.size)
    length = _LENGTH.unpack(start)[0] if len(start) == _LENGTH.size else 0
    if not 0 < length <= _LONGEST_HEADER:
        _broken(path, "it does not begin as safetensors files do")
    _metadata(path, start + file.read(length))
    file.seek(0)
    try:
        return file.read()
    except MemoryError:
        _broken(path, f"there is no memory for its {os.fstat(file.fileno()).st_size} bytes")


def _metadata(path: Path, contents: bytes) -> dict[str, str]:
    """What the header says beside the tensors: our description and the digest."""
    (length,) = _LENGTH.unpack_from(contents)
    header = contents[_LENGTH.size : _LENGTH.size + length]
    if len(header) < length:
        _broken(path, "it is cut off")
    try:
        said = json.loads(header)["__metadata__"]
        if not (type(said[_ABOUT]) is type(said[_DIGEST]) is str):
            raise TypeError
        said[_ABOUT].encode()  # JSON can spell half characters, which no text of ours holds
    except RecursionError:
        _broken(path, "its header cannot be read")
    except (KeyError, TypeError):
        _broken(path, "mlc_torch did not write it")
    except ValueError as error:
        _broken(path, f"its header cannot be read ({error})")
    return said


def _plain_file(path: Path) -> None:
    """A device would be replaced by the file, and reading from a pipe would wait."""
    try:
        path.stat()
    except FileNotFoundError:
        return  # also a link to a file that is not there yet; links that go round in circles raise
    if path.is_dir():
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
    if not path.is_file():
        raise OSError(errno.EINVAL, "A checkpoint is a plain file, and this is none", str(path))


def _broken(path: Path, why: str) -> NoReturn:
    refuse(f"{str(path)!r} is no checkpoint that can be loaded: {why}")


def _digest(tensors: dict[str, torch.Tensor], text: str) -> str:
    """One number for all of it: names, types, shapes, values, and what is said about them."""
    sha = hashlib.sha256(text.encode())
    for name in sorted(tensors):
        tensor = tensors[name]
        sha.update(json.dumps([name, str(tensor.dtype), list(tensor.shape)]).encode())
        if tensor.numel():
            sha.update(tensor.contiguous().reshape(-1).view(torch.uint8).numpy().data)
    return sha.hexdigest()
