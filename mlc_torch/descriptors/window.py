"""What convolution and pooling descriptors share: a window that slides over an image, and the padding around it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from mlc_torch.descriptors.base import Descriptor, not_negative, positive
from mlc_torch.enums import MLCPaddingPolicy
from mlc_torch.refusals import refuse
from mlc_torch.spelling import YX, HeightWidth, prop


class WindowDescriptor(Descriptor):
    """A window that slides over an image. Sizes are (height, width); Objective-C reads them one by one."""

    kernelSizes = prop("(height: Int, width: Int)", "Height and width of the window.", objc=False)
    strides = prop("(y: Int, x: Int)", "How far the window moves at a time, down and across.", objc=False)
    dilationRates = prop(
        "(y: Int, x: Int)", "The distance between neighbouring elements of the window, down and across.", objc=False
    )
    paddingPolicy = prop("MLCPaddingPolicy", "``same``, ``valid``, or sizes of your own.")

    @prop("Int", swift=False)
    def kernelHeight(self):
        """Height of the window."""
        return self._kernelSizes.height

    @prop("Int", swift=False)
    def kernelWidth(self):
        """Width of the window."""
        return self._kernelSizes.width

    @prop("Int", swift=False)
    def strideInY(self):
        """How far the window moves down at a time."""
        return self._strides.y

    @prop("Int", swift=False)
    def strideInX(self):
        """How far the window moves across at a time."""
        return self._strides.x

    @prop("Int", swift=False)
    def dilationRateInY(self):
        """The vertical distance between elements of the window."""
        return self._dilationRates.y

    @prop("Int", swift=False)
    def dilationRateInX(self):
        """The horizontal distance between elements of the window."""
        return self._dilationRates.x

    @prop("Int", swift=False)
    def paddingSizeInY(self):
        """Rows added above and below; 0 unless the policy is ``sized``."""
        return self._paddingPolicy.sizes.y

    @prop("Int", swift=False)
    def paddingSizeInX(self):
        """Columns added left and right; 0 unless the policy is ``sized``."""
        return self._paddingPolicy.sizes.x


def window(
    kernelSizes: Sequence[int], strides: Sequence[int], dilationRates: Sequence[int], paddingPolicy: MLCPaddingPolicy
) -> dict[str, Any]:
    """The fields of a window, checked."""
    for who, sizes in (("kernelSizes", kernelSizes), ("strides", strides), ("dilationRates", dilationRates)):
        for size in sizes:
            positive(who, size)
    for size in paddingPolicy.sizes:
        not_negative("paddingSizes", size)
    return {
        "kernelSizes": HeightWidth(*kernelSizes),
        "strides": YX(*strides),
        "dilationRates": YX(*dilationRates),
        "paddingPolicy": paddingPolicy,
    }


def window_from_arrays(
    kernelSizes: Sequence[int] | None,
    strides: Sequence[int] | None,
    dilationRates: Sequence[int] | None,
    paddingPolicy: MLCPaddingPolicy,
    paddingSizes: Sequence[int] | None,
) -> dict[str, Any]:
    """Objective-C passes sizes as arrays that may be nil, and the padding sizes beside the policy (evidence.md C)."""
    if paddingPolicy.name == "sized":
        y, x = _pair("paddingSizes", paddingSizes, 0)
        paddingPolicy = MLCPaddingPolicy.sized(y=y, x=x)
    return {
        "kernelSizes": _pair("kernelSizes", kernelSizes, 1),
        "strides": _pair("strides", strides, 1),
        "dilationRates": _pair("dilationRates", dilationRates, 1),
        "paddingPolicy": paddingPolicy,
    }


def _pair(who: str, sizes: Sequence[int] | None, missing: int) -> tuple[int, int]:
    if sizes is None:
        return missing, missing
    if len(sizes) not in (1, 2):
        refuse(f"{who} takes one size or two ([height, width]), got {list(sizes)}")
    return sizes[0], sizes[-1]
