"""Running out of memory becomes a refusal, wherever it is noticed."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import NoReturn

from mlc_torch.refusals import in_one_line, refuse
from mlc_torch.torch_private.memory import lacks_memory


@contextmanager
def refusing_lack_of_memory() -> Iterator[None]:
    """Inside, an allocation that fails refuses the call; anything else is raised as it is."""
    try:
        yield
    except (MemoryError, RuntimeError) as error:
        refuse_lack_of_memory(error)


def refuse_lack_of_memory(error: Exception) -> NoReturn:
    """Refuse if that is what the error is about, else raise it."""
    if not lacks_memory(error):
        raise error
    refuse(no_memory(error))


def no_memory(error: Exception) -> str:
    """The reason for such a refusal."""
    return f"there is not enough memory ({in_one_line(error)})"
