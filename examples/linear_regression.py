"""Linear regression, y = 2x + 5, after roy-sianez/ml-compute-practice: the weight becomes 2, the bias 5.

// Swift, the original's calls                       # Python, below
let weights = MLCTensor(descriptor: d,               weights = MLCTensor(descriptor=d,
    fillWithData: 0)                                     fillWithData=0)
let dense = graph.node(with: layer,                  dense = graph.node(layer,
    source: input)!                                      source=x)
let training = MLCTrainingGraph(                     training = MLCTrainingGraph(
    graphObjects: [graph],                               graphObjects=[graph],
    lossLayer: loss, optimizer: adam)                    lossLayer=loss, optimizer=adam)
training.compile(options: [], device: device)        training.compile(options=[], device=device)
training.execute(inputsData: ["x": x],               training.execute(inputsData={"x": points},
    lossLabelsData: ["y": y],                            lossLabelsData={"y": values},
    lossLabelWeightsData: nil, batchSize: 4,             lossLabelWeightsData=None, batchSize=4,
    options: [.synchronous]) { loss, error, time in      options=[MLCExecutionOptions.synchronous],
    ...                                                  completionHandler=keep_loss)
}
training.synchronizeUpdates()                        training.synchronizeUpdates()
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from mlc_torch import (
    MLCAdamOptimizer,
    MLCConvolutionDescriptor,
    MLCDataType,
    MLCExecutionOptions,
    MLCFullyConnectedLayer,
    MLCGraph,
    MLCInferenceGraph,
    MLCLossDescriptor,
    MLCLossLayer,
    MLCLossType,
    MLCOptimizerDescriptor,
    MLCReductionType,
    MLCRegularizationType,
    MLCTensor,
    MLCTensorDescriptor,
    MLCTrainingGraph,
    unwrap,
)
from mlc_torch.commands.programs import chosen_device, options, progress, save_picture, tensor_data


def main(given: Sequence[str] | None = None) -> dict[str, Any]:
    """Gives the weight, the bias, the predictions for 4, 5, 6, 7, and the network's outputs every 100 iterations."""
    chosen = options(__doc__, 501, given)
    device = chosen_device(chosen.device)

    x = MLCTensor(descriptor=MLCTensorDescriptor(shape=[4, 1, 1, 1], dataType=MLCDataType.float32))
    y = MLCTensor(descriptor=MLCTensorDescriptor(shape=[4, 1], dataType=MLCDataType.float32))
    one = MLCTensorDescriptor(shape=[1, 1, 1, 1], dataType=MLCDataType.float32)
    weights, biases = MLCTensor(descriptor=one, fillWithData=0), MLCTensor(descriptor=one, fillWithData=0)

    graph = MLCGraph()
    layer = MLCFullyConnectedLayer(
        weights=weights,
        biases=biases,
        descriptor=MLCConvolutionDescriptor(
            kernelSizes=(1, 1), inputFeatureChannelCount=1, outputFeatureChannelCount=1
        ),
    )
    dense = unwrap(graph.node(unwrap(layer), source=x))
    training = MLCTrainingGraph(
        graphObjects=[graph],
        lossLayer=MLCLossLayer(
            descriptor=MLCLossDescriptor(type=MLCLossType.meanSquaredError, reductionType=MLCReductionType.mean)
        ),
        optimizer=MLCAdamOptimizer(
            descriptor=MLCOptimizerDescriptor(
                learningRate=0.3,
                gradientRescale=1,
                regularizationType=MLCRegularizationType.none,
                regularizationScale=0,
            )
        ),
    )
    training.addInputs({"x": x}, lossLabels={"y": y})
    training.compile(options=[], device=device)

    # The same two data objects are used in every iteration; their memory is read when the graph executes.
    points = tensor_data(np.array([0, 1, 2, 3], np.float32))
    values = tensor_data(np.array([5, 7, 9, 11], np.float32))
    losses: list[float] = []
    rows: list[list[float]] = []

    def keep_loss(loss, error, seconds):
        losses.append(float(loss.numpy()[0]))

    for iteration in progress(chosen.epochs, "iteration"):
        training.execute(
            inputsData={"x": points},
            lossLabelsData={"y": values},
            lossLabelWeightsData=None,
            batchSize=4,
            options=[MLCExecutionOptions.synchronous],
            completionHandler=keep_loss,
        )
        if iteration % 100 == 0:
            rows.append(dense.numpy().ravel().tolist())
    training.synchronizeUpdates()
    weight, bias = np.frombuffer(weights.data, np.float32)[0], np.frombuffer(biases.data, np.float32)[0]

    # The same graph inside an inference graph: it sees the trained weights, nothing is copied.
    inference = MLCInferenceGraph(graphObjects=[graph])
    inference.addInputs({"x": x})
    inference.compile(options=[], device=device)
    predictions: list[float] = []
    inference.execute(
        inputsData={"x": tensor_data(np.array([4, 5, 6, 7], np.float32))},
        batchSize=4,
        options=[MLCExecutionOptions.synchronous],
        completionHandler=lambda result, error, seconds: predictions.extend(result.numpy().ravel().tolist()),
    )

    for index, row in enumerate(rows):
        print(f"iteration {index * 100:4}:", *(f"{value:8.4f}" for value in row))
    path = save_picture(chosen.out / "linear_regression.png", {"loss": losses}, "y = 2x + 5", "iteration")
    print(f"the loss is drawn in {path}")
    print("4, 5, 6, 7 ->", *(f"{value:.4f}" for value in predictions))
    print(f"weight {weight:.4f}, bias {bias:.4f}")
    return {"weight": float(weight), "bias": float(bias), "predictions": predictions, "rows": rows, "losses": losses}


if __name__ == "__main__":
    main()
