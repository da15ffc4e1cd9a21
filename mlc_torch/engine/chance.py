"""Random numbers that modules of the program ask Python or NumPy for. torch does not see them, and neither does a recording."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np

from mlc_torch.engine.plan import Plan, all_known
from mlc_torch.going_back import undone

T = TypeVar("T")


def watching_chance(plan: Plan, record: Callable[[], T]) -> tuple[T, bool]:
    """What ``record`` gives, and whether it asked chance; what modules draw in it is drawn again by the first run.

    A layer that is left out now and then by ``random.random()`` would be left out always, or never, by what was recorded.
    """
    if all_known(plan):
        return record(), False
    of_python, of_numpy = random.getstate(), _of_numpy()
    was_asked = False

    def go_back() -> None:
        nonlocal was_asked
        if random.getstate() != of_python:
            was_asked = True
            random.setstate(of_python)
        if _of_numpy() != of_numpy:
            was_asked = True
            np.random.set_state(of_numpy)  # noqa: NPY002 - the one that modules ask

    return undone(record, go_back), was_asked


def _of_numpy() -> Any:
    """The state of the generator that NumPy has for everybody, as something that can be compared."""
    kind, keys, *rest = np.random.get_state()  # noqa: NPY002
    return kind, tuple(keys), *rest
