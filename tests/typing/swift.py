"""Swift's spelling, as mypy and pyright understand it. Read by the type checkers, not run."""

from __future__ import annotations

from typing import assert_type

import numpy as np
import torch

import mlc_torch as mlc

descriptor = mlc.MLCTensorDescriptor(shape=[2, 3], dataType=mlc.MLCDataType.float32)
assert_type(descriptor, mlc.MLCTensorDescriptor | None)
sure = mlc.unwrap(descriptor)
assert_type(sure, mlc.MLCTensorDescriptor)
assert_type(sure.shape, list[int])
assert_type(sure.sequenceLengths, list[int] | None)
assert_type(mlc.MLCTensorDescriptor.maxTensorDimensions, int)

values = np.zeros(6, np.float32)
data = mlc.MLCTensorData(bytesNoCopy=values, length=values.nbytes)
assert_type(data, mlc.MLCTensorData)
assert_type(data.bytes, memoryview)
mlc.MLCTensorData(immutableBytesNoCopy=b"1234", length=4)
mlc.MLCTensorData(bytesNoCopy=torch.zeros(4), length=16)

tensor = mlc.MLCTensor(descriptor=sure, data=data)
assert_type(tensor, mlc.MLCTensor)
assert_type(tensor.data, memoryview | None)
assert_type(tensor.device, mlc.MLCDevice | None)
tensor.label = str(tensor.tensorID)
assert_type(tensor.label, str)
assert_type(tensor.torch, torch.Tensor)
assert_type(mlc.MLCTensor(shape=(2, 3)), mlc.MLCTensor)
assert_type(mlc.MLCTensor.from_torch(torch.zeros(2)), mlc.MLCTensor)
assert_type(tensor.bindAndWriteData(data, to=mlc.MLCDevice.cpu()), bool)
assert_type(tensor.quantized(to=mlc.MLCDataType.int8, scale=0.5, bias=0), mlc.MLCTensor | None)

assert_type(mlc.MLCDevice(), mlc.MLCDevice)
assert_type(mlc.MLCDevice(type=mlc.MLCDeviceType.gpu), mlc.MLCDevice | None)
assert_type(mlc.MLCDevice.gpu(), mlc.MLCDevice | None)
assert_type(mlc.MLCPlatform.getRNGseed(), int | None)
mlc.MLCPlatform.setRNGSeedTo(7)

window = mlc.MLCConvolutionDescriptor(
    kernelSizes=(3, 3),
    inputFeatureChannelCount=1,
    outputFeatureChannelCount=2,
    paddingPolicy=mlc.MLCPaddingPolicy.sized(y=1, x=1),
)
assert_type(window.kernelSizes.height, int)
assert_type(window.strides.x, int)
assert_type(mlc.MLCPoolingType.average(countIncludesPadding=True), mlc.MLCPoolingType)

graph = mlc.MLCGraph()
relu = mlc.MLCActivationLayer.relu
assert_type(relu, mlc.MLCActivationLayer)
assert_type(mlc.MLCActivationLayer.celu(a=2.0), mlc.MLCActivationLayer)
assert_type(graph.node(relu, source=tensor), mlc.MLCTensor | None)
assert_type(graph.node(with_=mlc.MLCActivationLayer.celu, sources=[tensor]), mlc.MLCTensor | None)
assert_type(graph.split(source=tensor, splitCount=2, dimension=1), list[mlc.MLCTensor] | None)
assert_type(graph.layers, list[mlc.MLCLayer])
assert_type(graph.resultTensors(for_=relu), list[mlc.MLCTensor])


def handler(result: mlc.MLCTensor | None, error: Exception | None, seconds: float) -> None:
    pass


training = mlc.MLCTrainingGraph(graphObjects=[graph], lossLayer=None, optimizer=None)
assert_type(training.addInputs({"x": tensor}, lossLabels=None), bool)
assert_type(training.compile(device=mlc.MLCDevice()), bool)
assert_type(training.compile(options=[], device=mlc.MLCDevice()), bool)
training.compile(options=[mlc.MLCGraphCompilationOptions.debugLayers], device=mlc.MLCDevice())
training.execute(
    inputsData={"x": data},
    lossLabelsData=None,
    lossLabelWeightsData=None,
    batchSize=2,
    options=mlc.MLCExecutionOptions.synchronous,
    completionHandler=handler,
)
training.executeGradient(batchSize=2, completionHandler=lambda result, error, seconds: None)


async def phases() -> None:
    assert_type(await training.executeForwardAsync(batchSize=2), tuple[mlc.MLCTensor | None, float])
    assert_type(await training.executeOptimizerUpdateAsync(), float)
