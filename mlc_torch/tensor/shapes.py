"""Whether memory of one shape can be read as another: where only neighbouring dimensions are joined or split."""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence


@functools.lru_cache(maxsize=1024)
def reads_as(given: tuple[int, ...], wanted: tuple[int, ...]) -> bool:
    """Whether an array of shape ``given`` holds what a tensor of shape ``wanted`` reads, in that order.

    So it does with dimensions of one added or left out ([8, 3] for [8, 3, 1, 1]), and with neighbouring ones joined or
    split ([8, 64] for [8, 1, 8, 8], or everything in one row). A transposed array does not. The first dimension may be
    longer or shorter: how many samples are read is not asked here.
    """
    if math.prod(given) == math.prod(wanted):
        mine, theirs = _ends(given), _ends(wanted)
    else:
        if len(given) < 2:
            return True
        if math.prod(given[1:]) != math.prod(wanted[1:]):
            return False
        mine, theirs = _ends(given[1:]), _ends(wanted[1:])
    return mine <= theirs or theirs <= mine


def _ends(shape: Sequence[int]) -> set[int]:
    """After how many elements, counted from the last dimension, one dimension ends and the next begins."""
    found, count = set(), 1
    for size in reversed(shape):
        count *= size
        found.add(count)
    return found - {1, math.prod(shape)}
