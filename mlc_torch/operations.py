"""Operations of our own among torch's, under ``torch.ops.mlc_torch``.

A recorder or a compiler sees such an operation as one thing and leaves it as it is.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

_library = torch.library.Library("mlc_torch", "FRAGMENT")

functions: dict[Any, Callable[..., Any]] = {}
"""What computes each operation, for callers that need no dispatcher."""


def operation(schema: str, like: Callable[..., Any]) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Register the function below under ``schema``; ``like`` makes results of the right shapes, without computing.

    Not by ``torch.library.custom_op``: it loads torch's compiler, for seconds, at the first call, and costs each call
    45 µs where this costs 13.
    """
    name = schema.partition("(")[0]

    def register(function: Callable[..., Any]) -> Callable[..., Any]:
        _library.define(schema)
        _library.impl(name, torch.no_grad()(function), "CompositeExplicitAutograd")
        torch.library.register_fake(f"mlc_torch::{name}", like, lib=_library)
        functions[getattr(torch.ops.mlc_torch, name).default] = function
        return function

    return register
