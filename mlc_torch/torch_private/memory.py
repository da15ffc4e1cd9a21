"""What torch knows of its tensors' memory: who refers to it, whether writes are counted, whether there was none left."""

from __future__ import annotations

from collections.abc import Callable

import torch

GRAIN = 2**15
"""Elements from which on torch shares element-wise work, such as a copy, out between threads."""


def lacks_memory(error: BaseException) -> bool:
    """Whether an allocation failed. The CPU's allocator has no exception of its own: it is known by its words."""
    if isinstance(error, (MemoryError, torch.OutOfMemoryError)):
        return True
    return isinstance(error, RuntimeError) and "DefaultCPUAllocator" in str(error)


def counts_writes(tensor: torch.Tensor) -> bool:
    """Whether torch counts what is written into a tensor, as it must to train it. Of one that was made in inference mode it never
    does, whatever memory it was given since; ``is_inference`` then says that it is none."""
    try:
        return tensor._version >= 0
    except RuntimeError:
        return False


tensor_uses: Callable[[torch.Tensor], int] = getattr(torch.Tensor, "_use_count", lambda tensor: 0)
"""How often torch refers to a tensor."""
storage_uses: Callable[[int], int] = getattr(torch._C, "_storage_Use_Count", lambda storage: 0)
"""How often tensors, and Python, refer to the memory that they lie in."""
