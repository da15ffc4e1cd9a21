"""The same program on one process and on all of them, and what they have to have in common."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np

import mlc_torch as mlc
from mlc_torch import ranks

warnings.simplefilter("ignore")
warnings.filterwarnings("error", "the ranks (were given different data|hold different weights)")
KIND = mlc.MLCDeviceType[os.environ.get("CHECK_DEVICE", "cpu")]
ON_GPU = KIND is mlc.MLCDeviceType.gpu
ALONE = mlc.unwrap(mlc.MLCDevice(type=KIND))
STEPS = 20


def many_devices() -> Any:
    return mlc.unwrap(mlc.MLCDevice(type=KIND, selectsMultipleComputeDevices=True))


MANY = many_devices()


def flat(arrays: list[np.ndarray]) -> np.ndarray:
    return np.concatenate([a.ravel() for a in arrays]).astype(np.float64)


def assert_close(one: Any, many: Any, before: np.ndarray, movement: float = 1e-5, size: float = 1e-6) -> None:
    """The weights after the same steps: relative to how far they moved, and to themselves.

    A GPU adds up in another order from run to run.
    """
    if ON_GPU:
        movement, size = 50 * movement, 50 * size
    a, b = flat(one.numbers_now()), flat(many.numbers_now())
    moved, apart = np.linalg.norm(a - before), np.linalg.norm(a - b)
    assert moved > 1e-3 * np.linalg.norm(a), "nothing was learned, so nothing was compared"
    assert apart <= movement * moved, f"{apart / moved:.1e} of the movement"
    assert apart <= size * np.linalg.norm(a), f"{apart / np.linalg.norm(a):.1e} of the weights"


def assert_alike(net: Any) -> None:
    """The ranks hold the same bits."""
    own = [a.tobytes() for a in (*net.numbers_now(), *net.statistics_now())]
    others = ranks.joined().told(own)
    assert all(other == others[0] for other in others)


def both(make: Callable[[Any], Any]) -> tuple[Any, Any, list[Any], np.ndarray]:
    """The same program on one process and on all, and batches for them."""
    mlc.MLCPlatform.setRNGSeedTo(5)
    one, many = make(ALONE), make(MANY)
    return one, many, one.batches(4), flat(one.numbers_now())


def compare(make: Callable[[Any], Any], sizes: tuple[int, ...] = (0,), steps: int = STEPS, **limits: float) -> Any:
    """The same steps on both: losses, results and weights agree, and the ranks with each other to the bit."""
    one, many, batches, before = both(make)
    found: list[Any] = []
    for net in (one, many):
        mlc.MLCPlatform.setRNGSeedTo(9)  # each draws from the start
        found.append([net.step(batches[n % 4], sizes[n % len(sizes)]) for n in range(steps)])
    for n, ((_, expected, _), (answer, value, error)) in enumerate(zip(*found, strict=True)):
        assert answer is True and error is None, (answer, error)
        batch = sizes[n % len(sizes)] or one.batch
        rows = slice(None) if value.shape == (1,) else slice(batch)
        np.testing.assert_allclose(value[rows], expected[rows], rtol=2e-5, atol=1e-6)
    assert_close(one, many, before, **limits)
    assert_alike(many)
    return many
