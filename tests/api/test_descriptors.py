"""Descriptors are values: every initializer, default and property, equality, and what is refused."""

from __future__ import annotations

import array
import copy
import pickle
import struct

import numpy as np
import pytest
import torch

import mlc_torch as mlc
from mlc_torch import last_refusal

Kind = mlc.MLCActivationType


# Defaults, as measured (evidence.md, section C)


@pytest.mark.parametrize("kind", Kind)
def test_activation_defaults(kind):
    expected = {
        Kind.relu: (0, 1, 1),
        Kind.linear: (1, 0, 1),
        Kind.hardSigmoid: (0.2, 0.5, 1),
        Kind.hardShrink: (0.5, 1, 1),
        Kind.softShrink: (0.5, 1, 1),
    }.get(kind, (1, 1, 1))
    made = mlc.MLCActivationDescriptor(type=kind)
    assert (made.a, made.b, made.c) == expected
    given = mlc.MLCActivationDescriptor(type=kind, a=2, b=3, c=4)
    assert (given.activationType, given.a, given.b, given.c) == (kind, 2, 3, 4)
    assert mlc.MLCActivationDescriptor(type=kind, a=2).b == expected[1]
    assert mlc.MLCActivationDescriptor(type=kind, a=2, b=3).c == 1


def test_an_unknown_activation_is_refused():
    assert mlc.MLCActivationDescriptor(type=99) is None
    assert "99 is no MLCActivationType" in str(last_refusal())


def test_convolution_defaults():
    made = mlc.MLCConvolutionDescriptor(kernelSizes=(3, 5), inputFeatureChannelCount=2, outputFeatureChannelCount=4)
    assert made.convolutionType is mlc.MLCConvolutionType.standard
    assert (made.kernelSizes.height, made.kernelSizes.width) == (3, 5) == (made.kernelHeight, made.kernelWidth)
    assert made.strides == (1, 1) == made.dilationRates and made.groupCount == 1
    assert made.paddingPolicy == mlc.MLCPaddingPolicy.same
    assert not made.isConvolutionTranspose and not made.usesDepthwiseConvolution


def test_arrays_are_height_then_width():
    """Measured: [3, 5], [2, 1], [1, 3] and [4, 2] are y before x everywhere."""
    make = mlc.MLCConvolutionDescriptor.descriptorWithType_kernelSizes_inputFeatureChannelCount_outputFeatureChannelCount_groupCount_strides_dilationRates_paddingPolicy_paddingSizes_  # noqa: E501
    made = make(0, [3, 5], 2, 4, 2, [2, 1], [1, 3], 2, [4, 2])
    assert (made.kernelHeight, made.kernelWidth) == (3, 5)
    assert (made.strideInY, made.strideInX) == (2, 1)
    assert (made.dilationRateInY, made.dilationRateInX) == (1, 3)
    assert (made.paddingSizeInY, made.paddingSizeInX) == (4, 2)
    assert made.paddingPolicy == mlc.MLCPaddingPolicy.sized(y=4, x=2)
    one = make(0, [3], 2, 4, 1, [2], [2], 2, [1])
    assert one.kernelSizes == (3, 3) and one.strides == (2, 2) and one.paddingPolicy.sizes == (1, 1)
    missing = make(0, None, 2, 4, 1, None, None, 2, None)
    assert missing.kernelSizes == (1, 1) == missing.strides == missing.dilationRates
    assert missing.paddingPolicy.sizes == (0, 0)
    ignored = make(0, [3, 3], 2, 4, 1, None, None, 0, [1, 1])
    assert ignored.paddingPolicy == mlc.MLCPaddingPolicy.same and ignored.paddingSizeInY == 0
    assert make(0, [1, 2, 3], 2, 4, 1, None, None, 0, None) is None


def test_convolution_factories_of_objective_c():
    cls = mlc.MLCConvolutionDescriptor
    short = cls.descriptorWithKernelWidth_kernelHeight_inputFeatureChannelCount_outputFeatureChannelCount_(5, 3, 2, 4)
    assert short == cls(kernelSizes=(3, 5), inputFeatureChannelCount=2, outputFeatureChannelCount=4)
    transposed = cls(
        transposeWithKernelWidth=5, kernelHeight=3, inputFeatureChannelCount=2, outputFeatureChannelCount=4
    )
    assert transposed.isConvolutionTranspose and transposed.kernelSizes == (3, 5)
    depthwise = cls(depthwiseWithKernelWidth=5, kernelHeight=3, inputFeatureChannelCount=2, channelMultiplier=3)
    assert depthwise.usesDepthwiseConvolution and depthwise.outputFeatureChannelCount == 6
    assert depthwise.groupCount == 1  # measured
    for name in (n for n in dir(cls) if "escriptorWithKernelSizes" in n):
        arguments = {
            "dilationRates": [1, 2],
            "groupCount": 1,
            "strides": [2, 1],
            "paddingPolicy": 1,
            "paddingSizes": None,
        }
        labels = name.rstrip("_").split("_")[1:]
        last = 3 if "channelMultiplier" in labels else 4
        made = getattr(cls, name)([3, 5], 2, last, *(arguments[label] for label in labels[2:]))
        assert made.kernelSizes == (3, 5) and made.strides == (2, 1) and made.paddingPolicy.name == "valid"
        assert made.isConvolutionTranspose == name.startswith("convolutionTranspose")
        assert made.outputFeatureChannelCount == (6 if name.startswith("depthwise") else 4)


def test_pooling():
    made = mlc.MLCPoolingDescriptor(type=mlc.MLCPoolingType.max, kernelSizes=(2, 3))
    assert made.strides == (1, 1) == made.dilationRates and made.paddingPolicy == mlc.MLCPaddingPolicy.same
    cls = mlc.MLCPoolingDescriptor
    short = cls.poolingDescriptorWithType_kernelSize_stride_(2, 3, 2)
    assert short.kernelSizes == (3, 3) and short.strides == (2, 2) and short.paddingPolicy.name == "same"
    assert short.countIncludesPadding is False
    counted = cls.averagePoolingDescriptorWithKernelSizes_strides_paddingPolicy_paddingSizes_countIncludesPadding_(
        [2, 2], [1, 2], 2, [1, 0], True
    )
    assert counted.poolingType == mlc.MLCPoolingType.average(countIncludesPadding=True) and counted.countIncludesPadding
    assert counted.paddingPolicy == mlc.MLCPaddingPolicy.sized(y=1, x=0)
    dilated = cls.maxPoolingDescriptorWithKernelSizes_strides_dilationRates_paddingPolicy_paddingSizes_(
        [2, 3], None, [2, 1], 1, None
    )
    assert dilated.poolingType == mlc.MLCPoolingType.max and dilated.dilationRates == (2, 1)
    norm = cls.l2NormPoolingDescriptorWithKernelSizes_strides_paddingPolicy_paddingSizes_([2], None, 0, None)
    assert norm.poolingType == mlc.MLCPoolingType.l2Norm and norm.kernelSizes == (2, 2)


def test_loss_defaults():
    made = mlc.MLCLossDescriptor(type=mlc.MLCLossType.huber, reductionType=mlc.MLCReductionType.mean)
    assert (made.weight, made.labelSmoothing, made.classCount, made.epsilon, made.delta) == (1, 0, 1, 1e-7, 1)
    full = mlc.MLCLossDescriptor(
        type=6, reductionType=2, weight=2, labelSmoothing=0.1, classCount=3, epsilon=1e-3, delta=0.5
    )
    assert full.lossType is mlc.MLCLossType.huber
    assert (full.weight, full.labelSmoothing, full.classCount, full.epsilon, full.delta) == (2, 0.1, 3, 1e-3, 0.5)


def test_lstm_defaults():
    made = mlc.MLCLSTMDescriptor(inputSize=3, hiddenSize=4, layerCount=2)
    assert (made.inputSize, made.hiddenSize, made.layerCount) == (3, 4, 2)
    assert made.usesBiases and made.batchFirst and made.returnsSequences and not made.isBidirectional
    assert made.dropout == 0 and made.resultMode is mlc.MLCLSTMResultMode.output


def test_attention_defaults():
    made = mlc.MLCMultiheadAttentionDescriptor(modelDimension=6, headCount=3)
    assert made.keyDimension == made.valueDimension == made.modelDimension == 6
    assert made.dropout == 0 and made.hasBiases and not made.hasAttentionBiases and not made.addsZeroAttention


def test_embedding_defaults():
    made = mlc.MLCEmbeddingDescriptor(embeddingCount=5, embeddingDimension=2)
    assert made.paddingIndex is None and made.maximumNorm is None and made.pNorm == 2
    assert made.scalesGradientByFrequency is False


def test_matmul_defaults():
    assert (mlc.MLCMatMulDescriptor().alpha, mlc.MLCMatMulDescriptor.descriptor().alpha) == (1, 1)
    assert not mlc.MLCMatMulDescriptor().transposesX
    made = mlc.MLCMatMulDescriptor(alpha=2, transposesX=True, transposesY=False)
    assert copy.copy(made).transposesX  # the real framework loses it in a copy; not reproduced


BOXES = [[1.25, 2.5], [1.75, 1.5], [3.0, 0.5]]
BOX_BYTES = struct.pack("<6f", *(side for box in BOXES for side in box))


@pytest.mark.parametrize(
    "given",
    [
        BOX_BYTES,
        bytearray(BOX_BYTES),
        np.frombuffer(BOX_BYTES, np.uint8),
        np.array(BOXES, np.float32),
        np.array(BOXES, np.float32).reshape(-1),
        torch.tensor(BOXES),
        array.array("f", np.ravel(BOXES)),
        np.array(BOXES).astype(np.float32).view(np.uint8),
    ],
    ids=["bytes", "bytearray", "uint8", "float32", "in a row", "torch", "array", "viewed as bytes"],
)
def test_anchor_boxes_are_bytes_or_float32(given):
    """In both spellings."""
    by_selector = mlc.MLCYOLOLossDescriptor.descriptorWithAnchorBoxes_anchorBoxCount_
    for made in (mlc.MLCYOLOLossDescriptor(anchorBoxes=given, anchorBoxCount=3), by_selector(given, 3)):
        assert made.anchorBoxes == BOX_BYTES


@pytest.mark.parametrize(
    ("given", "says"),
    [
        (np.array(BOXES), "type float64.* float32; pass array.astype.np.float32., or array.view.np.uint8."),
        (np.array(BOXES, np.int32), "type int32.* pass array.astype.np.float32."),
        (np.array(BOXES, np.int64), "type int64"),
        (np.array(BOXES, np.float16), "type float16"),
        (np.array(BOXES, ">f4"), "big-endian float32"),
        (torch.tensor(BOXES, dtype=torch.float64), "torch.float64.* pass tensor.to.torch.float32."),
        (torch.tensor([[1, 2], [2, 1], [3, 1]]), "torch.int64"),
        (np.ascontiguousarray(np.array(BOXES, np.float32).T), "shape .2, 3., .* pass the transposed array"),
        (np.array(BOXES, np.float32)[:2], "needs 24 bytes .two float32 a box., got 16"),
    ],
    ids=["float64", "int32", "int64", "float16", "big-endian", "torch float64", "torch int64", "turned", "too few"],
)
def test_anchor_boxes_of_another_type_are_refused_with_the_way_out(given, says):
    by_selector = mlc.MLCYOLOLossDescriptor.descriptorWithAnchorBoxes_anchorBoxCount_
    for make in (lambda: mlc.MLCYOLOLossDescriptor(anchorBoxes=given, anchorBoxCount=3), lambda: by_selector(given, 3)):
        with mlc.strict(), pytest.raises(mlc.MLCRefusal, match=says):
            make()


def test_yolo_defaults_and_settable_fields():
    boxes = np.array([1, 2, 3, 4], np.float32)
    made = mlc.MLCYOLOLossDescriptor(anchorBoxes=boxes, anchorBoxCount=2)
    assert made.anchorBoxes == boxes.tobytes() and made.shouldRescore
    numbers = (
        made.scaleSpatialPositionLoss,
        made.scaleSpatialSizeLoss,
        made.scaleNoObjectConfidenceLoss,
        made.scaleObjectConfidenceLoss,
        made.scaleClassLoss,
        made.minimumIOUForObjectPresence,
        made.maximumIOUForObjectAbsence,
    )
    assert numbers == (10, 10, 5, 100, 2, 0.7, 0.3)
    made.scaleClassLoss = 3
    made.shouldRescore = False
    assert made.scaleClassLoss == 3.0 and made.shouldRescore is False
    assert copy.copy(made).scaleClassLoss == 3.0  # the real framework resets it in a copy; not reproduced
    with pytest.raises(AttributeError, match="read-only"):
        made.anchorBoxCount = 3
    with pytest.raises(TypeError, match="expected Float"):
        made.scaleClassLoss = "3"


# Values


DESCRIPTORS = [
    mlc.MLCActivationDescriptor(type=Kind.relu, a=0.5),
    mlc.MLCConvolutionDescriptor(kernelSizes=(3, 3), inputFeatureChannelCount=1, outputFeatureChannelCount=2),
    mlc.MLCEmbeddingDescriptor(embeddingCount=5, embeddingDimension=2),
    mlc.MLCLSTMDescriptor(inputSize=1, hiddenSize=2, layerCount=1),
    mlc.MLCLossDescriptor(type=1, reductionType=2),
    mlc.MLCMatMulDescriptor(),
    mlc.MLCMultiheadAttentionDescriptor(modelDimension=4, headCount=2),
    mlc.MLCOptimizerDescriptor(learningRate=1, gradientRescale=1, regularizationType=0, regularizationScale=0),
    mlc.MLCPoolingDescriptor(type=mlc.MLCPoolingType.max, kernelSizes=(2, 2)),
    mlc.MLCTensorDescriptor(shape=[2, 3], dataType=1),
    mlc.MLCYOLOLossDescriptor(anchorBoxes=bytes(8), anchorBoxCount=1),
]


@pytest.mark.parametrize("made", DESCRIPTORS, ids=lambda d: type(d).__name__)
def test_descriptors_are_values(made):
    for other in (copy.copy(made), copy.deepcopy(made), pickle.loads(pickle.dumps(made))):
        assert other == made and hash(other) == hash(made) and other is not made
        assert repr(other) == repr(made)
    assert made != object() and made is not None
    assert len({made, copy.copy(made)}) == 1
    names = list(type(made).__properties__)
    read_only = next(n for n in names if not type(made).__properties__[n].settable)
    with pytest.raises(AttributeError, match="read-only"):
        setattr(made, read_only, 1)
    with pytest.raises(AttributeError):
        made.somethingElse = 1
    assert repr(made).startswith(f"{type(made).__name__}(")


def test_different_fields_are_different_values():
    assert mlc.MLCMatMulDescriptor() != mlc.MLCMatMulDescriptor(alpha=2, transposesX=False, transposesY=False)
    assert mlc.MLCTensorDescriptor(shape=[2], dataType=1) != mlc.MLCTensorDescriptor(shape=[2], dataType=3)


@pytest.mark.parametrize("cls", [type(d) for d in DESCRIPTORS], ids=lambda c: c.__name__)
def test_what_a_plain_init_gives(cls):
    """Objective-C's new: zero everywhere but where measured otherwise (evidence.md, section C)."""
    made = cls._bare()
    assert isinstance(made, cls) and repr(made)
    if cls is mlc.MLCConvolutionDescriptor:
        assert made == cls(kernelSizes=(1, 1), inputFeatureChannelCount=1, outputFeatureChannelCount=1)
    if cls is mlc.MLCPoolingDescriptor:
        assert made.poolingType == 0 and made.kernelSizes == (0, 0) and made.countIncludesPadding is False
    if cls is mlc.MLCActivationDescriptor:
        assert (made.activationType, made.a, made.b, made.c) == (Kind.none, 0, 0, 0)
    if cls is mlc.MLCLossDescriptor:
        assert made.lossType is mlc.MLCLossType.meanAbsoluteError and made.weight == 0
    if cls is mlc.MLCTensorDescriptor:
        assert made.shape == [] and made.dataType == 0 and made.stride == [] and made.tensorAllocationSizeInBytes == 0


# Refusals


def _convolution(**changes):
    given = {"kernelSizes": (3, 3), "inputFeatureChannelCount": 2, "outputFeatureChannelCount": 4}
    return mlc.MLCConvolutionDescriptor(**(given | changes))


def _lstm(**changes):
    return mlc.MLCLSTMDescriptor(**({"inputSize": 1, "hiddenSize": 1, "layerCount": 1} | changes))


def _attention(**changes):
    given = {"modelDimension": 4, "keyDimension": 4, "valueDimension": 4, "headCount": 2, "dropout": 0}
    return mlc.MLCMultiheadAttentionDescriptor(
        **(given | {"hasBiases": True, "hasAttentionBiases": False, "addsZeroAttention": False} | changes)
    )


def _embedding(**changes):
    given = {"embeddingCount": 3, "embeddingDimension": 2, "paddingIndex": None, "maximumNorm": None, "pNorm": None}
    return mlc.MLCEmbeddingDescriptor(**(given | {"scalesGradientByFrequency": False} | changes))


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda: _convolution(kernelSizes=(0, 3)), "kernelSizes must be at least 1, got 0"),
        (lambda: _convolution(strides=(0, 1)), "strides"),
        (lambda: _convolution(dilationRates=(1, 0)), "dilationRates"),
        (lambda: _convolution(inputFeatureChannelCount=0), "inputFeatureChannelCount"),
        (lambda: _convolution(outputFeatureChannelCount=-1), "outputFeatureChannelCount"),
        (lambda: _convolution(groupCount=0), "groupCount"),
        (lambda: _convolution(groupCount=3), "groupCount must divide"),
        (lambda: _convolution(paddingPolicy=mlc.MLCPaddingPolicy.sized(y=-1, x=0)), "paddingSizes"),
        (
            lambda: _convolution(type=mlc.MLCConvolutionType.depthwise, outputFeatureChannelCount=3),
            "multiple of its 2 inputs",
        ),
        (
            lambda: mlc.MLCConvolutionDescriptor(
                depthwiseWithKernelWidth=1, kernelHeight=1, inputFeatureChannelCount=1, channelMultiplier=0
            ),
            "channelMultiplier",
        ),
        (lambda: mlc.MLCPoolingDescriptor(type=mlc.MLCPoolingType.max, kernelSizes=(0, 1)), "kernelSizes"),
        (lambda: _lstm(hiddenSize=0), "hiddenSize"),
        (lambda: _lstm(usesBiases=True, isBidirectional=False, dropout=1.0), "dropout must lie in [0, 1)"),
        (lambda: _attention(headCount=3), "divisible by headCount 3"),
        (lambda: _attention(headCount=0), "headCount"),
        (lambda: _attention(dropout=-0.1), "dropout"),
        (lambda: _embedding(embeddingCount=0), "embeddingCount"),
        (lambda: _embedding(paddingIndex=3), "paddingIndex must be one of the 3 rows"),
        (lambda: _embedding(maximumNorm=0.0), "maximumNorm"),
        (lambda: _embedding(maximumNorm=1, pNorm=0), "pNorm must be positive, got 0.0"),
        (lambda: _embedding(pNorm=float("nan")), "pNorm"),
        (lambda: mlc.MLCYOLOLossDescriptor(anchorBoxes=b"1234567", anchorBoxCount=1), "needs 8 bytes"),
        (lambda: mlc.MLCYOLOLossDescriptor(anchorBoxes=b"", anchorBoxCount=0), "anchorBoxCount"),
    ],
)
def test_refusals(make, says):
    assert make() is None
    assert says in str(last_refusal())
