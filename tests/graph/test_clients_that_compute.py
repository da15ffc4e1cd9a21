"""Programs that only compute, in the idiom of the real ones."""

from __future__ import annotations

import numpy as np
import pytest

from mlc_torch import (
    MLCArithmeticLayer,
    MLCArithmeticOperation,
    MLCConvolutionDescriptor,
    MLCDevice,
    MLCDeviceType,
    MLCFullyConnectedLayer,
    MLCGraph,
    MLCGraphCompilationOptions,
    MLCInferenceGraph,
    MLCMatMulDescriptor,
    MLCMatMulLayer,
    MLCTensor,
    MLCTensorData,
    MLCTrainingGraph,
    MLCTransposeLayer,
    unwrap,
)
from tests.graph.client_idiom import FLOAT, SYNCHRONOUS, copied, immutable, seeded, shaped

__all__ = ["seeded"]


# 2: MLComputeCpp, in the selectors' spelling


def test_the_sum_of_three_tensors():
    device = MLCDevice.deviceWithType_(MLCDeviceType.any)
    tensors = [MLCTensor.tensorWithShape_dataType_([6, 1], FLOAT) for _ in range(3)]
    graph = MLCGraph.graph()
    add = MLCArithmeticLayer.layerWithOperation_
    first = graph.nodeWithLayer_sources_(add(MLCArithmeticOperation.add), tensors[:2])
    total = graph.nodeWithLayer_sources_(add(MLCArithmeticOperation.add), [first, tensors[2]])
    inference = MLCInferenceGraph.graphWithGraphObjects_([graph])
    names = ["data1", "data2", "data3"]
    assert inference.addInputs_(dict(zip(names, tensors, strict=True)))
    assert inference.compileWithOptions_device_(MLCGraphCompilationOptions.debugLayers, device)
    given = [np.arange(1, 7), np.arange(7, 13), np.arange(6, 0, -1)]
    data = [MLCTensorData.dataWithBytesNoCopy_length_(a.astype(np.float32), 24) for a in given]
    answers = []

    def handler(result, error, seconds):
        buffer = bytearray(24)
        assert result.copyDataFromDeviceMemoryToBytes_length_synchronizeWithDevice_(buffer, 24, False)
        answers.append(np.frombuffer(buffer, np.float32).tolist())

    assert inference.executeWithInputsData_batchSize_options_completionHandler_(
        dict(zip(names, data, strict=True)), 0, 2, handler
    )
    assert answers == [[14, 15, 16, 17, 18, 19]] and total.descriptor.shape == [6, 1]


# 6: xapmal


def test_a_training_graph_as_a_calculator():
    """No loss, no optimizer, compile before addInputs, batchSize 0."""
    x1, x2 = (MLCTensor(shape=[2, 2], dataType=FLOAT) for _ in range(2))
    graph = MLCGraph()
    total = graph.node(MLCArithmeticLayer(operation=MLCArithmeticOperation.add), sources=[x1, x2])
    training = MLCTrainingGraph(graphObjects=[graph], lossLayer=None, optimizer=None)
    assert training.compile(options=[MLCGraphCompilationOptions.debugLayers], device=MLCDevice())
    assert training.addInputs({"x1": x1, "x2": x2}, lossLabels=None)
    a, b = np.array([1, 2, 3, 4], np.float32), np.array([10, 20, 30, 40], np.float32)
    assert training.execute(
        inputsData={"x1": immutable(a), "x2": immutable(b)}, lossLabelsData=None, lossLabelWeightsData=None, batchSize=0
    )
    assert copied(total).tolist() == [11, 22, 33, 44]


# 12: playgrounds


def test_playground_of_a_dense_layer_of_ones():
    x = MLCTensor(shape=[2, 4], dataType=FLOAT)
    graph = MLCGraph()
    ones = MLCTensor(shape=[1, 8], fillWithData=1, dataType=FLOAT)
    y = graph.node(
        unwrap(
            MLCFullyConnectedLayer(
                weights=ones,
                biases=None,
                descriptor=MLCConvolutionDescriptor(
                    kernelSizes=(4, 2), inputFeatureChannelCount=4, outputFeatureChannelCount=2
                ),
            )
        ),
        source=x,
    )
    inference = MLCInferenceGraph(graphObjects=[graph])
    inference.addInputs({"x": x})
    inference.compile(options=[], device=MLCDevice())
    inference.execute(
        inputsData={"x": immutable(np.array([0.5] * 4 + [1] * 4, np.float32))}, batchSize=2, options=SYNCHRONOUS
    )
    assert copied(y).tolist() == [2, 2, 4, 4]


def test_playground_of_two_transposes():
    """NHWC to NCHW and back."""
    x = MLCTensor(shape=[1, 2, 3, 4], dataType=FLOAT)
    graph = MLCGraph()
    turned = graph.node(unwrap(MLCTransposeLayer(dimensions=[0, 3, 1, 2])), source=x)
    back = graph.transpose(dimensions=[0, 2, 3, 1], source=turned)
    inference = MLCInferenceGraph(graphObjects=[graph])
    inference.addInputs({"x": x})
    inference.compile(options=[], device=MLCDevice())
    a = np.arange(24, dtype=np.float32).reshape(1, 2, 3, 4)
    inference.execute(inputsData={"x": immutable(a)}, batchSize=1, options=SYNCHRONOUS)
    np.testing.assert_array_equal(copied(turned), a.transpose(0, 3, 1, 2).ravel())
    np.testing.assert_array_equal(copied(back), a.ravel())


# 16: a matrix product


@pytest.mark.parametrize("transposes", [(False, False), (True, False), (False, True), (True, True)], ids=str)
def test_gemm(transposes):
    """alpha·op(A)·op(B) + C, with batchSize 0 and data longer than needed."""
    m, k, n, alpha = 3, 4, 5, 0.5
    rng = np.random.default_rng(0)
    a = rng.random((k, m) if transposes[0] else (m, k)).astype(np.float32)
    b = rng.random((n, k) if transposes[1] else (k, n)).astype(np.float32)
    c = rng.random((m, n)).astype(np.float32)
    tensors = [MLCTensor(descriptor=shaped(list(matrix.shape))) for matrix in (a, b, c)]
    descriptor = unwrap(MLCMatMulDescriptor(alpha=alpha, transposesX=transposes[0], transposesY=transposes[1]))
    graph = MLCGraph()
    product = graph.node(unwrap(MLCMatMulLayer(descriptor=descriptor)), sources=tensors[:2])
    total = graph.node(MLCArithmeticLayer(operation=MLCArithmeticOperation.add), sources=[product, tensors[2]])
    inference = MLCInferenceGraph(graphObjects=[graph])
    inference.addInputs(dict(zip("abc", tensors, strict=True)))
    inference.compile(options=[], device=unwrap(MLCDevice(type=MLCDeviceType.any)))
    longer = {
        name: np.concatenate([matrix.ravel(), np.full(9, np.nan, np.float32)])
        for name, matrix in zip("abc", (a, b, c), strict=True)
    }
    for _ in range(2):
        assert inference.execute(
            inputsData={name: immutable(values) for name, values in longer.items()}, batchSize=0, options=SYNCHRONOUS
        )
        want = alpha * (a.T if transposes[0] else a) @ (b.T if transposes[1] else b) + c
        np.testing.assert_allclose(copied(total).reshape(m, n), want, rtol=1e-5)
