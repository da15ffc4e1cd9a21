"""What becomes of images: whether they are pooled or flattened later, which decides how they are laid out."""

from __future__ import annotations

import math
from enum import Enum

from torch import nn

from mlc_torch.engine.plan import Plan, Step
from mlc_torch.engine.processor import CHANNELS_AT_ONCE, has_vector_code
from mlc_torch.layers.convolution import TransposedConv2d
from mlc_torch.layers.normalization_modules import BatchNorm
from mlc_torch.layers.padding import SymmetricPad2d
from mlc_torch.layers.pooling import Pool2d
from mlc_torch.layers.reduction import Reduction

_POOLING = (Pool2d, nn.MaxPool2d, nn.AvgPool2d)
_BATCH_NORMS = (BatchNorm, nn.BatchNorm2d)
_PADDING = (nn.ConstantPad2d, nn.ReflectionPad2d, SymmetricPad2d)
"""Whole inferences of a convolution and a padded result, x86, one thread, relative to channels last: .72 to .86. (Behind
upsampling they took 1.1 to 1.4 contiguous.)"""
NARROW = 16
"""Channels that are few for x86; the rule in ``layouts`` has the measurements."""


_IMAGES = 4
"""Dimensions."""
FEW_TO_POOL = 5
"""Fewer channels are not last for pooling in an inference, on x86; ``layouts`` has these measurements, too."""


class Next(Enum):
    """What becomes of the result of a convolution, or of a norm that is given contiguous images, at once or behind layers that
    keep its shape."""

    POOLED = "it goes into a pooling layer"
    FLAT = "it is made contiguous, by this graph or for the program"
    REDUCED = "sums, means or the like are made of it, in an inference"
    FEW = "it is normalized or pooled in an inference, and has too few channels to come last for that"
    OTHER = "anything else"


def what_follows(plan: Plan, differentiates: bool) -> dict[Step, Next]:
    """What becomes of results, as far as that decides how they are laid out.

    Pooling over channels last is so much faster that laying the image out for it pays. LeNet's first, 64 images of 16
    channels and 28x28, milliseconds contiguous and so: on a Neoverse-N1, one thread, forward 6.6 and 1.1, gradient 2.5 and
    .6, laying it out .8; on x86 with AVX-512, torch 2.11, one thread 5.8 and 1.0, .5 and .7, .7, two threads 3.6 and .6, .3
    and .3, .4.
    """
    ahead: dict[int, set[Next]] = {slot: {Next.FLAT} for slot in plan.readable}
    found: dict[Step, Next] = {}
    asks = not differentiates and has_vector_code()
    for step in reversed(plan.steps):
        following = set().union(*(ahead.get(slot, ()) for slot in step.results))
        if holds_convolutions(step.module):
            if Next.POOLED in following:
                found[step] = Next.FEW if asks and has_fewer(plan, step, FEW_TO_POOL) else Next.POOLED
                following = {Next.OTHER}
            elif Next.FEW in following and Next.OTHER not in following:
                found[step], following = Next.FEW, {Next.OTHER}
            elif following == {Next.FLAT}:
                found[step] = Next.FLAT
                if differentiates:  # otherwise those before it, too
                    following = {Next.OTHER}
            elif following and following <= {Next.FLAT, Next.REDUCED}:
                found[step] = Next.REDUCED
                if not is_narrow(step.module):
                    following = {Next.OTHER}
            else:
                following = {Next.OTHER}
        elif isinstance(step.module, nn.GroupNorm) and is_odd(step.module):
            if Next.POOLED in following:
                found[step] = Next.POOLED
            following = {Next.FLAT}
        elif asks and isinstance(step.module, _BATCH_NORMS) and has_fewer(plan, step, CHANNELS_AT_ONCE[True]):
            following = following if following <= {Next.FLAT, Next.REDUCED} else {Next.FEW}
        elif isinstance(step.module, _POOLING):
            following = {Next.POOLED}
        elif isinstance(step.module, _PADDING) and not differentiates:
            pass  # it lays out what it makes as what it is given
        elif isinstance(step.module, Reduction) and not differentiates:
            following = {Next.REDUCED}
        elif len(shapes := {plan.cells[slot].shape for slot in (*step.sources, *step.results)}) > 1:
            same_elements = len({math.prod(shape) for shape in shapes}) == 1  # in other dimensions, then
            following = {Next.FLAT if same_elements else Next.OTHER}
        for slot in step.sources:
            ahead.setdefault(slot, set()).update(following)
    return found


def has_fewer(plan: Plan, step: Step, channels: int) -> bool:
    """Whether what a step makes is images of fewer channels."""
    shapes = [plan.cells[slot].shape for slot in step.results]
    return all(len(shape) == _IMAGES and shape[1] < channels for shape in shapes)


def holds_convolutions(module: nn.Module) -> bool:
    return any(isinstance(part, (nn.modules.conv._ConvNd, TransposedConv2d)) for part in module.modules())


def is_narrow(module: nn.Module) -> bool:
    """Whether a convolution makes so few channels that on x86 they are quicker to convolve and to add up contiguous."""
    return isinstance(module, nn.Conv2d) and module.out_channels < NARROW


def is_odd(norm: nn.GroupNorm) -> bool:
    """Whether torch's vectors do not divide a group's channels, so that it is given contiguous images."""
    return norm.num_channels // norm.num_groups % CHANNELS_AT_ONCE[has_vector_code()] != 0
