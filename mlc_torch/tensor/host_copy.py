"""Copies within a host's memory, for a GPU's sake: by one thread, unless they are large."""

from __future__ import annotations

import ctypes

import torch

from mlc_torch.torch_private.memory import GRAIN

_MANY = GRAIN
"""So many elements torch copies by several threads, which have to be woken, and wait for a core on a host that is busy otherwise.
(An H200's host with 16 cores, 512 KiB, microseconds by one thread: half of the copies within 50, all within 160; by torch's 20,
but in 6,000 copies one takes 3,000 to 14,000. LeNet's steps, whose inputs were copied so, took .2 to 3.6 ms on a busy one.)"""
BEHIND_THE_GPU, ALONE = 1 << 20, 256 << 10
"""Bytes from which on threads are worth that: where the GPU computes meanwhile, and where all wait for the copy. (Three phases
of a transformer block, whose input has 512 KiB, 332 to 350 us bound by one thread, 248 to 266 by torch's; one call 222.)"""


def host_copy(target: torch.Tensor, source: torch.Tensor, most: int = BEHIND_THE_GPU) -> torch.Tensor:
    """``target`` with what ``source`` holds, both in the host's memory; of fewer than ``most`` bytes by one thread."""
    if source.numel() >= _MANY and source.nbytes < most and _lie_alike(target, source):
        ctypes.memmove(target.data_ptr(), source.data_ptr(), source.nbytes)  # other threads go on meanwhile
        return target
    return target.copy_(source)


def _lie_alike(target: torch.Tensor, source: torch.Tensor) -> bool:
    if source.is_neg() or source.is_conj() or source._is_zerotensor():
        return False  # what its memory holds is not what it says
    return (
        source.dtype == target.dtype
        and source.shape == target.shape
        and source.is_contiguous()
        and target.is_contiguous()
    )
