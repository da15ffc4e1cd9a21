"""Bringing a call's inputs to a CUDA device: one block, one copy, and no waiting for the copy before."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch

Tensors = Sequence[torch.Tensor]

_ALIGNMENT = 256
_LARGE = 16 << 20


class _Slot:
    """Pinned host memory laid out like the block."""

    def __init__(self, like: Tensors, numbers: int, size: int) -> None:
        self.memory = torch.empty(size, dtype=torch.uint8, pin_memory=True)
        self.views = views_of(self.memory, like)
        self.numbers: np.ndarray = (
            self.memory[size - 4 * numbers :].view(torch.float32).numpy() if numbers else np.empty(0)
        )


class Block:
    """Static device memory for inputs, and for a few numbers behind them, filled by one copy a call.

    Host memory takes turns: recording an event costs more than a small copy, so half a round shares one.
    """

    def __init__(self, like: Tensors, numbers: int, device: torch.device) -> None:
        size = sum(map(_padded, like)) + 4 * numbers
        size = -(-size // 4) * 4
        self.memory = torch.zeros(size, dtype=torch.uint8, device=device)
        self.feeds = views_of(self.memory, like)
        self.numbers = self.memory[size - 4 * numbers :].view(torch.float32) if numbers else None
        self._turns = 2 if size > _LARGE else 8
        self._slots = [_Slot(like, numbers, size) for _ in range(self._turns)]
        self._done: list[torch.cuda.Event | None] = [None, None]
        self._turn = 0

    def fill(self, feeds: Tensors, numbers: Sequence[float]) -> bool:
        """Copy host tensors and numbers to the device. Gives whether the numbers went along."""
        if any(f.device.type != "cpu" for f in feeds):
            for static, feed in zip(self.feeds, feeds, strict=True):
                static.copy_(feed, non_blocking=True)
            return False
        turn, half = self._turn, self._turns // 2
        self._turn = (turn + 1) % self._turns
        done = self._done[turn // half]
        if turn % half == 0 and done is not None:
            done.synchronize()
        slot = self._slots[turn]
        for view, feed in zip(slot.views, feeds, strict=True):
            view.copy_(feed)
        if numbers:
            slot.numbers[:] = numbers
        self.memory.copy_(slot.memory, non_blocking=True)
        if turn % half == half - 1:
            done = done or torch.cuda.Event()
            done.record()
            self._done[turn // half] = done
        return bool(numbers)


def _padded(tensor: torch.Tensor) -> int:
    return -(-tensor.nbytes // _ALIGNMENT) * _ALIGNMENT


def views_of(memory: torch.Tensor, like: Tensors) -> list[torch.Tensor]:
    """Tensors side by side in a block of bytes."""
    views, start = [], 0
    for tensor in like:
        views.append(memory[start : start + tensor.nbytes].view(tensor.dtype).view(tensor.shape))
        start += _padded(tensor)
    return views
