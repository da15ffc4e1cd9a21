"""The rules for a GPU's kernels: where they apply, that they change no number, and what they leave to whom."""

from __future__ import annotations

import copy
import operator

import pytest
import torch
from torch import fx, nn
from torch.fx.experimental.proxy_tensor import make_fx
from torch.nn import functional as F

from mlc_torch import MLCDevice, MLCGraph, MLCTrainingGraph, unwrap
from mlc_torch.engine import cuda_rules, in_place, kernels, lanes, own_kernels, trace
from mlc_torch.engine.cuda_rules import WithZeros, adds_bias_apart
from mlc_torch.engine.kernels import choose_kernels
from mlc_torch.engine.lanes import Laned
from mlc_torch.engine.layouts import called
from mlc_torch.engine.mode import Mode
from mlc_torch.engine.planned import Planned
from mlc_torch.engine.replacements import bias_gradient, product_then_bias, product_turned
from mlc_torch.engine.trace import record
from mlc_torch.interop import TorchLayer
from mlc_torch.running.state import Variant
from tests.gears.test_lanes import Slow
from tests.gears.training import recurrent, training_graph
from tests.graph.programs import loss, placeholder, sgd

aten = torch.ops.aten


@pytest.fixture
def as_on_a_gpu(monkeypatch):
    """The GPU's rules, and images as they lie there, on the CPU, where every product is exact enough to compare."""
    monkeypatch.setattr(kernels, "_rules_for", lambda device: kernels.KERNELS_ON_A_GPU)
    monkeypatch.setattr(trace, "call_over_images", lambda module, own, sources, _: called(module, own, sources))


class Case:
    """A module in a training graph, and a batch for it."""

    def __init__(self, module: nn.Module, *shape: int) -> None:
        self.module = module
        base, self.source = MLCGraph(), placeholder(*shape)
        scores = base.node(TorchLayer(module), source=self.source)
        labels = placeholder(*unwrap(scores.descriptor).shape)
        self.graph = MLCTrainingGraph(graphObjects=[base], lossLayer=loss(), optimizer=sgd())
        assert self.graph.addInputs({"x": self.source}, lossLabels={"y": labels})
        assert self.graph.compile(options=[], device=MLCDevice.cpu())
        self.plan = self.graph._session(Variant.whole).plan
        self.feeds = [torch.randn(c.shape) for c in self.plan.cells[: self.plan.fed_count]]

    def recorded(self) -> set[object]:
        """What would run on the GPU."""
        chosen = choose_kernels(record(self.plan, self.feeds, (), (), Mode.train), torch.device("cuda"))
        return {
            n.args[0].target if n.target is operator.call else n.target for n in (*chosen.forward, *chosen.backward)
        }

    def expected(self) -> list[torch.Tensor]:
        """The gradients in 64 bits, by autograd."""
        exact = copy.deepcopy(self.module).double()
        x, labels = (f.double() for f in self.feeds)
        found = F.mse_loss(exact(x), labels)
        return list(torch.autograd.grad(found, [p for p in exact.parameters() if p.requires_grad]))


def _few(hidden: int = 20) -> nn.Module:
    return nn.Sequential(nn.Linear(12, hidden), nn.ReLU(), nn.Linear(hidden, 9, bias=False), nn.Tanh(), nn.Linear(9, 5))


def _images() -> nn.Module:
    first = nn.Conv2d(2, 3, 3, padding=1)
    return nn.Sequential(first, nn.ReLU(), nn.Conv2d(3, 4, 3, stride=2), nn.Flatten(), nn.Linear(16, 5))


class ChannelsLast(nn.Module):
    """Neither convolution's gradient lies in order."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Conv2d(2, 3, 3), nn.Conv2d(3, 4, 1)

    def forward(self, x):
        y = self.second(torch.relu(self.first(x.contiguous(memory_format=torch.channels_last))))
        return y.permute(0, 2, 3, 1).flatten(1)


def _biases_alone() -> nn.Module:
    module = nn.Sequential(nn.Conv2d(2, 3, 3), nn.Flatten())
    module[0].weight.requires_grad_(False)
    return module


class Scaled(nn.Module):
    """Products that are more than products."""

    def __init__(self) -> None:
        super().__init__()
        self.weight, self.bias = nn.Parameter(torch.randn(7, 12)), nn.Parameter(torch.randn(7))
        self.each = nn.Parameter(torch.randn(24, 7))

    def forward(self, x):
        scaled = torch.addmm(self.bias, x, self.weight.t(), beta=0.5, alpha=2.0)
        return scaled + torch.addmm(self.each, x, self.weight.t())


CASES = {
    "a few rows": (lambda: Case(_few(), 6, 12), {WithZeros}, {product_then_bias, bias_gradient}),
    "more rows": (lambda: Case(_few(), 24, 12), {product_then_bias}, {WithZeros, bias_gradient}),
    "few classes": (lambda: Case(_few(100), 100, 12), {product_turned}, {WithZeros}),
    "images": (lambda: Case(_images(), 64, 2, 5, 5), {product_then_bias, bias_gradient}, {WithZeros}),
    "63 images": (lambda: Case(_images(), 63, 2, 5, 5), {product_then_bias}, {bias_gradient}),
    "channels last": (lambda: Case(ChannelsLast(), 64, 2, 5, 5), set(), {bias_gradient}),
    "biases alone": (lambda: Case(_biases_alone(), 64, 2, 5, 5), set(), {bias_gradient}),
    "scaled": (lambda: Case(Scaled(), 24, 12), set(), {product_then_bias}),
    "a few images": (lambda: Case(_images(), 8, 2, 5, 5), {WithZeros}, {product_then_bias, bias_gradient}),
}


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("kind", [Planned, Laned])
def test_the_gradients_are_those_of_autograd_in_64_bits(name, kind, as_on_a_gpu, monkeypatch):
    monkeypatch.setattr(lanes, "Lane", Slow)
    monkeypatch.setattr(in_place, "_LITTLE_GRADIENT", 0)
    make, there, not_there = CASES[name]
    case = make()
    used = case.recorded()
    assert there <= used and not not_there & used
    gear = kind(case.plan, case.feeds, (), (), Mode.train)
    for _ in range(2):
        gear.forward(case.feeds, ())
        found, _ = gear.gradient(())
        for mine, theirs in zip(found, case.expected(), strict=True):
            torch.testing.assert_close(mine.view_as(theirs).double(), theirs, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize(
    ("rows", "depth", "columns", "apart"),
    [
        *((16, 128, 10, False), (17, 128, 10, True), (32, 128, 10, True), (32, 128, 1, False)),
        *((256, 128, 64, False), (255, 128, 64, True), (64, 1568, 128, True), (128, 512, 512, True)),
        *((512, 512, 512, False), (512, 900, 512, True), (1024, 784, 1000, False)),
    ],
)
def test_where_a_bias_is_added_apart(rows, depth, columns, apart):
    assert adds_bias_apart(rows, depth, columns, torch.float32) is apart
    assert not adds_bias_apart(rows, depth, columns, torch.float16)


def test_shortened_products_are_left_alone(monkeypatch):
    monkeypatch.setattr(cuda_rules, "multiplies_in_full", lambda: False)
    assert not adds_bias_apart(32, 128, 10, torch.float32)


@pytest.mark.parametrize(("capability", "measured"), [((9, 0), True), ((8, 0), False), ((10, 0), False)])
def test_other_gpus_keep_torch_s_choice(monkeypatch, capability, measured):
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: capability)
    assert cuda_rules.is_measured.__wrapped__(torch.device("cuda")) is measured
    assert not cuda_rules.is_measured.__wrapped__(torch.device("cpu"))
    assert not cuda_rules.is_measured.__wrapped__(torch.device("mps"))
    monkeypatch.setattr(cuda_rules, "is_measured", lambda device: measured)
    assert kernels._rules_for(torch.device("cuda")) == (kernels.KERNELS_ON_A_GPU if measured else ())


def _traced(rows: int) -> tuple[fx.GraphModule, tuple[torch.Tensor, ...]]:
    given = torch.randn(7), torch.randn(rows, 12), torch.randn(7, 12)
    return make_fx(lambda b, x, w: torch.relu(torch.addmm(b, x, w.t())), tracing_mode="fake")(*given), given


def test_inductor_keeps_a_product_that_is_more_than_one(monkeypatch):
    monkeypatch.setattr(own_kernels, "is_measured", lambda device: True)
    given = torch.randn(7), torch.randn(24, 12), torch.randn(12, 7)
    graph = make_fx(lambda b, x, w: torch.addmm(b, x, w, beta=0.5, alpha=2.0), tracing_mode="fake")(*given)
    own_kernels.keep_own_kernels(graph.graph, torch.device("cuda"))
    assert aten.addmm.default in {n.target for n in graph.graph.nodes}


@pytest.mark.parametrize(("rows", "apart"), [(6, False), (24, True)])
def test_inductor_is_given_products_without_their_bias(monkeypatch, rows, apart):
    monkeypatch.setattr(own_kernels, "is_measured", lambda device: True)
    graph, (bias, x, weight) = _traced(rows)
    own_kernels.keep_own_kernels(graph.graph, torch.device("cuda"))
    graph.recompile()
    targets = {n.target for n in graph.graph.nodes}
    assert (torch.ops.mlc_torch.product_alone.default in targets) is apart
    assert (aten.addmm.default in targets) is not apart
    wanted = F.linear(x.double(), weight.double(), bias.double()).relu()
    torch.testing.assert_close(graph(bias, x, weight).double(), wanted, rtol=1e-5, atol=1e-5)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs CUDA")
def test_an_lstm_is_recorded_as_straight_code():
    graph = training_graph(recurrent(), unwrap(MLCDevice.gpu()))
    assert isinstance(graph._session(Variant.whole).prepared._inner, Laned)
