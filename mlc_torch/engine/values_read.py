"""Values that a module of the program reads while it is recorded, past torch's operations: NumPy's in a gradient, most of all."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

from mlc_torch.engine.plan import Plan, all_known
from mlc_torch.engine.recorder import NotRecordable

_READING = {torch.Tensor.numpy, torch.Tensor.__array__, torch.Tensor.tolist, torch.Tensor.__dlpack__}


class NoValuesRead(TorchFunctionMode):
    """What is computed of them comes back as a tensor that nobody has made, a constant for all that a recording can tell."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func in _READING:
            raise NotRecordable(f"a module reads a tensor's values by {func.__name__}")
        return func(*args, **(kwargs or {}))


def without_values(plan: Plan, differentiates: bool) -> AbstractContextManager[Any]:
    """Refuses to record a pass that reads values. Only one with a gradient: of others, modules run without values beforehand."""
    return NoValuesRead() if differentiates and not all_known(plan) else nullcontext()
