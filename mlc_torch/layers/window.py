"""The arithmetic of windows that slide over an image: sizes and padding, in integers alone (evidence.md D.6)."""

from __future__ import annotations

import math
from collections.abc import Sequence

from mlc_torch.descriptors.window import WindowDescriptor
from mlc_torch.refusals import refuse

Pads = tuple[int, int]

_SIDES = ("height", "width")
_LARGEST_INT = 2**31 - 1


def span(kernel: int, dilation: int) -> int:
    """How many pixels a dilated kernel reaches over."""
    return (kernel - 1) * dilation + 1


def same_pads(size: int, reach: int, stride: int) -> Pads:
    """TensorFlow's SAME: the smallest padding that gives ceil(size / stride) windows, the odd pixel at the end."""
    total = max((-(-size // stride) - 1) * stride + reach - size, 0)
    return total // 2, total - total // 2


def slide(size: int, reach: int, stride: int, policy: str, pad: int) -> int:
    """How many windows fit into ``size`` pixels."""
    if policy == "same":
        return -(-size // stride)
    padded = size + 2 * pad
    if padded < reach:
        refuse(f"a window of {reach} does not fit into {padded} pixels ({size} and the padding)")
    return (padded - reach) // stride + 1


def windows(height: int, width: int, descriptor: WindowDescriptor) -> tuple[int, int]:
    """The height and width of what a sliding window gives."""
    policy = descriptor.paddingPolicy
    sizes = zip((height, width), reaches(descriptor), descriptor.strides, (policy.sizes.y, policy.sizes.x), strict=True)
    high, wide = (slide(size, reach, stride, policy.name, pad) for size, reach, stride, pad in sizes)
    return high, wide


def refuse_wide_numbers(descriptor: WindowDescriptor, what: str) -> None:
    """For functions of torch whose kernels count pixels in C's ``int``; beyond it they raise, or wrap around."""
    named = (("kernel", descriptor.kernelSizes), ("stride", descriptor.strides), ("dilation", descriptor.dilationRates))
    for name, numbers in named:
        for side, number in zip(_SIDES, numbers, strict=True):
            if number > _LARGEST_INT:
                refuse(f"{name} {number} of the {side} is too large: {what} counts pixels up to {_LARGEST_INT}")


def refuse_beyond_memory(shape: Sequence[int], pixels: Sequence[int], descriptor: WindowDescriptor) -> None:
    """Refuse a window that needs an image of ``pixels`` (height, width) between the source and the result.

    ``shape`` is the source's. torch counts bytes in 64 bits, and where they overflow it raises in words of its own, some of
    them a ``TypeError``.
    """
    whole = (*shape[:2], *pixels)
    if math.prod(whole) * 4 < 2**63:  # of a float32, the widest type that windows slide over
        return
    side = 0 if pixels[0] / shape[2] >= pixels[1] / shape[3] else 1
    kernel, dilation = descriptor.kernelSizes[side], descriptor.dilationRates[side]
    padding = "" if descriptor.paddingPolicy.name == "same" else f" and padding {descriptor.paddingPolicy.sizes[side]}"
    refuse(
        f"kernel {kernel}, dilation {dilation}{padding} are too large for a {_SIDES[side]} of {shape[2 + side]} pixels: "
        f"the window needs an image of shape {list(whole)}, which has more elements than memory has addresses"
    )


def padded(height: int, width: int, descriptor: WindowDescriptor) -> tuple[int, int]:
    """The height and width of an image with its padding."""
    left, right, top, bottom = pads(height, width, descriptor)
    return top + height + bottom, left + width + right


def reaches(descriptor: WindowDescriptor) -> tuple[int, int]:
    (height, width), (y, x) = descriptor.kernelSizes, descriptor.dilationRates
    return span(height, y), span(width, x)


def symmetric_padding(descriptor: WindowDescriptor) -> tuple[int, int] | None:
    """The padding (y, x) that serves every image size, or ``None`` where it depends on the size or is lopsided."""
    policy = descriptor.paddingPolicy
    if policy.name != "same":
        return policy.sizes.y, policy.sizes.x
    if all(stride == 1 and reach % 2 for stride, reach in zip(descriptor.strides, reaches(descriptor), strict=True)):
        y, x = (reach // 2 for reach in reaches(descriptor))
        return y, x
    return None


def same_padding(height: int, width: int, descriptor: WindowDescriptor) -> list[int]:
    """SAME padding for one image size, in the order torch's ``pad`` takes: left, right, top, bottom."""
    (reach_y, reach_x), (stride_y, stride_x) = reaches(descriptor), descriptor.strides
    return [*same_pads(width, reach_x, stride_x), *same_pads(height, reach_y, stride_y)]


def pads(height: int, width: int, descriptor: WindowDescriptor) -> list[int]:
    """Padding for one image size by any policy, in the same order."""
    if descriptor.paddingPolicy.name == "same":
        return same_padding(height, width, descriptor)
    y, x = descriptor.paddingPolicy.sizes
    return [x, x, y, y]
