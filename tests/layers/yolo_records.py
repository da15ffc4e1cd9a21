"""The YOLO loss against loops over samples, cells and anchors."""

from __future__ import annotations

import itertools
import math

import numpy as np

from mlc_torch.layers import MLCYOLOLossDescriptor
from mlc_torch.layers.yolo import MLCYOLOLossLayer, YOLOLoss
from tests.layers.records import Record, Refusal, values

DEFAULTS = {
    "shouldRescore": True,
    "scaleSpatialPositionLoss": 10.0,
    "scaleSpatialSizeLoss": 10.0,
    "scaleNoObjectConfidenceLoss": 5.0,
    "scaleObjectConfidenceLoss": 100.0,
    "scaleClassLoss": 2.0,
    "minimumIOUForObjectPresence": 0.7,
    "maximumIOUForObjectAbsence": 0.3,
}
ANCHORS = [(1.0, 2.0), (2.5, 1.25), (1.25, 1.75)]


def _iou(x1, y1, w1, h1, x2, y2, w2, h2):
    wide = min(x1 + w1 / 2, x2 + w2 / 2) - max(x1 - w1 / 2, x2 - w2 / 2)
    high = min(y1 + h1 / 2, y2 + h2 / 2) - max(y1 - h1 / 2, y2 - h2 / 2)
    common = max(wide, 0) * max(high, 0)
    return common / (w1 * h1 + w2 * h2 - common)


def _sigmoid(x):
    return 1 / (1 + math.exp(-x))


def yolo(predictions, labels, anchors, fields, frozen=None):
    """Each sample's share of the loss. ``frozen`` are predictions whose overlaps stand in for the real ones'."""
    f = DEFAULTS | fields
    n, channels, high, wide = predictions.shape
    per = channels // len(anchors)
    cells = list(itertools.product(range(n), range(high), range(wide)))

    def at(source, a, place):
        return source[place[0], a * per : (a + 1) * per, place[1], place[2]]

    objects, absent = set(), set()
    for place in cells:
        fits = []
        for a, (aw, ah) in enumerate(anchors):
            gw, gh = at(labels, a, place)[2:4]
            fits.append(_iou(0, 0, aw, ah, 0, 0, gw, gh))
        for a, fit in enumerate(fits):
            here = at(labels, a, place)[4] == 1
            if here and (fit == max(fits) or fit > f["minimumIOUForObjectPresence"]):
                objects.add((a, place))
            elif fit < f["maximumIOUForObjectAbsence"]:
                absent.add((a, place))
    count = len(objects) + 1e-4
    result = np.zeros(n)
    for a, place in sorted(objects | absent):
        raw, truth, (aw, ah) = at(predictions, a, place), at(labels, a, place), anchors[a]
        sample = place[0]
        target = 0.0
        if (a, place) in objects:
            seen = raw if frozen is None else at(frozen, a, place)
            box = _sigmoid(seen[0]), _sigmoid(seen[1]), math.exp(seen[2]) * aw, math.exp(seen[3]) * ah
            target = _iou(*box, *truth[:4]) if f["shouldRescore"] else 1.0
            distance = (truth[0] - _sigmoid(raw[0])) ** 2 + (truth[1] - _sigmoid(raw[1])) ** 2
            result[sample] += f["scaleSpatialPositionLoss"] / count * distance
            for side, anchor in ((2, aw), (3, ah)):
                e = abs(math.log(truth[side] / anchor + 1e-5) - raw[side])
                size = 0.5 * e * e if e <= 1 else e - 0.5
                result[sample] += f["scaleSpatialSizeLoss"] * size / (2 * len(objects))
            logits = raw[5:] - raw[5:].max()
            chances = np.exp(logits) / np.exp(logits).sum()
            result[sample] += f["scaleClassLoss"] / count * -sum(truth[5:] * np.log(chances))
        scale = f["scaleObjectConfidenceLoss"] if (a, place) in objects else f["scaleNoObjectConfidenceLoss"]
        entropy = max(raw[4], 0) - raw[4] * target + math.log(1 + math.exp(-abs(raw[4])))
        result[sample] += scale * entropy / (n * high * wide)
    return result


def labels_for(n, classes, high, wide, objects, anchors=ANCHORS):
    """Labels as Turi Create writes them; ``objects`` holds (sample, row, column, x, y, width, height, class)."""
    made = np.zeros((n, len(anchors), 5 + classes, high, wide), np.float32)
    made[:, :, 5:] = 1 / classes
    for sample, row, column, x, y, w, h, kind in objects:
        made[sample, :, :, row, column] = [x, y, w, h, 1, *(float(c == kind) for c in range(classes))]
    return made.reshape(n, -1, high, wide)


def describe(anchors=ANCHORS, **fields):
    made = MLCYOLOLossDescriptor(anchorBoxes=np.array(anchors, np.float32).tobytes(), anchorBoxCount=len(anchors))
    for name, value in fields.items():
        setattr(made, name, value)
    return made


# The sizes fit one anchor best, two above the limit, or none well.
OBJECTS = [
    (0, 0, 0, 0.3, 0.6, 1.1, 1.9, 0),
    (0, 1, 2, 0.9, 0.1, 2.4, 1.3, 2),
    (1, 1, 1, 0.5, 0.45, 0.4, 3.5, 1),
]

CROWD = [
    (s, r, c, 0.1 + 0.3 * c, 0.2 + 0.4 * r, 0.7 + s + 0.6 * c, 1.3 + 0.9 * r, c)
    for s, r, c in itertools.product((0, 1), (0, 1), (0, 1, 2))
]


def record(name, n=2, classes=3, high=2, wide=3, objects=OBJECTS, anchors=ANCHORS, spread=1.5, **fields) -> Record:
    shape = (n, len(anchors) * (5 + classes), high, wide)
    return Record(
        name,
        lambda: MLCYOLOLossLayer(descriptor=describe(anchors, **fields)),
        [values(*shape, low=-spread, high=spread), labels_for(n, classes, high, wide, objects, anchors)],
        (n,),
        lambda y, t: yolo(y, t, anchors, fields),
        objc=lambda: MLCYOLOLossLayer.layerWithDescriptor_(describe(anchors, **fields)),
        rtol=1e-4,
        # A confidence label of 1 plus a little is no object: see test_yolo.py for the gradients of the predictions.
        gradient=False,
        module=YOLOLoss,
    )


RECORDS = [
    record("defaults"),
    record("without rescoring", shouldRescore=False),
    record("no objects", objects=[]),
    record("one anchor, one class", classes=1, anchors=[(1.5, 0.75)], objects=[(0, 1, 1, 0.2, 0.7, 1.0, 1.0, 0)]),
    record("one cell", n=1, high=1, wide=1, objects=[(0, 0, 0, 0.5, 0.5, 2.0, 1.5, 1)]),
    record("an object in every cell", objects=CROWD),
    record("far predictions", spread=6.0),
    record("position alone", scaleSpatialPositionLoss=3.0, scaleSpatialSizeLoss=0.0, scaleNoObjectConfidenceLoss=0.0,
           scaleObjectConfidenceLoss=0.0, scaleClassLoss=0.0),
    record("size alone", scaleSpatialPositionLoss=0.0, scaleSpatialSizeLoss=7.0, scaleNoObjectConfidenceLoss=0.0,
           scaleObjectConfidenceLoss=0.0, scaleClassLoss=0.0),
    record("no-object confidence alone", scaleSpatialPositionLoss=0.0, scaleSpatialSizeLoss=0.0,
           scaleNoObjectConfidenceLoss=2.0, scaleObjectConfidenceLoss=0.0, scaleClassLoss=0.0),
    record("object confidence alone", scaleSpatialPositionLoss=0.0, scaleSpatialSizeLoss=0.0,
           scaleNoObjectConfidenceLoss=0.0, scaleObjectConfidenceLoss=9.0, scaleClassLoss=0.0),
    record("class alone", scaleSpatialPositionLoss=0.0, scaleSpatialSizeLoss=0.0, scaleNoObjectConfidenceLoss=0.0,
           scaleObjectConfidenceLoss=0.0, scaleClassLoss=4.0),
    record("every anchor that fits a little", minimumIOUForObjectPresence=0.2),
    record("only the best anchor", minimumIOUForObjectPresence=1.0),
    record("absence up to a good fit", maximumIOUForObjectAbsence=0.65),
    record("absence nowhere", maximumIOUForObjectAbsence=0.0),
]  # fmt: skip


def _layer():
    return MLCYOLOLossLayer(descriptor=describe())


_IMAGE = ((2, 24, 2, 3), "float32")

REFUSALS = [
    Refusal("anchor of no width", lambda: MLCYOLOLossLayer(descriptor=describe([(0.0, 1.0)])), "anchorBoxes"),
    Refusal("infinite anchor", lambda: MLCYOLOLossLayer(descriptor=describe([(1.0, math.inf)])), "anchorBoxes"),
    Refusal("too few bytes", lambda: MLCYOLOLossDescriptor(anchorBoxes=b"1234", anchorBoxCount=1), "8 bytes"),
    Refusal("another loss's factory", lambda: MLCYOLOLossLayer.hingeLoss(reductionType=0, weight=1), "MLCLossLayer"),
    Refusal("one source", _layer, "2 sources", [_IMAGE]),
    Refusal("three sources", _layer, "2 sources", [_IMAGE] * 3),
    Refusal("rank", _layer, "[batch, channels, height, width]", [((2, 24), "float32")] * 2),
    Refusal("channels", _layer, "25 channels", [((2, 25, 2, 3), "float32")] * 2),
    Refusal("no class", _layer, "15 channels", [((2, 15, 2, 3), "float32")] * 2),
    Refusal("labels of another shape", _layer, "labels", [_IMAGE, ((2, 24, 3, 2), "float32")]),
    Refusal("integer labels", _layer, "labels must be", [_IMAGE, ((2, 24, 2, 3), "int32")]),
]
