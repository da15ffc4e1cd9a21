"""How much data is little."""

LITTLE = 16 << 10
"""Bytes that are copied in less time than a tensor over them is made."""
