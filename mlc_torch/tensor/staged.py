"""Copies of host memory that wait for a GPU to fetch them."""

from __future__ import annotations

import torch

from mlc_torch.device import queueing
from mlc_torch.tensor.host_copy import ALONE, host_copy

_MUCH = 128 << 10
"""Bytes from which on the C library asks the system for memory, which comes page by page: on an H200's host the three phases of a
transformer block, whose input has 512 KiB, took 288 to 373 us with such memory, and 234 to 280 with pinned memory, which torch
hands out again."""


def is_much(tensor: torch.Tensor) -> bool:
    """Whether it is staged when it is bound."""
    return tensor.nbytes >= _MUCH


def staged_for(view: torch.Tensor, device: torch.device) -> torch.Tensor:
    """A copy of host memory where a GPU can fetch it from, which nobody writes to any more.

    torch hands such memory out again once it is let go of and fetched.
    """
    with queueing(device):  # new pinned memory waits for the device, which a recording does not survive
        staged = torch.empty(view.shape, dtype=view.dtype, device="cpu", pin_memory=True)
    staged.is_staged = True  # type: ignore[attr-defined]  # by a name of its own: programs have pinned memory too
    return host_copy(staged, view, ALONE)


def is_staged(tensor: torch.Tensor) -> bool:
    """Whether it was made by ``staged_for``: a GPU may fetch it at any time, since it stays as it is."""
    return getattr(tensor, "is_staged", False)
