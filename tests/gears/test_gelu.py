"""GELU in our way: torch's numbers, only where a rule says so, and no more memory than the pieces need."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from torch import fx, nn
from torch.utils._python_dispatch import TorchDispatchMode

from mlc_torch import (
    MLCActivationLayer,
    MLCArithmeticLayer,
    MLCArithmeticOperation,
    MLCGraph,
    MLCGraphCompilationOptions,
    MLCInferenceGraph,
    MLCTrainingGraph,
)
from mlc_torch.engine import kernels, rewrite
from mlc_torch.engine.gelu import gelu_gradient_in_pieces, gelu_in_pieces, gelu_in_pieces_
from mlc_torch.engine.kernels import KernelRule, choose_kernels
from mlc_torch.interop import TorchLayer
from tests.gears import test_kernels
from tests.graph.programs import array, cpu, data, dense, loss, placeholder, sgd, values

aten = torch.ops.aten
FORMS = ["tanh", "none"]
COUNTS = [1, 2, 7]
ROWS, HIDDEN = 32, 768
"""Enough for a rule to apply with one thread, and for a gradient to be worth working in place."""


def pretend(monkeypatch, vector_code: bool, threads: int = 1) -> None:
    """As if torch was built so, and had so many threads."""
    test_kernels.pretend(monkeypatch, vector_code)
    monkeypatch.setattr(kernels, "has_avx512", lambda: vector_code)
    monkeypatch.setattr(kernels.torch, "get_num_threads", lambda: threads)


def sources() -> torch.Tensor:
    """From where the slope is 0 to where it is 1, most of them where it is neither; and down to the smallest numbers."""
    small = torch.logspace(-45, 0, 500, dtype=torch.float64).float()
    special = torch.tensor([0.0, -0.0, math.inf, -math.inf, math.nan, 1e13, -1e13, 1e18, -1e18, 1e25, -1e25])
    return torch.cat([torch.linspace(-50, 50, 10_001), torch.linspace(-6, 6, 10_001), small, -small, special])


def assert_same(got: torch.Tensor, exact: torch.Tensor, theirs: torch.Tensor, atol: float) -> None:
    """Close to the 64-bit numbers; neither finite nor infinite where torch's 32-bit numbers are not."""
    assert torch.equal(got.isnan(), theirs.isnan()) and torch.equal(got.isinf(), theirs.isinf())
    finite = theirs.isfinite()
    torch.testing.assert_close(got[finite].double(), exact[finite], rtol=3e-7, atol=atol)


@pytest.mark.parametrize("count", COUNTS)
def test_gelu(count):
    """(The largest difference from 64 bits on a Neoverse-N1: 5.2e-7, torch's own 5.0e-7.)"""
    x = sources()
    exact, theirs = aten.gelu(x.double(), approximate="tanh"), aten.gelu(x, approximate="tanh")
    before = x.clone()
    assert_same(gelu_in_pieces(x, count), exact, theirs, 4e-7)
    assert torch.equal(x.view(torch.int32), before.view(torch.int32))
    inside = x.clone()
    assert gelu_in_pieces_(inside, count) is inside
    assert_same(inside, exact, theirs, 4e-7)


@pytest.mark.parametrize("count", COUNTS)
@pytest.mark.parametrize("form", FORMS)
def test_its_gradient(form, count):
    """(The largest difference on a Neoverse-N1: 2.0e-6 and .3e-6, torch's own 1.0e-6 and .1e-6.)"""
    x = sources()
    grad = torch.linspace(1, -1, len(x))
    exact = aten.gelu_backward(grad.double(), x.double(), approximate=form)
    theirs = aten.gelu_backward(grad, x, approximate=form)
    atol = 2.5e-6 if form == "tanh" else 5e-7
    before = x.clone(), grad.clone()
    assert_same(gelu_gradient_in_pieces(grad, x, form, count), exact, theirs, atol)
    assert torch.equal(grad, before[1])
    assert gelu_gradient_in_pieces(grad, x, form, count, grad_input=grad) is grad
    assert_same(grad, exact, theirs, atol)
    assert torch.equal(x.view(torch.int32), before[0].view(torch.int32))


class Making(TorchDispatchMode):
    """Adds up the memory of tensors that are made."""

    def __init__(self) -> None:
        super().__init__()
        self.bytes = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        made = func(*args, **(kwargs or {}))
        if not func.is_view and not func._schema.is_mutable:
            self.bytes += made.nbytes
        return made


@pytest.mark.parametrize("form", FORMS)
def test_working_memory_is_of_a_piece_s_size(form):
    x, grad, count = torch.randn(70, 30), torch.randn(70, 30), 7
    piece, few = x.nbytes // count, 64
    for work, results, pieces in (
        (lambda: gelu_in_pieces(x, count), 1, 0),
        (lambda: gelu_in_pieces_(x, count), 0, 1),
        (lambda: gelu_gradient_in_pieces(grad, x, form, count), 1, 1),
        (lambda: gelu_gradient_in_pieces(grad, x, form, count, grad_input=grad), 0, 2),
    ):
        with Making() as seen:
            work()
        assert 0 <= seen.bytes - results * x.nbytes - pieces * piece <= few


def node(operation, form: str, shape, strides=None, dtype=torch.float32) -> fx.Node:
    graph = fx.Graph()
    made = torch.empty(shape, dtype=dtype) if strides is None else torch.empty_strided(shape, strides, dtype=dtype)
    given = [graph.placeholder(f"x{i}") for i in range(2 if operation is aten.gelu_backward.default else 1)]
    found = graph.call_function(operation, tuple(given), {"approximate": form})
    for each in (*given, found):
        each.meta["lies"] = tuple(made.shape), made.stride(), made.dtype
    return found


LAST = (4096, 1, 256, 16)
"""The strides of 16 channels of 16x16, channels last."""


@pytest.mark.parametrize(
    ("given", "threads", "want"),
    [
        (("tanh", (16, 64, 512)), 1, ("tanh", 2)),
        (("tanh", (16, 64, 512)), 8, ("tanh", 2)),
        (("tanh", (16, 64, 512)), 16, ("tanh", 1)),
        (("none", (16, 64, 512)), 2, ("none", 2)),
        (("none", (64, 128, 512)), 1, ("none", 16)),
        (("none", (64, 128, 512)), 2, ("none", 8)),
        (("tanh", (4, 16, 16, 16)), 1, ("tanh", 1)),
        (("tanh", (4, 16, 16, 16), LAST), 1, None),
        (("none", (4, 16, 16, 16), LAST), 1, None),
        (("tanh", (128, 128), (0, 1)), 1, None),
        (("tanh", (128, 128), None, torch.float64), 1, None),
        (("none", (128, 128), None, torch.bfloat16), 1, None),
        (("tanh", (128, 128)), 1, ("tanh", 1)),
        (("tanh", (127, 128)), 1, None),
        (("tanh", (128, 128)), 2, None),
        (("none", (128, 64)), 1, ("none", 1)),
        (("none", (127, 64)), 1, None),
        (("none", (128, 64)), 2, None),
        (("tanh", (0, 128)), 1, None),
    ],
)
def test_where_the_gradient_is_ours(monkeypatch, given, threads, want):
    pretend(monkeypatch, False, threads)
    asked = node(aten.gelu_backward.default, *given)
    grad_and_x = asked.args
    assert choose_kernels([asked], torch.device("cpu")) == [asked]
    if want is None:
        assert asked.target is aten.gelu_backward.default and asked.kwargs == {"approximate": given[0]}
    else:
        assert asked.target is gelu_gradient_in_pieces and not asked.kwargs
        assert asked.args == (*grad_and_x, *want)


@pytest.mark.parametrize(
    ("given", "threads", "forward", "backward"),
    [
        (("tanh", (16, 64, 512)), 1, 8, 8),
        (("tanh", (16, 64, 512)), 2, 4, None),
        (("tanh", (16, 64, 512)), 8, 2, None),
        (("tanh", (64, 1024)), 2, 1, None),
        (("tanh", (64, 1024)), 8, None, None),
        (("none", (16, 64, 512)), 1, None, None),
        (("tanh", (16, 64, 512), None, torch.bfloat16), 1, None, None),
    ],
)
def test_where_it_is_ours_with_avx512(monkeypatch, given, threads, forward, backward):
    pretend(monkeypatch, True, threads)
    for operation, ours, count in (
        (aten.gelu.default, gelu_in_pieces, forward),
        (aten.gelu_backward.default, gelu_gradient_in_pieces, backward),
    ):
        asked = node(operation, *given)
        choose_kernels([asked], torch.device("cpu"))
        assert asked.target is (operation if count is None else ours)
        assert count is None or asked.args[-1] == count


def test_with_other_vector_code_it_is_torch_s(monkeypatch):
    pretend(monkeypatch, True)
    monkeypatch.setattr(kernels, "has_avx512", lambda: False)
    asked = node(aten.gelu.default, "tanh", (16, 64, 512))
    choose_kernels([asked], torch.device("cpu"))
    assert asked.target is aten.gelu.default


def test_one_that_lies_another_way_than_its_gradient_stays(monkeypatch):
    pretend(monkeypatch, False)
    for which in (0, 1):
        asked = node(aten.gelu_backward.default, "tanh", (4, 16, 16, 16))
        asked.args[which].meta["lies"] = (4, 16, 16, 16), LAST, torch.float32
        choose_kernels([asked], torch.device("cpu"))
        assert asked.target is aten.gelu_backward.default


@pytest.mark.parametrize(
    ("vector_code", "form", "threads", "forward", "backward"),
    [
        (False, "tanh", 1, False, True),
        (False, "tanh", 2, False, True),
        (False, "none", 1, False, True),
        (True, "tanh", 1, True, True),
        (True, "tanh", 8, True, False),
        (True, "none", 1, False, False),
    ],
)
def test_which_pass_is_ours(monkeypatch, vector_code, form, threads, forward, backward):
    """By processor and threads, for 524,288 elements."""
    pretend(monkeypatch, vector_code, threads)
    for operation, ours, wanted in (
        (aten.gelu.default, gelu_in_pieces, forward),
        (aten.gelu_backward.default, gelu_gradient_in_pieces, backward),
    ):
        asked = node(operation, form, (16, 64, 512))
        choose_kernels([asked], torch.device("cpu"))
        assert asked.target is (ours if wanted else operation)


@pytest.fixture
def looked_at(monkeypatch):
    """The nodes that were asked whether they can work in place, as they are after that."""
    found, look = [], rewrite._activate_in_place

    def listen(asked):
        look(asked)
        found.append(asked)

    monkeypatch.setattr(rewrite, "_activate_in_place", listen)
    return found


def trained(form: str, adds: bool, options) -> list[np.ndarray]:
    """The weights after two steps of two dense layers with a GELU between them; one may read its source besides."""
    graph, x, t = MLCGraph(), placeholder(ROWS, 6), placeholder(ROWS, 3)
    before = graph.node(dense(6, HIDDEN, seed=1), source=x)
    layer = MLCActivationLayer.gelu if form == "tanh" else TorchLayer(nn.GELU())
    after = graph.node(layer, source=before)
    if adds:
        after = graph.node(MLCArithmeticLayer(operation=MLCArithmeticOperation.add), sources=[after, before])
    graph.node(dense(HIDDEN, 3, seed=5), source=after)
    training = MLCTrainingGraph(graphObjects=[graph], lossLayer=loss(), optimizer=sgd(0.01))
    assert training.addInputs({"x": x}, lossLabels={"t": t}) and training.compile(options=options, device=cpu())
    given = {"inputsData": {"x": data(values(ROWS, 6))}, "lossLabelsData": {"t": data(values(ROWS, 3, seed=9))}}
    for _ in range(2):
        assert training.execute(**given, lossLabelWeightsData=None, batchSize=ROWS, options=[])
    return [array(use.parameter.tensor) for layer in graph.layers for use in layer._parameter_uses]


@pytest.mark.parametrize("adds", [False, True])
@pytest.mark.parametrize("form", ["tanh", "none"])
def test_a_graph_trains_with_it(monkeypatch, looked_at, form, adds):
    """In the memory of the gradient that came, unless that is needed again."""
    pretend(monkeypatch, False)
    mine = trained(form, adds, [])
    (ours,) = (n for n in looked_at if n.target is gelu_gradient_in_pieces)
    assert ours.kwargs == ({} if adds else {"grad_input": ours.args[0]})
    assert not any(n.target in (aten.gelu_backward.default, aten.gelu_backward.grad_input) for n in looked_at)
    for got, want in zip(mine, trained(form, adds, [MLCGraphCompilationOptions.debugLayers]), strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("read", [False, True])
def test_a_forward_pass_that_a_rule_names(monkeypatch, looked_at, read):
    """With vector code too; in the memory of its source, unless the program reads that."""
    pretend(monkeypatch, True)
    rule = KernelRule(aten.gelu.default, kernels._in_pieces("tanh", least=ROWS * HIDDEN, most=1 << 12), "a test")
    monkeypatch.setattr(kernels, "KERNELS_WITH_AVX512", (rule,))
    graph, x = MLCGraph(), placeholder(ROWS, 6)
    layer = dense(6, HIDDEN)
    before = graph.node(layer, source=x)
    after = graph.node(MLCActivationLayer.gelu, source=before)
    held = before if read else None
    del before
    inference = MLCInferenceGraph(graphObjects=[graph])
    assert inference.addInputs({"x": x}) and inference.compile(options=[], device=cpu())
    assert inference.execute(inputsData={"x": data(values(ROWS, 6))}, batchSize=ROWS)
    weights = array(layer.weights).reshape(HIDDEN, 6).astype(np.float64)
    exact = torch.from_numpy(values(ROWS, 6).astype(np.float64) @ weights.T + array(layer.biases).ravel())
    np.testing.assert_allclose(array(after), aten.gelu(exact, approximate="tanh").numpy(), rtol=1e-5, atol=1e-6)
    if held is not None:
        np.testing.assert_allclose(array(held), exact.numpy(), rtol=1e-5, atol=1e-6)
    targets = {n.target for n in looked_at}
    assert (gelu_in_pieces if read else gelu_in_pieces_) in targets and aten.gelu.default not in targets
