"""float32 on CUDA is what torch's TF32 switches make of it, and the program's to decide."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from mlc_torch import (
    MLCConvolutionDescriptor,
    MLCConvolutionLayer,
    MLCExecutionOptions,
    MLCGraph,
    MLCInferenceGraph,
)
from tests.graph.programs import array, data, on, placeholder, tensor, values


def convolved(x: np.ndarray, weights: np.ndarray) -> np.ndarray:
    graph, source = MLCGraph(), placeholder(*x.shape)
    outputs, inputs, height, width = weights.shape
    descriptor = MLCConvolutionDescriptor(
        kernelSizes=(height, width), inputFeatureChannelCount=inputs, outputFeatureChannelCount=outputs
    )
    held = tensor(weights.reshape(1, outputs * inputs, height, width))
    y = graph.node(MLCConvolutionLayer(weights=held, biases=None, descriptor=descriptor), source=source)
    inference = MLCInferenceGraph(graphObjects=[graph])
    assert inference.addInputs({"x": source})
    assert inference.compile(options=[], device=on(torch.device("cuda")))
    assert inference.execute(inputsData={"x": data(x)}, batchSize=0, options=[MLCExecutionOptions.synchronous])
    return array(y)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs CUDA")
def test_float32_follows_torch_s_switches(monkeypatch):
    if torch.cuda.get_device_capability() < (8, 0):
        pytest.skip("this GPU has no TF32")
    x, weights = values(4, 64, 24, 24), values(64, 64, 3, 3)
    exact = [torch.from_numpy(values).double() for values in (x, weights)]
    want = torch.nn.functional.conv2d(*exact, padding=1).numpy()
    errors = {}
    for on_ in (True, False):
        monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", on_)
        errors[on_] = np.abs(convolved(x, weights) - want).max() / np.abs(want).max()
    assert errors[False] < 1e-5 < 1e-4 < errors[True] < 1e-2
