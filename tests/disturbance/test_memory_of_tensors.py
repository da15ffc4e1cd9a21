"""Tensors that are touched inside contexts where torch computes nothing real: their memory is read and made all the same."""

from __future__ import annotations

import copy

import numpy as np
import pytest
import torch

import mlc_torch as mlc
from mlc_torch import MLCBatchNormalizationLayer, MLCDataType, MLCGraph, MLCTensor
from mlc_torch.interop import TorchLayer
from tests.disturbance.contexts import UNREAL
from tests.disturbance.subjects import Pair, normalized
from tests.graph.programs import cpu, data, placeholder, values


def inside_functionalize(call):
    found = []
    torch.func.functionalize(lambda v: (found.append(call()), v)[1])(torch.zeros(2))
    return found[0]


def inside_inference_mode(call):
    with torch.inference_mode():
        return call()


around = UNREAL | {"functionalize": inside_functionalize, "inference mode": inside_inference_mode}
inside = pytest.mark.parametrize("inside", around.values(), ids=around.keys())

NUMBERS = np.array([0.5, -1, 3], np.float32)

READ = {
    "numpy": lambda t: t.numpy(),
    "torch": lambda t: t.torch,
    "data": lambda t: np.frombuffer(t.data, np.float32),
    "a copy": lambda t: copy.copy(t).numpy(),
    "in a type of integers": lambda t: t.quantized(to=MLCDataType.int8, scale=0.5, bias=0).numpy() * 0.5,
}


@inside
@pytest.mark.parametrize("read", READ.values(), ids=READ.keys())
def test_reading(read, inside):
    given = MLCTensor.from_numpy(NUMBERS.copy())
    found = inside(lambda: read(given))
    assert np.array_equal(np.asarray(found), NUMBERS)
    assert inside(lambda: given.hasValidNumerics) and "0.5, -1, 3" in inside(lambda: repr(given))
    assert type(given.torch) is torch.Tensor and not given.torch.is_inference()
    assert np.array_equal(given.numpy(), NUMBERS)


@inside
def test_writing(inside):
    bound = MLCTensor(shape=[3], fillWithData=5, dataType=MLCDataType.float32)
    assert inside(lambda: bound.bindAndWriteData(data(NUMBERS.copy()), to=cpu()))
    filled = inside(lambda: MLCTensor(shape=[2, 3], fillWithData=5, dataType=MLCDataType.float32))
    drawn = inside(lambda: MLCTensor(shape=[40, 50], randomInitializerType=mlc.MLCRandomInitializerType.uniform))
    assert np.array_equal(bound.numpy(), NUMBERS) and np.array_equal(filled.numpy(), np.full((2, 3), 5))
    assert drawn.numpy().std() > 0
    assert not any(t.torch.is_inference() for t in (bound, filled, drawn))


@inside
def test_layers_made_inside_train_outside(inside):
    def build():
        mean, variance, beta, gamma = (
            MLCTensor(shape=[1, 2, 1, 1], fillWithData=n, dataType=MLCDataType.float32) for n in (0, 1, 0, 1)
        )
        norm = MLCBatchNormalizationLayer(
            featureChannelCount=2, mean=mean, variance=variance, beta=beta, gamma=gamma, varianceEpsilon=1e-3
        )
        own = TorchLayer(net)
        h = graph.node(norm, source=x)
        return graph.node(own, source=h)

    net, graph, x, given = torch.nn.Linear(3, 3), MLCGraph(), placeholder(4, 2, 3, 3), values(4, 2, 3, 3)
    want = net(torch.from_numpy(given) / np.sqrt(1 + 1e-3)).detach()
    y = inside(build)
    inference = mlc.MLCInferenceGraph(graphObjects=[graph])
    assert inference.addInputs({"x": x}) and inference.addOutputs({"y": y})
    assert inference.compile(options=[], device=cpu()), mlc.last_refusal()
    assert inference.execute(inputsData={"x": given}, batchSize=4), mlc.last_refusal()
    np.testing.assert_allclose(y.numpy(), want, rtol=1e-5, atol=1e-6)


@inside
def test_checkpoints(inside, tmp_path):
    pair = Pair(normalized)
    inside(lambda: pair.subject.save(tmp_path / "a"))
    pair.together()
    inside(lambda: pair.subject.load(tmp_path / "a"))
    pair.twin.load(tmp_path / "a")
    pair.agree()
    pair.together()
