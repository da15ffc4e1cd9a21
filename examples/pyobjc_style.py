"""The linear regression of ``linear_regression.py`` as a PyObjC script: selectors, called properties, flat constants.

    // Objective-C                                          # PyObjC, below
    MLCTensor *w = [MLCTensor tensorWithDescriptor:d        w = MLCompute.MLCTensor.tensorWithDescriptor_fillWithData_(
        fillWithData:@0];                                       d, 0)
    MLCTensor *dense = [graph nodeWithLayer:layer           dense = graph.nodeWithLayer_source_(
        source:x];                                              layer, x)
    [training compileWithOptions:0 device:device];          training.compileWithOptions_device_(0, device)
    NSArray *shape = dense.descriptor.shape;                shape = dense.descriptor().shape()

On a Mac with PyObjC the import is ``import MLCompute``; ``mlc_torch.objc.install()`` makes that line work here too.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

import mlc_torch.objc as MLCompute
from mlc_torch import last_refusal
from mlc_torch.commands.programs import options, progress, save_picture

_DEVICES = {
    "cpu": MLCompute.MLCDeviceTypeCPU,
    "gpu": MLCompute.MLCDeviceTypeGPU,
    "any": MLCompute.MLCDeviceTypeAny,
}


def data(*values: float) -> Any:
    array = np.array(values, np.float32)
    return MLCompute.MLCTensorData.dataWithImmutableBytesNoCopy_length_(array, array.nbytes)


def main(given: Sequence[str] | None = None) -> dict[str, Any]:
    """Gives the weight, the bias and the predictions for 4, 5, 6, 7."""
    chosen = options(__doc__, 501, given)
    device = MLCompute.MLCDevice.deviceWithType_(_DEVICES[chosen.device])
    if device is None:
        raise SystemExit(f"--device {chosen.device}: {last_refusal()}")

    def descriptor(*shape: int) -> Any:
        return MLCompute.MLCTensorDescriptor.descriptorWithShape_dataType_(list(shape), MLCompute.MLCDataTypeFloat32)

    x = MLCompute.MLCTensor.tensorWithDescriptor_(descriptor(4, 1, 1, 1))
    y = MLCompute.MLCTensor.tensorWithDescriptor_(descriptor(4, 1))
    weights, biases = (
        MLCompute.MLCTensor.tensorWithDescriptor_fillWithData_(descriptor(1, 1, 1, 1), 0) for _ in range(2)
    )
    graph = MLCompute.MLCGraph.graph()
    layer = MLCompute.MLCFullyConnectedLayer.layerWithWeights_biases_descriptor_(
        weights,
        biases,
        MLCompute.MLCConvolutionDescriptor.descriptorWithKernelWidth_kernelHeight_inputFeatureChannelCount_outputFeatureChannelCount_(
            1, 1, 1, 1
        ),
    )
    graph.nodeWithLayer_source_(layer, x)
    training = MLCompute.MLCTrainingGraph.graphWithGraphObjects_lossLayer_optimizer_(
        [graph],
        MLCompute.MLCLossLayer.layerWithDescriptor_(
            MLCompute.MLCLossDescriptor.descriptorWithType_reductionType_(
                MLCompute.MLCLossTypeMeanSquaredError, MLCompute.MLCReductionTypeMean
            )
        ),
        MLCompute.MLCAdamOptimizer.optimizerWithDescriptor_(
            MLCompute.MLCOptimizerDescriptor.descriptorWithLearningRate_gradientRescale_regularizationType_regularizationScale_(
                0.3, 1.0, MLCompute.MLCRegularizationTypeNone, 0.0
            )
        ),
    )
    training.addInputs_lossLabels_({"x": x}, {"y": y})
    training.compileWithOptions_device_(MLCompute.MLCGraphCompilationOptionsNone, device)

    points, values = data(0, 1, 2, 3), data(5, 7, 9, 11)
    losses: list[float] = []

    def keep_loss(loss, error, seconds):
        losses.append(float(np.frombuffer(loss.data(), np.float32)[0]))

    for _ in progress(chosen.epochs, "iteration"):
        training.executeWithInputsData_lossLabelsData_lossLabelWeightsData_batchSize_options_completionHandler_(
            {"x": points}, {"y": values}, None, 4, MLCompute.MLCExecutionOptionsSynchronous, keep_loss
        )
    training.synchronizeUpdates()
    weight, bias = (float(np.frombuffer(of.data(), np.float32)[0]) for of in (weights, biases))

    inference = MLCompute.MLCInferenceGraph.graphWithGraphObjects_([graph])
    inference.addInputs_({"x": x})
    inference.compileWithOptions_device_(MLCompute.MLCGraphCompilationOptionsNone, device)
    predictions: list[float] = []
    inference.executeWithInputsData_batchSize_options_completionHandler_(
        {"x": data(4, 5, 6, 7)},
        4,
        MLCompute.MLCExecutionOptionsSynchronous,
        lambda result, error, seconds: predictions.extend(np.frombuffer(result.data(), np.float32).tolist()),
    )

    path = save_picture(chosen.out / "pyobjc_style.png", {"loss": losses}, "y = 2x + 5, PyObjC's spelling", "iteration")
    print(f"the loss is drawn in {path}")
    print("4, 5, 6, 7 ->", *(f"{value:.4f}" for value in predictions))
    print(f"weight {weight:.4f}, bias {bias:.4f}")
    return {"weight": weight, "bias": bias, "predictions": predictions, "losses": losses}


if __name__ == "__main__":
    main()
