"""Group normalization behind a convolution that needs no gradient, trained for a step; for a process of its own.

torch's gradient ends the process there over an image with channels last (torch 2.13). Prints a line for each case: the gear, and
how far the normalization's weights are from those of plain torch with 64 bits.
"""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F

from mlc_torch import (
    MLCConvolutionLayer,
    MLCGraph,
    MLCGraphCompilationOptions,
    MLCGroupNormalizationLayer,
    MLCTrainingGraph,
)
from mlc_torch.interop import TorchLayer
from tests.graph.programs import array, conv, cpu, data, dense, loss, placeholder, sgd, values
from tests.layers.records import tensor

GAMMA, BETA = values(16, seed=2), values(16, seed=3)


class Own(nn.Module):
    """A program's own module."""

    def __init__(self) -> None:
        super().__init__()
        self.weight, self.bias = (nn.Parameter(torch.from_numpy(v.copy())) for v in (GAMMA, BETA))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return F.group_norm(x, 4, self.weight, self.bias, 1e-3)


def torch_s() -> nn.Module:
    made = nn.GroupNorm(4, 16, 1e-3)
    with torch.no_grad():
        made.weight.copy_(torch.from_numpy(GAMMA))
        made.bias.copy_(torch.from_numpy(BETA))
    return made


def layer() -> MLCGroupNormalizationLayer:
    gamma, beta = (tensor(v, [1, 16, 1, 1]) for v in (GAMMA, BETA))
    return MLCGroupNormalizationLayer(
        featureChannelCount=16, groupCount=4, beta=beta, gamma=gamma, varianceEpsilon=1e-3
    )


def stepped(norm: Any, stopped: bool) -> str:
    """The gear that trains it."""
    weights = tensor(values(16, 3, 3, 3) * 0.2, [1, 48, 3, 3])
    graph, x, t = MLCGraph(), placeholder(2, 3, 6, 6), placeholder(2, 4)
    convolution = MLCConvolutionLayer(weights=weights, biases=None, descriptor=conv(3, 16))
    image = graph.node(convolution, sources=[x], disableUpdate=not stopped)
    graph.node(dense(576, 4, seed=5), source=graph.reshape(shape=[2, 576], source=graph.node(norm, source=image)))
    training = MLCTrainingGraph(graphObjects=[graph], lossLayer=loss(), optimizer=sgd(0.001))
    assert training.addInputs({"x": x}, lossLabels={"t": t})
    assert not stopped or training.stopGradient(for_=[image])
    assert training.compile(options=[], device=cpu())
    given = {"inputsData": {"x": data(values(2, 3, 6, 6, seed=7))}, "lossLabelsData": {"t": data(values(2, 4, seed=9))}}
    assert training.execute(**given, lossLabelWeightsData=None, batchSize=2, options=[])
    return training._runs.last.gear.name


def wanted() -> np.ndarray:
    gamma, beta, v, c, x, t, w = (
        torch.from_numpy(a).double()
        for a in (
            *(GAMMA, BETA, values(4, 576, seed=5) * np.float32(0.5), values(4, seed=6)),
            *(values(2, 3, 6, 6, seed=7), values(2, 4, seed=9), values(16, 3, 3, 3) * np.float32(0.2)),
        )
    )
    gamma.requires_grad_()
    image = F.group_norm(F.conv2d(x, w, padding=1), 4, gamma, beta, 1e-3)
    (grad,) = torch.autograd.grad(F.mse_loss(F.linear(image.flatten(1), v, c), t), gamma)
    return (gamma - 0.001 * grad).detach().numpy()


def over_last(channels: int, groups: int, is_plain: bool) -> tuple[str, float]:
    """Images whose channels come last, normalized as they are: the gear, and how far gamma is from plain torch's."""
    gamma, beta = (values(channels, seed=seed) for seed in (2, 3))
    given, labels = values(2, 6, 4, channels, seed=7), values(2, channels, 6, 4, seed=9)
    norm = MLCGroupNormalizationLayer(
        featureChannelCount=channels,
        groupCount=groups,
        beta=tensor(beta.copy(), [1, channels, 1, 1]),
        gamma=tensor(gamma.copy(), [1, channels, 1, 1]),
        varianceEpsilon=1e-3,
    )
    graph, x, t = MLCGraph(), placeholder(*given.shape), placeholder(*labels.shape)
    graph.node(norm, source=graph.transpose(dimensions=[0, 3, 1, 2], source=x))
    training = MLCTrainingGraph(graphObjects=[graph], lossLayer=loss(), optimizer=sgd(0.1))
    assert training.addInputs({"x": x}, lossLabels={"t": t})
    assert training.compile(options=[MLCGraphCompilationOptions.debugLayers] if is_plain else [], device=cpu())
    given_as = {"inputsData": {"x": data(given)}, "lossLabelsData": {"t": data(labels)}}
    assert training.execute(**given_as, lossLabelWeightsData=None, batchSize=2, options=[])
    image, wanted_gamma, shift, want = (
        torch.from_numpy(np.ascontiguousarray(a)).double() for a in (given.transpose(0, 3, 1, 2), gamma, beta, labels)
    )
    wanted_gamma.requires_grad_()
    image.requires_grad_()
    error = F.mse_loss(F.group_norm(image, groups, wanted_gamma, shift, 1e-3), want)
    _, grad = torch.autograd.grad(error, (image, wanted_gamma))  # of gamma alone, torch ends here, too
    off = np.abs(array(norm.gamma).ravel() - (wanted_gamma - 0.1 * grad).detach().numpy()).max()
    return training._runs.last.gear.name, float(off)


if __name__ == "__main__":
    for (channels, groups), is_plain in itertools.product(((1, 1), (4, 2), (8, 2)), (True, False)):
        print(*over_last(channels, groups, is_plain), flush=True)  # noqa: T201 - what the test reads
    for make, stopped in itertools.product((layer, torch_s, Own), (True, False)):
        norm = make()
        gear = stepped(norm if make is layer else TorchLayer(norm), stopped)
        got = array(norm.gamma).ravel() if make is layer else norm.weight.detach().numpy()
        print(gear, float(np.abs(got - wanted()).max()), flush=True)  # noqa: T201 - what the test reads
