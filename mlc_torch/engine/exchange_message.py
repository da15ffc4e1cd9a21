"""Tensors that processes send each other side by side, and which gradients travel together."""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence

import torch

from mlc_torch.engine.plan import Plan

BUCKET = 8 << 20
"""Bytes: large enough for the line to be busy, small enough for the first bucket to leave early."""

_ALIGNED = 128
"""Bytes: every tensor in a message begins at a multiple, as one with memory of its own does.

Kernels on a GPU read memory that lies so in other portions than memory that does not, and so add up in another order: the
norm of a gradient that clipping divides by would be another in its last bits than without other processes.
"""

Pieces = dict[Hashable, tuple[Sequence[int], torch.dtype]]


class Message:
    """Tensors side by side, those of one type in one piece of memory, added up over the ranks in one go.

    Float32 is sent last, and before it, where there is one, lies the table.
    """

    def __init__(
        self,
        pieces: Pieces,
        rows: int,
        columns: int,
        device: torch.device,
    ) -> None:
        self.views: dict[Hashable, torch.Tensor] = {}
        self.flats: list[torch.Tensor] = []
        types = [*({d for _, d in pieces.values()} - {torch.float32}), torch.float32]
        for dtype in sorted(types[:-1], key=str) + types[-1:]:
            own = {key: shape for key, (shape, d) in pieces.items() if d == dtype}
            head = rows * columns if dtype == torch.float32 else 0
            # Truth values are added up as bytes: one rank at most sends a true one for each place.
            held = torch.uint8 if dtype == torch.bool else dtype
            unit = _ALIGNED // dtype.itemsize
            starts, end = {}, head
            for key, shape in own.items():
                starts[key] = start = -(-end // unit) * unit
                end = start + math.prod(shape)
            if not end:
                continue
            flat = torch.zeros(end, dtype=held, device=device)
            self.flats.append(flat)
            for key, shape in own.items():
                start = starts[key]
                self.views[key] = flat[start : start + math.prod(shape)].view(tuple(shape)).view(dtype)
        size = rows * columns
        self.table = self.flats[-1][:size].view(rows, columns) if size else torch.empty(0, dtype=torch.float32)

    def silence(self) -> None:
        for flat in self.flats:
            flat.zero_()


def grouped(plan: Plan, limit: int) -> list[list[int]]:
    """The trained tensors in the order in which the backward pass comes to them, the last first.

    What is not float32 waits for the last group: there each type is sent by itself anyway.
    """
    groups: list[list[int]] = [[]]
    size, others = 0, []
    for index in reversed(range(len(plan.trained))):
        cell = plan.trained[index].cell
        if cell.dtype != torch.float32:
            others.append(index)
            continue
        if size and size + cell.nbytes > limit:
            groups.append([])
            size = 0
        groups[-1].append(index)
        size += cell.nbytes
    groups[-1] += others
    return groups
