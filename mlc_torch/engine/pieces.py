"""Parameters cut into pieces for a recorded update.

torch's kernels over lists of tensors give 65,536 elements to one block of threads, so that a small network's update runs on
two or three of a GPU's hundred processors. Pieces of a tensor are tensors too: the same work on more of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain

import torch

_TOGETHER = 36
"""So many tensors one launch takes, with a gradient and two states each (torch 2.6 to 2.13)."""
_SIZES = (4096, 8192, 16384, 32768)

Tensors = Sequence[torch.Tensor]


def in_pieces(*kinds: Tensors) -> tuple[list[torch.Tensor], ...]:
    """The parameters, their gradients and their states, each kind a list, all cut alike."""
    sizes = [tensor.numel() for tensor in kinds[0]]
    size = piece_size(sizes)
    if size is None:
        return tuple(list(kind) for kind in kinds)
    cut = [_cut(of_one, size) for of_one in zip(*kinds, strict=True)]
    return tuple(list(chain.from_iterable(pieces[number] for pieces in cut)) for number in range(len(kinds)))


def piece_size(sizes: Sequence[int]) -> int | None:
    """The smallest size with which the pieces need no more launches, or one more for each there is; ``None``: leave it."""
    allowed = max(_TOGETHER, 2 * len(sizes))
    for size in _SIZES:
        if sum(-(-s // size) for s in sizes) <= allowed:
            return size if max(sizes, default=0) > size else None
    return None


def _cut(tensors: Sequence[torch.Tensor], size: int) -> list[list[torch.Tensor]]:
    if tensors[0].numel() <= size or not all(t.is_contiguous() for t in tensors):
        return [[t] for t in tensors]
    return [list(t.view(-1).split(size)) for t in tensors]
