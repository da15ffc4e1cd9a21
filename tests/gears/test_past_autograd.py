"""Long phases run past autograd, which nobody notices: not an operation of the program's own, not the code behind a call."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import fx, nn

from mlc_torch import MLCDevice, MLCExecutionOptions, MLCGraph, MLCInferenceGraph, MLCTensor, MLCTensorData
from mlc_torch.engine.emit import _MANY, emit
from mlc_torch.interop import TorchLayer
from mlc_torch.torch_private import available

_library = torch.library.Library("mlc_torch_past_autograd", "FRAGMENT")
_library.define("slope_of_sine(Tensor x) -> Tensor")


def _slope_of_sine(x):
    with torch.enable_grad():
        inner = x.detach().requires_grad_()
        return torch.autograd.grad(inner.sin().sum(), inner)[0]


_library.impl("slope_of_sine", _slope_of_sine, "CPU")
torch.library.register_fake("mlc_torch_past_autograd::slope_of_sine", torch.empty_like, lib=_library)


def phase(count, send):
    """``count`` operations in a row, with a call of ``send`` behind them."""
    graph = fx.Graph()
    made = given = graph.placeholder("x")
    for _ in range(count):
        made = graph.call_function(torch.ops.aten.add.Tensor, (made, 1))
    nodes = [n for n in graph.nodes if n.op == "call_function"]
    return emit(nodes, (), (given,), ([made],), {}, [(send, [[made]])])()


def records() -> bool:
    """Whether autograd records what this thread computes."""
    x = torch.ones(2, requires_grad=True)
    return (x * 2).requires_grad


@pytest.mark.parametrize(("count", "skips"), [(_MANY - 1, False), (_MANY, True)])
def test_a_phase_of_many_operations_skips_autograd(count, skips):
    assert available["below_autograd"], "this torch does not have it, so nothing would be seen"
    seen = []
    (made,) = phase(count, lambda values: seen.append(records()))([torch.zeros(2)])
    assert made.tolist() == [count, count]
    assert seen == [not skips] and records()


def test_without_it_autograd_goes_on_looking(monkeypatch):
    monkeypatch.setitem(available, "below_autograd", False)
    seen = []
    phase(_MANY, lambda values: seen.append(records()))([torch.zeros(2)])
    assert seen == [True]


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt])
def test_it_ends_with_an_error(error):
    def strike(values):
        raise error

    with pytest.raises(error):
        phase(_MANY, strike)([torch.zeros(2)])
    assert records()


class Sloped(nn.Module):
    """Many operations, and one that differentiates inside."""

    def forward(self, x):
        for _ in range(_MANY + 6):
            x = torch.sigmoid(x)
        return torch.ops.mlc_torch_past_autograd.slope_of_sine(x)


def test_an_operation_of_the_programs_own_may_differentiate():
    x = np.linspace(-2, 2, 6, dtype=np.float32).reshape(2, 3)
    graph = MLCGraph()
    source = MLCTensor(shape=[2, 3])
    result = graph.node(with_=TorchLayer(Sloped()), source=source)
    inference = MLCInferenceGraph(graphObjects=[graph])
    assert inference.addInputs({"x": source}) and inference.addOutputs({"y": result})
    assert inference.compile(options=[], device=MLCDevice.cpu())
    want = x.astype(np.float64)
    for _ in range(_MANY + 6):
        want = 1 / (1 + np.exp(-want))
    for _ in range(3):
        assert inference.execute(
            inputsData={"x": MLCTensorData(bytesNoCopy=x, length=x.nbytes)},
            batchSize=0,
            options=MLCExecutionOptions.synchronous,
        )
        np.testing.assert_allclose(np.frombuffer(result.data, np.float32).reshape(2, 3), np.cos(want), rtol=1e-5)
