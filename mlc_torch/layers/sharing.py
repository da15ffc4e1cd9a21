"""Samples, as layers know them: which are this process's where several share a batch, and which dimension counts them.

Most layers compute each sample by itself and need nothing of the first. Those that look at all samples of a batch (batch
normalization, the YOLO loss), or draw for all of them (dropout), ask :func:`current_share` while they run. The second serves
short batches of one process, too: by it their inputs and results are cut.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple, NoReturn

import torch

from mlc_torch.refusals import MLCRefusal
from mlc_torch.tensor import MLCTensorDescriptor

if TYPE_CHECKING:
    from mlc_torch.ranks import Ranks

Axis = int | None
"""The dimension of a tensor that counts samples; ``None`` for a tensor that is the same on every rank."""
PART = -1
"""In place of an axis: a number that each rank holds its part of, as it does of a loss. They add up to the whole."""
UNKNOWN = -2
"""In place of an axis: samples were mixed, and nobody can say which elements are whose."""


@dataclass(frozen=True)
class Share:
    """The samples of a batch that this process runs."""

    ranks: Ranks
    batch: int
    """The samples of all processes together; where each feeds its own, those of this process."""
    first: int
    count: int
    is_idle: bool = False
    """Whether this process has no samples. It runs one all the same, which counts for nothing."""
    is_own: bool = False
    """Whether each process feeds its own samples."""
    is_local: bool = False
    """Whether batch normalization keeps to the samples of this process."""

    def total(self, x: torch.Tensor, backward: bool = False) -> torch.Tensor:
        """The sum over all processes."""
        from mlc_torch.ranks import sum_over_ranks

        return sum_over_ranks(x, backward)

    def of(self, x: torch.Tensor, axis: int) -> torch.Tensor:
        """This process's part of a tensor that holds the whole batch."""
        return x.narrow(axis, self.first, self.count)


_current: ContextVar[Share | None] = ContextVar("mlc_torch_share", default=None)


def current_share() -> Share | None:
    """The share that the phase under way computes; ``None`` where one process computes everything."""
    return _current.get()


@contextmanager
def sharing(share: Share | None) -> Iterator[None]:
    """Within this block layers compute ``share``."""
    token = _current.set(share)
    try:
        yield
    finally:
        _current.reset(token)


# Which dimension counts samples, layer by layer


class Samples(NamedTuple):
    """The dimensions that count samples in the sources and in the results of one use of a layer."""

    sources: Sequence[Axis]
    """A source that had none may get one here: a constant with a row for each sample."""
    results: Sequence[Axis]


class MixesSamples(MLCRefusal):
    """A layer looks at several samples at once. ``results`` says where they lie afterwards, where that can be said."""

    results: Sequence[Axis] | None = None
    needs_all = False
    """Whether of a part of the samples it would compute something else."""


def mixes(how: str, results: Sequence[Axis] | None = None, needs_all: bool = False) -> NoReturn:
    """Refuse: the ranks hold different samples, so that a layer over all of them cannot be computed by any.

    One process can. ``results`` tells it where the samples lie in the results; ``None`` where they have no place of their own.
    """
    refusal = MixesSamples(f"{how}; the ranks share the batch, and none holds all samples")
    refusal.results, refusal.needs_all = results, needs_all
    raise refusal


def along_first(axes: Sequence[Axis], results: int) -> Samples:
    """Samples stay where they are, along the first dimension of every source and result."""
    moved = next((axis for axis in axes if axis not in (0, None)), None)
    if moved is not None:
        mixes(f"takes samples along dimension 0, and the source counts them along dimension {moved}")
    return Samples(axes, [0 if 0 in axes else None] * results)


def kept(axes: Sequence[Axis], results: int, unlike: Sequence[int], what: str, stays: bool = False) -> Samples:
    """Samples stay where they are, unless that is one of the dimensions ``unlike``, which the layer looks along.

    ``stays``: that dimension is as long afterwards, with a place for each sample.
    """
    (axis, *_) = axes
    if axis in unlike:
        mixes(f"{what} dimension {axis}, which counts samples", [axis] * results if stays else None)
    return Samples(axes, [axis] * results)


def first_unless_spread(position: int, sources: Sequence[MLCTensorDescriptor]) -> Axis:
    """Of sources that broadcast to one result: the first dimension, where that is the result's first, too."""
    rank = max(len(s._shape) for s in sources)
    rows = max(s._shape[0] for s in sources if len(s._shape) == rank)
    shape = sources[position]._shape
    return 0 if len(shape) == rank and shape[0] == rows else None


def aligned(axes: Sequence[Axis], sources: Sequence[MLCTensorDescriptor], rank: int) -> Samples:
    """Sources that broadcast to one result of ``rank`` dimensions: samples lie along one of them."""
    from_end = {axis - len(s._shape) for axis, s in zip(axes, sources, strict=True) if axis is not None}
    if not from_end:
        return Samples(axes, [None])
    if len(from_end) > 1:
        mixes("the sources count samples along different dimensions")
    (place,) = from_end
    found = []
    for axis, source in zip(axes, sources, strict=True):
        shape = source._shape
        has_rows = axis is None and len(shape) >= -place and shape[place] != 1
        found.append(len(shape) + place if has_rows else axis)
    return Samples(found, [rank + place])
