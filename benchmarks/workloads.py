"""What is measured: a network, its data, its loss, its optimizer, and how a program calls it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import numpy as np
import torch
from torch import nn

from benchmarks import graphs, networks, translation
from mlc_torch import MLCTensor

BATCHES = 4
"""How many different batches take turns."""


@dataclass(frozen=True)
class Workload:
    name: str
    network: Callable[[], nn.Module]
    build: Callable[..., MLCTensor]
    shape: tuple[int, ...]
    optimizer: str = "adam"
    classes: int = 10
    """How many there are; 0 where the labels are numbers."""
    trains: bool = True
    loss: str = "absolute"
    """Of numbers: absolute, squared or huber."""
    second: tuple[int, ...] = ()
    """The shape of a second input."""
    words: int = 0
    """How many words there are, where the input is word numbers."""
    style: str = "prepared"
    """How the call is written; see ``benchmarks.contenders``."""
    random: bool = False
    """Whether it drops elements by chance: then results are compared without."""

    def module(self, device: torch.device) -> nn.Module:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            return self.network().to(device).train(self.trains)

    @property
    def shapes(self) -> list[tuple[int, ...]]:
        return [self.shape, self.second] if self.second else [self.shape]

    def inputs(self, number: int) -> list[np.ndarray]:
        draw = np.random.default_rng([1, number])
        if self.words:
            return [draw.integers(0, self.words, self.shape).astype(np.int64)]
        return [draw.standard_normal(shape, np.float32) for shape in self.shapes]

    def labels(self, number: int) -> np.ndarray:
        """Class numbers, or numbers of the result's shape where there are no classes."""
        draw = np.random.default_rng([2, number])
        if self.classes:
            return draw.integers(0, self.classes, self.shape[0])
        if self.loss == "absolute":
            return np.zeros(self.shape, np.float32)
        return draw.standard_normal(self.shape, np.float32)


def sequence(
    name: str, network: Callable[[], nn.Module], *shape: int, optimizer: str = "adam", infers: bool = False, **more
) -> Workload:
    """A workload whose network is a sequence of torch.nn modules."""
    return Workload(name, network, translation.translate, shape, optimizer, trains=not infers, **more)


FIRST = (
    Workload("perceptron", networks.Perceptron, graphs.perceptron, (32, 784)),
    Workload("LeNet", networks.LeNet, graphs.lenet, (64, 1, 28, 28), "sgd"),
    Workload("LSTM", networks.Recurrent, graphs.recurrent, (32, 32, 64)),
    Workload("transformer", networks.TransformerBlock, graphs.transformer, (16, 64, 128), "adamw"),
    Workload("ResNet-20", networks.ResNet20, graphs.resnet20, (64, 3, 32, 32)),
    Workload("200 tiny", networks.TinyLayers, graphs.tiny_layers, (4, 4), "sgd", classes=0),
    Workload("inference 1", networks.Perceptron, graphs.perceptron, (1, 784), trains=False),
    Workload("inference 256", networks.Perceptron, graphs.perceptron, (256, 784), trains=False),
)
"""Measured with more contenders than the others, and shown in the picture."""

_perceptron = partial(networks.dense, 784, 128, 10)
_small = partial(networks.dense, 16, 32, 10)

_TRAINING = (
    sequence("train perceptron 1", _perceptron, 1, 784),
    sequence("train perceptron 256", _perceptron, 256, 784),
    sequence("train perceptron 1024", _perceptron, 1024, 784),
    sequence("train perceptron 4096", _perceptron, 4096, 784),
    sequence("train one layer", partial(networks.dense, 4, 10), 4, 4, optimizer="sgd plain"),
    sequence("train wide perceptron", partial(networks.dense, 512, 1024, 512, 10), 64, 512),
    sequence("train 100 layers", partial(networks.deep, 32, 100), 16, 32),
    sequence("train 800 layers", partial(networks.deep, 8, 800), 4, 8, optimizer="sgd"),
    sequence("train activations", networks.activations, 128, 64),
    sequence("train small, SGD plain", _small, 32, 16, optimizer="sgd plain"),
    sequence("train small, Nesterov", _small, 32, 16, optimizer="nesterov"),
    sequence("train small, RMSProp", _small, 32, 16, optimizer="rmsprop"),
    sequence("train small, RMSProp centered", _small, 32, 16, optimizer="rmsprop centered"),
    sequence("train small, AMSGrad", _small, 32, 16, optimizer="amsgrad"),
    sequence("train small, AdamW", _small, 32, 16, optimizer="adamw"),
    sequence("train small convolutions", networks.digits, 32, 1, 28, 28),
    sequence("train convolutions, batch norm, dropout", networks.normed, 16, 3, 32, 32, random=True),
    sequence("train 6 and 10 channels", networks.odd, 32, 3, 28, 28),
    sequence("train depthwise-separable", networks.separable, 16, 3, 32, 32, optimizer="sgd"),
    sequence("train shortcuts", networks.shortcuts, 8, 3, 32, 32, optimizer="sgd"),
    sequence("train groups and dilation", networks.grouped, 8, 3, 32, 32),
    sequence("train group and instance norm", networks.group_normed, 8, 3, 32, 32),
    sequence("train autoencoder", networks.autoencoder, 8, 3, 32, 32, classes=0, loss="squared"),
    sequence("train LSTM 8x12, 32 wide", partial(networks.recurrent, 16, 32), 8, 12, 16),
    sequence("train LSTM, 4 layers", partial(networks.recurrent, 16, 32, 4), 8, 12, 16),
    sequence("train LSTM, both directions", partial(networks.recurrent, 16, 32, 1, True), 8, 12, 16),
    sequence("train words", networks.words, 32, 20, words=5000),
)

_INFERENCE = (
    sequence("infer perceptron 32", _perceptron, 32, 784, infers=True),
    sequence("infer perceptron 1024", _perceptron, 1024, 784, infers=True),
    sequence("infer perceptron 4096", _perceptron, 4096, 784, infers=True),
    sequence("infer 100 layers", partial(networks.deep, 32, 100), 1, 32, infers=True),
    sequence("infer convolutions 1", networks.digits, 1, 1, 28, 28, infers=True),
    sequence("infer convolutions 64", networks.digits, 64, 1, 28, 28, infers=True),
    sequence("infer depthwise-separable 1", networks.separable, 1, 3, 32, 32, infers=True),
    sequence("infer convolutions, batch norm 8", networks.normed, 8, 3, 32, 32, infers=True),
    sequence("infer 6 and 10 channels 8", networks.odd, 8, 3, 28, 28, infers=True),
    Workload("infer ResNet-20 1", networks.ResNet20, graphs.resnet20, (1, 3, 32, 32), trains=False),
    Workload("infer transformer 1", networks.TransformerBlock, graphs.transformer, (1, 64, 128), trains=False),
    sequence("infer LSTM 1x100", partial(networks.recurrent, 8, 16), 1, 100, 8, infers=True),
    sequence("infer LSTM 32x50", partial(networks.recurrent, 64, 128), 32, 50, 64, infers=True),
    sequence("infer words 1", networks.words, 1, 20, words=5000, infers=True),
    Workload(
        "infer product and sum", networks.ProductAndSum, translation.product_and_sum, (1, 32, 64), trains=False,
        second=(1, 64, 16), style="handler",
    ),
    Workload("infer choice", networks.Choice, translation.choice, (64, 64), trains=False, second=(64, 64)),
)  # fmt: skip

_STYLES = (
    *(
        sequence(f"call: {style}, 1 sample", _perceptron, 1, 784, infers=True, style=style)
        for style in ("fresh", "handler", "copied", "outputs", "async", "selectors")
    ),
    *(
        sequence(f"call: {style}, 32 samples", _perceptron, 32, 784, infers=True, style=style)
        for style in ("handler", "outputs", "short")
    ),
    sequence("call: train, fresh, loss read", _perceptron, 32, 784, style="handler"),
    sequence("call: train small, fresh, loss read", _small, 32, 16, style="handler"),
    sequence("call: train, selectors", _perceptron, 32, 784, style="selectors"),
    sequence("call: train, short batch", _perceptron, 32, 784, style="short"),
    sequence("call: user gradient", _small, 32, 16, style="user gradient", optimizer="sgd"),
)

WORKLOADS = {w.name: w for w in (*FIRST, *_TRAINING, *_INFERENCE, *_STYLES)}
