"""Losses: how far predictions are from labels (evidence.md section E). The formulas are in ``loss_formulas``."""

from __future__ import annotations

import math

from mlc_torch.descriptors import MLCLossDescriptor
from mlc_torch.descriptors.base import finite
from mlc_torch.enums import MLCLossType, MLCReductionType
from mlc_torch.layers.base import FLOATS, MLCLayer, described, element_count, of_type
from mlc_torch.layers.loss_formulas import FORMULAS, class_axis
from mlc_torch.layers.sharing import PART, Samples, along_first, mixes
from mlc_torch.refusals import refuse
from mlc_torch.spelling import declare, prop
from mlc_torch.tensor import MLCTensorDescriptor
from mlc_torch.tensor.shapes import reads_as

Kind = MLCLossType

_REDUCED = "reductionType: MLCReductionType"
_SMOOTHED = f"{_REDUCED}, labelSmoothing: Float"
_CLASSES = f"{_SMOOTHED}, classCount: Int"
_WEIGHT = "weight: Float) -> Self"
_WEIGHTS = "weights: MLCTensor?) -> Self"

_ABOUT = {
    "hingeLoss": "max(0, 1 - (2·label - 1)·prediction), for labels 0 and 1.",
    "huberLoss": "Quadratic for errors up to ``delta``, linear beyond.",
    "log": "The log loss of probabilities; ``epsilon`` is added inside the logarithm.",
    "meanAbsoluteError": "|prediction - label|.",
    "meanSquaredError": "(prediction - label)².",
    "cosineDistance": "1 minus the scalar product of predictions and labels.",
    "sigmoidCrossEntropy": "The cross-entropy of the predictions' sigmoids; labels lie between 0 and 1.",
    "softmaxCrossEntropy": "The cross-entropy of the predictions' softmax; labels are one-hot or probabilities.",
    "categoricalCrossEntropy": "The cross-entropy of predictions that are probabilities already.",
}

_SMOOTHED_BY_CLASSES = (Kind.softmaxCrossEntropy, Kind.categoricalCrossEntropy)


class MLCLossLayer(MLCLayer):
    """A loss of predictions and labels, with one weight for everything and, if wanted, a tensor of weights.

    Its sources are predictions and labels, and may be followed by weights. Without that third source the layer's own
    ``weights`` serve, if it has any; they are not trained.
    """

    descriptor = prop("MLCLossDescriptor", "Which loss, how it is reduced, and its parameters.")
    weights = prop("MLCTensor?", "The weights of elements or samples, or ``None``.")
    _named = "Loss"

    @declare("init(descriptor lossDescriptor: MLCLossDescriptor)", "layerWithDescriptor:")
    @declare("init(descriptor lossDescriptor: MLCLossDescriptor, weights: MLCTensor)", "layerWithDescriptor:weights:")
    def _create(cls, lossDescriptor, weights=None):
        """By descriptor; with weights, each element or sample counts by its own."""
        return cls._loss(lossDescriptor, weights)

    @declare(
        f"static hingeLoss({_REDUCED}, {_WEIGHT}",
        "hingeLossWithReductionType:weight:",
        about=_ABOUT["hingeLoss"],
        type=Kind.hinge,
    )
    @declare(
        f"static hingeLoss({_REDUCED}, {_WEIGHTS}",
        "hingeLossWithReductionType:weights:",
        about=_ABOUT["hingeLoss"],
        type=Kind.hinge,
    )
    @declare(
        f"static huberLoss({_REDUCED}, delta: Float, {_WEIGHT}",
        "huberLossWithReductionType:delta:weight:",
        about=_ABOUT["huberLoss"],
        type=Kind.huber,
    )
    @declare(
        f"static huberLoss({_REDUCED}, delta: Float, {_WEIGHTS}",
        "huberLossWithReductionType:delta:weights:",
        about=_ABOUT["huberLoss"],
        type=Kind.huber,
    )
    @declare(
        f"static log({_REDUCED}, epsilon: Float, {_WEIGHT}",
        "logLossWithReductionType:epsilon:weight:",
        about=_ABOUT["log"],
        type=Kind.log,
    )
    @declare(
        f"static log({_REDUCED}, epsilon: Float, {_WEIGHTS}",
        "logLossWithReductionType:epsilon:weights:",
        about=_ABOUT["log"],
        type=Kind.log,
    )
    @declare(
        f"static meanAbsoluteError({_REDUCED}, {_WEIGHT}",
        "meanAbsoluteErrorLossWithReductionType:weight:",
        about=_ABOUT["meanAbsoluteError"],
        type=Kind.meanAbsoluteError,
    )
    @declare(
        f"static meanAbsoluteError({_REDUCED}, {_WEIGHTS}",
        "meanAbsoluteErrorLossWithReductionType:weights:",
        about=_ABOUT["meanAbsoluteError"],
        type=Kind.meanAbsoluteError,
    )
    @declare(
        f"static meanSquaredError({_REDUCED}, {_WEIGHT}",
        "meanSquaredErrorLossWithReductionType:weight:",
        about=_ABOUT["meanSquaredError"],
        type=Kind.meanSquaredError,
    )
    @declare(
        f"static meanSquaredError({_REDUCED}, {_WEIGHTS}",
        "meanSquaredErrorLossWithReductionType:weights:",
        about=_ABOUT["meanSquaredError"],
        type=Kind.meanSquaredError,
    )
    @declare(
        f"static cosineDistance({_REDUCED}, {_WEIGHT}",
        "cosineDistanceLossWithReductionType:weight:",
        about=_ABOUT["cosineDistance"],
        type=Kind.cosineDistance,
    )
    @declare(
        f"static cosineDistance({_REDUCED}, {_WEIGHTS}",
        "cosineDistanceLossWithReductionType:weights:",
        about=_ABOUT["cosineDistance"],
        type=Kind.cosineDistance,
    )
    @declare(
        f"static sigmoidCrossEntropy({_SMOOTHED}, {_WEIGHT}",
        "sigmoidCrossEntropyLossWithReductionType:labelSmoothing:weight:",
        about=_ABOUT["sigmoidCrossEntropy"],
        type=Kind.sigmoidCrossEntropy,
    )
    @declare(
        f"static sigmoidCrossEntropy({_SMOOTHED}, {_WEIGHTS}",
        "sigmoidCrossEntropyLossWithReductionType:labelSmoothing:weights:",
        about=_ABOUT["sigmoidCrossEntropy"],
        type=Kind.sigmoidCrossEntropy,
    )
    @declare(
        f"static softmaxCrossEntropy({_CLASSES}, {_WEIGHT}",
        "softmaxCrossEntropyLossWithReductionType:labelSmoothing:classCount:weight:",
        about=_ABOUT["softmaxCrossEntropy"],
        type=Kind.softmaxCrossEntropy,
    )
    @declare(
        f"static softmaxCrossEntropy({_CLASSES}, {_WEIGHTS}",
        "softmaxCrossEntropyLossWithReductionType:labelSmoothing:classCount:weights:",
        about=_ABOUT["softmaxCrossEntropy"],
        type=Kind.softmaxCrossEntropy,
    )
    @declare(
        f"static categoricalCrossEntropy({_CLASSES}, {_WEIGHT}",
        "categoricalCrossEntropyLossWithReductionType:labelSmoothing:classCount:weight:",
        about=_ABOUT["categoricalCrossEntropy"],
        type=Kind.categoricalCrossEntropy,
    )
    @declare(
        f"static categoricalCrossEntropy({_CLASSES}, {_WEIGHTS}",
        "categoricalCrossEntropyLossWithReductionType:labelSmoothing:classCount:weights:",
        about=_ABOUT["categoricalCrossEntropy"],
        type=Kind.categoricalCrossEntropy,
    )
    def _of(cls, type, reductionType, weights=None, **numbers):
        return cls._loss(MLCLossDescriptor._create(type, reductionType, **numbers), weights)

    @classmethod
    def _loss(cls, descriptor, weights):
        _check_numbers(descriptor)
        return cls._layer(descriptor=descriptor, weights=weights)

    def _infer(self, sources):
        if len(sources) not in (2, 3):
            refuse(f"a loss takes predictions and labels, and may take weights; got {len(sources)} sources")
        predictions, labels = of_type(sources[0], FLOATS, "the predictions"), sources[1]
        d, shape = self._descriptor, predictions._shape
        over_classes = FORMULAS[d.lossType].over_classes
        if over_classes and len(shape) < 2:
            refuse(f"{d.lossType.name} takes predictions of shape [batch, classes, ...], got {predictions.shape}")
        if element_count(labels) != element_count(predictions) or not reads_as(labels._shape, shape):
            meant = ""
            if over_classes and element_count(labels) == element_count(predictions) // shape[class_axis(len(shape))]:
                meant = "; class numbers go in as one-hot labels, one number for each class"
            refuse(
                f"the labels must have the predictions' shape {predictions.shape} or it squeezed, got {labels.shape}{meant}"
            )
        if len(sources) == 3:
            _check_weights(sources[2], predictions)
        elif self._weights is not None:
            _check_weights(self._weights._cell.descriptor, predictions)
        if d.reductionType is not MLCReductionType.none:
            shape = (1,)
        elif over_classes:
            shape = shape[:1]
        return [described(shape, predictions._dataType)]

    @property
    def _divides_by_samples(self) -> bool:
        """Whether the loss of a batch is divided by what it holds; else the losses of several batches add up to that of all."""
        return self._descriptor.reductionType is MLCReductionType.mean

    @property
    def _gives_one_loss(self) -> bool:
        """Whether the result, added up, is the loss of a batch; else it is a loss for each sample or element."""
        return self._descriptor.reductionType is not MLCReductionType.none

    def _check(self, sources):
        # The real framework wants data in the weights when it compiles (evidence.md E.4); without it all would be 0.
        if len(sources) == 2 and self._weights is not None:
            cell = self._weights._cell
            if cell.host is None and cell.value is None:
                refuse(f"the weights {cell.label!r} hold no data, and no label weights are given to the graph")

    def _samples(self, axes, sources, results):
        """Each rank's loss of its own samples; where it is reduced, a part of the whole."""
        batch = sources[0]._shape[0]
        if axes[0] not in (0, None):
            stays = [axes[0] if results[0]._shape == sources[0]._shape else None]
            mixes(f"takes samples along dimension 0, and the source counts them along dimension {axes[0]}", stays)
        if all(axis is None for axis in along_first(axes, 1).results):
            return Samples(axes, [None])
        is_each = self._descriptor.reductionType is MLCReductionType.none
        has_rows = [0 if source._shape[0] == batch else None for source in sources]
        if None in has_rows[1:2]:
            mixes(
                f"the labels of shape {sources[1].shape} have no row for each of the {batch} samples",
                [0 if is_each else None],
            )
        return Samples(has_rows, [0 if is_each else PART])

    def _build(self):
        module = FORMULAS[self._descriptor.lossType](self._descriptor)
        if self._weights is not None:
            self._show_buffer(module, "weights", self._weights._cell.shape, self._weights)
        return module


def _check_numbers(descriptor: MLCLossDescriptor) -> None:
    reduction, kind = descriptor.reductionType, descriptor.lossType
    if reduction.name not in ("none", "sum", "mean"):
        refuse(f"reductionType of a loss must be none, sum or mean, got {reduction.name}")
    finite("weight of a loss", descriptor.weight)
    if kind is Kind.log:
        finite("epsilon of the log loss", descriptor.epsilon)
    if kind is Kind.huber and not descriptor.delta > 0:
        refuse(f"delta of the Huber loss must be above 0, got {descriptor.delta}")
    if kind in (*_SMOOTHED_BY_CLASSES, Kind.sigmoidCrossEntropy) and not 0 <= descriptor.labelSmoothing <= 1:
        refuse(f"labelSmoothing must lie between 0 and 1, got {descriptor.labelSmoothing}")
    if kind in _SMOOTHED_BY_CLASSES and descriptor.labelSmoothing > 0 and descriptor.classCount < 1:
        refuse(f"classCount must be at least 1, because the smoothing is divided by it; got {descriptor.classCount}")


def _check_weights(weights: MLCTensorDescriptor, predictions: MLCTensorDescriptor) -> None:
    mine, shape = weights._shape, predictions._shape
    # The first dimension counts samples, of which a smaller batch takes the first; behind it, as for labels.
    same_order = mine[0] == shape[0] and math.prod(mine) == math.prod(shape) and reads_as(mine, shape)
    per_sample = mine[0] in (shape[0], 1) and math.prod(mine[1:]) == 1
    broadcasts = len(mine) == len(shape) and all(m in (n, 1) for m, n in zip(mine, shape, strict=True))
    if not (same_order or per_sample or broadcasts):
        refuse(
            f"the weights must have the predictions' shape {list(shape)} or it squeezed, one number for each of the "
            f"{shape[0]} samples, or as many dimensions as the predictions, each of the same size or 1; got {list(mine)}"
        )
