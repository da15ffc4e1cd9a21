"""What the records of the losses cannot say: a layer's own weights, smaller batches, gradients at log 0, properties."""

from __future__ import annotations

import copy

import numpy as np
import pytest
import torch
from torch.nn import functional as F

from mlc_torch.descriptors import MLCLossDescriptor
from mlc_torch.enums import MLCLossType as Kind
from mlc_torch.enums import MLCReductionType as Reduction
from mlc_torch.layers.loss import MLCLossLayer
from tests.layers.loss_records import REDUCTIONS, SHAPES, loss, one_hot, sources_for
from tests.layers.records import tensor, values


def make(kind, reduction=Reduction.mean, weights=None, **numbers) -> MLCLossLayer:
    numbers = {"weight": 1.0, "labelSmoothing": 0.0, "classCount": 1, "epsilon": 1e-7, "delta": 1.0} | numbers
    descriptor = MLCLossDescriptor(type=kind, reductionType=reduction, **numbers)
    if weights is None:
        return MLCLossLayer(descriptor=descriptor)
    return MLCLossLayer(descriptor=descriptor, weights=tensor(weights))


def both(kind, shape=(3, 4), label_shape=None) -> list[torch.Tensor]:
    return [torch.from_numpy(s) for s in sources_for(kind, shape, label_shape or shape)]


@pytest.mark.parametrize("kind", Kind)
@pytest.mark.parametrize("weights", [(3, 4), (3,)])
def test_gradients_with_own_weights(kind, weights):
    module = copy.deepcopy(make(kind, Reduction.none, values(*weights, seed=3)).module).double()
    sources = [s.double().requires_grad_() for s in both(kind)]
    assert torch.autograd.gradcheck(module, sources)


@pytest.mark.parametrize("kind", Kind)
def test_own_weights_serve_smaller_batches(kind):
    y, t = both(kind)
    for weights in (values(3, 4, seed=3), values(3, 1, seed=3), values(1, 4, seed=3)):
        module = make(kind, Reduction.none, weights).module
        for batch in (1, 2, 3):
            want = loss(kind, Reduction.none, y[:batch].numpy().astype(float), t[:batch].numpy(), weights[:batch])
            np.testing.assert_allclose(module(y[:batch], t[:batch]).numpy(), want, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("kind", Kind)
@pytest.mark.parametrize("name", SHAPES)
def test_a_smaller_batch_is_the_loss_of_its_samples(kind, name):
    shape, label_shape = SHAPES[name]
    y, t = both(kind, shape, label_shape)
    for reduction in REDUCTIONS:
        want = loss(kind, reduction, y[:1].numpy().astype(float), t[:1].numpy())
        np.testing.assert_allclose(make(kind, reduction).module(y[:1], t[:1]).numpy(), want, rtol=1e-4, atol=1e-6)


def test_a_weights_source_comes_before_the_own_weights():
    y, t = both(Kind.huber)
    given = torch.from_numpy(values(3, 4, seed=4))
    own = make(Kind.huber, weights=values(3, 4, seed=3))
    assert torch.equal(own.module(y, t, given), make(Kind.huber).module(y, t, given))
    assert not torch.equal(own.module(y, t), own.module(y, t, given))


def test_own_weights_are_the_callers_memory_and_not_trained():
    weights = tensor(np.ones((3, 4), np.float32))
    layer = MLCLossLayer.meanSquaredError(reductionType=Reduction.sum, weights=weights)
    y, t = both(Kind.meanSquaredError)
    once = layer.module(y, t)
    weights.numpy()[...] = 2
    assert torch.equal(layer.module(y, t), 2 * once)
    assert not layer._parameter_uses and not list(layer.module.parameters())
    assert layer.weights is weights


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.float16])
def test_a_label_of_0_for_a_probability_of_0_costs_nothing_and_hurts_no_gradient(dtype):
    y = torch.tensor([[0.0, 1.0, 0.0], [0.25, 0.0, 0.75]], dtype=dtype, requires_grad=True)
    t = torch.tensor([[0.0, 1.0, 0.0], [0.0, 0.0, 1.0]], dtype=dtype)
    result = make(Kind.categoricalCrossEntropy, Reduction.none).module(y, t)
    (gradient,) = torch.autograd.grad(result.sum(), y)
    np.testing.assert_allclose(result.detach().float(), [0, -np.log(0.75)], rtol=1e-3)
    np.testing.assert_allclose(gradient.float(), [[0, -1, 0], [0, 0, -1 / 0.75]], rtol=1e-3)

    y = torch.tensor([[0.0, 1.0, 0.5]], dtype=dtype, requires_grad=True)
    t = torch.tensor([[0.0, 1.0, 1.0]], dtype=dtype)
    result = make(Kind.log, Reduction.none, epsilon=0.0).module(y, t)
    (gradient,) = torch.autograd.grad(result.sum(), y)
    np.testing.assert_allclose(result.detach().float(), [[0, 0, np.log(2)]], rtol=1e-3)
    np.testing.assert_allclose(gradient.float(), [[1, -1, -2]], rtol=1e-3)


def test_a_wrong_probability_of_0_costs_infinity():
    y, t = torch.tensor([[0.0, 1.0]]), torch.tensor([[1.0, 0.0]])
    assert make(Kind.categoricalCrossEntropy, Reduction.sum).module(y, t).item() == float("inf")


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_softmax_cross_entropy_is_torchs(smoothing):
    """An oracle of its own: the classes come as numbers there."""
    y, labels = torch.from_numpy(values(5, 4, 2, 3)), one_hot(5, 4, 2, 3, axis=1)
    module = make(Kind.softmaxCrossEntropy, labelSmoothing=smoothing).module
    want = F.cross_entropy(y, torch.from_numpy(labels.argmax(1)), label_smoothing=smoothing)
    torch.testing.assert_close(module(y, torch.from_numpy(labels)), want.reshape(1))


@pytest.mark.parametrize("kind", Kind)
def test_the_gradient_is_that_of_the_value(kind):
    """None differentiates the sum of its result, and mean is not the framework's "always sum" (evidence.md E.3)."""
    y, t = both(kind, (2, 3, 4))
    gradients = {}
    for reduction in REDUCTIONS:
        source = y.double().requires_grad_()
        result = make(kind, reduction).module(source, t.double())
        (gradients[reduction],) = torch.autograd.grad(result.sum(), source)
    divisor = 6 if kind in (Kind.softmaxCrossEntropy, Kind.categoricalCrossEntropy, Kind.cosineDistance) else 24
    torch.testing.assert_close(gradients[Reduction.none], gradients[Reduction.sum])
    torch.testing.assert_close(gradients[Reduction.mean] * divisor, gradients[Reduction.sum])


@pytest.mark.parametrize("kind", Kind)
def test_modules_can_be_traced(kind):
    y, t = both(kind)
    module = make(kind, weights=values(3, 4, seed=3), labelSmoothing=0.1).module
    traced = torch.export.export(module, (y, t)).module()
    torch.testing.assert_close(traced(y, t), module(y, t))


def test_properties():
    layer = MLCLossLayer.huberLoss(reductionType=Reduction.sum, delta=0.5, weights=None)
    assert layer.weights is None and layer.label == "Loss"
    assert layer.descriptor == MLCLossDescriptor(
        type=Kind.huber, reductionType=Reduction.sum, weight=1, labelSmoothing=0, classCount=1, epsilon=1e-7, delta=0.5
    )
    assert MLCLossLayer.hingeLoss(reductionType=Reduction.sum, weight=3).descriptor.weight == 3
    assert "reduction=sum" in repr(layer.module) and "delta=0.5" in repr(layer.module)


def test_the_result_has_the_type_of_the_predictions():
    y, t = both(Kind.sigmoidCrossEntropy)
    module = make(Kind.sigmoidCrossEntropy, weights=values(3, 4)).module
    assert module(y.half(), t).dtype == torch.float16
    assert module(y.double(), t).dtype == torch.float64


@pytest.mark.parametrize("kind", [Kind.softmaxCrossEntropy, Kind.categoricalCrossEntropy, Kind.log])
@pytest.mark.parametrize("reduction", [Reduction.none, *REDUCTIONS])
def test_no_loss_at_all_is_zero_without_a_sign(kind, reduction):
    t = torch.eye(3)
    y = 200 * t if kind is Kind.softmaxCrossEntropy else t
    result = make(kind, reduction, epsilon=0.0).module(y, t)
    assert (result == 0).all() and not torch.signbit(result).any()


@pytest.mark.parametrize(("kind", "want"), [(Kind.meanSquaredError, 16.0**2), (Kind.cosineDistance, 1 + 8 * 64.0)])
def test_the_mean_of_many_halves_is_one(kind, want):
    """Their sum is more than a half can be."""
    y, t = torch.full((4096, 8), 8.0).half(), torch.full((4096, 8), -8.0).half()
    result = make(kind).module(y, t)
    assert result.dtype == torch.float16 and result.item() == pytest.approx(want, rel=1e-3)
