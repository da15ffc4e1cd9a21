"""``python -m mlc_torch demo``: train a classifier of handwritten digits and print its accuracy.

The program is a port of a public ML Compute program, MNIST-ComputeML; ``examples/digits.py`` shows the two side by side.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from mlc_torch import (
    MLCActivationDescriptor,
    MLCActivationLayer,
    MLCActivationType,
    MLCAdamOptimizer,
    MLCConvolutionDescriptor,
    MLCDataType,
    MLCDevice,
    MLCExecutionOptions,
    MLCFullyConnectedLayer,
    MLCGraph,
    MLCInferenceGraph,
    MLCLossDescriptor,
    MLCLossLayer,
    MLCLossType,
    MLCOptimizerDescriptor,
    MLCPlatform,
    MLCRandomInitializerType,
    MLCReductionType,
    MLCRegularizationType,
    MLCSoftmaxLayer,
    MLCSoftmaxOperation,
    MLCTensor,
    MLCTensorDescriptor,
    MLCTrainingGraph,
    unwrap,
)
from mlc_torch.commands.programs import (
    add_options,
    check_extras,
    check_out,
    chosen_device,
    extra,
    progress,
    save_picture,
    tensor_data,
)

BATCH, PIXELS, HIDDEN, CLASSES = 32, 64, 128, 10
EPOCHS = 30


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_options(parser, EPOCHS)
    parser.add_argument(
        "--double-softmax",
        action="store_true",
        help="train through a softmax layer before the softmax loss, as the original program does, and be warned",
    )


def run(arguments: argparse.Namespace) -> int:
    learn_digits(arguments)
    return 0


def main(given: Sequence[str] | None = None) -> dict[str, float]:
    """Train and evaluate; gives the accuracies and the last loss."""
    parser = argparse.ArgumentParser(description="A classifier of handwritten digits.")
    add_arguments(parser)
    return learn_digits(parser.parse_args(given))


@dataclass
class Digits:
    """scikit-learn's 1797 handwritten digits, 8 by 8 pixels: 80 % to train, 20 % to test; labels one-hot."""

    images: np.ndarray
    labels: np.ndarray
    test_images: np.ndarray
    test_labels: np.ndarray

    @classmethod
    def load(cls) -> Digits:
        pixels, digits = extra("sklearn.datasets").load_digits(return_X_y=True)
        split = extra("sklearn.model_selection").train_test_split
        images, test_images, labels, test_labels = split(
            (pixels / 16).astype(np.float32), np.eye(CLASSES, dtype=np.float32)[digits], test_size=0.2, random_state=0
        )
        return cls(*map(np.ascontiguousarray, (images, labels, test_images, test_labels)))


def tensor(*shape: int) -> MLCTensor:
    return MLCTensor(descriptor=unwrap(MLCTensorDescriptor(shape=shape, dataType=MLCDataType.float32)))


def parameter(*shape: int) -> MLCTensor:
    return MLCTensor(
        descriptor=unwrap(MLCTensorDescriptor(shape=shape, dataType=MLCDataType.float32)),
        randomInitializerType=MLCRandomInitializerType.glorotUniform,
    )


def dense(inputs: int, outputs: int) -> MLCFullyConnectedLayer:
    return unwrap(
        MLCFullyConnectedLayer(
            weights=parameter(1, inputs * outputs, 1, 1),
            biases=parameter(1, outputs, 1, 1),
            descriptor=MLCConvolutionDescriptor(
                kernelSizes=(inputs, outputs), inputFeatureChannelCount=inputs, outputFeatureChannelCount=outputs
            ),
        )
    )


@dataclass
class Perceptron:
    """64 pixels, 128 hidden units, 10 classes; one ``MLCGraph`` inside a training graph and an inference graph."""

    device: MLCDevice
    double_softmax: bool = False
    losses: list[float] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.image, self.label = tensor(BATCH, PIXELS, 1, 1), tensor(BATCH, CLASSES)
        self.graph = MLCGraph()
        hidden = unwrap(self.graph.node(dense(PIXELS, HIDDEN), sources=[self.image]))
        relu = MLCActivationLayer(descriptor=unwrap(MLCActivationDescriptor(type=MLCActivationType.relu)))
        hidden = unwrap(self.graph.node(relu, source=hidden))
        self.result = unwrap(self.graph.node(dense(HIDDEN, CLASSES), sources=[hidden]))
        softmax = MLCSoftmaxLayer(operation=MLCSoftmaxOperation.softmax)
        if self.double_softmax:
            self.result = unwrap(self.graph.node(softmax, source=self.result))
        self.training = MLCTrainingGraph(
            graphObjects=[self.graph],
            lossLayer=MLCLossLayer(
                descriptor=MLCLossDescriptor(type=MLCLossType.softmaxCrossEntropy, reductionType=MLCReductionType.mean)
            ),
            optimizer=MLCAdamOptimizer(
                descriptor=MLCOptimizerDescriptor(
                    learningRate=0.001,
                    gradientRescale=1.0,
                    regularizationType=MLCRegularizationType.none,
                    regularizationScale=0.0,
                ),
                beta1=0.9,
                beta2=0.999,
                epsilon=1e-7,
                timeStep=1,
            ),
        )
        self.training.addInputs({"image": self.image}, lossLabels={"label": self.label})
        self.training.compile(options=[], device=self.device)
        self.inference = MLCInferenceGraph(graphObjects=[self.graph])
        if not self.double_softmax:
            # The loss applies softmax itself, so only the inference graph needs one to give probabilities.
            self.inference.node(softmax, source=self.result)
        self.inference.addInputs({"image": self.image})
        self.inference.compile(options=[], device=self.device)

    def train(self, images: np.ndarray, labels: np.ndarray) -> float:
        """One epoch over the whole batches; gives the accuracy, counted on each batch before it is learned."""
        scores, right = np.empty((BATCH, CLASSES), np.float32), 0
        batches = len(images) // BATCH
        for first in range(0, batches * BATCH, BATCH):
            wanted = labels[first : first + BATCH]
            self.training.execute(
                inputsData={"image": tensor_data(images[first : first + BATCH])},
                lossLabelsData={"label": tensor_data(wanted)},
                lossLabelWeightsData=None,
                batchSize=BATCH,
                options=[MLCExecutionOptions.synchronous],
                completionHandler=lambda loss, error, seconds: self.losses.append(float(unwrap(loss).numpy()[0])),
            )
            self.result.copyDataFromDeviceMemory(toBytes=scores, length=scores.nbytes, synchronizeWithDevice=False)
            right += int((scores.argmax(1) == wanted.argmax(1)).sum())
        return right / (batches * BATCH)

    def classify(self, images: np.ndarray) -> np.ndarray:
        """The probabilities of each class. The last batch may be short: ``batchSize`` says how many samples count."""
        found: list[np.ndarray] = []
        for first in range(0, len(images), BATCH):
            some = images[first : first + BATCH]
            self.inference.execute(
                inputsData={"image": tensor_data(some)},
                batchSize=len(some),
                options=[MLCExecutionOptions.synchronous],
                completionHandler=lambda result, error, seconds: found.append(unwrap(result).numpy().copy()),
            )
        return np.concatenate(found)[: len(images)].reshape(-1, CLASSES)


def learn_digits(arguments: argparse.Namespace) -> dict[str, float]:
    """The whole program: data, training, test, picture."""
    check_extras()
    check_out(arguments.out)
    digits = Digits.load()
    MLCPlatform.setRNGSeedTo(1)
    network = Perceptron(chosen_device(arguments.device), arguments.double_softmax)
    _print(
        f"{len(digits.images)} digits to train on, {len(digits.test_images)} to test, on {network.device.torch_device}"
    )
    accuracies = [network.train(digits.images, digits.labels) for _ in progress(arguments.epochs, "epoch")]
    for epoch, accuracy in enumerate(accuracies, 1):
        if epoch == 1 or epoch % 5 == 0 or epoch == len(accuracies):
            _print(f"epoch {epoch:3}: training accuracy {accuracy:.1%}")
    right = network.classify(digits.test_images).argmax(1) == digits.test_labels.argmax(1)
    path = save_picture(arguments.out / "digits.png", {"training": network.losses}, "Handwritten digits", "batch")
    _print(f"the loss is drawn in {path}")
    _print(f"test accuracy: {right.mean():.1%} ({right.sum()} of {len(right)})")
    return {"training": accuracies[-1], "test": float(right.mean()), "loss": network.losses[-1]}


def _print(text: str) -> None:
    sys.stdout.write(f"{text}\n")
