"""The half of the bridge that is Python: it runs within the Swift program, which imports it when it starts Python."""

from __future__ import annotations

import collections
import copy as _copy
import logging
import warnings
from typing import TextIO

import torch

from mlc_torch import MLCPaddingPolicy, MLCPoolingType
from mlc_torch.device import hardware, offered
from mlc_torch.shown_by_default import standard_error

copy = _copy.copy


class _Once(logging.Handler):
    """Each text once on standard error, as a Swift program shows it; :func:`finish` says how often the others came."""

    def __init__(self) -> None:
        super().__init__()
        self.times: collections.Counter[str] = collections.Counter()

    def emit(self, record: logging.LogRecord) -> None:
        self.show(record.getMessage())

    def show(self, text: str) -> None:
        self.times[text] += 1
        if self.times[text] == 1:
            _write(text)


def _write(text: str) -> None:
    there = standard_error()
    if there is not None:  # a service may have started the program without one
        there.write(f"MLCompute: {text}\n")
        there.flush()


_shown = _Once()
logging.getLogger("mlc_torch").addHandler(_shown)


def _show_warning(
    message: Warning | str,
    category: type[Warning],
    filename: str,
    lineno: int,
    file: TextIO | None = None,
    line: str | None = None,
) -> None:
    """A line of Python's would say nothing to the reader of a Swift program."""
    _shown.show(f"{category.__name__}: {message}")


def own_process() -> None:
    """Called where the Swift program started this Python for itself."""
    warnings.showwarning = _show_warning


def finish() -> None:
    """Called when the program ends."""
    for text, times in _shown.times.items():
        if times > 1:
            _write(f"{times} times in all: {text}")


def padding_policy(raw: int, payload: tuple[int, int] | None = None) -> MLCPaddingPolicy:
    return MLCPaddingPolicy(raw, payload)


def pooling_type(raw: int, payload: bool | None = None) -> MLCPoolingType:
    return MLCPoolingType(raw, payload)


def described(devices: list[torch.device]) -> list[tuple[str, str, int, int]]:
    """For ``MTLDevice``: torch's name, the hardware's, its number and its memory."""
    return [(str(device), name, device.index or 0, memory) for device in devices for name, memory in [hardware(device)]]


def all_devices() -> list[tuple[str, str, int, int]]:
    """For ``MTLCopyAllDevices``."""
    return described(offered())
