"""How an LSTM's source and output lie: as sequences of three dimensions, or of four as images have (evidence.md C14, D.17)."""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum

import torch

from mlc_torch.refusals import refuse


class Layout(Enum):
    batch_first = "[batch, time, features]"
    time_first = "[time, batch, features]"
    image = "[batch, features, 1, time]"
    one_step = "[batch, 1, features, 1]"

    def extent(self, shape: Sequence[int]) -> tuple[int, int, int]:
        """Time, batch and features of a source."""
        a, b, c, *last = shape
        return {
            Layout.batch_first: (b, a, c),
            Layout.time_first: (a, b, c),
            Layout.image: (last[0] if last else 0, a, b),
            Layout.one_step: (1, a, c),
        }[self]

    def result(self, time: int, batch: int, width: int) -> tuple[int, ...]:
        """The shape of an output."""
        if self is Layout.batch_first:
            return batch, time, width
        return (time, batch, width) if self is Layout.time_first else (batch, width, 1, time)

    def by_step(self, x: torch.Tensor) -> torch.Tensor:
        """A source as [time, batch, features]."""
        if self is Layout.batch_first:
            return x.transpose(0, 1)
        if self is Layout.image:
            return x.squeeze(2).permute(2, 0, 1)
        return x.squeeze(3).transpose(0, 1) if self is Layout.one_step else x

    def back(self, y: torch.Tensor) -> torch.Tensor:
        """An output [time, batch, hidden] as it is given out."""
        if self is Layout.batch_first:
            return y.transpose(0, 1)
        return y if self is Layout.time_first else y.permute(1, 2, 0).unsqueeze(2)


def layout_of(shape: Sequence[int], features: int, batch_first: bool) -> Layout:
    """How a source of this shape is read by an LSTM that takes so many features."""
    given = list(shape)
    three = Layout.batch_first if batch_first else Layout.time_first
    if len(given) == 3:
        if given[2] != features:
            refuse(f"the source {three.value} has {given[2]} features, the LSTM takes {features}")
        return three
    if len(given) != 4:
        refuse(f"the source must have the shape {three.value} or {Layout.image.value}, got {given}")
    if not batch_first:
        refuse(f"a source of four dimensions is {Layout.image.value}, which batchFirst false rules out, got {given}")
    if given[1:3] == [features, 1]:
        return Layout.image
    if given[1:] == [1, features, 1]:
        return Layout.one_step
    refuse(
        f"a source of four dimensions must be {Layout.image.value} with {features} features, or for one step "
        f"{Layout.one_step.value}, got {given}"
    )
