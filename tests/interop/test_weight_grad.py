"""``weight.grad`` of a module inside ``TorchLayer`` after ``executeGradient``, and modules of types that ML Compute lacks."""

from __future__ import annotations

import copy

import numpy as np
import pytest
import torch
from torch import nn

import mlc_torch as mlc
from mlc_torch.interop import TorchLayer
from tests.graph.programs import cpu, loss, placeholder, sgd, values


def training_of(net: nn.Module, options=()) -> mlc.MLCTrainingGraph:
    graph, x, t = mlc.MLCGraph(), placeholder(8, 3), placeholder(8, 2)
    graph.node(mlc.MLCActivationLayer.tanh, source=graph.node(TorchLayer(net), source=x))
    training = mlc.MLCTrainingGraph(graphObjects=[graph], lossLayer=loss(), optimizer=sgd())
    assert training.addInputs({"x": x}, lossLabels={"t": t}) and training.compile(options=options, device=cpu())
    given = {"x": values(8, 3), "t": values(8, 2, seed=1)}
    assert training.bindAndWriteData(given, forInputs={"x": x, "t": t}, to=cpu(), synchronous=True)
    return training


@pytest.mark.parametrize("options", [[], [mlc.MLCGraphCompilationOptions.disableLayerFusion]])
def test_gradients_are_those_of_torch(options):
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(3, 4), nn.GELU(), nn.Linear(4, 2))
    alone = copy.deepcopy(net)
    training = training_of(net, options)
    assert training.executeForward(batchSize=8) and all(p.grad is None for p in net.parameters())
    assert training.executeGradient(batchSize=8)
    expected = nn.functional.mse_loss(torch.tanh(alone(torch.tensor(values(8, 3)))), torch.tensor(values(8, 2, seed=1)))
    expected.backward()
    for found, wanted in zip(net.parameters(), alone.parameters(), strict=True):
        torch.testing.assert_close(found.grad, wanted.grad)
    first = [p.grad.clone() for p in net.parameters()]
    assert training.executeForward(batchSize=8) and training.executeGradient(batchSize=8)
    for found, before in zip(net.parameters(), first, strict=True):
        torch.testing.assert_close(found.grad, before)  # in place of the first, not added to it


def test_a_frozen_parameter_has_none():
    net = nn.Linear(3, 2)
    net.bias.requires_grad_(False)
    training = training_of(net)
    assert training.executeForward(batchSize=8) and training.executeGradient(batchSize=8)
    assert net.bias.grad is None and net.weight.grad.shape == (2, 3)


def test_the_librarys_own_modules_stay_without():
    net = nn.Linear(3, 2)
    training = training_of(net)
    assert training.executeForward(batchSize=8) and training.executeGradient(batchSize=8)
    assert training.executeOptimizerUpdate()
    before = net.weight.grad.clone()
    training.step(values(8, 3), values(8, 2))
    assert torch.equal(net.weight.grad, before), "execute in one call leaves it alone"


def test_a_module_of_bfloat16_is_refused_by_name():
    assert TorchLayer(nn.Linear(3, 2).bfloat16()) is None
    assert mlc.last_refusal().reason == (
        "parameter 'weight' is torch.bfloat16, which ML Compute does not have; use module.float()"
    )


def test_a_result_of_bfloat16_is_refused():
    class Halves(nn.Module):
        def forward(self, x):
            return x.bfloat16()

    assert mlc.MLCGraph().node(TorchLayer(Halves()), source=placeholder(2, 3)) is None
    assert "bfloat16" in mlc.last_refusal().reason


def test_half_precision_works():
    layer = TorchLayer(nn.Linear(3, 2).half())
    x = placeholder(2, 3, type_=mlc.MLCDataType.float16)
    assert mlc.MLCGraph().node(layer, source=x).dtype is torch.float16
    assert np.float16 == layer.parameters_by_name["weight"].tensor.numpy().dtype
