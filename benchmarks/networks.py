"""The networks as a PyTorch expert writes them by hand."""

from __future__ import annotations

import itertools

import torch
from torch import nn
from torch.nn import functional as F


class Perceptron(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(784, 128), nn.Linear(128, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.second(F.relu(self.first(x)))


class LeNet(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv1, self.conv2 = nn.Conv2d(1, 16, 5, padding=2), nn.Conv2d(16, 32, 5, padding=2)
        self.dense1, self.dense2 = nn.Linear(1568, 128), nn.Linear(128, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = F.max_pool2d(F.relu(self.conv1(x)), 2)
        x = F.max_pool2d(F.relu(self.conv2(x)), 2)
        return self.dense2(F.relu(self.dense1(torch.flatten(x, 1))))


class Recurrent(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.lstm, self.dense = nn.LSTM(64, 128, batch_first=True), nn.Linear(128, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.dense(self.lstm(x)[0][:, -1])


class TransformerBlock(nn.Module):
    def __init__(self, width: int = 128, heads: int = 4) -> None:
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.dense = nn.Linear(width, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, time, width = x.shape
        qkv = self.qkv(self.norm1(x)).view(batch, time, 3, self.heads, width // self.heads)
        q, k, v = qkv.permute(2, 0, 3, 1, 4).unbind(0)
        attended = F.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(batch, time, width)
        x = x + self.out(attended)
        x = x + self.down(F.gelu(self.up(self.norm2(x)), approximate="tanh"))
        return self.dense(x.mean(1))


class Residual(nn.Module):
    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False)
        self.norm1, self.norm2 = nn.BatchNorm2d(outputs), nn.BatchNorm2d(outputs)
        self.projects = inputs != outputs
        if self.projects:
            self.projection = nn.Conv2d(inputs, outputs, 1, stride, bias=False)
            self.norm3 = nn.BatchNorm2d(outputs)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = F.relu(self.norm1(self.conv1(x)))
        y = self.norm2(self.conv2(y))
        return F.relu(y + (self.norm3(self.projection(x)) if self.projects else x))


class ResNet20(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv, self.norm = nn.Conv2d(3, 16, 3, 1, 1, bias=False), nn.BatchNorm2d(16)
        widths = [16, 16, 16, 16, 32, 32, 32, 64, 64, 64]
        self.blocks = nn.ModuleList(Residual(i, o, 1 if i == o else 2) for i, o in itertools.pairwise(widths))
        self.dense = nn.Linear(64, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = F.relu(self.norm(self.conv(x)))
        for block in self.blocks:
            x = block(x)
        return self.dense(x.mean((2, 3)))


class TinyLayers(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(4, 4))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x + self.weight
        for _ in range(50):
            x = torch.relu(torch.tanh(x) * 1.02 + 0.001)
        return x


# Parts of networks that torch.nn has no module for


class Mean(nn.Module):
    def __init__(self, *dimensions: int) -> None:
        super().__init__()
        self.dimensions = dimensions

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.mean(self.dimensions)


class Added(nn.Module):
    """A residual connection around ``inner``."""

    def __init__(self, *inner: nn.Module) -> None:
        super().__init__()
        self.inner = nn.Sequential(*inner)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.inner(x)


class Joined(nn.Module):
    """Branches side by side, joined along the channels."""

    def __init__(self, *branches: nn.Module) -> None:
        super().__init__()
        self.branches = nn.ModuleList(branches)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.cat([branch(x) for branch in self.branches], 1)


class LastStep(nn.Module):
    """What an LSTM gives at the end of a sequence."""

    def __init__(self, inputs: int, hidden: int, layers: int = 1, both: bool = False) -> None:
        super().__init__()
        self.lstm = nn.LSTM(inputs, hidden, layers, batch_first=True, bidirectional=both)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.lstm(x)[0][:, -1]


class FromStates(nn.Module):
    """The same, begun from states that come with the data (one tensor for both of them), and a dense layer."""

    def __init__(self, inputs: int, hidden: int) -> None:
        super().__init__()
        self.recurrent, self.dense = recurrent(inputs, hidden)

    def forward(self, x: torch.Tensor, states: torch.Tensor) -> torch.Tensor:
        begin = states.flatten(0, 1)
        return self.dense(self.recurrent.lstm(x, (begin, begin))[0][:, -1])


class ProductAndSum(nn.Module):
    """The matrix product of two inputs, summed over its rows."""

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return torch.matmul(x, y).sum(1, keepdim=True)


class Choice(nn.Module):
    """Where one input is larger than the other, their product, elsewhere their difference."""

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return torch.where(x > y, x * y, x - y)


# Networks as sequences of modules


def dense(*widths: int, activation: type[nn.Module] = nn.ReLU) -> nn.Sequential:
    """Fully connected layers with an activation between them."""
    layers: list[nn.Module] = []
    for inputs, outputs in itertools.pairwise(widths):
        layers += [nn.Linear(inputs, outputs), activation()]
    return nn.Sequential(*layers[:-1])


def deep(width: int, depth: int) -> nn.Sequential:
    """Many narrow residual layers, with weights so small that rounding does not grow from one to the next."""
    made = nn.Sequential(*(Added(nn.Linear(width, width), nn.Tanh()) for _ in range(depth)), nn.Linear(width, 10))
    with torch.no_grad():
        for parameter in made.parameters():
            parameter.mul_(0.2)
    return made


def digits(channels: int = 8) -> nn.Sequential:
    """A small convolutional network over 28x28 pixels, as Apple's samples have it: valid padding, max pooling."""
    return nn.Sequential(
        nn.Conv2d(1, channels, 3), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(channels, 2 * channels, 3), nn.ReLU(), nn.MaxPool2d(2),
        nn.Flatten(), nn.Linear(2 * channels * 25, 64), nn.ReLU(), nn.Linear(64, 10),
    )  # fmt: skip


def normed(dropout: float = 0.25) -> nn.Sequential:
    """Convolutions with batch normalization, average pooling and dropout."""
    return nn.Sequential(
        nn.Conv2d(3, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU(), nn.AvgPool2d(2), nn.Dropout(dropout),
        nn.Conv2d(16, 32, 3, padding=1), nn.BatchNorm2d(32), nn.ReLU(), nn.AvgPool2d(2), nn.Dropout(dropout),
        nn.Flatten(), nn.Linear(32 * 64, 10),
    )  # fmt: skip


def odd() -> nn.Sequential:
    """Numbers of channels that no vector divides, batch normalization, and nothing that pools."""
    return nn.Sequential(
        nn.Conv2d(3, 6, 3, padding=1), nn.BatchNorm2d(6), nn.ReLU(),
        nn.Conv2d(6, 10, 3, padding=1), nn.BatchNorm2d(10), nn.ReLU(),
        nn.Flatten(), nn.Linear(10 * 784, 10),
    )  # fmt: skip


def separable() -> nn.Sequential:
    """Depthwise-separable blocks with ReLU6, as MobileNet has them, strides in the depthwise layers."""
    layers: list[nn.Module] = [nn.Conv2d(3, 16, 3, 2, 1, bias=False), nn.BatchNorm2d(16), nn.ReLU6()]
    for inputs, outputs, stride in ((16, 32, 1), (32, 64, 2), (64, 64, 1)):
        layers += [
            nn.Conv2d(inputs, inputs, 3, stride, 1, groups=inputs, bias=False),
            nn.BatchNorm2d(inputs),
            nn.ReLU6(),
        ]
        layers += [nn.Conv2d(inputs, outputs, 1, bias=False), nn.BatchNorm2d(outputs), nn.ReLU6()]
    return nn.Sequential(*layers, Mean(2, 3), nn.Linear(64, 10))


def shortcuts() -> nn.Sequential:
    """1x1 convolutions with strides beside 3x3 ones: what a ResNet's shortcuts are made of."""
    layers: list[nn.Module] = []
    for inputs, outputs in ((3, 8), (8, 16), (16, 32)):
        half = outputs // 2
        layers += [
            Joined(nn.Conv2d(inputs, half, 1, 2), nn.Conv2d(inputs, half, 3, 2, 1)),
            nn.BatchNorm2d(outputs),
            nn.ReLU(),
        ]
    return nn.Sequential(*layers, Mean(2, 3), nn.Linear(32, 10))


def grouped() -> nn.Sequential:
    """Groups and dilation."""
    return nn.Sequential(
        nn.Conv2d(3, 16, 3, padding=1), nn.ReLU(),
        nn.Conv2d(16, 32, 3, padding=1, groups=4), nn.ReLU(),
        nn.Conv2d(32, 32, 3, padding=2, dilation=2), nn.ReLU(), nn.MaxPool2d(4),
        nn.Flatten(), nn.Linear(32 * 64, 10),
    )  # fmt: skip


def autoencoder() -> nn.Sequential:
    """Down by strides, up by a transposed convolution and by bilinear upsampling."""
    return nn.Sequential(
        nn.ZeroPad2d(1), nn.Conv2d(3, 16, 3, 2), nn.ELU(),
        nn.ReflectionPad2d(1), nn.Conv2d(16, 32, 3, 2), nn.ELU(),
        nn.ConvTranspose2d(32, 16, 2, 2), nn.ELU(),
        nn.Upsample(scale_factor=2, mode="bilinear"), nn.Conv2d(16, 3, 3, padding=1), nn.Sigmoid(),
    )  # fmt: skip


def group_normed() -> nn.Sequential:
    """Group and instance normalization."""
    return nn.Sequential(
        nn.Conv2d(3, 16, 3, padding=1), nn.GroupNorm(4, 16), nn.Hardswish(), nn.MaxPool2d(2),
        nn.Conv2d(16, 32, 3, padding=1), nn.InstanceNorm2d(32, affine=True), nn.LeakyReLU(), nn.MaxPool2d(2),
        nn.Flatten(), nn.Linear(32 * 64, 10),
    )  # fmt: skip


def activations() -> nn.Sequential:
    """One activation after the other."""
    kinds = (nn.ReLU, nn.ReLU6, nn.ELU, nn.SELU, nn.CELU, nn.Softplus, nn.Softsign, nn.Hardswish, nn.Tanh, nn.Sigmoid)
    layers = [part for kind in kinds for part in (nn.Linear(64, 64), kind())]
    return nn.Sequential(*layers, nn.Linear(64, 10))


def recurrent(inputs: int, hidden: int, layers: int = 1, both: bool = False) -> nn.Sequential:
    return nn.Sequential(LastStep(inputs, hidden, layers, both), nn.Linear(hidden * (2 if both else 1), 10))


def words(count: int = 5000, width: int = 32, length: int = 20) -> nn.Sequential:
    """A bag of embedded words, layer-normalized."""
    return nn.Sequential(nn.Embedding(count, width), Mean(1), nn.LayerNorm(width), nn.Linear(width, 10))
