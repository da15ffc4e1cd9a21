"""Normalizations beyond the records: running statistics, memory, gradients in inference."""

from __future__ import annotations

import copy
import itertools

import numpy as np
import pytest
import torch

from mlc_torch import MLCGraph, MLCGraphCompilationOptions, MLCReshapeLayer, MLCTrainingGraph
from mlc_torch.layers.normalization import (
    MLCBatchNormalizationLayer,
    MLCGroupNormalizationLayer,
    MLCInstanceNormalizationLayer,
    MLCLayerNormalizationLayer,
)
from mlc_torch.tensor import MLCTensor, MLCTensorData
from tests.graph.programs import Program, dense, loss, on, placeholder, sgd
from tests.layers.records import tensor, values

EPSILON = 1e-3
RUNNING = [MLCBatchNormalizationLayer, MLCInstanceNormalizationLayer]
by_class = pytest.mark.parametrize("cls", RUNNING, ids=lambda c: c.__name__)


def channels(*numbers):
    return tensor(np.array(numbers, np.float32).reshape(1, -1, 1, 1))


def running(cls, mean=(0.5, -1, 2), variance=(1, 2, 0.25), momentum=0.9, affine=True):
    return cls(
        featureChannelCount=len(mean),
        mean=channels(*mean),
        variance=channels(*variance),
        beta=channels(*range(len(mean))) if affine else None,
        gamma=channels(*range(1, len(mean) + 1)) if affine else None,
        varianceEpsilon=EPSILON,
        momentum=momentum,
    )


def statistics(cls, x):
    """The mean and biased variance that one pass adds; those of an instance normalization are averaged over samples."""
    flat = x.reshape(*x.shape[:2], -1).astype(np.float64)
    if cls is MLCBatchNormalizationLayer:
        flat = flat.transpose(1, 0, 2).reshape(1, x.shape[1], -1)
    mean = flat.sum(2) / flat.shape[2]
    variance = ((flat - mean[..., None]) ** 2).sum(2) / flat.shape[2]
    return mean.mean(0), variance.mean(0)


def stored(layer):
    return layer.mean.numpy().flatten(), layer.variance.numpy().flatten()


@by_class
@pytest.mark.parametrize("momentum", [0.0, 0.5, 0.99, 1.0])
@pytest.mark.parametrize("shape", [(4, 3, 2, 3), (2, 3, 1, 2), (1, 3, 1, 1), (3, 3, 1, 1)])
def test_running_statistics_follow_the_formula(cls, momentum, shape):
    layer = running(cls, momentum=momentum)
    mean, variance = (s.astype(np.float64) for s in stored(layer))
    for step in range(3):
        x = values(*shape, seed=step) * 3 + 1
        layer.module.train()(torch.from_numpy(x))
        batch_mean, batch_variance = statistics(cls, x)
        mean = momentum * mean + (1 - momentum) * batch_mean
        variance = momentum * variance + (1 - momentum) * batch_variance
        np.testing.assert_allclose(stored(layer)[0], mean, rtol=1e-5, atol=1e-6)
        np.testing.assert_allclose(stored(layer)[1], variance, rtol=1e-5, atol=1e-6)


@by_class
def test_a_variance_far_below_epsilon_is_kept_exactly(cls):
    layer = running(cls, momentum=0.0)
    x = values(2, 3, 4, 4) * 1e-4
    layer.module.train()(torch.from_numpy(x))
    np.testing.assert_allclose(stored(layer)[1], statistics(cls, x)[1], rtol=1e-4)


@by_class
@pytest.mark.parametrize("plain", [False, True], ids=["planned", "plain"])
@pytest.mark.parametrize("held", [False, True], ids=["let go", "held"])
def test_statistics_move_though_nobody_reads_the_result(cls, held, plain, torch_device):
    """Of a second head, say, that only inferences use."""
    layer, graph, x, t = running(cls, momentum=0.5), MLCGraph(), placeholder(4, 3, 2, 2), placeholder(4, 2)
    result = graph.node(layer, source=x)
    if not held:
        del result
    graph.node(dense(12, 2), source=graph.node(MLCReshapeLayer(shape=[4, 12]), source=x))
    training = MLCTrainingGraph(graphObjects=[graph], lossLayer=loss(), optimizer=sgd())
    assert training.addInputs({"x": x}, lossLabels={"t": t})
    given = {"x": values(4, 3, 2, 2, seed=3) * 3 + 1, "t": values(4, 2, seed=4)}
    program = Program(training, graph, {"x": x}, {"t": t}, given, device=on(torch_device))
    assert program.compile([MLCGraphCompilationOptions.disableLayerFusion] if plain else [])
    mean, variance = (s.astype(np.float64) for s in stored(layer))
    for _ in range(3):
        assert program.execute()
        mean, variance = (0.5 * a + 0.5 * b for a, b in zip((mean, variance), statistics(cls, given["x"]), strict=True))
    np.testing.assert_allclose(stored(layer)[0], mean, rtol=1e-4)
    np.testing.assert_allclose(stored(layer)[1], variance, rtol=1e-4)


@by_class
def test_inference_changes_nothing(cls):
    layer = running(cls)
    before = [s.copy() for s in stored(layer)]
    layer.module.eval()(torch.from_numpy(values(2, 3, 2, 2)))
    for a, b in zip(stored(layer), before, strict=True):
        np.testing.assert_array_equal(a, b)


@by_class
def test_training_statistics_serve_in_inference(cls):
    layer = running(cls, momentum=0.0, affine=False)
    x = values(2, 3, 3, 3)
    layer.module.train()(torch.from_numpy(x))
    mean, variance = (s.reshape(1, 3, 1, 1) for s in statistics(cls, x))
    y = layer.module.eval()(torch.from_numpy(x))
    np.testing.assert_allclose(y, (x - mean) / np.sqrt(variance + EPSILON), rtol=1e-4, atol=1e-5)


@by_class
def test_statistics_lie_in_the_callers_memory(cls):
    mean, variance = np.zeros(3, np.float32), np.ones(3, np.float32)
    held = [
        MLCTensor(shape=[1, 3, 1, 1], data=MLCTensorData(bytesNoCopy=a, length=a.nbytes), dataType=1)
        for a in (mean, variance)
    ]
    layer = cls(
        featureChannelCount=3, mean=held[0], variance=held[1], beta=None, gamma=None, varianceEpsilon=1e-5, momentum=0.5
    )
    x = values(2, 3, 4, 4)
    layer.module.train()(torch.from_numpy(x))
    np.testing.assert_allclose(mean, 0.5 * statistics(cls, x)[0], rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(variance, 0.5 + 0.5 * statistics(cls, x)[1], rtol=1e-5)


@by_class
def test_a_short_batch_counts_only_its_own_samples(cls):
    layer = running(cls, momentum=0.0)
    x = values(5, 3, 2, 2)
    y = layer.module.train()(torch.from_numpy(x[:2]))
    assert y.shape == (2, 3, 2, 2)
    np.testing.assert_allclose(stored(layer)[1], statistics(cls, x[:2])[1], rtol=1e-5)


@by_class
@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("affine", [True, False])
def test_gradients_agree_with_finite_differences(cls, training, affine):
    module = copy.deepcopy(running(cls, affine=affine).module).double().train(training)
    x = torch.from_numpy(values(2, 3, 2, 2)).double().requires_grad_()
    assert torch.autograd.gradcheck(lambda *given: module(given[0]), (x, *module.parameters()))


@by_class
def test_one_layer_in_two_places(cls):
    """Both passes update the statistics, and the first can still compute its gradient."""
    layer = running(cls, momentum=0.5)
    module = layer.module.train()
    x = torch.from_numpy(values(2, 3, 2, 2)).requires_grad_()
    start = stored(layer)[0].copy()
    module(module(x)).square().sum().backward()
    assert x.grad.isfinite().all() and module.weight.grad is not None
    assert not np.array_equal(stored(layer)[0], start)


@pytest.mark.parametrize("affine", [True, False])
def test_a_single_value_per_channel_gives_beta_exactly(affine):
    layer = running(MLCBatchNormalizationLayer, affine=affine)
    x = torch.tensor([1e4, -3.3e3, 7.7e2]).view(1, 3, 1, 1).requires_grad_()
    y = layer.module.train()(x)
    assert y.flatten().tolist() == ([0, 1, 2] if affine else [0, 0, 0])
    y.sum().backward()
    assert torch.equal(x.grad, torch.zeros_like(x))
    if affine:
        assert torch.equal(layer.module.bias.grad, torch.ones(3))
        assert torch.equal(layer.module.weight.grad, torch.zeros(3))


@by_class
def test_statistics_that_are_to_stay_do(cls):
    """40 values a channel: 40/39 and back is not 1 in float32, if back is a product."""
    layer = running(cls, variance=(1.3, 2.7, 0.3), momentum=1.0)
    before = [s.copy() for s in stored(layer)]
    x = torch.from_numpy(values(10, 3, 2, 2))
    for _ in range(300):
        layer.module.train()(x)
    for now, then in zip(stored(layer), before, strict=True):
        np.testing.assert_array_equal(now, then)


@pytest.mark.parametrize("epsilon", [0.0, 1e-12, 1e-5])
def test_layer_normalization_of_a_single_value_gives_beta_exactly(epsilon):
    gamma, beta = (MLCTensor.from_numpy(np.array([n], np.float32)) for n in (3.0, 0.5))
    layer = MLCLayerNormalizationLayer(normalizedShape=[1], beta=beta, gamma=gamma, varianceEpsilon=epsilon)
    x = torch.tensor([1e30, 1e15, 1e-20, -3.0]).view(4, 1).requires_grad_()
    y = layer.module(x)
    assert y.flatten().tolist() == [0.5] * 4
    y.sum().backward()
    assert torch.equal(x.grad, torch.zeros_like(x)) and layer.module.bias.grad.tolist() == [4.0]


def test_the_statistics_are_no_parameters():
    layer = running(MLCBatchNormalizationLayer)
    assert [use.role for use in layer._parameter_uses] == ["gamma", "beta"]
    assert sorted(name for name, _ in layer.module.named_buffers()) == ["running_mean", "running_var"]


@by_class
def test_on_every_device(cls, torch_device):
    layer, x = running(cls), torch.from_numpy(values(4, 3, 5, 6))
    there = copy.deepcopy(layer.module).to(torch_device).train()
    here = layer.module.train()
    inputs = [x.clone().requires_grad_(), x.to(torch_device).requires_grad_()]
    for module, given in zip((here, there), inputs, strict=True):
        module(given).square().sum().backward()
    torch.testing.assert_close(inputs[1].grad.cpu(), inputs[0].grad, rtol=1e-4, atol=1e-4)
    for name in ("running_mean", "running_var"):
        torch.testing.assert_close(getattr(there, name).cpu(), getattr(here, name), rtol=1e-5, atol=1e-6)


MAKERS = {
    "BatchNorm": lambda beta, gamma: MLCBatchNormalizationLayer(
        featureChannelCount=2, mean=channels(0, 0), variance=channels(1, 1), beta=beta, gamma=gamma, varianceEpsilon=0.1
    ),
    "InstanceNorm": lambda beta, gamma: MLCInstanceNormalizationLayer(
        featureChannelCount=2, beta=beta, gamma=gamma, varianceEpsilon=0.1
    ),
    "GroupNorm": lambda beta, gamma: MLCGroupNormalizationLayer(
        featureChannelCount=2, groupCount=1, beta=beta, gamma=gamma, varianceEpsilon=0.1
    ),
    "LayerNorm": lambda beta, gamma: MLCLayerNormalizationLayer(
        normalizedShape=[1, 2, 1],
        beta=beta and tensor(values(1, 2, 1)),
        gamma=gamma and tensor(values(1, 2, 1)),
        varianceEpsilon=0.1,
    ),
}


@pytest.mark.parametrize("label", MAKERS)
@pytest.mark.parametrize("with_beta", [True, False])
@pytest.mark.parametrize("with_gamma", [True, False])
def test_parameters_exist_where_tensors_do(label, with_beta, with_gamma):
    layer = MAKERS[label](channels(1, 2) if with_beta else None, channels(3, 4) if with_gamma else None)
    assert layer.label == label and layer.varianceEpsilon == 0.1
    for tensor_, made, wanted in (
        (layer.beta, layer.betaParameter, with_beta),
        (layer.gamma, layer.gammaParameter, with_gamma),
    ):
        assert (tensor_ is not None) == (made is not None) == wanted
        if made is not None:
            assert made.tensor is tensor_ and made.isUpdatable


def test_other_properties():
    batch, instance = MAKERS["BatchNorm"](None, None), MAKERS["InstanceNorm"](None, None)
    assert batch.momentum == instance.momentum == 0.99
    assert batch.featureChannelCount == instance.featureChannelCount == 2
    assert instance.mean is None and instance.variance is None
    assert MAKERS["GroupNorm"](None, None).groupCount == 1
    layer = MAKERS["LayerNorm"](None, None)
    layer.normalizedShape.append(3)
    assert layer.normalizedShape == [1, 2, 1]


def laid_out(x: torch.Tensor, order: tuple[int, ...]) -> torch.Tensor:
    """The same values, in memory by the dimensions in this order; those of size 1 with strides of no meaning."""
    made = x.permute(order).contiguous().permute([order.index(k) for k in range(x.dim())])
    return made.as_strided(made.shape, [1 if n == 1 else s for n, s in zip(made.shape, made.stride(), strict=True)])


def normalized(cls, x, gamma, beta):
    """The formula, in the precision of what is given."""
    axes = (0, 2, 3) if cls is MLCBatchNormalizationLayer else (2, 3)
    scaled = (x - x.mean(axes, keepdim=True)) / (x.var(axes, correction=0, keepdim=True) + EPSILON).sqrt()
    return scaled * gamma.view(1, -1, 1, 1) + beta.view(1, -1, 1, 1)


@by_class
@pytest.mark.parametrize("shape", [(3, 4, 1, 3), (2, 2, 3, 1), (3, 4, 2, 3), (1, 3, 2, 2), (1, 3, 4, 1), (3, 4, 1, 1)])
def test_gradients_whatever_the_layout(cls, shape):
    """Of images and of their gradients, as transposes leave them; torch's kernel mistakes some of them."""
    layer = running(cls, mean=(0,) * shape[1], variance=(1,) * shape[1])
    module = layer.module.train()
    given, upstream = (torch.from_numpy(values(*shape, seed=n)) for n in (0, 1))
    exact = [t.detach().double().requires_grad_() for t in (given, module.weight, module.bias)]
    want = torch.autograd.grad(normalized(cls, *exact), exact, upstream.double())
    for order, back in itertools.product(itertools.permutations(range(4)), repeat=2):
        x = laid_out(given, order).requires_grad_()
        found = torch.autograd.grad(module(x), [x, module.weight, module.bias], laid_out(upstream, back))
        for got, true in zip(found, want, strict=True):
            torch.testing.assert_close(got.double().view_as(true), true, rtol=1e-4, atol=1e-4, msg=str((order, back)))
