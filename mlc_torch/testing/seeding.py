"""Random numbers that repeat within a test and leave no trace after it."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from mlc_torch.device import randomness


@contextlib.contextmanager
def seeded(seed: int) -> Iterator[int]:
    """Random initializers and dropout start from ``seed``; afterwards the platform's seed is what it was before.

    Only ML Compute's own numbers are meant: torch's and NumPy's generators stay as they are.
    """
    before = randomness.seed
    randomness.reseed(seed)
    try:
        yield seed
    finally:
        randomness.reseed(before)
