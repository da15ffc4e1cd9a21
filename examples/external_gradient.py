"""A NumPy computation between two graphs: its gradient goes back in through ``allocateUserGradient``.

The first graph says by how much a curve rises at each point, NumPy adds the rises up (a cumulative sum, which ML Compute
does not have), the second graph scales the curve and compares it with noisy measurements. The result is a curve that
never falls. No public program does this; the calls are those that Apple's documentation gives for a computation that the
framework lacks.

    // Swift                                                # Python, below
    let user = first.allocateUserGradient(for: rises)!      user = first.allocateUserGradient(for_=rises)
    second.compile(options: [.computeAllGradients],         second.compile(options=[...computeAllGradients],
        device: device)                                         device=device)
    first.executeForward(batchSize: 64, ...)                first.executeForward(batchSize=64, ...)
    // your own forward computation                         curve[:] = np.cumsum(rises.numpy(), axis=0)
    second.executeForward(batchSize: 64, ...)               second.executeForward(batchSize=64, ...)
    second.executeGradient(batchSize: 64, ...)              second.executeGradient(batchSize=64, ...)
    let g = second.gradientTensor(forInput: curve)!         g = second.gradientTensor(forInput=curve)
    // your own gradient computation                        back = np.cumsum(g.numpy()[::-1], axis=0)[::-1]
    first.bindAndWriteData(["g": back],                     first.bindAndWriteData({"g": back},
        forInputs: ["g": user], to: device, ...)                forInputs={"g": user}, to=device, ...)
    first.executeGradient(batchSize: 64, ...)               first.executeGradient(batchSize=64, ...)
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from mlc_torch import (
    MLCActivationLayer,
    MLCAdamOptimizer,
    MLCConvolutionDescriptor,
    MLCDataType,
    MLCDevice,
    MLCExecutionOptions,
    MLCFullyConnectedLayer,
    MLCGraph,
    MLCGraphCompilationOptions,
    MLCLossLayer,
    MLCOptimizerDescriptor,
    MLCReductionType,
    MLCRegularizationType,
    MLCTensor,
    MLCTrainingGraph,
    unwrap,
)
from mlc_torch.commands.programs import chosen_device, options, progress, save_picture, tensor_data

POINTS, HIDDEN, NOISE = 64, 16, 0.1
SYNCHRONOUS = [MLCExecutionOptions.synchronous]


def dense(inputs: int, outputs: int, start: np.ndarray) -> MLCFullyConnectedLayer:
    weights = start.astype(np.float32)
    return unwrap(
        MLCFullyConnectedLayer(
            weights=MLCTensor(
                shape=[1, inputs * outputs, 1, 1], data=tensor_data(weights), dataType=MLCDataType.float32
            ),
            biases=MLCTensor(shape=[1, outputs, 1, 1], fillWithData=0, dataType=MLCDataType.float32),
            descriptor=MLCConvolutionDescriptor(
                kernelSizes=(1, 1), inputFeatureChannelCount=inputs, outputFeatureChannelCount=outputs
            ),
        )
    )


def adam() -> MLCAdamOptimizer:
    return MLCAdamOptimizer(
        descriptor=MLCOptimizerDescriptor(
            learningRate=0.02,
            gradientRescale=1,
            regularizationType=MLCRegularizationType.none,
            regularizationScale=0,
        )
    )


class RisingCurve:
    """Two training graphs and the cumulative sum between them."""

    def __init__(self, device: MLCDevice) -> None:
        self.device = device
        numbers = np.random.default_rng(0)
        column = [POINTS, 1]

        self.x = MLCTensor(shape=column)
        graph = MLCGraph()
        hidden = unwrap(graph.node(dense(1, HIDDEN, numbers.normal(0, 2, HIDDEN)), source=self.x))
        hidden = unwrap(graph.node(MLCActivationLayer.tanh, source=hidden))
        height = unwrap(graph.node(dense(HIDDEN, 1, numbers.normal(0, 0.1, HIDDEN)), source=hidden))
        self.rises = unwrap(graph.node(MLCActivationLayer.softPlus, source=height))
        # The loss is elsewhere: what this graph learns from is the gradient bound to `user`.
        self.first = MLCTrainingGraph(graphObjects=[graph], lossLayer=None, optimizer=adam())
        self.first.addInputs({"x": self.x}, lossLabels=None)
        self.user = unwrap(self.first.allocateUserGradient(for_=self.rises))
        self.first.compile(options=[], device=device)

        self.curve, self.label = MLCTensor(shape=column), MLCTensor(shape=column)
        graph = MLCGraph()
        self.fit = unwrap(graph.node(dense(1, 1, np.array([1 / POINTS])), source=self.curve))
        loss = MLCLossLayer.meanSquaredError(reductionType=MLCReductionType.mean, weight=1)
        self.second = MLCTrainingGraph(graphObjects=[graph], lossLayer=loss, optimizer=adam())
        self.second.addInputs({"curve": self.curve}, lossLabels={"y": self.label})
        self.second.compile(options=[MLCGraphCompilationOptions.computeAllGradients], device=device)

    def bind(self, graph: MLCTrainingGraph, **pairs: tuple[MLCTensor, np.ndarray]) -> None:
        graph.bindAndWriteData(
            {name: tensor_data(np.ascontiguousarray(values)) for name, (_, values) in pairs.items()},
            forInputs={name: tensor for name, (tensor, _) in pairs.items()},
            to=self.device,
            synchronous=True,
        )

    def step(self, x: np.ndarray, y: np.ndarray) -> float:
        """One forward pass, one gradient pass and one update of both graphs; gives the loss."""
        losses: list[float] = []
        self.bind(self.first, x=(self.x, x))
        self.first.executeForward(batchSize=POINTS, options=SYNCHRONOUS)
        self.bind(self.second, curve=(self.curve, np.cumsum(self.rises.numpy(), axis=0)), y=(self.label, y))
        self.second.executeForward(
            batchSize=POINTS,
            options=SYNCHRONOUS,
            completionHandler=lambda loss, error, seconds: losses.append(float(loss.numpy()[0])),
        )
        self.second.executeGradient(batchSize=POINTS, options=SYNCHRONOUS)
        gradient = unwrap(self.second.gradientTensor(forInput=self.curve)).numpy()
        # Each rise lifts its own point and all points after it.
        self.bind(self.first, g=(self.user, np.cumsum(gradient[::-1], axis=0)[::-1]))
        self.first.executeGradient(batchSize=POINTS, options=SYNCHRONOUS)
        for graph in (self.first, self.second):
            graph.executeOptimizerUpdate(options=SYNCHRONOUS)
        return losses[0]


def main(given: Sequence[str] | None = None) -> dict[str, Any]:
    """Gives the errors of the curve and of a straight line against the truth, and the smallest rise."""
    chosen = options(__doc__, 600, given)
    numbers = np.random.default_rng(1)
    x = np.linspace(-1, 1, POINTS, dtype=np.float32).reshape(-1, 1)
    truth = np.tanh(6 * x) + 0.3 * x
    y = (truth + numbers.normal(0, NOISE, x.shape)).astype(np.float32)

    model = RisingCurve(chosen_device(chosen.device))
    losses = [model.step(x, y) for _ in progress(chosen.epochs, "step")]
    curve = model.fit.numpy().ravel()
    line = np.polyval(np.polyfit(x.ravel(), y.ravel(), 1), x.ravel())
    error, straight = (float(np.sqrt(np.mean((of - truth.ravel()) ** 2))) for of in (curve, line))
    rise = float(np.diff(curve).min())

    path = save_picture(chosen.out / "external_gradient.png", {"loss": losses}, "A curve that never falls", "step")
    print(f"the loss is drawn in {path}")
    print(f"distance from the true curve: {error:.3f} (a straight line: {straight:.3f}, the noise: {NOISE})")
    print(f"smallest rise from one point to the next: {rise:.5f}")
    return {"error": error, "straight": straight, "rise": rise, "losses": losses}


if __name__ == "__main__":
    main()
