"""A PyTorch network goes into an ML Compute graph, is trained there in three phases, comes out again and becomes ONNX.

    # PyTorch alone                                         # with ML Compute, below
    net = nn.Sequential(...)                                layer = TorchLayer(net, label="net")
                                                            scores = graph.node(layer, source=points)
    optimizer = torch.optim.Adam(net.parameters(), 0.02)    training = MLCTrainingGraph(graphObjects=[graph],
                                                                lossLayer=loss, optimizer=adam)
    loss = cross_entropy(net(x), y)                         training.executeForward(batchSize=BATCH, ...)
    loss.backward()                                         training.executeGradient(batchSize=BATCH, ...)
    net[0].weight.grad                                      training.gradientData(forParameter=weight, layer=layer)
    optimizer.step()                                        training.executeOptimizerUpdate(...)

The task: which of two spirals does a point belong to? The weights are the network's own all the time, so that ``net``
itself is trained in the end. ``graph.to_module()`` gives the whole graph as a module, and ``export_onnx`` a file that
runs without PyTorch and without this library.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import nn

from mlc_torch import (
    MLCAdamOptimizer,
    MLCDevice,
    MLCExecutionOptions,
    MLCGraph,
    MLCLossLayer,
    MLCOptimizerDescriptor,
    MLCReductionType,
    MLCRegularizationType,
    MLCTensor,
    MLCTrainingGraph,
    unwrap,
)
from mlc_torch.commands.programs import chosen_device, options, progress, save_picture, tensor_data
from mlc_torch.interop import TorchLayer, export_onnx

BATCH, CLASSES, HIDDEN = 256, 2, 32
SYNCHRONOUS = [MLCExecutionOptions.synchronous]


def spirals(count: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Points on two spirals with a little noise, and which one each is on."""
    numbers = np.random.default_rng(seed)
    which = np.arange(count) % CLASSES
    along = np.sqrt(numbers.random(count))
    angle = 3 * np.pi * along + np.pi * which
    points = along * np.stack([np.cos(angle), np.sin(angle)]) + numbers.normal(0, 0.01, (2, count))
    return points.T.astype(np.float32).copy(), which


def network() -> nn.Module:
    """An ordinary torch network, its first weights the same at every run."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return nn.Sequential(
            nn.Linear(2, HIDDEN),
            nn.BatchNorm1d(HIDDEN),
            nn.Tanh(),
            nn.Linear(HIDDEN, HIDDEN),
            nn.Tanh(),
            nn.Linear(HIDDEN, CLASSES),
        )


class Spirals:
    """The network in a training graph."""

    def __init__(self, net: nn.Module, device: MLCDevice) -> None:
        self.device = device
        self.points, self.label = MLCTensor(shape=[BATCH, 2]), MLCTensor(shape=[BATCH, CLASSES])
        self.layer = TorchLayer(net, label="net")
        graph = MLCGraph()
        self.scores = unwrap(graph.node(self.layer, source=self.points))
        adam = MLCAdamOptimizer(
            descriptor=MLCOptimizerDescriptor(
                learningRate=0.02,
                gradientRescale=1,
                regularizationType=MLCRegularizationType.none,
                regularizationScale=0,
            )
        )
        loss = MLCLossLayer.softmaxCrossEntropy(
            reductionType=MLCReductionType.mean, labelSmoothing=0, classCount=CLASSES, weight=1
        )
        self.training = MLCTrainingGraph(graphObjects=[graph], lossLayer=loss, optimizer=adam)
        self.training.addInputs({"points": self.points}, lossLabels={"label": self.label})
        self.training.addOutputs({"scores": self.scores})
        self.training.compile(options=[], device=device)

    def step(self, points: np.ndarray, label: np.ndarray) -> tuple[float, float]:
        """The three phases; gives the loss and the length of the gradient of the first weights."""
        losses: list[float] = []
        self.training.bindAndWriteData(
            {"points": tensor_data(points), "label": tensor_data(label)},
            forInputs={"points": self.points, "label": self.label},
            to=self.device,
            synchronous=True,
        )
        self.training.executeForward(
            batchSize=BATCH,
            options=SYNCHRONOUS,
            completionHandler=lambda loss, error, seconds: losses.append(float(loss.numpy()[0])),
        )
        self.training.executeGradient(batchSize=BATCH, options=SYNCHRONOUS)
        weight = self.layer.parameters_by_name["0.weight"].tensor
        gradient = unwrap(self.training.gradientData(forParameter=weight, layer=self.layer))
        self.training.executeOptimizerUpdate(options=SYNCHRONOUS)
        return losses[0], float(np.linalg.norm(np.frombuffer(gradient, np.float32)))


def main(given: Sequence[str] | None = None) -> dict[str, Any]:
    """Gives the accuracies of the three ways to run the trained network, and how far their scores are apart."""
    chosen = options(__doc__, 300, given)
    net = network()
    program = Spirals(net, chosen_device(chosen.device))
    losses, lengths = [], []
    for number in progress(chosen.epochs, "step"):
        points, which = spirals(BATCH, seed=number)
        loss, length = program.step(points, np.eye(CLASSES, dtype=np.float32)[which])
        losses.append(loss)
        lengths.append(length)

    chosen.out.mkdir(parents=True, exist_ok=True)
    path = export_onnx(program.training, chosen.out / "torch_round_trip.onnx")
    points, which = spirals(1000, seed=10**6)  # another number of points than the graph was made for
    place = next(net.parameters()).device
    with torch.no_grad():
        scores = {
            "net": net.eval()(torch.from_numpy(points).to(place)).cpu().numpy(),
            "module": program.training.to_module().eval()(torch.from_numpy(points).to(place)).cpu().numpy(),
            "onnx": in_onnxruntime(str(path), points),
        }
    accuracy = {name: float((found.argmax(1) == which).mean()) for name, found in scores.items()}
    apart = max(float(np.abs(found - scores["net"]).max()) for found in scores.values())

    curves = {"loss": losses, "gradient of the first weights": lengths}
    picture = save_picture(chosen.out / "torch_round_trip.png", curves, "Two spirals", "step", "loss, length")
    print(f"the loss is drawn in {picture}, the network lies in {path}")
    print(", ".join(f"{name}: {value:.1%} right" for name, value in accuracy.items()))
    print(f"largest difference between their scores: {apart:.1e}")
    return {"accuracy": accuracy, "apart": apart, "losses": losses, "onnx": path}


def in_onnxruntime(path: str, points: np.ndarray) -> np.ndarray:
    import onnxruntime  # of the extra "onnx"

    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    (scores,) = session.run(["scores"], {"points": points})
    return scores


if __name__ == "__main__":
    main()
