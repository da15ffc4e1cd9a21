"""The same as program.swift: for each line with a measure's name, what one call costs, in microseconds of processor time."""

import sys
import time

import numpy as np

from mlc_torch import *

pixels, answers = np.zeros((32, 784), np.float32), np.zeros((32, 10), np.float32)
answers[:, 0] = 1
x, y = MLCTensor(shape=[32, 784, 1, 1]), MLCTensor(shape=[32, 10])


def dense(inputs, outputs):
    F = MLCDataType.float32
    return MLCFullyConnectedLayer(
        weights=MLCTensor(shape=[1, inputs * outputs, 1, 1], fillWithData=0.01, dataType=F),
        biases=MLCTensor(shape=[1, outputs, 1, 1], fillWithData=0, dataType=F),
        descriptor=MLCConvolutionDescriptor(
            kernelSizes=(inputs, outputs), inputFeatureChannelCount=inputs, outputFeatureChannelCount=outputs
        ),
    )


graph = MLCGraph()
hidden = graph.node(MLCActivationLayer.relu, source=graph.node(dense(784, 128), source=x))
output = graph.node(dense(128, 10), source=hidden)
training = MLCTrainingGraph(
    graphObjects=[graph],
    lossLayer=MLCLossLayer(
        descriptor=MLCLossDescriptor(type=MLCLossType.softmaxCrossEntropy, reductionType=MLCReductionType.mean)
    ),
    optimizer=MLCAdamOptimizer(
        descriptor=MLCOptimizerDescriptor(
            learningRate=0.001, gradientRescale=1, regularizationType=MLCRegularizationType.none, regularizationScale=0
        )
    ),
)
training.addInputs({"x": x}, lossLabels={"y": y})
training.compile(options=[], device=MLCDevice.cpu())
one = MLCGraph()
one.node(MLCActivationLayer.relu, source=y)
small = MLCInferenceGraph(graphObjects=[one])
small.addInputs({"y": y})
small.compile(device=MLCDevice.cpu())
xs = MLCTensorData(bytesNoCopy=pixels, length=pixels.nbytes)
ys = MLCTensorData(bytesNoCopy=answers, length=answers.nbytes)
S = [MLCExecutionOptions.synchronous]
given = {"y": ys}
measures = {
    "number": (20000, lambda: output.tensorID),
    "shape": (10000, lambda: output.descriptor.shape),
    "execute": (500, lambda: small.execute(inputsData=given, batchSize=32, options=S)),
    "with literal": (500, lambda: small.execute(inputsData={"y": ys}, batchSize=32, options=S)),
    "and literal": (500, lambda: (small.execute(inputsData=given, batchSize=32, options=S), {"y": ys})),
    "step": (
        50,
        lambda: training.execute(
            inputsData={"x": xs},
            lossLabelsData={"y": ys},
            lossLabelWeightsData=None,
            batchSize=32,
            options=S,
            completionHandler=lambda result, error, seconds: None,
        ),
    ),
}


def measure(count, body):
    start = time.process_time()
    for _ in range(count):
        body()
    print((time.process_time() - start) / count * 1e6, flush=True)


for name in sys.stdin:
    measure(*measures[name.strip()])
