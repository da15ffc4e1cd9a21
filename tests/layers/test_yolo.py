"""What the records of the YOLO loss cannot say: gradients with and without rescoring, shares, settable fields."""

from __future__ import annotations

import copy

import numpy as np
import pytest
import torch

import mlc_torch as mlc
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


@pytest.mark.parametrize("options", [[], [mlc.MLCGraphCompilationOptions.disableLayerFusion]], ids=["fast", "plain"])
def test_in_a_graph_a_field_counts_from_the_next_compile_on(options):
    """In whole and in short batches, by the formula for one anchor in one cell, where raw predictions and labels are 1."""
    descriptor = mlc.MLCYOLOLossDescriptor(anchorBoxes=np.ones(2, np.float32).tobytes(), anchorBoxCount=1)
    x, t, graph = mlc.MLCTensor(shape=[2, 6, 1, 1]), mlc.MLCTensor(shape=[2, 6, 1, 1]), mlc.MLCGraph()
    graph.node(mlc.MLCActivationLayer.relu, source=x)
    training = mlc.MLCTrainingGraph(
        graphObjects=[graph], lossLayer=MLCYOLOLossLayer(descriptor=descriptor), optimizer=None
    )
    assert training.addInputs({"x": x}, lossLabels={"t": t})
    ones, found = np.ones((2, 6, 1, 1), np.float32), []

    def loss(samples):
        assert training.execute(
            inputsData={"x": ones},
            lossLabelsData={"t": ones},
            lossLabelWeightsData=None,
            batchSize=samples,
            completionHandler=lambda result, error, seconds: found.append(result.numpy()[:samples].sum().item()),
        )
        return found.pop()

    descriptor.shouldRescore = False
    sigmoid = 1 / (1 + np.exp(-1.0))
    size = 10 * 2 * (0.5 * (1 - np.log(1 + 1e-5)) ** 2) / 2
    rest = size + 100 * -np.log(sigmoid)  # a softmax over one class costs nothing
    for before, after in ((10.0, 1000.0), (1000.0, 10.0)):
        assert descriptor.scaleSpatialPositionLoss == before
        assert training.compile(options=options, device=mlc.MLCDevice.cpu())
        descriptor.scaleSpatialPositionLoss = after
        for samples in (2, 1, 2):
            position = before * samples * 2 * (1 - sigmoid) ** 2 / (samples + 1e-4)
            np.testing.assert_allclose(loss(samples), position + rest, rtol=1e-4)


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
