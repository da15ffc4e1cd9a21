"""Random numbers that modules of the program ask Python or NumPy for. torch does not see them, and neither does a recording."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np

from mlc_torch.engine.plan import Plan, is_known


@dataclass
class Chance:
    """Whether it was asked."""

    was_asked: bool = False


@contextmanager
def watching_chance(plan: Plan) -> Iterator[Chance]:
    """Around a recording; what modules draw inside is drawn again by the first run.

    A layer that is left out now and then by ``random.random()`` would be left out always, or never, by what was recorded.
    """
    seen = Chance()
    if all(map(is_known, (m for root in plan.modules for m in root.modules()))):
        yield seen
        return
    of_python, of_numpy = random.getstate(), _of_numpy()
    try:
        yield seen
    finally:
        if random.getstate() != of_python:
            random.setstate(of_python)
            seen.was_asked = True
        if _of_numpy() != of_numpy:
            np.random.set_state(of_numpy)  # noqa: NPY002 - the one that modules ask
            seen.was_asked = True


def _of_numpy() -> Any:
    """The state of the generator that NumPy has for everybody, as something that can be compared."""
    kind, keys, *rest = np.random.get_state()  # noqa: NPY002
    return kind, tuple(keys), *rest
