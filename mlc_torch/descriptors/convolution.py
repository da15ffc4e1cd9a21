"""The shape of a convolution: kernel, channels, stride, dilation, padding. Fully connected layers use its channels."""

from __future__ import annotations

from mlc_torch.descriptors.base import positive
from mlc_torch.descriptors.window import WindowDescriptor, window, window_from_arrays
from mlc_torch.enums import MLCConvolutionType, MLCPaddingPolicy
from mlc_torch.refusals import refuse
from mlc_torch.spelling import YX, HeightWidth, declare, objc_only, prop

_CHANNELS = "inputFeatureChannelCount: Int, outputFeatureChannelCount: Int"
_DEPTHWISE = "inputFeatureChannelCount: Int, channelMultiplier: Int"
_PADDING = "paddingPolicy: MLCPaddingPolicy, paddingSizes: [Int]? -> Self"
_GROUPS = "groupCount: Int, strides: [Int]?, dilationRates: [Int]?"


class MLCConvolutionDescriptor(WindowDescriptor):
    """The window, channels and kind of a convolution: standard, transposed or depthwise."""

    convolutionType = prop("MLCConvolutionType", "Standard, transposed or depthwise.")
    inputFeatureChannelCount = prop("Int", "Channels of the source.")
    outputFeatureChannelCount = prop("Int", "Channels of the result.")
    groupCount = prop("Int", "Into how many groups the channels are divided; each group is convolved by itself.")

    _bare_fields = {
        "kernelSizes": HeightWidth(1, 1),
        "inputFeatureChannelCount": 1,
        "outputFeatureChannelCount": 1,
        "groupCount": 1,
        "strides": YX(1, 1),
        "dilationRates": YX(1, 1),
        "paddingPolicy": MLCPaddingPolicy.same,
    }

    @prop("Bool")
    def isConvolutionTranspose(self):
        """Whether the type is ``transposed``."""
        return self._convolutionType is MLCConvolutionType.transposed

    @prop("Bool")
    def usesDepthwiseConvolution(self):
        """Whether the type is ``depthwise``."""
        return self._convolutionType is MLCConvolutionType.depthwise

    @declare(
        "init(type: MLCConvolutionType = .standard, kernelSizes: (height: Int, width: Int), "
        "inputFeatureChannelCount: Int, outputFeatureChannelCount: Int, groupCount: Int = 1, "
        "strides: (y: Int, x: Int) = (1, 1), dilationRates: (y: Int, x: Int) = (1, 1), "
        "paddingPolicy: MLCPaddingPolicy = .same)"
    )
    def _create(
        cls,
        kernelSizes,
        inputFeatureChannelCount,
        outputFeatureChannelCount,
        type=MLCConvolutionType.standard,
        groupCount=1,
        strides=(1, 1),
        dilationRates=(1, 1),
        paddingPolicy=MLCPaddingPolicy.same,
    ):
        """Strides and dilation are 1 and the padding is ``same`` unless given."""
        inputs = positive("inputFeatureChannelCount", inputFeatureChannelCount)
        outputs = positive("outputFeatureChannelCount", outputFeatureChannelCount)
        groups = positive("groupCount", groupCount)
        if type is MLCConvolutionType.depthwise and outputs % inputs:
            refuse(f"a depthwise convolution's outputs must be a multiple of its {inputs} inputs, got {outputs}")
        if inputs % groups or outputs % groups:
            refuse(f"groupCount must divide the inputs and the outputs, got {groups} for {inputs} and {outputs}")
        return cls._make(
            convolutionType=type,
            inputFeatureChannelCount=inputs,
            outputFeatureChannelCount=outputs,
            groupCount=groups,
            **window(kernelSizes, strides, dilationRates, paddingPolicy),
        )

    @declare(
        "init(transposeWithKernelWidth kernelWidth: Int, kernelHeight: Int, inputFeatureChannelCount: Int, "
        "outputFeatureChannelCount: Int)",
        "convolutionTransposeDescriptorWithKernelWidth:kernelHeight:inputFeatureChannelCount:outputFeatureChannelCount:",
        type=MLCConvolutionType.transposed,
    )
    @declare(
        "init(depthwiseWithKernelWidth kernelWidth: Int, kernelHeight: Int, inputFeatureChannelCount: Int, "
        "channelMultiplier: Int)",
        "depthwiseConvolutionDescriptorWithKernelWidth:kernelHeight:inputFeatureChannelCount:channelMultiplier:",
        type=MLCConvolutionType.depthwise,
    )
    @objc_only(f"+ descriptorWithKernelWidth: Int, kernelHeight: Int, {_CHANNELS} -> Self")
    def _of_size(cls, kernelWidth, kernelHeight, **rest):
        """A convolution with stride 1 and the padding ``same``, by the width and height of its kernel."""
        return cls._from_arrays((kernelHeight, kernelWidth), **rest)

    @objc_only(f"+ descriptorWithType: MLCConvolutionType, kernelSizes: [Int]?, {_CHANNELS}, {_GROUPS}, {_PADDING}")
    @objc_only(f"+ descriptorWithKernelSizes: [Int]?, {_CHANNELS}, strides: [Int]?, {_PADDING}")
    @objc_only(f"+ descriptorWithKernelSizes: [Int]?, {_CHANNELS}, {_GROUPS}, {_PADDING}")
    @objc_only(
        f"+ convolutionTransposeDescriptorWithKernelSizes: [Int]?, {_CHANNELS}, strides: [Int]?, {_PADDING}",
        type=MLCConvolutionType.transposed,
    )
    @objc_only(
        f"+ convolutionTransposeDescriptorWithKernelSizes: [Int]?, {_CHANNELS}, {_GROUPS}, {_PADDING}",
        type=MLCConvolutionType.transposed,
    )
    @objc_only(
        f"+ depthwiseConvolutionDescriptorWithKernelSizes: [Int]?, {_DEPTHWISE}, strides: [Int]?, {_PADDING}",
        type=MLCConvolutionType.depthwise,
    )
    @objc_only(
        f"+ depthwiseConvolutionDescriptorWithKernelSizes: [Int]?, {_DEPTHWISE}, strides: [Int]?, "
        f"dilationRates: [Int]?, {_PADDING}",
        type=MLCConvolutionType.depthwise,
    )
    def _from_arrays(
        cls,
        kernelSizes,
        inputFeatureChannelCount,
        outputFeatureChannelCount=None,
        channelMultiplier=1,
        type=MLCConvolutionType.standard,
        groupCount=1,
        strides=None,
        dilationRates=None,
        paddingPolicy=MLCPaddingPolicy.same,
        paddingSizes=None,
    ):
        """The form of Objective-C: sizes are arrays [height, width], and nil stands for 1."""
        if outputFeatureChannelCount is None:
            outputFeatureChannelCount = inputFeatureChannelCount * positive("channelMultiplier", channelMultiplier)
        return cls._create(
            inputFeatureChannelCount=inputFeatureChannelCount,
            outputFeatureChannelCount=outputFeatureChannelCount,
            type=type,
            groupCount=groupCount,
            **window_from_arrays(kernelSizes, strides, dilationRates, paddingPolicy, paddingSizes),
        )
