"""Fixtures of this folder."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from mlc_torch.device import randomness


@pytest.fixture(autouse=True)
def platform_seed() -> Iterator[None]:
    """The platform's random numbers are seeded during a test, and free again after it."""
    randomness.reseed(5)
    yield
    randomness.reseed(None)
