"""GELU in our way: torch's numbers, only where a rule says so, and no more memory than the pieces need."""

from __future__ import annotations

import math
import operator

import numpy as np
import pytest
import torch
from torch import fx, nn
from torch.nn import functional as F
from torch.utils._python_dispatch import TorchDispatchMode

from mlc_torch import (
    MLCActivationLayer,
    MLCArithmeticLayer,
    MLCArithmeticOperation,
    MLCGraph,
    MLCInferenceGraph,
    MLCTrainingGraph,
)
from mlc_torch.engine import in_place, kernels
from mlc_torch.engine.gelu import (
    gelu_as_it_lies,
    gelu_as_it_lies_,
    gelu_gradient_by_slope,
    gelu_in_pieces,
    gelu_in_pieces_,
    gelu_with_slope,
    gelu_with_slope_,
)
from mlc_torch.engine.gelu_rules import in_pieces
from mlc_torch.engine.kernels import KernelRule, choose_kernels
from mlc_torch.engine.trace import Recording
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
def test_with_its_slope(form, count):
    """(The slope's largest difference on a Neoverse-N1: 2.0e-6 and .3e-6, torch's own 1.0e-6 and .1e-6.)"""
    x = sources()
    grad, before = torch.linspace(1, -1, len(x)), x.clone()
    value, slope = gelu_with_slope(x, form, count)
    assert torch.equal(x.view(torch.int32), before.view(torch.int32))
    again, inside = gelu_with_slope_(x, form, count)
    assert inside is x and torch.equal(again.view(torch.int32), value.view(torch.int32))
    assert torch.equal(inside.view(torch.int32), slope.view(torch.int32))

    exact = aten.gelu(before.double(), approximate=form)
    assert_same(value, exact, exact, 4e-7 if form == "tanh" else 6e-7)  # oneDNN's on x86 knows no infinity
    exact = aten.gelu_backward(grad.double(), before.double(), approximate=form)
    theirs = aten.gelu_backward(grad, before, approximate=form)
    atol, given = 2.5e-6 if form == "tanh" else 5e-7, grad.clone()
    assert_same(gelu_gradient_by_slope(grad, slope), exact, theirs, atol)
    assert torch.equal(grad, given)
    assert gelu_gradient_by_slope(grad, slope, grad_input=grad) is grad
    assert_same(grad, exact, theirs, atol)


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


@pytest.mark.parametrize("count", COUNTS)
@pytest.mark.parametrize("form", FORMS)
def test_images_with_channels_last(form, count):
    x = torch.randn(3, 5, 4, 6).to(memory_format=torch.channels_last)
    exact = aten.gelu(x.double(), approximate=form)
    slopes = aten.gelu_backward(torch.ones_like(x).double(), x.double(), approximate=form)
    for made in (gelu_as_it_lies(x, form), gelu_as_it_lies_(x.clone(), form)):
        assert made.stride() == x.stride()
        torch.testing.assert_close(made.double(), exact, rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(
        gelu_in_pieces(x, count).double(), aten.gelu(x.double(), approximate="tanh"), rtol=1e-5, atol=1e-6
    )
    for work in (gelu_with_slope, gelu_with_slope_):
        value, slope = work(x.clone(), form, count)
        assert value.stride() == slope.stride() == x.stride()
        torch.testing.assert_close(value.double(), exact, rtol=1e-5, atol=1e-6)
        torch.testing.assert_close(slope.double(), slopes, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("form", FORMS)
def test_working_memory_is_of_a_piece_s_size(form):
    x, grad, count = torch.randn(70, 30), torch.randn(70, 30), 7
    piece, few = x.nbytes // count, 64
    for work, results, pieces in (
        (lambda: gelu_in_pieces(x, count), 1, 0),
        (lambda: gelu_in_pieces_(x, count), 0, 1),
        (lambda: gelu_with_slope(x, form, count), 2, 1),
        (lambda: gelu_with_slope_(x, form, count), 1, 2),
        (lambda: gelu_gradient_by_slope(grad, x), 1, 0),
        (lambda: gelu_gradient_by_slope(grad, x, grad_input=grad), 0, 0),
    ):
        with Making() as seen:
            work()
        assert 0 <= seen.bytes - results * x.nbytes - pieces * piece <= few


def recorded(form: str, shape, strides=None, dtype=torch.float32, differentiates=True) -> Recording:
    """A GELU alone, with its gradient or without."""
    made = torch.empty(shape, dtype=dtype) if strides is None else torch.empty_strided(shape, strides, dtype=dtype)
    graph, how = fx.Graph(), {"approximate": form}
    x, grad = graph.placeholder("x"), graph.placeholder("grad")
    forward = [graph.call_function(aten.gelu.default, (x,), how)]
    backward = [graph.call_function(aten.gelu_backward.default, (grad, x), how)] if differentiates else []
    graph.output([forward, backward])
    for node in graph.nodes:
        node.meta["lies"] = tuple(made.shape), made.stride(), made.dtype
    given = {"feeds": [x], "injected": [grad]}
    return Recording(graph, {}, given, forward, backward, forward, [], [], list(backward), [])


def chosen(found: Recording) -> tuple[list, list]:
    """What the two phases compute then, and in how many pieces."""
    now = choose_kernels(found, torch.device("cpu"))
    found.graph.lint()
    return tuple([n.target for n in phase if n.target is not operator.getitem] for phase in (now.forward, now.backward))


def pieces(found: Recording) -> list[int]:
    """Into how many pieces work of ours is divided."""
    return [n.args[-1] for n in found.graph.nodes if n.target in (gelu_in_pieces, gelu_with_slope)]


TORCH_S = [aten.gelu.default], [aten.gelu_backward.default]
OURS = [gelu_with_slope], [gelu_gradient_by_slope]


LAST = (4096, 1, 256, 16)
"""The strides of 16 channels of 16x16, channels last."""


@pytest.mark.parametrize(
    ("given", "threads", "want"),
    [
        (("tanh", (16, 64, 512)), 1, 2),
        (("tanh", (16, 64, 512)), 8, 2),
        (("tanh", (16, 64, 512)), 16, 1),
        (("none", (16, 64, 512)), 2, 2),
        (("none", (64, 128, 512)), 1, 16),
        (("none", (64, 128, 512)), 2, 8),
        (("tanh", (4, 16, 16, 16)), 1, 1),
        (("tanh", (4, 16, 16, 16), LAST), 1, 1),
        (("none", (4, 16, 16, 16), LAST), 1, 1),
        (("none", (4, 16, 16, 16), (4096, 1, 258, 16)), 1, None),
        (("tanh", (1, 16, 32, 16), (1, 1, 256, 16)), 1, 1),
        (("tanh", (128, 128), (0, 1)), 1, None),
        (("tanh", (128, 128), None, torch.float64), 1, None),
        (("none", (128, 128), None, torch.bfloat16), 1, None),
        (("tanh", (128, 64)), 1, 1),
        (("tanh", (127, 64)), 1, None),
        (("tanh", (128, 64)), 2, None),
        (("none", (128, 64)), 1, 1),
        (("none", (127, 64)), 1, None),
        (("none", (128, 64)), 2, None),
        (("tanh", (0, 128)), 1, None),
    ],
)
def test_where_it_is_ours(monkeypatch, given, threads, want):
    pretend(monkeypatch, False, threads)
    found = recorded(*given)
    assert chosen(found) == (TORCH_S if want is None else OURS)
    assert pieces(found) == ([] if want is None else [want])


@pytest.mark.parametrize(
    ("given", "threads", "forward", "both"),
    [
        (("tanh", (16, 64, 512)), 1, 1, 8),
        (("tanh", (16, 64, 512)), 2, 1, 4),
        (("tanh", (16, 64, 512)), 4, 1, 2),
        (("tanh", (16, 64, 512)), 8, 1, None),
        (("tanh", (16, 1024, 512)), 8, 2, None),
        (("tanh", (64, 1024)), 2, 1, 1),
        (("tanh", (64, 128)), 1, None, 1),
        (("tanh", (63, 128)), 1, None, None),
        (("tanh", (64, 1024)), 8, None, None),
        (("none", (16, 64, 512)), 1, None, None),
        (("tanh", (16, 64, 512), None, torch.bfloat16), 1, None, None),
    ],
)
def test_where_it_is_ours_with_avx512(monkeypatch, given, threads, forward, both):
    """In a forward pass alone, and in both; where both are not, the forward pass may be."""
    pretend(monkeypatch, True, threads)
    alone, pair = recorded(*given, differentiates=False), recorded(*given)
    in_pieces_or_not = [aten.gelu.default if forward is None else gelu_in_pieces]
    assert chosen(alone) == (in_pieces_or_not, [])
    assert chosen(pair) == (OURS if both is not None else (in_pieces_or_not, TORCH_S[1]))
    assert pieces(alone) == [n for n in [forward] if n is not None]
    assert pieces(pair) == [n for n in [both if both is not None else forward] if n is not None]


@pytest.mark.parametrize("form", FORMS)
def test_without_a_gradient_and_vector_code_it_is_torch_s(monkeypatch, form):
    """With channels last over the elements as they lie."""
    pretend(monkeypatch, False)
    assert chosen(recorded(form, (16, 64, 512), differentiates=False)) == (TORCH_S[0], [])
    assert chosen(recorded(form, (4, 16, 16, 16), LAST, differentiates=False)) == ([gelu_as_it_lies], [])
    assert chosen(recorded(form, (4, 16, 16, 16), (4096, 1, 258, 16), differentiates=False)) == (TORCH_S[0], [])


def test_with_other_vector_code_it_is_torch_s(monkeypatch):
    pretend(monkeypatch, True)
    monkeypatch.setattr(kernels, "has_avx512", lambda: False)
    assert chosen(recorded("tanh", (16, 64, 512))) == TORCH_S


def test_one_that_lies_another_way_than_its_gradient_stays(monkeypatch):
    pretend(monkeypatch, False)
    for which in range(4):
        found = recorded("tanh", (4, 16, 16, 16))
        list(found.graph.nodes)[which].meta["lies"] = (4, 16, 16, 16), LAST, torch.float32
        assert chosen(found) == TORCH_S


@pytest.fixture
def looked_at(monkeypatch):
    """The nodes that were asked whether they can work in place, as they are after that."""
    found, look = [], in_place._activate_in_place

    def listen(asked):
        look(asked)
        found.append(asked)

    monkeypatch.setattr(in_place, "_activate_in_place", listen)
    return found


RATE = 0.001


def trained(form: str, adds: bool) -> list[np.ndarray]:
    """The weights after two steps of two dense layers with a GELU between them; one may read its source besides."""
    graph, x, t = MLCGraph(), placeholder(ROWS, 6), placeholder(ROWS, 3)
    before = graph.node(dense(6, HIDDEN, seed=1), source=x)
    layer = MLCActivationLayer.gelu if form == "tanh" else TorchLayer(nn.GELU())
    after = graph.node(layer, source=before)
    if adds:
        after = graph.node(MLCArithmeticLayer(operation=MLCArithmeticOperation.add), sources=[after, before])
    graph.node(dense(HIDDEN, 3, seed=5), source=after)
    del before, after  # what nobody can read may be written over
    training = MLCTrainingGraph(graphObjects=[graph], lossLayer=loss(), optimizer=sgd(RATE))
    assert training.addInputs({"x": x}, lossLabels={"t": t}) and training.compile(options=[], device=cpu())
    given = {"inputsData": {"x": data(values(ROWS, 6))}, "lossLabelsData": {"t": data(values(ROWS, 3, seed=9))}}
    for _ in range(2):
        assert training.execute(**given, lossLabelWeightsData=None, batchSize=ROWS, options=[])
    return [array(use.parameter.tensor).ravel() for layer in graph.layers for use in layer._parameter_uses]


def trained_by_torch(form: str, adds: bool) -> list[np.ndarray]:
    """The same with numbers of 64 bits."""
    x, t, *weights = (
        torch.from_numpy(v).double()
        for v in (
            *(values(ROWS, 6), values(ROWS, 3, seed=9)),
            *(
                values(HIDDEN, 6, seed=1) * 0.5,
                values(HIDDEN, seed=2),
                values(3, HIDDEN, seed=5) * 0.5,
                values(3, seed=6),
            ),
        )
    )
    for _ in range(2):
        w1, b1, w2, b2 = (w.requires_grad_() for w in weights)
        before = F.linear(x, w1, b1)
        after = F.gelu(before, approximate=form)
        error = F.mse_loss(F.linear(after + before if adds else after, w2, b2), t)
        gradients = torch.autograd.grad(error, weights)
        weights = [(w - RATE * g).detach() for w, g in zip(weights, gradients, strict=True)]
    return [w.numpy().ravel() for w in weights]


@pytest.mark.parametrize("adds", [False, True])
@pytest.mark.parametrize("form", ["tanh", "none"])
def test_a_graph_trains_with_it(monkeypatch, looked_at, form, adds):
    """In the memory of the source and of the gradient that came, unless they are needed again."""
    pretend(monkeypatch, False)
    mine = trained(form, adds)
    (ours,) = (n for n in looked_at if n.target is gelu_gradient_by_slope)
    assert ours.kwargs == ({} if adds else {"grad_input": ours.args[0]})
    targets = {n.target for n in looked_at}
    assert (gelu_with_slope if adds else gelu_with_slope_) in targets
    assert not any(
        "gelu" in getattr(target, "__name__", "") for target in targets - {*OURS[0], *OURS[1], gelu_with_slope_}
    )
    for got, want in zip(mine, trained_by_torch(form, adds), strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("read", [False, True])
def test_a_forward_pass_that_a_rule_names(monkeypatch, looked_at, read):
    """With vector code too; in the memory of its source, unless the program reads that."""
    pretend(monkeypatch, True)
    rule = KernelRule(aten.gelu.default, in_pieces("tanh", least=ROWS * HIDDEN, most=1 << 12), "a test")
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
