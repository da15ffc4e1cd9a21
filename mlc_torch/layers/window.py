"""The arithmetic of windows that slide over an image: sizes and padding, in integers alone (evidence.md D.6)."""

from __future__ import annotations

from mlc_torch.descriptors.window import WindowDescriptor
from mlc_torch.refusals import refuse

Pads = tuple[int, int]


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
