"""The nine losses as modules: what one element costs, then weights, classes and reduction (evidence.md E.1, E.2).

y is the prediction, t the label after smoothing. A module takes predictions, labels and, if there are any, weights.
"""

from __future__ import annotations

from abc import ABC, abstractmethod

import torch
from torch import nn
from torch.nn import functional as F

from mlc_torch.descriptors import MLCLossDescriptor
from mlc_torch.enums import MLCLossType


def class_axis(rank: int) -> int:
    """Classes lie along axis 1 of [N, C] and [N, C, H, W], and along the last of [N, T, C]."""
    return 2 if rank == 3 else 1


class Loss(nn.Module, ABC):
    """weight · loss(y, t), reduced.

    Sum and mean give one value of shape [1]. Without reduction a loss over classes gives [N], each sample's sum over
    classes and positions, and every other loss gives the predictions' shape. The mean of a loss over classes divides by
    samples times positions, any other mean by the number of elements.
    """

    over_classes = False
    sign = 1
    """What ``elements`` leaves to be multiplied with: a sum is turned round at less cost than each of its parts."""
    weights: torch.Tensor | None

    def __init__(self, descriptor: MLCLossDescriptor) -> None:
        super().__init__()
        self.reduction = descriptor.reductionType.name
        self.scale = descriptor.weight
        self.smoothing, self.class_count = descriptor.labelSmoothing, descriptor.classCount
        self.epsilon, self.delta = descriptor.epsilon, descriptor.delta
        self.register_buffer("weights", None)

    def forward(
        self, predictions: torch.Tensor, labels: torch.Tensor, weights: torch.Tensor | None = None
    ) -> torch.Tensor:
        # Labels may be squeezed, [N, C] for predictions of [N, C, 1, 1] (evidence.md E.4).
        losses = self.elements(predictions, self.smooth(labels.to(predictions.dtype).reshape(predictions.shape)))
        weights = self.weights if weights is None else weights
        if weights is not None:
            losses = losses * spread(weights, losses)
        factor = self.sign * self.scale
        if self.reduction == "none":
            losses = losses if factor == 1 else times(losses, factor)
            return losses.reshape(losses.shape[0], -1).sum(1) if self.over_classes else losses
        if self.reduction == "mean":
            classes = losses.shape[class_axis(losses.dim())] if self.over_classes else 1
            factor *= classes / losses.numel()
        # Of many halves, the sum may be too large for one.
        total = losses.sum(dtype=torch.float32 if losses.dtype.itemsize < 4 else None)
        return times(total, factor).to(losses.dtype)

    def smooth(self, t: torch.Tensor) -> torch.Tensor:
        """The labels with smoothing, for the losses that have it."""
        return t

    @abstractmethod
    def elements(self, y: torch.Tensor, t: torch.Tensor) -> torch.Tensor:
        """The loss of every element, but for ``sign``."""

    def extra_repr(self) -> str:
        return f"reduction={self.reduction}, weight={self.scale}"


class AbsoluteError(Loss):
    """|y - t|"""

    def elements(self, y: torch.Tensor, t: torch.Tensor) -> torch.Tensor:
        return F.l1_loss(y, t, reduction="none")


class SquaredError(Loss):
    """(y - t)²"""

    def elements(self, y: torch.Tensor, t: torch.Tensor) -> torch.Tensor:
        return F.mse_loss(y, t, reduction="none")


class CrossEntropy(Loss):
    """What the two cross-entropies over classes share: smoothing to t·(1 - s) + s/K."""

    over_classes = True

    def smooth(self, t: torch.Tensor) -> torch.Tensor:
        if self.smoothing == 0:
            return t
        # A class count of 1, the default, would add s to every class, so it stands for the real one (evidence.md E.1).
        classes = self.class_count if self.class_count != 1 else t.shape[class_axis(t.dim())]
        return t * (1 - self.smoothing) + self.smoothing / classes

    def extra_repr(self) -> str:
        return f"{super().extra_repr()}, labelSmoothing={self.smoothing}, classCount={self.class_count}"


class SoftmaxCrossEntropy(CrossEntropy):
    """-t·log(softmax(y)), summed over the classes; y are logits"""

    sign = -1

    def elements(self, y: torch.Tensor, t: torch.Tensor) -> torch.Tensor:
        return t * F.log_softmax(y, class_axis(y.dim()))


class CategoricalCrossEntropy(CrossEntropy):
    """-t·log(y), summed over the classes; y are probabilities"""

    sign = -1

    def elements(self, y: torch.Tensor, t: torch.Tensor) -> torch.Tensor:
        return times_log(t, y)


class SigmoidCrossEntropy(Loss):
    """max(y, 0) - y·t + log(1 + e^-|y|), with t smoothed to t·(1 - s) + s/2; y are logits"""

    def smooth(self, t: torch.Tensor) -> torch.Tensor:
        return t if self.smoothing == 0 else t * (1 - self.smoothing) + self.smoothing / 2

    def elements(self, y: torch.Tensor, t: torch.Tensor) -> torch.Tensor:
        return F.binary_cross_entropy_with_logits(y, t, reduction="none")

    def extra_repr(self) -> str:
        return f"{super().extra_repr()}, labelSmoothing={self.smoothing}"


class Hinge(Loss):
    """max(1 - (2t - 1)·y, 0); labels are 0 and 1"""

    def elements(self, y: torch.Tensor, t: torch.Tensor) -> torch.Tensor:
        return F.relu(1 - (2 * t - 1) * y)


class Huber(Loss):
    """(y - t)²/2 up to a distance of delta, delta·|y - t| - delta²/2 beyond"""

    def elements(self, y: torch.Tensor, t: torch.Tensor) -> torch.Tensor:
        return F.huber_loss(y, t, reduction="none", delta=self.delta)

    def extra_repr(self) -> str:
        return f"{super().extra_repr()}, delta={self.delta}"


class CosineDistance(Loss):
    """1 - Σ y·t over the classes; neither is normalised here.

    The 1 is spread over the classes, so that a sample's weight scales its whole distance.
    """

    over_classes = True

    def elements(self, y: torch.Tensor, t: torch.Tensor) -> torch.Tensor:
        return 1 / y.shape[class_axis(y.dim())] - y * t


class LogLoss(Loss):
    """-t·log(y + epsilon) - (1 - t)·log(1 - y + epsilon); y are probabilities"""

    sign = -1

    def elements(self, y: torch.Tensor, t: torch.Tensor) -> torch.Tensor:
        return times_log(t, y + self.epsilon) + times_log(1 - t, 1 - y + self.epsilon)

    def extra_repr(self) -> str:
        return f"{super().extra_repr()}, epsilon={self.epsilon}"


FORMULAS: dict[MLCLossType, type[Loss]] = {
    MLCLossType.meanAbsoluteError: AbsoluteError,
    MLCLossType.meanSquaredError: SquaredError,
    MLCLossType.softmaxCrossEntropy: SoftmaxCrossEntropy,
    MLCLossType.sigmoidCrossEntropy: SigmoidCrossEntropy,
    MLCLossType.categoricalCrossEntropy: CategoricalCrossEntropy,
    MLCLossType.hinge: Hinge,
    MLCLossType.huber: Huber,
    MLCLossType.cosineDistance: CosineDistance,
    MLCLossType.log: LogLoss,
}


def times(losses: torch.Tensor, factor: float) -> torch.Tensor:
    """factor·losses, of one dimension at least; no loss at all is 0 and never -0."""
    return torch.add(losses.new_zeros(1), losses, alpha=factor)


def times_log(t: torch.Tensor, p: torch.Tensor) -> torch.Tensor:
    """t·log(p), which is 0 where both are 0, and so are both its gradients there (torch.xlogy's is NaN in p)."""
    return t * torch.where((t == 0) & (p == 0), torch.ones_like(p), p).log()


def spread(weights: torch.Tensor, losses: torch.Tensor) -> torch.Tensor:
    """Weights in a shape that multiplies ``losses``.

    There is one for each element (perhaps in squeezed shape), one for each sample, or the shape broadcasts in the same
    rank. A layer's own weights may have been declared for more samples than this batch has, wherever those lie.
    """
    weights = weights[: losses.shape[0]].to(losses.dtype)
    if weights.numel() == losses.numel():
        return weights.reshape(losses.shape)
    if weights.dim() != losses.dim():
        return weights.reshape(weights.shape[0], *[1] * (losses.dim() - 1))
    if any(mine > size for mine, size in zip(weights.shape, losses.shape, strict=True)):
        return weights[tuple(slice(size) for size in losses.shape)]
    return weights
