"""What Helpers.swift says, in Python."""

import math

import numpy as np

from mlc_torch import *


def spread(count, seed):
    return np.array([(i * 37 + seed * 11) % 101 for i in range(count)], np.float32) / np.float32(50) - np.float32(1)


def show(name, values):
    print(name, " ".join(f"{float(value):.9g}" for value in values))


def memory(values):
    return MLCTensorData(bytesNoCopy=values, length=values.nbytes)


def filled(shape, seed):
    return MLCTensor(shape=shape, data=memory(spread(math.prod(shape), seed)), dataType=MLCDataType.float32)


def dense(inputs, outputs, seed):
    return MLCFullyConnectedLayer(
        weights=filled([1, inputs * outputs, 1, 1], seed),
        biases=filled([1, outputs, 1, 1], seed + 1),
        descriptor=MLCConvolutionDescriptor(
            kernelSizes=(1, 1), inputFeatureChannelCount=inputs, outputFeatureChannelCount=outputs
        ),
    )


def settings(rate):
    # A Swift Float has 24 bits; so has this.
    return MLCOptimizerDescriptor(
        learningRate=float(np.float32(rate)),
        gradientRescale=1,
        regularizationType=MLCRegularizationType.none,
        regularizationScale=0,
    )


def floats(data):
    return np.frombuffer(data, np.float32)
