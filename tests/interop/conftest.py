"""Fixtures of this folder."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch

from mlc_torch.device import randomness


@pytest.fixture(autouse=True)
def platform_seed(monkeypatch) -> Iterator[None]:
    """The platform's random numbers are seeded during a test, and free again after it; GPUs compute in full precision."""
    monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", False)
    randomness.reseed(5)
    yield
    randomness.reseed(None)
