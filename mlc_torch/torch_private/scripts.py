"""Loops under TorchScript's interpreter."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any

import torch

from mlc_torch.torch_private import available


def scripted(loop: Callable[..., Any]) -> Callable[..., Any]:
    """The function under TorchScript's interpreter, which takes less than half of Python's time for small operations.

    From its text, without ``torch.jit.script``, which warns that it is deprecated. Where that does not work, the
    function itself.
    """

    @functools.cache
    def compiled() -> Callable[..., Any]:
        try:
            text = inspect.getsource(loop)
            # The parser knows these types by their older names, and no decorators.
            text = text[text.index("def ") :].replace("tuple[", "Tuple[").replace("list[", "List[")
            return getattr(torch.jit.CompilationUnit(text), loop.__name__)
        except (OSError, RuntimeError):  # no text in this installation, or a parser that does not take it
            return loop

    @functools.wraps(loop)
    def call(*given: Any) -> Any:
        function = compiled() if available["script"] else loop
        if function is loop:
            return loop(*given)
        # In this thread and call only. Optimizing takes a tenth of a second at first, and gains nothing.
        with torch.jit.optimized_execution(False):  # type: ignore[attr-defined]
            return function(*given)

    call.compiled = compiled  # type: ignore[attr-defined]
    return call
