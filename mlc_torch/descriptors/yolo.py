"""The anchors and scales of the YOLO loss. The only descriptor whose fields can be set."""

from __future__ import annotations

import struct

from mlc_torch.descriptors.base import Descriptor, positive
from mlc_torch.refusals import refuse
from mlc_torch.spelling import declare, prop

ANCHOR_BOX = struct.Struct("<2f")
"""Width and height of one anchor in ``anchorBoxes``."""


class MLCYOLOLossDescriptor(Descriptor):
    """Anchor boxes are float32 pairs (width, height) in grid cells."""

    anchorBoxes = prop("Data")
    anchorBoxCount = prop("Int")
    shouldRescore = prop("Bool", settable=True)
    scaleSpatialPositionLoss = prop("Float", settable=True)
    scaleSpatialSizeLoss = prop("Float", settable=True)
    scaleNoObjectConfidenceLoss = prop("Float", settable=True)
    scaleObjectConfidenceLoss = prop("Float", settable=True)
    scaleClassLoss = prop("Float", settable=True)
    minimumIOUForObjectPresence = prop("Float", settable=True)
    maximumIOUForObjectAbsence = prop("Float", settable=True)

    @declare("init(anchorBoxes: Data, anchorBoxCount: Int)", "descriptorWithAnchorBoxes:anchorBoxCount:")
    def _create(cls, anchorBoxes, anchorBoxCount):
        wanted = ANCHOR_BOX.size * positive("anchorBoxCount", anchorBoxCount)
        if len(anchorBoxes) < wanted:
            refuse(f"anchorBoxes needs {wanted} bytes (two float32 a box), got {len(anchorBoxes)}")
        return cls._make(
            anchorBoxes=anchorBoxes,
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
