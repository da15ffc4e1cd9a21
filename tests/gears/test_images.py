"""Modules over images: gradients lie as their images do, and no module is given what torch cannot take."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils._python_dispatch import TorchDispatchMode

from mlc_torch import (
    MLCActivationLayer,
    MLCConvolutionLayer,
    MLCGraph,
    MLCRegularizationType,
    MLCSGDOptimizer,
    MLCTrainingGraph,
)
from mlc_torch.engine.images import call_over_images
from mlc_torch.interop import TorchLayer
from tests.gears.test_kernels import pretend
from tests.graph.programs import array, conv, cpu, data, dense, hyper, loss, placeholder, sgd, values
from tests.layers.records import tensor


class Apart(TorchDispatchMode):
    """Counts gradients of an activation that lie another way than what the activation was given."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[bool] = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        if func.overloadpacket is torch.ops.aten.elu_backward:
            self.seen.append(args[0].stride() != args[5].stride())
        return func(*args, **(kwargs or {}))


def test_the_gradient_of_a_flattened_image_lies_as_the_image(monkeypatch):
    """Two steps of a convolution, an ELU, and a dense layer over all of it; the weights against plain torch's of 64 bits."""
    pretend(monkeypatch, True)
    weights, bias = values(16, 3, 3, 3) * 0.2, values(16, seed=3)
    graph, x, t = MLCGraph(), placeholder(2, 3, 6, 6), placeholder(2, 2)
    layer = MLCConvolutionLayer(
        weights=tensor(weights, [1, 3 * 16, 3, 3]), biases=tensor(bias, [1, 16, 1, 1]), descriptor=conv(3, 16)
    )
    image = graph.node(MLCActivationLayer.elu, source=graph.node(layer, source=x))
    last = dense(16 * 36, 2, seed=5)
    graph.node(last, source=graph.reshape(shape=[2, 576], source=image))
    training = MLCTrainingGraph(graphObjects=[graph], lossLayer=loss(), optimizer=sgd(0.001))
    assert training.addInputs({"x": x}, lossLabels={"t": t}) and training.compile(options=[], device=cpu())
    given = {"inputsData": {"x": data(values(2, 3, 6, 6, seed=7))}, "lossLabelsData": {"t": data(values(2, 2, seed=9))}}
    with Apart() as apart:
        for _ in range(2):
            assert training.execute(**given, lossLabelWeightsData=None, batchSize=2, options=[])
    assert apart.seen == [False, False]

    x64, t64, *trained = (
        torch.from_numpy(v).double()
        for v in (
            *(values(2, 3, 6, 6, seed=7), values(2, 2, seed=9)),
            *(weights, bias, values(2, 576, seed=5) * 0.5, values(2, seed=6)),
        )
    )
    for _ in range(2):
        w, b, v, c = (p.requires_grad_() for p in trained)
        found = F.linear(F.elu(F.conv2d(x64, w, b, padding=1)).flatten(1), v, c)
        gradients = torch.autograd.grad(F.mse_loss(found, t64), trained)
        trained = [(p - 0.001 * g).detach() for p, g in zip(trained, gradients, strict=True)]
    for got, want in zip((layer.weights, layer.biases, last.weights, last.biases), trained, strict=True):
        torch.testing.assert_close(torch.from_numpy(array(got)).double().ravel(), want.ravel(), rtol=1e-5, atol=1e-6)


class Dropping(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x * 2

    @staticmethod
    def backward(ctx, grad):
        return None


class Dropped(nn.Module):
    """Gives no gradient to what stands before it."""

    def forward(self, x):
        return Dropping.apply(x)


class Written(nn.Module):
    """Writes into what it is given."""

    def forward(self, x):
        return x.mul_(2).relu_()


def trained(module: nn.Module) -> tuple[str, np.ndarray]:
    """The gear, and a convolution's weights after a step with this behind it, flattened, and a dense layer."""
    layer = MLCConvolutionLayer(
        weights=tensor(values(16, 3, 3, 3) * 0.2, [1, 48, 3, 3]), biases=None, descriptor=conv(3, 16)
    )
    graph, x, t = MLCGraph(), placeholder(2, 3, 6, 6), placeholder(2, 4)
    image = graph.node(TorchLayer(module), source=graph.node(layer, source=x))
    graph.node(dense(576, 4, seed=5), source=graph.reshape(shape=[2, 576], source=image))
    decay = hyper(0.001, regularization=MLCRegularizationType.l2, scale=0.5)
    training = MLCTrainingGraph(graphObjects=[graph], lossLayer=loss(), optimizer=MLCSGDOptimizer(descriptor=decay))
    assert training.addInputs({"x": x}, lossLabels={"t": t}) and training.compile(options=[], device=cpu())
    given = {"inputsData": {"x": data(values(2, 3, 6, 6, seed=7))}, "lossLabelsData": {"t": data(values(2, 4, seed=9))}}
    assert training.execute(**given, lossLabelWeightsData=None, batchSize=2, options=[])
    return training._runs.last.gear.name, array(layer.weights).reshape(16, 3, 3, 3)


def test_no_gradient_stays_none():
    """Zeros would be another thing: the weights before it would shrink by their regularization."""
    gear, weights = trained(Dropped())
    assert gear == "planned"
    np.testing.assert_array_equal(weights, values(16, 3, 3, 3) * np.float32(0.2))


def test_a_module_may_write_into_its_image():
    gear, weights = trained(Written())
    assert gear == "planned"
    w = torch.from_numpy(values(16, 3, 3, 3) * np.float32(0.2)).double().requires_grad_()
    v, c = (
        torch.from_numpy(values(4, 576, seed=5) * np.float32(0.5)).double(),
        torch.from_numpy(values(4, seed=6)).double(),
    )
    x, t = (torch.from_numpy(a).double() for a in (values(2, 3, 6, 6, seed=7), values(2, 4, seed=9)))
    error = F.mse_loss(F.linear((F.conv2d(x, w, padding=1) * 2).relu().flatten(1), v, c), t)
    (grad,) = torch.autograd.grad(error, w)
    np.testing.assert_allclose(weights, (w - 0.001 * (grad + 0.5 * w)).detach().numpy(), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("module", [nn.Conv2d(8, 8, 3, groups=8), nn.Conv2d(1, 8, 5), nn.Conv2d(8, 16, 1, 2)], ids=repr)
def test_an_image_without_a_batch(monkeypatch, module):
    image = torch.randn(module.in_channels, 9, 9)
    for vector_code in (True, False):
        pretend(monkeypatch, vector_code)
        made = call_over_images(module, dict(module.named_parameters()), [image])
        torch.testing.assert_close(made, module(image), rtol=1e-4, atol=1e-5)


def test_group_normalization_behind_what_needs_no_gradient():
    """In a process of its own: torch would end it."""
    command = [sys.executable, "-m", "tests.gears.group_normalization"]
    run = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert run.returncode == 0, (run.stdout, run.stderr[-2000:])
    found = [line.split() for line in run.stdout.splitlines()]
    assert [gear for gear, _ in found] == ["plain", "planned"] * 3 + ["planned"] * 6
    assert all(float(distance) < 1e-6 for _, distance in found)


def test_a_depthwise_result_has_channels_last_whatever_came(monkeypatch):
    """Its weights are the same in both layouts, and torch goes by them. The gradient of what came lies as that did."""
    pretend(monkeypatch, True)
    module = nn.Conv2d(8, 8, 3, groups=8)
    image = torch.randn(4, 8, 9, 9, requires_grad=True)
    came = call_over_images(nn.Identity(), {}, [image * 1])
    made = call_over_images(module, dict(module.named_parameters()), [came])
    assert came.is_contiguous() and made.is_contiguous(memory_format=torch.channels_last)
    (grad,) = torch.autograd.grad(made.square().sum(), image)
    assert grad.is_contiguous()
    exact = image.detach().double().requires_grad_()
    weight, bias = module.weight.double(), module.bias.double()
    (want,) = torch.autograd.grad(F.conv2d(exact, weight, bias, groups=8).square().sum(), exact)
    torch.testing.assert_close(grad.double(), want, rtol=1e-4, atol=1e-4)
