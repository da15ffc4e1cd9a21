"""The YOLO loss: a grid of anchor boxes against the objects in an image (evidence.md E.5).

Predictions and labels are [batch, anchors·(5 + classes), height, width]; the channels of one anchor are x, y, width,
height, confidence and the classes. Predictions are raw: x, y and confidence go through a sigmoid, sizes are
e^raw·anchor, and classes go through a softmax. Labels hold the centre's offset in its cell, the size in cells, a
confidence of 1 where there is an object, and the classes one-hot.
"""

from __future__ import annotations

import copy
import math

import torch
from torch import nn
from torch.nn import functional as F

from mlc_torch.descriptors import MLCLossDescriptor
from mlc_torch.enums import MLCLossType, MLCReductionType
from mlc_torch.layers.base import FLOATS, described, exactly, image, of_type
from mlc_torch.layers.loss import MLCLossLayer
from mlc_torch.layers.sharing import Samples, along_first, current_share
from mlc_torch.layers.yolo_descriptor import ANCHOR_BOX, MLCYOLOLossDescriptor
from mlc_torch.refusals import refuse
from mlc_torch.spelling import declare, prop
from mlc_torch.tensor import MLCTensor, MLCTensorData


class YOLOLoss(nn.Module):
    """Position, size, confidence and class losses of every anchor in every cell, added up for each sample.

    An anchor has an object where the label's confidence is 1 and no other anchor of the cell fits better, or where it
    fits well enough; an anchor that has none and fits badly is pushed to a confidence of 0. Each sample gets its share
    of the batch's loss, whose terms are divided by the objects in the batch (by twice as many for the size, as there
    are two numbers to an object) and, for the confidence, by all cells of the batch.

    The descriptor's fields are read when a graph is compiled: what is set counts from the next ``compile`` on. Before the first
    one they are read at each run. Half precision is computed in single, where the 1e-4 and 1e-5 of the formula still count.
    """

    anchors: torch.Tensor

    adds_over_ranks = True
    """Where several processes share a batch, it looks at the samples of all."""

    def __init__(self, descriptor: MLCYOLOLossDescriptor) -> None:
        super().__init__()
        self.descriptor = descriptor
        self._compiled: MLCYOLOLossDescriptor | None = None

    def read_descriptor(self) -> None:
        """Keep the fields as they are now: a recording would, and what is not recorded must compute the same."""
        self._compiled = copy.copy(self.descriptor)

    def forward(self, predictions: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        d = self.descriptor if self._compiled is None else self._compiled
        dtype = torch.promote_types(predictions.dtype, torch.float32)
        anchors = self.anchors.to(predictions.device, dtype).view(1, -1, 2, 1, 1)
        batch, _, height, width = predictions.shape
        raw, truth = (source.to(dtype).unflatten(1, (anchors.shape[1], -1)) for source in (predictions, labels))
        fields = (2, 2, 1, raw.shape[2] - 5)
        raw_position, raw_size, raw_confidence, raw_classes = raw.split(fields, 2)
        position, size, confidence, classes = truth.split(fields, 2)

        fit = overlap(torch.zeros_like(size), anchors.expand_as(size), torch.zeros_like(size), size)
        best = fit == fit.amax(1, keepdim=True)
        has_object = (confidence == 1) & (best | (fit > d.minimumIOUForObjectPresence))
        has_none = (fit < d.maximumIOUForObjectAbsence) & ~has_object
        objects = has_object.sum().to(dtype)
        samples: float | torch.Tensor = batch
        share = current_share()
        if share is not None and share.ranks.world > 1:
            weight = 0.0 if share.is_idle else 1.0
            objects, samples = share.total(torch.stack([objects, objects.new_tensor(batch)]) * weight).unbind()

        centre = raw_position.sigmoid()
        target = has_object.to(dtype)
        if d.shouldRescore:
            box = overlap(centre, raw_size.exp() * anchors, position, size).detach()
            target = torch.where(has_object, box, target)

        position_loss = (position - centre).square().sum(2, keepdim=True)
        size_loss = F.huber_loss(raw_size, (size / anchors + 1e-5).log(), reduction="none").sum(2, keepdim=True)
        class_loss = -(classes * F.log_softmax(raw_classes, 2)).sum(2, keepdim=True)
        of_objects = (
            position_loss * (d.scaleSpatialPositionLoss / (objects + 1e-4))
            + size_loss * (d.scaleSpatialSizeLoss / (2 * objects).clamp(min=1))
            + class_loss * (d.scaleClassLoss / (objects + 1e-4))
        )
        importance = d.scaleObjectConfidenceLoss * has_object + d.scaleNoObjectConfidenceLoss * has_none
        confidence_loss = F.binary_cross_entropy_with_logits(raw_confidence, target, reduction="none") * importance
        losses = torch.where(has_object, of_objects, 0) + confidence_loss / (samples * height * width)
        return losses.flatten(1).sum(1).to(predictions.dtype)

    def extra_repr(self) -> str:
        return f"anchors={anchor_boxes(self.descriptor)}"


def overlap(
    centre: torch.Tensor, size: torch.Tensor, other_centre: torch.Tensor, other_size: torch.Tensor
) -> torch.Tensor:
    """Intersection over union of boxes, 0 where neither has an area; x and y lie along axis 2."""
    high = torch.minimum(centre + size / 2, other_centre + other_size / 2)
    low = torch.maximum(centre - size / 2, other_centre - other_size / 2)
    common = (high - low).clamp(min=0).prod(2, keepdim=True)
    union = size.prod(2, keepdim=True) + other_size.prod(2, keepdim=True) - common
    return torch.where(union > 0, common / union, 0)


def anchor_boxes(descriptor: MLCYOLOLossDescriptor) -> list[tuple[float, float]]:
    """(width, height) of each anchor, in grid cells."""
    count = descriptor.anchorBoxCount
    return list(ANCHOR_BOX.iter_unpack(descriptor.anchorBoxes[: ANCHOR_BOX.size * count]))


class MLCYOLOLossLayer(MLCLossLayer, inherits_initializers=False):
    """The YOLO loss of predictions and labels: one value for each sample, which add up to the batch's loss."""

    yoloLossDescriptor = prop("MLCYOLOLossDescriptor", "Anchor boxes and scales.")
    _divides_by_samples = _gives_one_loss = (
        True  # each value is a share of a loss that is divided by the batch's objects
    )

    @declare("init(descriptor lossDescriptor: MLCYOLOLossDescriptor)", "layerWithDescriptor:")
    def _create(cls, lossDescriptor):
        """By descriptor."""
        for box in anchor_boxes(lossDescriptor):
            if not all(0 < side < math.inf for side in box):
                refuse(f"anchorBoxes must have positive widths and heights, got {box}")
        # The inherited descriptor says what it can of this loss: nothing is reduced, and the weight is 1.
        plain = MLCLossDescriptor._create(MLCLossType.meanSquaredError, MLCReductionType.none)
        return cls._layer(descriptor=plain, weights=None, yoloLossDescriptor=lossDescriptor)

    @classmethod
    def _loss(cls, descriptor, weights):
        refuse(f"{cls.__name__} is made from an MLCYOLOLossDescriptor alone; MLCLossLayer has the other losses")

    def _infer(self, sources):
        predictions, labels = exactly(sources, 2)
        of_type(predictions, FLOATS, "the predictions")
        of_type(labels, FLOATS, "the labels")
        batch, channels, _, _ = image(predictions, "the YOLO loss")
        anchors = self._yoloLossDescriptor.anchorBoxCount
        if channels % anchors or channels // anchors < 6:
            refuse(
                f"the predictions have {channels} channels; {anchors} anchors with five numbers and the classes each "
                f"need {anchors}·(5 + classes)"
            )
        if labels._shape != predictions._shape:
            refuse(f"the labels must have the predictions' shape {predictions.shape}, got {labels.shape}")
        return [described((batch,), predictions._dataType)]

    def _check(self, sources):
        module = self.module
        assert isinstance(module, YOLOLoss)
        module.read_descriptor()

    def _samples(self, axes, sources, results):
        """The terms are divided by the objects of all samples, which the ranks add up."""
        return Samples([0, 0], [0]) if along_first(axes, 1).results == [0] else Samples(axes, [None])

    def _build(self):
        d = self._yoloLossDescriptor
        module, shape = YOLOLoss(d), (d.anchorBoxCount, 2)
        # As a tensor's memory the boxes go where the graph is compiled, like everything else a module reads.
        boxes = MLCTensorData._over(bytearray(d.anchorBoxes[: ANCHOR_BOX.size * d.anchorBoxCount]))
        self._show_buffer(module, "anchors", shape, MLCTensor._of_shape(shape, data=boxes))
        return module
