"""One helpful line for tensors, layers and descriptors."""

from __future__ import annotations

import pytest
import torch

import mlc_torch as mlc
from mlc_torch.descriptors.base import Descriptor
from mlc_torch.spelling import CLASSES
from tests.seeing.graphs import bare, batch_norm, convolution, dense, filled, random, recurrent, residual

KERNEL = {"kernelSizes": (3, 5), "inputFeatureChannelCount": 16, "outputFeatureChannelCount": 32}
CLIPPED = {
    "learningRate": 0.01,
    "gradientRescale": 1,
    "appliesGradientClipping": True,
    "gradientClipMax": 2,
    "gradientClipMin": -1,
    "regularizationType": mlc.MLCRegularizationType.l2,
    "regularizationScale": 0.1,
}


@pytest.mark.parametrize(
    ("made", "text"),
    [
        (mlc.MLCConvolutionDescriptor(**KERNEL), "(3x5, 16 -> 32)"),
        (mlc.MLCConvolutionDescriptor(**KERNEL, strides=(2, 2)), "(3x5, 16 -> 32, stride 2)"),
        (
            mlc.MLCConvolutionDescriptor(
                **KERNEL, groupCount=4, strides=(2, 1), paddingPolicy=mlc.MLCPaddingPolicy.sized(y=1, x=0)
            ),
            "(3x5, 16 -> 32, strides 2x1, padding 1x0, groupCount=4)",
        ),
        (
            mlc.MLCConvolutionDescriptor(
                type=mlc.MLCConvolutionType.transposed, **KERNEL, paddingPolicy=mlc.MLCPaddingPolicy.valid
            ),
            "(3x5, 16 -> 32, valid, transposed)",
        ),
        (
            mlc.MLCPoolingDescriptor(type=mlc.MLCPoolingType.max, kernelSizes=(2, 2), dilationRates=(3, 3)),
            "(max, 2x2, dilation 3)",
        ),
        (
            mlc.MLCPoolingDescriptor(type=mlc.MLCPoolingType.average(countIncludesPadding=True), kernelSizes=(2, 2)),
            "(average with its padding, 2x2)",
        ),
        (mlc.MLCActivationDescriptor(type=mlc.MLCActivationType.hardSigmoid), "(hardSigmoid)"),
        (mlc.MLCActivationDescriptor(type=mlc.MLCActivationType.elu, a=2.5), "(elu, a=2.5)"),
        (mlc.MLCActivationDescriptor(type=mlc.MLCActivationType.none), "(activationType=none)"),
        (mlc.MLCLSTMDescriptor(inputSize=3, hiddenSize=4, layerCount=2), "(3 -> 4, 2 layers)"),
        (mlc.MLCMultiheadAttentionDescriptor(modelDimension=8, headCount=2), "(modelDimension=8, 2 heads)"),
        (mlc.MLCMatMulDescriptor(alpha=2, transposesX=True, transposesY=False), "(alpha=2, transposesX)"),
        (
            mlc.MLCOptimizerDescriptor(**CLIPPED),
            "(learningRate=0.01, gradientRescale=1, l2, regularizationScale=0.1, "
            "appliesGradientClipping, gradientClipMax=2)",
        ),
        (mlc.MLCTensorDescriptor(shape=[2, 3], dataType=mlc.MLCDataType.int32), "([2, 3], int32)"),
    ],
)
def test_descriptors_show_what_is_not_usual(made, text):
    assert repr(made) == type(made).__name__ + text


@pytest.mark.parametrize("name", [n for n, c in CLASSES.items() if isinstance(c, type) and issubclass(c, mlc.MLCLayer)])
def test_empty_layers_have_a_repr_too(name):
    assert repr(CLASSES[name]._bare()).startswith(f"{name}(None")


@pytest.mark.parametrize("name", [n for n, c in CLASSES.items() if isinstance(c, type) and issubclass(c, Descriptor)])
def test_empty_descriptors_have_a_repr_too(name):
    if name.startswith("MLC") and CLASSES[name].__initializers__ is not None:
        assert repr(CLASSES[name]._bare()).startswith(f"{name}(")


@pytest.mark.parametrize(
    ("layer", "text"),
    [
        (convolution(3, 8, "stem", stride=2), "MLCConvolutionLayer('stem', 3x3, 3 -> 8, stride 2, no biases)"),
        (dense(784, 10, "scores"), "MLCFullyConnectedLayer('scores', 784 -> 10)"),
        (batch_norm(8, "norm"), "MLCBatchNormalizationLayer('norm', 8 channels, varianceEpsilon=1e-05)"),
        (mlc.MLCActivationLayer.relu, "MLCActivationLayer('Activation', relu)"),
        (mlc.MLCReshapeLayer(shape=[2, -1]), "MLCReshapeLayer('Reshape', [2, -1])"),
        (mlc.MLCDropoutLayer(rate=0.25, seed=0), "MLCDropoutLayer('Dropout', rate=0.25, seed=0)"),
        (recurrent().graph.layers[0], "MLCLSTMLayer('memory', 5 -> 6, 1 layer)"),
    ],
)
def test_layers_show_their_label_and_what_makes_them(layer, text):
    assert repr(layer) == text


def test_no_repr_prints_a_tensor_whole_or_takes_two_lines():
    for layer in (*residual().graph.layers, *recurrent().graph.layers):
        assert "\n" not in repr(layer) and "tensor(" not in repr(layer) and len(repr(layer)) < 120


def test_tensors():
    assert repr(bare([2, 3])).endswith(", [2, 3], float32, no data)")
    assert repr(random([20, 3])).endswith(", [20, 3], float32)")
    assert repr(filled([1, 3], 0.5)).endswith(", [1, 3], float32, = 0.5, 0.5, 0.5)")
    made = mlc.MLCTensor.from_torch(torch.tensor([True, False]), label="mask")
    assert repr(made) == "MLCTensor('mask', [2], boolean, = 1, 0)"
    made.bindAndWriteData(mlc.MLCTensorData(bytesNoCopy=bytearray(2), length=2), to=mlc.MLCDevice.cpu())
    assert repr(made) == "MLCTensor('mask', [2], boolean, on cpu, = 0, 0)"
