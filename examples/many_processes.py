"""Handwritten digits learned by several processes together: the program of one process, started by torchrun.

    torchrun --nproc-per-node=2 examples/many_processes.py

// Swift: one device that stands for several        # Python: the same line; torchrun starts a process for each
let device = MLCDevice(type: .any,                   device = MLCDevice(type=MLCDeviceType.any,
    selectsMultipleComputeDevices: true)!                selectsMultipleComputeDevices=True)

Every process is given the whole batch and computes its share of it; the weights, losses and outputs are those of one
process (docs/scaling.md). Three lines know that there are several: the device, who writes the picture, and who evaluates.
After each epoch a checkpoint is written, by one process. Started again, the program goes on from there, with as many
processes as you like; torchrun does so by itself after a failure with ``--max-restarts``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from mlc_torch import (
    MLCActivationLayer,
    MLCAdamOptimizer,
    MLCDevice,
    MLCDeviceType,
    MLCDropoutLayer,
    MLCExecutionOptions,
    MLCGraph,
    MLCInferenceGraph,
    MLCLossDescriptor,
    MLCLossLayer,
    MLCLossType,
    MLCOptimizerDescriptor,
    MLCPlatform,
    MLCReductionType,
    MLCRegularizationType,
    MLCTrainingGraph,
    unwrap,
)
from mlc_torch.commands.demo import CLASSES, PIXELS, Digits, dense, tensor
from mlc_torch.commands.programs import options, progress, save_picture, tensor_data
from mlc_torch.interop import load_checkpoint, save_checkpoint

BATCH, HIDDEN = 64, 128


def main(given: Sequence[str] | None = None) -> dict[str, Any]:
    """Gives the loss of every batch, and on the first process the accuracy."""
    chosen = options(__doc__, 20, given)
    device = unwrap(MLCDevice(type=MLCDeviceType[chosen.device], selectsMultipleComputeDevices=True))
    is_first = device.rank == 0
    MLCPlatform.setRNGSeedTo(1)
    digits = Digits.load()

    graph = MLCGraph()
    image, label = tensor(BATCH, PIXELS, 1, 1), tensor(BATCH, CLASSES)
    hidden = unwrap(graph.node(dense(PIXELS, HIDDEN), source=image))
    hidden = unwrap(graph.node(MLCActivationLayer.relu, source=hidden))
    hidden = unwrap(graph.node(MLCDropoutLayer(rate=0.2, seed=0), source=hidden))
    scores = unwrap(graph.node(dense(HIDDEN, CLASSES), source=hidden))
    training = MLCTrainingGraph(
        graphObjects=[graph],
        lossLayer=MLCLossLayer(
            descriptor=MLCLossDescriptor(type=MLCLossType.softmaxCrossEntropy, reductionType=MLCReductionType.mean)
        ),
        optimizer=MLCAdamOptimizer(
            descriptor=MLCOptimizerDescriptor(
                learningRate=0.002,
                gradientRescale=1.0,
                regularizationType=MLCRegularizationType.none,
                regularizationScale=0.0,
            )
        ),
    )
    training.addInputs({"image": image}, lossLabels={"label": label})
    if not training.compile(options=[], device=device):
        raise SystemExit("the graph does not compile; the log says why")

    batches = len(digits.images) // BATCH
    chosen.out.mkdir(parents=True, exist_ok=True)
    checkpoint = chosen.out / "many_processes.safetensors"
    done = 0
    if checkpoint.exists():
        load_checkpoint(training, checkpoint)
        done = (unwrap(training.optimizer).timeStep - 1) // batches
    losses: list[float] = []
    for epoch in progress(chosen.epochs - done, "epoch", shown=is_first):
        order = np.random.default_rng(done + epoch).permutation(len(digits.images))
        for number in range(batches):
            rows = order[number * BATCH : (number + 1) * BATCH]
            training.execute(
                inputsData={"image": tensor_data(np.ascontiguousarray(digits.images[rows]))},
                lossLabelsData={"label": tensor_data(np.ascontiguousarray(digits.labels[rows]))},
                lossLabelWeightsData=None,
                batchSize=BATCH,
                options=[MLCExecutionOptions.synchronous],
                completionHandler=lambda loss, error, seconds: losses.append(float(unwrap(loss).numpy()[0])),
            )
        save_checkpoint(training, checkpoint)

    found: dict[str, Any] = {"losses": losses, "done": done}
    if is_first:  # inference needs nobody else
        found["test"] = accuracy(graph, image, scores, digits, device)
        save_picture(chosen.out / "many_processes.png", {"loss": losses}, "Digits on several processes", "batch")
        print(f"{device.rank_count} processes, test accuracy: {found['test']:.1%}", flush=True)
    return found


def accuracy(graph: MLCGraph, image: Any, scores: Any, digits: Digits, device: MLCDevice) -> float:
    """The part of the test images that is recognised."""
    inference = MLCInferenceGraph(graphObjects=[graph])
    inference.addInputs({"image": image})
    inference.addOutputs({"scores": scores})
    inference.compile(options=[], device=device)
    right, count = 0, len(digits.test_images)
    for first in range(0, count, BATCH):
        images, wanted = (a[first : first + BATCH] for a in (digits.test_images, digits.test_labels))
        found = np.empty((len(images), CLASSES), np.float32)
        inference.execute(
            inputsData={"image": tensor_data(images)},
            outputsData={"scores": tensor_data(found)},
            batchSize=len(images),
            options=[MLCExecutionOptions.synchronous],
        )
        right += int((found.argmax(1) == wanted.argmax(1)).sum())
    return right / count


if __name__ == "__main__":
    main()
