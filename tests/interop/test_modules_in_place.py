"""``TorchLayer``: a module that writes into what it is given leaves alone what the program gave."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

import mlc_torch as mlc
from mlc_torch.interop import TorchLayer
from tests.interop.programs import DEVICES, data, device
from tests.interop.trained import PLAIN


@pytest.mark.parametrize("width", [6, 6000], ids=["little", "much"])
@pytest.mark.parametrize("behind", ["the input", "another way to look at it"])
@pytest.mark.parametrize("batch", [4, 3])
def test_a_module_that_works_in_place_leaves_the_caller_s_data_alone(width, behind, batch):
    """Bytes cannot be written at all; the result is of what was given, in every call."""
    graph, x = mlc.MLCGraph(), mlc.MLCTensor(shape=[4, width])
    source = graph.reshape(shape=[4, 2, width // 2], source=x) if behind != "the input" else x
    result = graph.node(TorchLayer(nn.ReLU(inplace=True)), source=source)
    inference = mlc.MLCInferenceGraph(graphObjects=[graph])
    assert (
        inference.addInputs({"x": x})
        and inference.addOutputs({"y": result})
        and inference.compile(device=mlc.MLCDevice.cpu())
    )
    given = np.random.default_rng(1).standard_normal((4, width), np.float32)
    raw = given.tobytes()
    fed = {"x": mlc.MLCTensorData(immutableBytesNoCopy=raw, length=len(raw))}
    for _ in range(4):
        assert inference.execute(inputsData=fed, batchSize=batch)
        np.testing.assert_array_equal(result.numpy().reshape(4, width)[:batch], np.maximum(given, 0)[:batch])
        assert raw == given.tobytes()


@pytest.mark.parametrize("where", DEVICES)
@pytest.mark.parametrize("options", [[], [PLAIN]], ids=["fast", "plain"])
@pytest.mark.parametrize("width", [6, 6000], ids=["little", "much"])
def test_a_module_that_works_in_place_leaves_what_is_bound_alone(where, options, width):
    """Also where somebody has looked at it, which brings it to a GPU."""
    graph, x = mlc.MLCGraph(), mlc.MLCTensor(shape=[4, width])
    result = graph.node(TorchLayer(nn.ReLU(inplace=True)), source=x)
    inference = mlc.MLCInferenceGraph(graphObjects=[graph])
    assert inference.addInputs({"x": x}) and inference.addOutputs({"y": result})
    assert inference.compile(options=options, device=device(where))
    given = np.random.default_rng(3).standard_normal((4, width), np.float32)
    bound = {"x": mlc.MLCTensorData(bytesNoCopy=given, length=given.nbytes)}
    assert inference.bindAndWriteData(bound, forInputs={"x": x}, to=device(where), synchronous=True)
    for _ in range(4):
        np.testing.assert_array_equal(x.torch.cpu().numpy(), given)
        skips = mlc.MLCExecutionOptions.skipWritingInputDataToDevice
        assert inference.execute(inputsData={}, batchSize=4, options=[skips, mlc.MLCExecutionOptions.synchronous])
        np.testing.assert_array_equal(result.numpy(), np.maximum(given, 0))


def test_a_module_that_works_in_place_leaves_a_constant_alone():
    """Module by module, in the first call of a batch size, and as planned."""
    held = np.random.default_rng(2).standard_normal((4, 6)).astype(np.float32)
    graph, x = mlc.MLCGraph(), mlc.MLCTensor(shape=[4, 6])
    constant = mlc.MLCTensor.from_numpy(held.copy())
    active = graph.node(TorchLayer(nn.ReLU(inplace=True)), source=constant)
    add = mlc.MLCArithmeticLayer(operation=mlc.MLCArithmeticOperation.add)
    result = graph.node(add, sources=[x, active])
    inference = mlc.MLCInferenceGraph(graphObjects=[graph])
    assert inference.addInputs({"x": x}) and inference.compile(device=mlc.MLCDevice.cpu())
    for profiling in (mlc.MLCExecutionOptions.perLayerProfiling, mlc.MLCExecutionOptions.synchronous):
        zeros = mlc.MLCTensorData(bytesNoCopy=np.zeros((4, 6), np.float32), length=96)
        assert inference.execute(inputsData={"x": zeros}, batchSize=4, options=[profiling])
        np.testing.assert_array_equal(result.numpy(), np.maximum(held, 0))
        np.testing.assert_array_equal(constant.numpy(), held)


class ThroughData(nn.Module):
    """Writes into what it is given past torch's count of writes."""

    def forward(self, x):
        x.data.clamp_(min=0)
        return x * 1


@pytest.mark.parametrize("rows", [2, 64], ids=["little", "much"])
@pytest.mark.parametrize("options", [[], [PLAIN]], ids=["fast", "plain"])
@pytest.mark.parametrize("is_constant", [False, True])
def test_a_module_that_writes_through_data_leaves_the_caller_s_alone(rows, options, is_constant):
    held = np.random.default_rng(2).standard_normal((rows, 600)).astype(np.float32)
    given = held.copy()
    graph, x = mlc.MLCGraph(), mlc.MLCTensor(shape=[rows, 600])
    source = mlc.MLCTensor.from_torch(torch.from_numpy(given)) if is_constant else x
    result = graph.node(TorchLayer(ThroughData()), source=source)
    if is_constant:
        result = graph.node(mlc.MLCArithmeticLayer(operation=mlc.MLCArithmeticOperation.add), sources=[result, x])
    inference = mlc.MLCInferenceGraph(graphObjects=[graph])
    assert inference.addInputs({"x": x}) and inference.compile(options=options, device=device())
    fed = np.zeros_like(held) if is_constant else given
    for _ in range(4):
        assert inference.execute(inputsData={"x": data(fed)}, batchSize=rows)
        np.testing.assert_array_equal(given, held)
        np.testing.assert_array_equal(result.numpy(), np.maximum(held, 0))
