"""The half of the bridge that is Python: it runs within the Swift program, which imports it when it starts Python."""

from __future__ import annotations

import copy as _copy
import logging
import warnings
from typing import TextIO

import torch

from mlc_torch import MLCPaddingPolicy, MLCPoolingType
from mlc_torch.device import hardware, offered
from mlc_torch.shown_by_default import EachLineOnce

copy = _copy.copy


_shown = EachLineOnce("MLCompute")
"""As a Swift program shows it: under the name of the module that it imports."""
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
    _shown.count_repetitions()


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
