"""``TorchLayer``: what it cannot take, and in whose words."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch import nn

import mlc_torch as mlc
from mlc_torch.interop import TorchLayer
from tests.interop.programs import device, empty
from tests.interop.trained import Trained, made, perceptron


def refused(module, *sources) -> str:
    graph = mlc.MLCGraph()
    layer = TorchLayer(module)
    if layer is not None:
        assert graph.node(layer, sources=[empty(*s) for s in sources]) is None
    return str(mlc.last_refusal())


def returns(make: Callable[[torch.Tensor], object]) -> nn.Module:
    class Returning(nn.Module):
        def forward(self, x):
            return make(x)

    return Returning()


def with_buffer(buffer: torch.Tensor) -> nn.Module:
    made = nn.Linear(3, 2)
    made.register_buffer("kept", buffer)
    return made


def with_parameter(value: torch.Tensor) -> nn.Module:
    made = nn.Linear(3, 2)
    made.kept = nn.Parameter(value)
    return made


class Moody(nn.Module):
    def forward(self, x):
        return (x, x.sum(1)) if self.training else x


@pytest.mark.parametrize(
    ("make", "sources", "says"),
    [
        (lambda: nn.Linear(3, 2), [(4, 5)], "a and b must have same reduction dim, but got [4, 5] X [3, 2]"),
        (lambda: nn.Linear(3, 2), [(4, 3), (4, 3)], "takes 2 positional arguments but 3 were given"),
        (lambda: nn.Bilinear(3, 3, 2), [(4, 3)], "missing 1 required positional argument"),
        (lambda: nn.Linear(3, 2).double(), [(4, 3)], "float64, which ML Compute does not have"),
        (lambda: nn.Linear(3, 2, device="meta"), [(4, 3)], "no memory: it is on the meta device"),
        (lambda: nn.LazyLinear(2), [(4, 3)], "no shape yet"),
        (
            lambda: with_buffer(torch.eye(2).to_sparse()),
            [(4, 3)],
            "buffer 'kept' is torch.sparse_coo, a layer's tensors",
        ),
        (
            lambda: with_buffer(torch.ones(2, device="meta")),
            [(4, 3)],
            "TorchLayer(_:label:): buffer 'kept' has no memory",
        ),
        (lambda: nn.LazyBatchNorm1d(affine=False), [(4, 3)], "buffer 'running_mean' has no shape yet"),
        (lambda: with_parameter(torch.eye(2).to_sparse()), [(4, 3)], "parameter 'kept' is torch.sparse_coo"),
        (lambda: returns(lambda x: "text"), [(4, 3)], "returns str, and no tensor in it"),
        (lambda: returns(lambda x: x.double()), [(4, 3)], "gives torch.float64; ML Compute has float32"),
        (lambda: returns(lambda x: x[..., None, None, None]), [(4, 3)], "5 dimensions"),
        (lambda: returns(lambda x: x if x.sum().item() > 0 else -x), [(4, 3)], "decides by the values it sees"),
        (Moody, [(4, 3)], "[4, 3] float32 in inference and [4, 3] float32, [4] float32 in training"),
    ],
)
def test_refusals_repeat_torchs_words(make, sources, says, capfd):
    assert says in refused(make(), *sources)
    assert capfd.readouterr().err == ""


def test_what_torch_checks_with_values_only_is_refused_when_the_graph_runs():
    """docs/pytorch.md; without values torch multiplies float32 by float16."""
    graph, x = mlc.MLCGraph(), mlc.MLCTensor(shape=[4, 3])
    assert graph.node(TorchLayer(nn.Linear(3, 2).half()), source=x) is not None
    inference = mlc.MLCInferenceGraph(graphObjects=[graph])
    assert inference.addInputs({"x": x}) and inference.compile(options=[], device=mlc.MLCDevice.cpu())
    assert not inference.execute(inputsData={"x": np.ones((4, 3), np.float32)}, batchSize=4)
    assert "torch cannot compute this, in layer 'Linear'" in str(mlc.last_refusal())


def test_a_module_that_was_moved_is_refused_at_compile():
    net = made(perceptron)
    program = Trained(net, (4, 3), (4, 2))
    net.half()
    assert not program.training.compile(options=[], device=device())
    assert "no longer lies in the layer's memory" in str(mlc.last_refusal())


def replace_weight(net):
    net[0].weight = nn.Parameter(torch.zeros_like(net[0].weight))


def replace_layer(net):
    net[0] = nn.Linear(net[0].in_features, net[0].out_features)


def assign(net):
    net.load_state_dict({n: t.clone() for n, t in net.state_dict().items()}, assign=True)


@pytest.mark.parametrize("change", [replace_weight, replace_layer, assign, lambda net: net.append(nn.Linear(2, 2))])
def test_a_module_with_other_parameters_is_refused_at_compile(change):
    net = made(perceptron)
    program = Trained(net, (4, 3), (4, 2))
    change(net)
    assert not program.training.compile(options=[], device=device())
    assert "was replaced, added or removed" in str(mlc.last_refusal())


@pytest.mark.parametrize("wrong", [3, None, "net", nn.Linear, torch.ones(2)])
def test_what_is_no_module_is_a_type_error(wrong):
    with pytest.raises(TypeError, match=r"torch\.nn\.Module"):
        TorchLayer(wrong)
