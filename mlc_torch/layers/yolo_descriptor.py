"""The anchors and scales of the YOLO loss: the only descriptor whose fields can be set, and which reads memory as tensors do."""

from __future__ import annotations

import struct

import torch

from mlc_torch.descriptors.base import Descriptor, positive
from mlc_torch.refusals import refuse
from mlc_torch.spelling import declare, prop
from mlc_torch.tensor import MLCTensorData

ANCHOR_BOX = struct.Struct("<2f")
"""Width and height of one anchor in ``anchorBoxes``."""


class MLCYOLOLossDescriptor(Descriptor):
    """The anchor boxes and scales of the YOLO loss. Boxes are float32 pairs (width, height) in grid cells."""

    anchorBoxes = prop("Data", "The boxes as bytes: a float32 width and height for each.")
    anchorBoxCount = prop("Int", "How many anchor boxes there are.")
    shouldRescore = prop(
        "Bool",
        "Whether the confidence of an object is compared with the overlap of its box rather than with 1.",
        settable=True,
    )
    scaleSpatialPositionLoss = prop("Float", "How much wrong positions count.", settable=True)
    scaleSpatialSizeLoss = prop("Float", "How much wrong sizes count.", settable=True)
    scaleNoObjectConfidenceLoss = prop("Float", "How much confidence counts where there is no object.", settable=True)
    scaleObjectConfidenceLoss = prop("Float", "How much confidence counts where there is an object.", settable=True)
    scaleClassLoss = prop("Float", "How much wrong classes count.", settable=True)
    minimumIOUForObjectPresence = prop(
        "Float", "The overlap from which a box counts as holding an object.", settable=True
    )
    maximumIOUForObjectAbsence = prop("Float", "The overlap up to which a box counts as holding none.", settable=True)

    @declare("init(anchorBoxes: Data, anchorBoxCount: Int)", "descriptorWithAnchorBoxes:anchorBoxCount:")
    def _create(cls, anchorBoxes, anchorBoxCount):
        """The scales and limits start with the framework's defaults and may be set afterwards."""
        wanted = ANCHOR_BOX.size * positive("anchorBoxCount", anchorBoxCount)
        shape = (anchorBoxCount, 2)
        data = MLCTensorData._coerce(anchorBoxes)
        data._must_fit(torch.float32, shape, f"anchorBoxes, read as a tensor of shape {list(shape)},")
        if data._length < wanted:
            refuse(f"anchorBoxes needs {wanted} bytes (two float32 a box), got {data._length}")
        return cls._make(
            anchorBoxes=bytes(data._bytes),
            anchorBoxCount=anchorBoxCount,
            shouldRescore=True,
            scaleSpatialPositionLoss=10.0,
            scaleSpatialSizeLoss=10.0,
            scaleNoObjectConfidenceLoss=5.0,
            scaleObjectConfidenceLoss=100.0,
            scaleClassLoss=2.0,
            minimumIOUForObjectPresence=0.7,
            maximumIOUForObjectAbsence=0.3,
        )
