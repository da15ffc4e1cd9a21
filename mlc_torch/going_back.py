"""Going back to how things were, whatever strikes: an error, a Ctrl-C, and a second one in the middle of going back.

These are no blocks: of one that Ctrl-C strikes as it is left, the end comes only when the traceback is let go of, in a notebook
maybe an hour later, and what was learned since would be taken back.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


def undone(work: Callable[[], T], go_back: Callable[[], object]) -> T:
    """What ``work`` gives; whatever ends it, ``go_back`` is called at once. It can be repeated."""
    try:
        try:
            return work()
        finally:
            go_back()
    except BaseException:  # perhaps in the middle of going back: once more
        go_back()
        raise


def undone_if_broken_off(work: Callable[[], T], go_back: Callable[[], object]) -> T:
    """What ``work`` gives; if it does not come to its end, ``go_back`` is called at once. It can be repeated."""
    try:
        try:
            return work()
        except BaseException:
            go_back()
            raise
    except BaseException:  # perhaps in the middle of going back: once more
        go_back()
        raise
