"""Where the rules of ``kernels`` normalize batches in our own way: images with channels last, of odd numbers of channels."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import fx

from mlc_torch.engine.batch_norm import batch_norm, batch_norm_backward, pixels_at_once
from mlc_torch.engine.layouts import has_channels_last
from mlc_torch.engine.replacements import Replacement

aten = torch.ops.aten

_MUCH = 2**17
"""Elements a thread, of up to three, from which several pixels at once are faster than a contiguous copy."""
_FEW_PIXELS = 256
"""Fewer take torch as long as a copy. With running statistics nothing is added up, and threads share the pixels evenly: then so
many for each thread, once for each thread. (x86, 8 threads, 2,048 pixels of 12 channels take 25 µs, by copies 46; 25,088 take 141
and 119; one thread 96 and 33.)"""


@dataclass(frozen=True)
class Odd:
    """Which numbers of channels a processor's kernels are slow for, and how that is known."""

    divisor: int
    """Those that it does not divide."""
    copied_below: int
    """Images of more channels take longer to copy than torch takes over what is left of a vector."""
    evidence: str
    shared_line: int = 1
    """Gradients of several threads, too, of few channels that this does not divide: their sums share a line of a cache."""


def normalized(odd: Odd) -> Callable[[fx.Node], Replacement | None]:
    def replace(node: fx.Node) -> Replacement | None:
        given: Any = node.args
        backward = node.target is aten.native_batch_norm_backward.default
        shape, strides, dtype = given[1 if backward else 0].meta["lies"]
        lies = torch.empty_strided(shape, strides, device="meta")
        if len(shape) != 4 or dtype != torch.float32 or not has_channels_last(lies):
            return None
        channels, pixels, threads = shape[1], math.prod(shape) // shape[1], torch.get_num_threads()
        shares = backward and threads > 1 and channels % odd.shared_line and channels < 48 and pixels >= 1024 * threads
        if channels % odd.divisor == 0 and not shares:
            return None
        if not backward and not given[5] and pixels < _FEW_PIXELS * threads**2:
            return None
        epsilon = given[8 if backward else 7]  # without one, torch has a rule for channels that are constant
        much = math.prod(shape) >= _MUCH * min(threads, 3) and epsilon > 0
        count = pixels_at_once(channels, pixels) if much else 0
        if not count and (channels >= odd.copied_below or pixels < _FEW_PIXELS):
            return None
        return batch_norm_backward if backward else batch_norm, (*given, count)

    return replace
