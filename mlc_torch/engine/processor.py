"""What torch was built for on this processor, and whether anybody has measured what is fast on such a one."""

from __future__ import annotations

import functools
import os
import platform

import torch


@functools.cache
def has_vector_code() -> bool:
    """Whether it has vector instructions: x86's, or an ARM's of the larger kind (SVE)."""
    return torch.backends.cpu.get_cpu_capability() != "DEFAULT"


@functools.cache
def has_avx() -> bool:
    """Whether those are x86's, AVX2 or AVX-512."""
    return torch.backends.cpu.get_cpu_capability().startswith("AVX") and not _is_arm()


@functools.cache
def has_avx512() -> bool:
    return has_avx() and torch.backends.cpu.get_cpu_capability() == "AVX512"


@functools.cache
def has_rules() -> bool:
    """Whether rules were measured on such a processor: an x86 with vector code, or an ARM without (Neoverse-N1).

    Of others, as an ARM with SVE (Graviton 3) or an x86 whose vector code is turned off, nothing is known: there torch's own
    ways are taken.
    """
    return has_avx() or (_is_arm() and not has_vector_code())


def cores() -> int:
    """How many this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _is_arm() -> bool:
    return platform.machine().lower().startswith(("arm", "aarch64"))


CHANNELS_AT_ONCE = {True: 8, False: 4}
"""How many channels torch's norms take at a time with vector code and without: what these do not divide takes long with channels
last (``kernels.py`` has the measurements)."""
