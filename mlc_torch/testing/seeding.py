"""Random numbers that repeat within a test and leave no trace after it."""

from __future__ import annotations

from contextlib import ContextDecorator
from functools import partial

from mlc_torch.device import Position, randomness
from mlc_torch.going_back import undone, undone_if_broken_off


class seeded(ContextDecorator):
    """Random initializers and dropout start from ``seed``; afterwards the platform's seed is what it was, and its numbers go on.

    Only ML Compute's own numbers are meant: torch's and NumPy's generators stay as they are. So does a layer with a seed of its
    own, whose stream belongs to it as its weights do.
    """

    # No generator with ``contextmanager``: of one that Ctrl-C strikes as the block is left, the end comes only when the
    # traceback is let go of, and the numbers that the program has drawn since would be drawn again.

    def __init__(self, seed: int) -> None:
        self._seed = seed
        self._before: list[Position] = []
        """One for each call of a function that is decorated with this and calls itself."""

    def __enter__(self) -> int:
        before = randomness.position()
        self._before.append(before)
        undone_if_broken_off(partial(randomness.reseed, self._seed), partial(randomness.go_back, before))
        return self._seed

    def __exit__(self, *error: object) -> None:
        undone(_nothing, partial(randomness.go_back, self._before.pop()))


def _nothing() -> None:
    """The program's work is done."""
