"""How the real programs write the small things: wrapping memory, reading back, making a dense layer."""

from __future__ import annotations

import numpy as np
import pytest

from mlc_torch import (
    MLCAdamOptimizer,
    MLCConvolutionDescriptor,
    MLCDataType,
    MLCExecutionOptions,
    MLCFullyConnectedLayer,
    MLCOptimizerDescriptor,
    MLCRandomInitializerType,
    MLCRegularizationType,
    MLCTensor,
    MLCTensorData,
    MLCTensorDescriptor,
    unwrap,
)
from mlc_torch.device import randomness

SYNCHRONOUS = [MLCExecutionOptions.synchronous]
FLOAT = MLCDataType.float32


def immutable(array: np.ndarray, length: int | None = None) -> MLCTensorData:
    return MLCTensorData(immutableBytesNoCopy=array, length=array.nbytes if length is None else length)


def copied(tensor: MLCTensor, synchronize: bool = False) -> np.ndarray:
    """How these programs read: into a buffer of their own."""
    count = int(np.prod(tensor.descriptor.shape))
    buffer = np.zeros(count, np.float32)
    assert tensor.copyDataFromDeviceMemory(toBytes=buffer, length=count * 4, synchronizeWithDevice=synchronize)
    return buffer


def shaped(shape) -> MLCTensorDescriptor:
    return unwrap(MLCTensorDescriptor(shape=shape, dataType=FLOAT))


def glorot(shape) -> MLCTensor:
    return MLCTensor(descriptor=shaped(shape), randomInitializerType=MLCRandomInitializerType.glorotUniform)


def adam(rate: float, epsilon: float = 1e-7) -> MLCAdamOptimizer:
    return MLCAdamOptimizer(
        descriptor=MLCOptimizerDescriptor(
            learningRate=rate,
            gradientRescale=1.0,
            regularizationType=MLCRegularizationType.none,
            regularizationScale=0.0,
        ),
        beta1=0.9,
        beta2=0.999,
        epsilon=epsilon,
        timeStep=1,
    )


def dense_layer(inputs: int, outputs: int, kernel=None) -> MLCFullyConnectedLayer:
    return unwrap(
        MLCFullyConnectedLayer(
            weights=glorot([1, inputs * outputs, 1, 1]),
            biases=glorot([1, outputs, 1, 1]),
            descriptor=MLCConvolutionDescriptor(
                kernelSizes=kernel or (inputs, outputs),
                inputFeatureChannelCount=inputs,
                outputFeatureChannelCount=outputs,
            ),
        )
    )


@pytest.fixture(autouse=True)
def seeded():
    """Random initializers start from a seed here, and from whatever it was before afterwards."""
    before = randomness.seed
    randomness.reseed(7)
    yield
    randomness.reseed(before)
