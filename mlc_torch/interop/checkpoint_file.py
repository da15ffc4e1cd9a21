"""Checkpoint files: safetensors with a digest, written so that no reader ever sees half of one."""

from __future__ import annotations

import errno
import hashlib
import json
import os
import secrets
from pathlib import Path
from typing import Any, NoReturn

import torch

from mlc_torch.extras import install
from mlc_torch.refusals import refuse

FORMAT = 1
_ABOUT, _DIGEST = "mlc_torch", "sha256"


def _safetensors() -> Any:
    try:
        import safetensors.torch
    except ModuleNotFoundError:
        raise ModuleNotFoundError(
            f"checkpoints need the package safetensors: {install('checkpoint')}", name="safetensors"
        ) from None
    return safetensors


def write_file(path: Path, tensors: dict[str, torch.Tensor], about: dict[str, Any]) -> None:
    """Write beside ``path``, wait for the disk, then take its place: ``path`` holds the old file or the new one."""
    library = _safetensors()
    _plain_file(path)
    text = json.dumps({"format": FORMAT, **about}, sort_keys=True)
    beside = path.with_name(f".{path.name}.{secrets.token_hex(8)}.tmp")
    with beside.open("xb") as file:
        mode = os.fstat(file.fileno()).st_mode
    try:
        library.torch.save_file(tensors, beside, {_ABOUT: text, _DIGEST: _digest(tensors, text)})
        beside.chmod(mode)  # the library makes files that only their owner may read
        _to_disk(beside)
        os.replace(beside, path)
    finally:
        beside.unlink(missing_ok=True)
    _to_disk(path.parent)


def read_file(path: Path) -> tuple[dict[str, torch.Tensor], dict[str, Any]]:
    """The tensors, in host memory, and what is said about them; a file that is not exactly what was written is refused."""
    library = _safetensors()
    _plain_file(path)
    with path.open("rb"):
        pass  # a file that cannot be opened raises what Python raises for it
    try:
        with library.safe_open(path, framework="pt", device="cpu") as file:
            said = file.metadata() or {}
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 - it is no dictionary
    except Exception as error:  # noqa: BLE001 - whatever a hostile file makes the parser say
        _broken(path, f"{type(error).__name__}: {error}")
    text, digest = said.get(_ABOUT), said.get(_DIGEST)
    if text is None or digest is None:
        _broken(path, "mlc_torch did not write it")
    if _digest(tensors, text) != digest:
        _broken(path, "its contents are not what was written; the file is damaged")
    try:
        about = json.loads(text)
    except (ValueError, RecursionError) as error:
        _broken(path, f"its description cannot be read ({error})")
    if not isinstance(about, dict) or about.get("format") != FORMAT:
        written = about.get("format") if isinstance(about, dict) else None
        _broken(path, f"its format is {written!r}, this version reads {FORMAT}")
    return tensors, about


def _plain_file(path: Path) -> None:
    """A device would be replaced by the file, and reading from a pipe would wait."""
    if path.is_dir():
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
    if path.exists() and not path.is_file():
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


def _to_disk(path: Path) -> None:
    """Wait until a file, or the entries of a folder, are on the disk. Windows cannot open folders."""
    if os.name == "nt" and path.is_dir():
        return
    opened = os.open(path, os.O_RDONLY)
    try:
        os.fsync(opened)
    finally:
        os.close(opened)
