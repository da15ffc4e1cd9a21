"""A convolutional classifier of digits, trained in three separate phases with the gradients in view.

The network follows the drawing classifier of Apple's Turi Create: convolutions and pooling, the loss on logits with one
value a sample, labels as [N, classes, 1, 1], a softmax in the inference graph only.

    // Swift                                                # Python, below
    graph.bindAndWriteData(data, forInputs: tensors,        training.bindAndWriteData(data, forInputs=tensors,
        to: device, batchSize: 32, synchronous: true)           to=device, batchSize=32, synchronous=True)
    training.executeForward(batchSize: 32,                  training.executeForward(batchSize=32,
        options: [.synchronous]) { loss, error, time in ... }   options=[...], completionHandler=keep_loss)
    training.executeGradient(batchSize: 32,                 training.executeGradient(batchSize=32,
        options: [.synchronous])                                options=[MLCExecutionOptions.synchronous])
    let bytes = training.gradientData(                      bytes = training.gradientData(
        forParameter: layer.weights, layer: layer)              forParameter=layer.weights, layer=layer)
    training.executeOptimizerUpdate(                        training.executeOptimizerUpdate(
        options: [.synchronous])                                options=[MLCExecutionOptions.synchronous])
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from mlc_torch import (
    MLCActivationLayer,
    MLCAdamOptimizer,
    MLCConvolutionDescriptor,
    MLCConvolutionLayer,
    MLCDataType,
    MLCExecutionOptions,
    MLCFullyConnectedLayer,
    MLCGraph,
    MLCInferenceGraph,
    MLCLossDescriptor,
    MLCLossLayer,
    MLCLossType,
    MLCOptimizerDescriptor,
    MLCPoolingDescriptor,
    MLCPoolingLayer,
    MLCPoolingType,
    MLCReductionType,
    MLCRegularizationType,
    MLCSoftmaxLayer,
    MLCSoftmaxOperation,
    MLCTensor,
    MLCTensorDescriptor,
    MLCTrainingGraph,
    unwrap,
)
from mlc_torch.commands.demo import BATCH, CLASSES, Digits
from mlc_torch.commands.programs import chosen_device, options, progress, save_picture, tensor_data

SYNCHRONOUS = [MLCExecutionOptions.synchronous]


def parameters(numbers: np.random.Generator, inputs: int, outputs: int, kernel: int) -> dict[str, Any]:
    """Weights, biases and descriptor of a layer, in ML Compute's layout: [1, inputs * outputs, height, width]."""
    scale = np.sqrt(2 / (inputs * kernel * kernel))
    weights = numbers.normal(0, scale, (1, inputs * outputs, kernel, kernel)).astype(np.float32)
    return {
        "weights": MLCTensor(
            descriptor=MLCTensorDescriptor(
                convolutionWeightsWithWidth=kernel,
                height=kernel,
                inputFeatureChannelCount=inputs,
                outputFeatureChannelCount=outputs,
                dataType=MLCDataType.float32,
            ),
            data=tensor_data(weights),
        ),
        "biases": MLCTensor(shape=[1, outputs, 1, 1], fillWithData=0, dataType=MLCDataType.float32),
        "descriptor": MLCConvolutionDescriptor(
            kernelSizes=(kernel, kernel), inputFeatureChannelCount=inputs, outputFeatureChannelCount=outputs
        ),
    }


def main(given: Sequence[str] | None = None) -> dict[str, Any]:
    """Gives the test accuracy, the losses, and each layer's gradient norm, batch by batch."""
    chosen = options(__doc__, 12, given)
    device = chosen_device(chosen.device)
    digits = Digits.load()
    numbers = np.random.default_rng(0)

    image = MLCTensor(width=8, height=8, featureChannelCount=1, batchSize=BATCH)
    label = MLCTensor(shape=[BATCH, CLASSES, 1, 1], dataType=MLCDataType.float32)
    graph = MLCGraph()
    layers = {
        "first convolution": unwrap(MLCConvolutionLayer(**parameters(numbers, 1, 16, 3))),
        "second convolution": unwrap(MLCConvolutionLayer(**parameters(numbers, 16, 32, 3))),
        "dense": unwrap(MLCFullyConnectedLayer(**parameters(numbers, 32 * 2 * 2, CLASSES, 1))),
    }
    *convolutions, dense = layers.values()
    x = image
    for convolution in convolutions:
        x = unwrap(graph.node(convolution, source=x))
        x = unwrap(graph.node(MLCActivationLayer.relu, source=x))
        halves = MLCPoolingDescriptor(type=MLCPoolingType.max, kernelSizes=(2, 2), strides=(2, 2))
        x = unwrap(graph.node(MLCPoolingLayer(descriptor=halves), source=x))
    x = unwrap(graph.reshape(shape=[BATCH, 32 * 2 * 2, 1, 1], source=x))
    logits = unwrap(graph.node(dense, source=x))

    training = MLCTrainingGraph(
        graphObjects=[graph],
        lossLayer=MLCLossLayer(
            descriptor=MLCLossDescriptor(type=MLCLossType.softmaxCrossEntropy, reductionType=MLCReductionType.none)
        ),
        optimizer=MLCAdamOptimizer(
            descriptor=MLCOptimizerDescriptor(
                learningRate=0.003,
                gradientRescale=1 / BATCH,
                regularizationType=MLCRegularizationType.none,
                regularizationScale=0,
            )
        ),
    )
    training.addInputs({"image": image}, lossLabels={"label": label})
    training.compile(options=[], device=device)

    losses: list[float] = []
    norms: dict[str, list[float]] = {name: [] for name in layers}

    def keep_loss(loss, error, seconds):
        losses.append(float(loss.numpy().mean()))

    for _ in progress(chosen.epochs, "epoch"):
        for first in range(0, len(digits.images) - BATCH + 1, BATCH):
            training.bindAndWriteData(
                {
                    "image": tensor_data(digits.images[first : first + BATCH]),
                    "label": tensor_data(digits.labels[first : first + BATCH]),
                },
                forInputs={"image": image, "label": label},
                to=device,
                batchSize=BATCH,
                synchronous=True,
            )
            training.executeForward(batchSize=BATCH, options=SYNCHRONOUS, completionHandler=keep_loss)
            training.executeGradient(batchSize=BATCH, options=SYNCHRONOUS)
            for name, layer in layers.items():
                gradient = np.frombuffer(training.gradientData(forParameter=layer.weights, layer=layer), np.float32)
                norms[name].append(float(np.linalg.norm(gradient)))
            training.executeOptimizerUpdate(options=SYNCHRONOUS)

    inference = MLCInferenceGraph(graphObjects=[graph])
    inference.node(MLCSoftmaxLayer(operation=MLCSoftmaxOperation.softmax), source=logits)
    inference.addInputs({"image": image})
    inference.compile(options=[], device=device)
    right: list[bool] = []
    for first in range(0, len(digits.test_images), BATCH):
        images, labels = (of[first : first + BATCH] for of in (digits.test_images, digits.test_labels))

        def count(result, error, seconds, labels=labels):
            found = result.numpy().reshape(BATCH, CLASSES)[: len(labels)].argmax(1)
            right.extend(found == labels.argmax(1))

        inference.execute(
            inputsData={"image": tensor_data(images)},
            batchSize=len(images),
            options=SYNCHRONOUS,
            completionHandler=count,
        )

    batches = len(digits.images) // BATCH
    print("mean gradient norm of each layer's weights:")
    for name, values in norms.items():
        print(f"  {name:<19} first epoch {np.mean(values[:batches]):8.3f}, last {np.mean(values[-batches:]):8.3f}")
    path = save_picture(
        chosen.out / "convolution_three_phases.png",
        {"mean loss of a sample": losses} | {f"gradient norm, {name}": values for name, values in norms.items()},
        "A convolutional classifier, phase by phase",
        "batch",
        y="",
    )
    print(f"losses and gradient norms are drawn in {path}")
    print(f"test accuracy: {np.mean(right):.1%} ({sum(right)} of {len(right)})")
    return {"test": float(np.mean(right)), "losses": losses, "norms": norms}


if __name__ == "__main__":
    main()
