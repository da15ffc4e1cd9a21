"""What the records of the YOLO loss cannot say: gradients with and without rescoring, shares, settable fields."""

from __future__ import annotations

import copy

import numpy as np
import pytest
import torch

from mlc_torch.enums import MLCReductionType
from mlc_torch.layers.yolo import MLCYOLOLossLayer
from mlc_torch.refusals import last_refusal
from tests.layers.records import tensor, values
from tests.layers.yolo_records import ANCHORS, OBJECTS, describe, labels_for, yolo

SHAPE = (2, 24, 2, 3)


def sources():
    return values(*SHAPE, low=-1.5, high=1.5), labels_for(2, 3, 2, 3, OBJECTS)


def slopes(y, t, fields, frozen):
    """Finite differences of the loops' own result, the overlaps being those of ``frozen``."""
    found, step = np.zeros(y.shape), 1e-6
    for place in np.ndindex(y.shape):
        up, down = y.copy(), y.copy()
        up[place] += step
        down[place] -= step
        rise = yolo(up, t, ANCHORS, fields, frozen).sum() - yolo(down, t, ANCHORS, fields, frozen).sum()
        found[place] = rise / (2 * step)
    return found


@pytest.mark.parametrize("rescores", [True, False])
def test_gradients_of_the_predictions(rescores):
    """No gradient flows through the overlap that a rescored confidence aims at."""
    y, t = (s.astype(float) for s in sources())
    source = torch.from_numpy(y).requires_grad_()
    module = copy.deepcopy(MLCYOLOLossLayer(descriptor=describe(shouldRescore=rescores)).module).double()
    (gradient,) = torch.autograd.grad(module(source, torch.from_numpy(t)).sum(), source)
    want = slopes(y, t, {"shouldRescore": rescores}, y)
    np.testing.assert_allclose(gradient.numpy(), want, rtol=1e-5, atol=1e-6)
    if rescores:
        assert np.abs(slopes(y, t, {}, None) - want).max() > 0.1


def test_the_records_meet_every_kind_of_anchor():
    """One best anchor, several good ones, and both absent and undecided ones."""
    _, t = sources()
    y = np.zeros(SHAPE)
    only = dict.fromkeys(
        ("scaleSpatialPositionLoss", "scaleSpatialSizeLoss", "scaleClassLoss", "scaleNoObjectConfidenceLoss"), 0.0
    ) | {"scaleObjectConfidenceLoss": 12 / np.log(2)}
    absent = only | {"scaleObjectConfidenceLoss": 0.0, "scaleNoObjectConfidenceLoss": 12 / np.log(2)}
    objects, empty = (yolo(y, t, ANCHORS, f | {"shouldRescore": False}).sum() for f in (only, absent))
    assert round(objects) == 4 and 27 < round(empty) < 36 - 4


def test_shares_add_up_and_depend_on_the_batch():
    y, t = (torch.from_numpy(s) for s in sources())
    module = MLCYOLOLossLayer(descriptor=describe()).module
    alone = module(y[:1], t[:1])
    assert alone.shape == (1,)
    np.testing.assert_allclose(alone.numpy(), yolo(y[:1].double().numpy(), t[:1].numpy(), ANCHORS, {}), rtol=1e-4)
    assert not torch.allclose(alone, module(y, t)[:1])


def test_nothing_breaks_without_objects_or_with_far_predictions():
    module = MLCYOLOLossLayer(descriptor=describe()).module
    for scale in (1.0, 200.0):
        for objects in ([], OBJECTS):
            y = torch.from_numpy(values(*SHAPE) * scale).requires_grad_()
            result = module(y, torch.from_numpy(labels_for(2, 3, 2, 3, objects)))
            (gradient,) = torch.autograd.grad(result.sum(), y)
            assert result.isfinite().all() and gradient.isfinite().all()


def test_setting_a_field_shows_at_the_next_run():
    y, t = (torch.from_numpy(s) for s in sources())
    layer = MLCYOLOLossLayer(descriptor=describe())
    before = layer.module(y, t)
    layer.yoloLossDescriptor.scaleClassLoss = 50.0
    want = yolo(y.double().numpy(), t.numpy(), ANCHORS, {"scaleClassLoss": 50.0})
    np.testing.assert_allclose(layer.module(y, t).numpy(), want, rtol=1e-4)
    assert not torch.allclose(before, layer.module(y, t))


def test_anchors_are_the_first_of_the_bytes():
    y, t = (torch.from_numpy(s) for s in sources())
    descriptor = describe([*ANCHORS, (9.0, 9.0)])
    longer = type(descriptor)(anchorBoxes=descriptor.anchorBoxes, anchorBoxCount=3)
    layer = MLCYOLOLossLayer(descriptor=longer)
    assert torch.equal(layer.module(y, t), MLCYOLOLossLayer(descriptor=describe()).module(y, t))
    assert not layer._parameter_uses


def test_the_module_can_be_traced():
    y, t = (torch.from_numpy(s) for s in sources())
    module = MLCYOLOLossLayer(descriptor=describe()).module
    torch.testing.assert_close(torch.export.export(module, (y, t), strict=False).module()(y, t), module(y, t))


def test_what_it_inherits():
    layer = MLCYOLOLossLayer(descriptor=describe())
    assert layer.descriptor.reductionType is MLCReductionType.none and layer.descriptor.weight == 1
    assert layer.weights is None and layer.label == "Loss"
    assert MLCYOLOLossLayer.layerWithDescriptor_weights_(layer.descriptor, tensor(values(2))) is None
    with pytest.raises(TypeError):
        MLCYOLOLossLayer(descriptor=layer.descriptor)
    assert MLCYOLOLossLayer.softmaxCrossEntropy(reductionType=0, labelSmoothing=0, classCount=1, weight=1) is None
    assert "MLCYOLOLossDescriptor" in str(last_refusal())
