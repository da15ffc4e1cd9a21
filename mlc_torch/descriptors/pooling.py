"""The window of a pooling layer and what is taken from it."""

from __future__ import annotations

from mlc_torch.descriptors.window import WindowDescriptor, window, window_from_arrays
from mlc_torch.enums import MLCPaddingPolicy, MLCPoolingType
from mlc_torch.spelling import YX, HeightWidth, declare, objc_only, prop

_SIZES = "KernelSizes: [Int]?, strides: [Int]?"
_DILATED = f"{_SIZES}, dilationRates: [Int]?"
_PADDING = "paddingPolicy: MLCPaddingPolicy, paddingSizes: [Int]?"


class MLCPoolingDescriptor(WindowDescriptor):
    """The window of a pooling layer, and what is taken from it: maximum, average or L2 norm."""

    poolingType = prop("MLCPoolingType", "Maximum, average or L2 norm.")

    _bare_fields = {
        "kernelSizes": HeightWidth(0, 0),
        "strides": YX(0, 0),
        "dilationRates": YX(0, 0),
        "paddingPolicy": MLCPaddingPolicy.same,
        "poolingType": 0,  # no case of the enumeration has this value (evidence.md C.3)
    }

    @prop("Bool", swift=False)
    def countIncludesPadding(self):
        """Whether padding counts in an average."""
        return bool(self._poolingType) and self._poolingType.countIncludesPadding

    @declare(
        "init(type: MLCPoolingType, kernelSizes: (height: Int, width: Int), strides: (y: Int, x: Int) = (y: 1, x: 1), "
        "dilationRates: (y: Int, x: Int) = (y: 1, x: 1), paddingPolicy: MLCPaddingPolicy = .same)"
    )
    def _create(cls, type, kernelSizes, strides=(1, 1), dilationRates=(1, 1), paddingPolicy=MLCPaddingPolicy.same):
        """Strides and dilation are 1 and the padding is ``same`` unless given."""
        return cls._make(poolingType=type, **window(kernelSizes, strides, dilationRates, paddingPolicy))

    @objc_only("+ poolingDescriptorWithType: MLCPoolingType, kernelSize: Int, stride: Int -> Self")
    def _square(cls, type, kernelSize, stride):
        """A square window without padding sizes."""
        return cls._create(type, (kernelSize, kernelSize), (stride, stride))

    @objc_only(f"+ maxPoolingDescriptorWith{_SIZES}, {_PADDING} -> Self", type=MLCPoolingType.max)
    @objc_only(f"+ maxPoolingDescriptorWith{_DILATED}, {_PADDING} -> Self", type=MLCPoolingType.max)
    @objc_only(f"+ l2NormPoolingDescriptorWith{_SIZES}, {_PADDING} -> Self", type=MLCPoolingType.l2Norm)
    @objc_only(f"+ l2NormPoolingDescriptorWith{_DILATED}, {_PADDING} -> Self", type=MLCPoolingType.l2Norm)
    @objc_only(
        f"+ averagePoolingDescriptorWith{_SIZES}, {_PADDING}, countIncludesPadding: Bool -> Self",
        type=MLCPoolingType.average,
    )
    @objc_only(
        f"+ averagePoolingDescriptorWith{_DILATED}, {_PADDING}, countIncludesPadding: Bool -> Self",
        type=MLCPoolingType.average,
    )
    def _from_arrays(
        cls, type, kernelSizes, strides, paddingPolicy, paddingSizes, dilationRates=None, countIncludesPadding=False
    ):
        """The form of Objective-C: sizes are arrays [height, width], and nil stands for 1."""
        if type == MLCPoolingType.average:
            type = MLCPoolingType.average(countIncludesPadding=countIncludesPadding)
        return cls._create(
            type=type, **window_from_arrays(kernelSizes, strides, dilationRates, paddingPolicy, paddingSizes)
        )
