"""Where the rules of ``kernels`` normalize batches in our own way: images with channels last, of odd numbers of channels."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any

import torch
from torch import fx
from torch.torch_version import TorchVersion

from mlc_torch.engine.batch_norm import batch_norm, batch_norm_backward, pixels_at_once
from mlc_torch.engine.image_layout import has_channels_last
from mlc_torch.engine.processor import CHANNELS_AT_ONCE
from mlc_torch.engine.replacements import Replacement
from mlc_torch.engine.rules import Rule, said

aten = torch.ops.aten


class Way(Enum):
    TORCH = "as torch does"
    COPIED = "over a contiguous copy"
    JOINED = "several pixels at once"


@dataclass(frozen=True)
class Norm:
    """What the rules ask of a normalization, or of its gradient."""

    channels: int
    pixels: int
    threads: int
    trains: bool
    backward: bool
    joins: bool
    """Whether several pixels at once can be shared out evenly."""

    @property
    def elements(self) -> int:
        return self.channels * self.pixels

    @property
    def shares_a_line(self) -> bool:
        """Whether several threads add up gradients in one line of a cache on x86, of whole vectors, too."""
        is_gradient_of_few = self.backward and self.threads > 1 and self.channels % 16 != 0 and self.channels < 48
        return is_gradient_of_few and self.pixels >= 1024 * self.threads


_MUCH = 2**17
"""Elements a thread, of up to three, from which several pixels at once are faster than a contiguous copy."""
_FEW_PIXELS = 256
"""Fewer take torch as long as a copy."""


def _odd(is_odd: Callable[[Norm], bool], copied_below: int, evidence: str) -> tuple[Rule[Norm, Way], ...]:
    """Both ways for odd numbers of channels; images of more than ``copied_below`` take longer to copy than torch over them."""
    return (
        Rule(lambda n: not is_odd(n), Way.TORCH, "Its vectors divide them."),
        Rule(
            lambda n: not (n.trains or n.backward) and n.pixels < _FEW_PIXELS * n.threads**2,
            Way.TORCH,
            "With running statistics nothing is added up, and threads share the pixels evenly: x86, 8 threads, 2,048 pixels of "
            "12 channels take 25 µs, by copies 46; 25,088 take 141 and 119; one thread 96 and 33.",
        ),
        Rule(lambda n: n.joins and n.elements >= _MUCH * min(n.threads, 3), Way.JOINED, evidence),
        Rule(lambda n: n.channels < copied_below and n.pixels >= _FEW_PIXELS, Way.COPIED, evidence),
    )


NORMS_BY_ARM = _odd(
    lambda n: n.channels % CHANNELS_AT_ONCE[False] != 0,
    20,
    "Neoverse-N1, torch 2.13, one thread, 32 images of 28x28, microseconds by torch with channels last, contiguous, and so, "
    "forward: 5 channels 2334, 340 and 553 (by copies 610), 6 1970, 408 and 586; gradient 3506, 202 and 637, 2944, 254 and 667; "
    "two threads 1805, 211 and 486 (by copies 367), 2157, 145 and 562 (386). Eight of 16x16 by copies: 5 channels 211, 47 and "
    "83, 304, 31 and 83; four of 8x8 48, 25 and 43. 12 channels are divided by the vector: 611, 791 and 818.",
)

NORMS_BY_X86_BEFORE_2_13 = _odd(
    lambda n: n.channels % CHANNELS_AT_ONCE[True] != 0 or n.shares_a_line,
    40,
    "torch 2.11, microseconds by torch with channels last, contiguous, and so, 32 images of 28x28. AVX-512, two threads, "
    "forward: 5 channels 4347, 188 and 316, 12 4356, 392 and 484, 36 3997, 1113 and 983, 60 4284, 1829 and 1343; gradient 4824, "
    "55 and 429, 5922, 124 and 623, 7178, 364 and 1368, 7440, 582 and 1924; 8 threads 2733, 81 and 198, 2901, 30 and 368 (5 "
    "channels), 2184, 531 and 563, 2253, 227 and 819 (60). AVX2, one thread: 5 channels 3063, 328 and 343, 4383, 89 and 440, 60 "
    "3600, 4100 and 1694, 5759, 1045 and 2454. Eight images of 16x16 by copies, two threads: 5 channels 405, 37 and 78, 396, 19 "
    "and 78, 36 300, 112 and 191, 590, 36 and 176; four of 8x8 69, 23 and 39. Gradients of 8 and 24 channels with two threads: "
    "2088, 71 and 491; 2418, 258 and 1038; with one thread torch's own takes 259 and 580.",
)

NORMS_BY_X86_SINCE_2_13: tuple[Rule[Norm, Way], ...] = (
    Rule(
        lambda n: not (n.trains or n.backward),
        Way.TORCH,
        "What vectors leave of a pixel is read at once since then. Inference, one thread, microseconds by torch, by copies and "
        "with several pixels at once: 2,048 pixels of 5 channels 18, 73 and 118 (torch 2.11: 72, 36 and 112), of 36 40, 165 and "
        "147 (83, 158 and 149), 18,432 of 6 79, 271 and 175 (581, 215 and 176), of 20 213, 2126 and 292 (611, 953 and 484).",
    ),
    Rule(
        lambda n: n.channels % CHANNELS_AT_ONCE[True] == 0 and not n.shares_a_line,
        Way.TORCH,
        "Its vectors divide them.",
    ),
    Rule(
        lambda n: n.threads == 1 and n.joins and n.channels < 16 and n.pixels >= 4096 * n.channels,
        Way.JOINED,
        "The same, training, forward and gradient: 25,088 pixels of 5 channels 498, 708 and 432, 684, 604 and 610; 73,984 1407, "
        "1951 and 769, 1828, 1525 and 982, of 12 1654, 4671 and 1384, 2371, 6809 and 3066; with AVX2 651, 495 and 556, 1422, "
        "2556 and 951.",
    ),
    Rule(
        lambda n: n.threads == 1 and n.backward and n.channels < 8 and n.pixels >= 4096,
        Way.COPIED,
        "Gradients: 5 channels, 4,096 pixels 114, 99 and 286, 8,192 216, 172 and 331, 16,384 432, 374 and 434. Of 12 8,192 296, "
        "439 and 486.",
    ),
    Rule(
        lambda n: (
            n.threads == 2
            and n.joins
            and (n.elements >= _MUCH if n.channels < 16 else n.channels < 48 and n.pixels >= 20_000)
        ),
        Way.JOINED,
        "Two threads add up in one line of a cache: 16,384 pixels of 12 channels 911, 724 and 563, gradient 1264, 504 and 573; "
        "25,088 1234, 876 and 550, 1960, 739 and 718; of 20 1545, 2345 and 1400, 2124, 1332 and 1035; of 24, the gradient, 1647, "
        "1533 and 1215; of 36 1987, 4112 and 1857, 2801, 2401 and 1785. 16,384 of 20 and 36 991, 1698 and 1081, 1571, 2794 and "
        "1704; 25,088 of 60, left, 2137, 6874 and 2377, 3982, 5304 and 3271. With AVX2 25,088 of 20 1443, 2599 and 1109, 2813, "
        "2937 and 1082.",
    ),
    Rule(
        lambda n: n.threads == 2 and n.channels < 16 and n.pixels >= 1024,
        Way.COPIED,
        "1,024 pixels of 5 channels 67, 47 and 241, gradient 77, 47 and 260; 8,192 399, 156 and 296, 516, 135 and 335; of 8, the "
        "gradient, 348, 180 and 363; of 12 1,024 74, 76 and 263, 95, 70 and 275, 8,192 430, 304 and 350, 679, 405 and 493.",
    ),
    Rule(
        lambda n: n.threads == 2 and n.backward and n.channels < 40 and 1024 <= n.pixels < 8192,
        Way.COPIED,
        "Gradients, 2,048 and 4,096 pixels: of 20 channels 190, 114 and 309, 379, 224 and 378; of 36 240, 179 and 365, 458, 363 "
        "and 522. 8,192 827, 965 and 994, 1344, 1449 and 1208; forward 2,048 of 20 141, 139 and 274, of 36 171, 257 and 387.",
    ),
    Rule(lambda n: n.threads <= 2, Way.TORCH, "The same measurements."),
    *NORMS_BY_X86_BEFORE_2_13,  # more threads have not been tried with it
)


def norms_by_x86(version: TorchVersion) -> Sequence[Rule[Norm, Way]]:
    """For a version of torch. (2.12.1 took as long as 2.11 on the same machine, 2.13.0 an eighth to a half.)"""
    return NORMS_BY_X86_SINCE_2_13 if version >= "2.13" else NORMS_BY_X86_BEFORE_2_13


def normalized(rules: Sequence[Rule[Norm, Way]]) -> Callable[[fx.Node], Replacement | None]:
    def replace(node: fx.Node) -> Replacement | None:
        given: Any = node.args
        backward = node.target is aten.native_batch_norm_backward.default
        shape, strides, dtype = given[1 if backward else 0].meta["lies"]
        lies = torch.empty_strided(shape, strides, device="meta")
        if len(shape) != 4 or dtype != torch.float32 or not has_channels_last(lies):
            return None
        trains, epsilon = (given[7], given[8]) if backward else (given[5], given[7])
        channels, pixels = shape[1], math.prod(shape) // shape[1]
        # Without an epsilon, torch has a rule for channels that are constant.
        count = pixels_at_once(channels, pixels) if epsilon > 0 else 0
        norm = Norm(channels, pixels, torch.get_num_threads(), trains, backward, joins=count > 0)
        way = said(rules, norm) or Way.TORCH
        if way is Way.TORCH:
            return None
        return batch_norm_backward if backward else batch_norm, (*given, count if way is Way.JOINED else 0)

    return replace
