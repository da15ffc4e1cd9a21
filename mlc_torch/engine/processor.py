"""What torch was built for on this processor."""

from __future__ import annotations

import functools

import torch


@functools.cache
def has_vector_code() -> bool:
    """Whether it has vector instructions."""
    return torch.backends.cpu.get_cpu_capability() != "DEFAULT"


@functools.cache
def has_avx512() -> bool:
    return torch.backends.cpu.get_cpu_capability() == "AVX512"


CHANNELS_AT_ONCE = {True: 8, False: 4}
"""How many channels torch's norms take at a time with vector code and without: what these do not divide takes long with channels
last (``kernels.py`` has the measurements)."""
