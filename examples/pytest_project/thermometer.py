"""Calibrates a thermometer: learns how its readings become degrees, with ML Compute."""

from __future__ import annotations

import numpy as np

from mlc_torch import (
    MLCAdamOptimizer,
    MLCConvolutionDescriptor,
    MLCDataType,
    MLCDevice,
    MLCExecutionOptions,
    MLCFullyConnectedLayer,
    MLCGraph,
    MLCLossDescriptor,
    MLCLossLayer,
    MLCLossType,
    MLCOptimizerDescriptor,
    MLCRandomInitializerType,
    MLCReductionType,
    MLCRegularizationType,
    MLCTensor,
    MLCTensorData,
    MLCTensorDescriptor,
    MLCTrainingGraph,
    unwrap,
)


class Thermometer:
    """degrees = scale * reading + offset, scale and offset learned from pairs."""

    def __init__(self, samples: int, device: MLCDevice) -> None:
        one = MLCTensorDescriptor(shape=[1, 1, 1, 1], dataType=MLCDataType.float32)
        self.scale = MLCTensor(descriptor=one, randomInitializerType=MLCRandomInitializerType.uniform)
        self.offset = MLCTensor(descriptor=one, fillWithData=0)
        self.readings = MLCTensor(shape=[samples, 1], dataType=MLCDataType.float32)
        self.degrees = MLCTensor(shape=[samples, 1], dataType=MLCDataType.float32)
        line = MLCConvolutionDescriptor(kernelSizes=(1, 1), inputFeatureChannelCount=1, outputFeatureChannelCount=1)
        graph = MLCGraph()
        self.estimate = unwrap(
            graph.node(
                unwrap(MLCFullyConnectedLayer(weights=self.scale, biases=self.offset, descriptor=line)),
                source=self.readings,
            )
        )
        loss = MLCLossDescriptor(type=MLCLossType.meanSquaredError, reductionType=MLCReductionType.mean)
        settings = MLCOptimizerDescriptor(
            learningRate=0.2, gradientRescale=1, regularizationType=MLCRegularizationType.none, regularizationScale=0
        )
        self.training = MLCTrainingGraph(
            graphObjects=[graph],
            lossLayer=MLCLossLayer(descriptor=loss),
            optimizer=MLCAdamOptimizer(descriptor=settings),
        )
        self.training.addInputs({"reading": self.readings}, lossLabels={"degrees": self.degrees})
        self.training.compile(options=[], device=device)

    def calibrate(self, readings: np.ndarray, degrees: np.ndarray, steps: int) -> bool:
        """Learn; False where ML Compute would not run."""
        for _ in range(steps):
            if not self.training.execute(
                inputsData={"reading": _data(readings)},
                lossLabelsData={"degrees": _data(degrees)},
                lossLabelWeightsData=None,
                batchSize=len(readings),
                options=[MLCExecutionOptions.synchronous],
            ):
                return False
        self.training.synchronizeUpdates()
        return True


def _data(values: np.ndarray) -> MLCTensorData:
    return MLCTensorData(immutableBytesNoCopy=values, length=values.nbytes)
