"""Memory by its address, and how much of it is rather copied than looked into."""

from __future__ import annotations

import ctypes
import functools
from typing import Any

import numpy as np

LITTLE = 16 << 10
"""Bytes that are copied in less time than a tensor over them is made."""


def address_of(view: memoryview) -> int:
    """Where these bytes lie."""
    return np.frombuffer(view, np.uint8).__array_interface__["data"][0]


def memory_at(address: int, size: int, owner: Any) -> Any:
    """So many bytes, as a buffer that keeps alive whom they belong to for as long as somebody looks at it."""
    memory = memory_type(size).from_address(address)
    memory.owner = owner
    return memory


@functools.lru_cache(maxsize=256)
def memory_type(size: int) -> Any:
    """A type of memory of so many bytes, whose instances can hold on to what the memory belongs to."""
    return type("Memory", (ctypes.c_char * size,), {})
