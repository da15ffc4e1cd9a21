"""How convolutions are laid out in memory on the CPU: contiguous, or with channels last.

The rules are fixed and never timed at run time: the same program gives the same numbers. Each says how it is known. What
could not be shown to be safe is laid out as torch does by itself.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any

import torch
from torch import nn
from torch.func import functional_call
from torch.nn import functional as F

from mlc_torch.engine.following import NARROW, Next
from mlc_torch.engine.image_layout import has_channels_last, lay_out_gradient
from mlc_torch.engine.processor import has_rules, has_vector_code
from mlc_torch.engine.rules import Rule, said
from mlc_torch.layers.convolution import SameConv2d
from mlc_torch.torch_private.lstm import called_in_place, own_weights_again, recurrent_parts


class Layout(Enum):
    """How a convolution is laid out while a graph is recorded; whoever runs the recording does the same."""

    CONTIGUOUS = "image and weights contiguous"
    CHANNELS_LAST = "weights with channels last, and with them the result; that of a 1x1 as the image lies"
    SLICED = "channels last over every n-th pixel, in place of a stride of n"


@dataclass(frozen=True)
class Convolution:
    """What the rules ask of a convolution."""

    kernel: tuple[int, ...]
    stride: tuple[int, ...]
    padding: tuple[int, ...]
    dilation: tuple[int, ...]
    groups: int
    outputs: int
    image: tuple[int, ...]
    image_has_channels_last: bool
    following: Next
    measured: bool
    """Whether this is a processor on which the rules were found."""
    vector_code: bool
    threads: int
    differentiates: bool
    """Whether gradients may be asked for."""

    @property
    def is_strided_pointwise(self) -> bool:
        return set(self.kernel) == {1} and set(self.stride) != {1} and set(self.padding) == {0}

    @property
    def is_dense(self) -> bool:
        return self.groups == 1 and set(self.dilation) == {1}

    @property
    def is_depthwise(self) -> bool:
        return self.groups == self.image[1] == self.outputs

    @property
    def is_less_to_lay_out_before(self) -> bool:
        """Whether making the image contiguous is less work than making the result so."""
        return not self.image_has_channels_last or self.image[1] * math.prod(self.stride) <= self.outputs

    @property
    def is_by_torch(self) -> bool:
        """Whether torch multiplies matrices itself for a 1x1 convolution, rather than asking oneDNN (torch 2.11, 2.13)."""
        return self.image[0] < 16 and self.threads == 1

    @property
    def is_pointwise_by_torch(self) -> bool:
        return {*self.kernel, *self.stride, *self.dilation} == {1} and self.is_by_torch

    @property
    def is_little_for_torch(self) -> bool:
        return self.groups == 1 and is_little_for_torch(self.image, self.kernel)


def is_little_for_torch(image: Sequence[int], kernel: Sequence[int]) -> bool:
    """Whether torch multiplies matrices itself for a convolution in one group over a small image alone."""
    return image[0] == 1 and math.prod(image) <= 20480 and min(kernel) <= 3


_WORTH_LAYING_OUT = 2**12
"""Elements. To pool fewer takes no longer in one layout than in the other (1,568 on a Neoverse-N1: 10 µs in both). With eight
threads on x86 whole inferences of 4,096 to 16,384 took .83 of the time where nothing was laid out, of 16,384 to 65,536 .89, of
65,536 to 262,144 1.0, of more 1.2; with two threads 1.1, 1.0, 1.3 and 1.5."""

FEW = 4
"""Fewer channels are never last."""

CONVOLUTION_LAYOUTS: tuple[Rule[Convolution, Layout], ...] = (
    Rule(
        lambda c: not c.measured,
        Layout.CONTIGUOUS,
        "torch's own choice, where there is no evidence: an ARM with vector code (SVE), say.",
    ),
    Rule(
        lambda c: c.is_little_for_torch and (not c.image_has_channels_last or c.outputs < 16 or c.is_strided_pointwise),
        Layout.CONTIGUOUS,
        "One image of 48x48, 3 and 8 channels to 8, one thread, milliseconds of torch's own kernel contiguous and with "
        "channels last: on x86 forward .15 and .48, gradient .30 and .65; on a Neoverse-N1 .33 and .57, .60 and .98. More "
        "results lie within a fifth of each other, but weights take time to lay out (two layers of 16 and 32 results over "
        "24x24: .44 and .56, trained 1.8 and 2.1), and a stride over 8x8 takes longer to slice than to convolve.",
    ),
    Rule(
        lambda c: (
            c.vector_code
            and c.is_strided_pointwise
            and not (c.differentiates or c.image_has_channels_last or c.is_by_torch)
        ),
        Layout.CONTIGUOUS,
        "Without gradients the kernel of the next rule is not asked for. x86, whole inferences relative to the next rule's: one "
        "thread, 32 images .77 to 1.0, but 2 and 8 images 1.06 to 1.4, where torch multiplies by itself over what was sliced; "
        "two threads .88 to 1.0, eight .83 to 1.0. ARM, one thread, 1.0 to 1.5.",
    ),
    Rule(
        lambda c: c.is_strided_pointwise and c.is_dense,
        Layout.SLICED,
        "oneDNN's gradient by the weights of a 1x1 convolution with a stride writes past its memory where the image has "
        "channels last (uxlfoundation/oneDNN issue 6035: fewer channels than a vector holds, 16 with AVX-512, 8 with "
        "AVX2; no overflow with stride 1 or contiguous images). Seen with torch 2.11 (oneDNN 3.10.2, jit_1x1:avx512_core) "
        "with 3, 4, 8 and 16 threads: crashes in 13 of 56 runs of 60 steps, and wrong gradients in one; the gradient by "
        "the image and all of 60 runs with stride 1 were sound. The same product over every n-th pixel has no stride.",
    ),
    Rule(
        lambda c: set(c.kernel) == {1} and set(c.stride) != {1},
        Layout.CONTIGUOUS,
        "The same kernel where slicing does not do (padding, groups): contiguous images take another way through oneDNN.",
    ),
    Rule(
        lambda c: c.is_pointwise_by_torch and c.groups > 1,
        Layout.CONTIGUOUS,
        "torch goes through the groups one by one. Forward and gradient of 8 images of 24x24, one thread, milliseconds "
        "contiguous and with channels last: on x86 with AVX-512, 32 channels in 4 groups .76 and 1.8, 64 in 8 1.5 and 3.9, "
        "each by itself 2.4 and 9.2; on a Neoverse-N1 1.1 and 1.7, 2.1 and 3.4, 4.3 and 15.",
    ),
    Rule(
        lambda c: not c.vector_code and c.groups > 1 and c.outputs // c.groups != 16 and not c.is_depthwise,
        Layout.CONTIGUOUS,
        "ARM, torch 2.13, 3x3, one thread, milliseconds forward contiguous and with channels last, 8 images of 24x24: groups "
        "of 4 results 1.5 and 1.8, of 8 4.4 and 12.3 (4 groups), 8.7 and 24.4 (8), the gradient 1.2 to 1.4 as long; of 16 3.6 "
        "and 1.4; of 32 14 and 9.6, but of 28x28 19 and 28, of 20x20 9.4 and 11.7, of 32x32 25 and 25, the gradient .8 as "
        "long. The same with two threads.",
    ),
    Rule(
        lambda c: c.outputs < FEW,
        Layout.CONTIGUOUS,
        "Batch normalization of 32 images of 8x8 and 3 channels, one thread, microseconds forward and back contiguous and with "
        "channels last: x86 48 and 25, 240 and 335; ARM 29 and 25, 179 and 275 (of 8x24x24 48 and 33, 383 and 595; 4 channels of "
        "32x16x16 93 and 55, 114 and 160). A depthwise 5x5 over 3 channels gains less than 80.",
    ),
    Rule(
        lambda c: not c.vector_code,
        Layout.CHANNELS_LAST,
        "ARM, torch 2.13 without vector code: all convolutions of a ResNet-20 step take 483 ms with channels last, 843 "
        "contiguous (batch 64, 2 threads). Forward and gradient, one thread, 16 images of 32x32: two groups 22 against 58 "
        "ms, dilation 2 18 against 42. Depthwise gradients have a rule of their own in kernels.py.",
    ),
    Rule(
        lambda c: c.following is Next.FLAT and not c.differentiates and c.is_less_to_lay_out_before,
        Layout.CONTIGUOUS,
        "x86, inference, one thread, microseconds: 32 images of 8x8, 3 to 32 channels, take 140 contiguous and 153 with "
        "channels last, and to make those contiguous for a dense layer behind them 60; 131,072 elements 103, 524,288 816. Two "
        "and three convolutions without pooling, 6 to 60 channels, 3 and 32 images of 28x28, 1 to 8 threads: whole inferences "
        "took .85 to 1.5 of the time by hand where only the last was contiguous, and .84 to 1.05 where all were.",
    ),
    Rule(
        lambda c: c.following is Next.FEW and not c.image_has_channels_last,
        Layout.CONTIGUOUS,
        "x86, whole inferences of 3x3 convolutions and pooling, relative to by hand, with channels last and contiguous, 32 "
        "images of 28x28, torch 2.13 with one and two threads, then 2.11. Normalized, 6 channels .91 and .86, .99 and .89, then "
        ".99 and .91, 1.05 and .93; three of 4 1.13 and .91, 1.10 and .91, 1.09 and .89, 1.22 and .91; 6 behind 16 .97 and .96, "
        ".70 and .65, .63 and .51, .96 and .96; 16 behind 6 .59 and .52, .62 and .59, .79 and .67, .70 and .60. Not normalized, "
        "4 channels 1.14 and .96, .95 and .93, 1.02 and .92, .96 and .92, but 16 behind 4, each pooled, .70 and .74, .75 and "
        ".79, .73 and .77, .75 and .76; 5, left, 1.02 and .94, .93 and .98, .96 and .98, 1.00 and .96.",
    ),
    Rule(
        lambda c: (
            c.following is Next.REDUCED
            and (c.outputs < NARROW or c.image[1] < FEW)
            and not (c.differentiates or c.image_has_channels_last)
        ),
        Layout.CONTIGUOUS,
        "x86, whole inferences of one 3x3 convolution over 3 channels and a mean, relative to by hand, contiguous and with "
        "channels last, 1, 2 and 8 threads: 32 images of 32x32 to 16 channels .84 and .86, .86 and .82, .83 and 1.13, the mean "
        "over channels .87 and 1.16, .85 and 1.17, .85 and 1.30; of 16x16 to 8 .82 and 1.19, .90 and 1.14, .84 and .97, over "
        "channels .92 and 1.42, .89 and 1.39, .80 and 1.10; 8 images of 56x56 to 64 .86 and .76, .84 and .76, .78 and .81. Two "
        "convolutions to 8 channels .90 and 1.18, .90 and 1.17, .86 and .96; but to 16 .95 and .79, .88 and .72, .91 and .85, "
        "and more of them likewise.",
    ),
    Rule(
        lambda c: c.following is Next.FLAT and c.groups == 1 and c.image[1] < FEW,
        Layout.CONTIGUOUS,
        "x86, steps of one convolution over 3 channels and a dense layer, relative to channels last, 1, 2 and 8 threads: .87 to "
        ".98. 16 images of 48x48, 3 to 64 channels, two threads, milliseconds: the gradient 1.5 and 2.1, to make the result "
        "contiguous and to lay out its gradient 3.2. (Over more channels 1.0 to 1.2.)",
    ),
    Rule(
        lambda c: True,
        Layout.CHANNELS_LAST,
        "x86 with AVX-512, torch 2.11, microseconds forward and gradient, contiguous against channels last, one thread: 3x3 "
        "2222 and 1543, 5x5 5263 and 4914, four groups 2296 and 1255, dilation 2 3406 and 2747, depthwise 407 and 208; with "
        "8 threads 631 and 390, 1622 and 1472, 762 and 452, 1006 and 833, 287 and 184. Pooling gains most: a maximum of 2x2 "
        "1637 and 242, an average 1010 and 175. Safe: the 455 convolutions of tests/gears/convolution_grid.py lived with 1, 2, "
        "3, 4 and 8 threads under glibc's checking allocator, where the rule of version 4a2312b dies with 3, 4 and 8.",
    ),
)


def layout_of(module: nn.Conv2d, image: torch.Tensor, following: Next = Next.OTHER) -> Layout:
    """How the rules lay out a convolution of float32 on the CPU."""
    padding = module.padding if isinstance(module.padding, tuple) else (-1,)
    asked = Convolution(
        tuple(module.kernel_size),
        tuple(module.stride),
        tuple(padding),
        tuple(module.dilation),
        module.groups,
        module.out_channels,
        tuple(image.shape),
        has_channels_last(image),
        following,
        has_rules(),
        has_vector_code(),
        torch.get_num_threads(),
        torch.is_grad_enabled(),
    )
    return said(CONVOLUTION_LAYOUTS, asked) or Layout.CONTIGUOUS


def convolve(
    module: nn.Module, own: dict[str, torch.Tensor], sources: list[torch.Tensor], following: Next = Next.OTHER
) -> Any:
    """Call a module that has convolutions in it, laid out by the rules, with ``own`` in place of its tensors.

    Only torch's own class and ours are known to compute what the rules think. In whatever else holds a convolution it
    finds contiguous images, as it would without us: channels last are handed on from layer to layer.
    """
    layout = Layout.CONTIGUOUS
    is_known = type(module) in (nn.Conv2d, SameConv2d) and own["weight"].dtype == torch.float32
    if is_known and sources[0].dim() == 4:  # torch takes an image without a batch, too
        layout = layout_of(module, sources[0], following)  # type: ignore[arg-type]
    if layout is Layout.CONTIGUOUS:
        sources = [s.contiguous() for s in sources]
    else:
        own["weight"] = own["weight"].contiguous(memory_format=torch.channels_last)
        is_read_again = layout is Layout.CHANNELS_LAST and torch.is_grad_enabled() and own["weight"].requires_grad
        if is_read_again or (own["weight"].shape[1] == 1 and sources[0].shape[1] >= FEW):
            # torch would lay the image out by itself, once here and once for the gradient. And weights of 1x1 and depthwise ones
            # are the same in both layouts, so that it would go by the image alone. (Steps of random networks relative to those
            # without: x86 with 1, 2 and 8 threads .98, where the first is 1x1 .95; ARM .99.)
            sources = [s.contiguous(memory_format=torch.channels_last) for s in sources]
    if layout is Layout.SLICED:
        down, right = module.stride  # type: ignore[misc]
        image = sources[0].view(sources[0].shape)  # whose gradient is this convolution's alone
        lay_out_gradient(image)
        made = F.conv2d(image[:, :, ::down, ::right], own["weight"], own.get("bias"))
        # As its neighbours, whatever the image has. (The slice itself would have to be kept for the gradient.)
        return made.contiguous(memory_format=torch.channels_last) if made.shape[1] >= FEW else made
    return called(module, own, sources)


def laid_out_for_pooling(made: Any) -> Any:
    """A module's result with channels last, unless it is no image, has few channels or few elements, or nobody has measured.

    It may have none by itself: over images of a single channel both layouts are the same, and some norms get contiguous ones.
    """
    is_image = isinstance(made, torch.Tensor) and made.dim() == 4 and made.dtype == torch.float32
    worth = _WORTH_LAYING_OUT * max(1, torch.get_num_threads() ** 2 // 4)
    if is_image and has_rules() and made.shape[1] >= FEW and made.numel() >= worth:
        return made.contiguous(memory_format=torch.channels_last)
    return made


def called(module: nn.Module, own: dict[str, torch.Tensor], sources: list[torch.Tensor]) -> Any:
    """What a module gives with ``own`` in place of its tensors.

    Every holder of a tensor is named there, once: torch's own search for ties would swap a module that stands at two places
    twice, and leave the stand-in behind.
    """
    call = functools.partial(functional_call, module, own, tuple(sources), tie_weights=False)
    try:
        return called_in_place(recurrent_parts(module), call)
    finally:
        own_weights_again(module)
