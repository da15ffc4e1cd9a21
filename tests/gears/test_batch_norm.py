"""Batch normalization of odd numbers of channels over images with channels last: several pixels at once, or over a copy."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import pytest
import torch
from torch import fx, nn
from torch.torch_version import TorchVersion

from benchmarks.contenders import MLCompute
from benchmarks.translation import translate
from benchmarks.workloads import Workload
from mlc_torch import (
    MLCActivationLayer,
    MLCBatchNormalizationLayer,
    MLCConvolutionDescriptor,
    MLCConvolutionLayer,
    MLCGraph,
    MLCGraphCompilationOptions,
    MLCTensor,
    MLCTrainingGraph,
)
from mlc_torch.engine import images, kernels, norm_rules
from mlc_torch.engine.batch_norm import batch_norm, batch_norm_backward, pixels_at_once
from mlc_torch.engine.norm_rules import normalized
from tests.gears.test_kernels import pretend
from tests.graph.programs import cpu, data, loss, placeholder

aten = torch.ops.aten
EPSILON, MOMENTUM = 1e-3, 0.3
SHAPES = [(4, 5, 8, 8), (3, 6, 16, 16), (2, 12, 7, 2), (5, 24, 6, 6), (2, 36, 4, 4), (1, 7, 3, 3), (2, 8, 5, 2)]


def image(shape: tuple[int, ...], seed: int, around: float = 0.5) -> torch.Tensor:
    made = np.random.default_rng(seed).standard_normal(shape, np.float32) + np.float32(around)
    return torch.from_numpy(made).contiguous(memory_format=torch.channels_last)


class Case:
    """What a norm is given, and what it must give, by its definition in 64 bits."""

    def __init__(self, shape: tuple[int, ...], trains: bool, weighs: bool = True, around: float = 0.5) -> None:
        draw = np.random.default_rng(3)
        self.x, self.grad, self.trains = image(shape, 1, around), image(shape, 2), trains
        weight, bias, mean = (torch.from_numpy(draw.standard_normal(shape[1], np.float32)) for _ in range(3))
        self.weight, self.bias = (weight, bias) if weighs else (None, None)
        self.mean, self.variance = mean, torch.from_numpy(draw.random(shape[1], np.float32) + 0.5)
        x = self.x.double().detach().requires_grad_()
        w = (weight if weighs else torch.ones_like(weight)).double().requires_grad_()
        b = (bias if weighs else torch.zeros_like(bias)).double().requires_grad_()
        own = x.mean((0, 2, 3)), x.var((0, 2, 3), correction=0)
        m, v = own if trains else (self.mean.double(), self.variance.double())
        shaped = [t.view(1, -1, 1, 1) for t in (m, v, w, b)]
        self.y = (x - shaped[0]) / (shaped[1] + EPSILON).sqrt() * shaped[2] + shaped[3]
        self.gradients = torch.autograd.grad(self.y, (x, w, b), self.grad.double())
        self.y = self.y.detach()
        self.own_mean, self.own_slope = own[0].detach(), (own[1].detach() + EPSILON).rsqrt()
        unbiased = x.detach().var((0, 2, 3), correction=1)
        rate = MOMENTUM if trains else 0.0
        self.running = [
            (1 - rate) * old.double() + rate * new
            for old, new in ((self.mean, self.own_mean), (self.variance, unbiased))
        ]

    def forward(self, count: int) -> tuple[torch.Tensor, ...]:
        given = self.x, self.weight, self.bias, self.mean, self.variance
        return batch_norm(*given, self.trains, MOMENTUM, EPSILON, count)

    def backward(self, count: int, mask: list[bool]) -> tuple[torch.Tensor | None, ...]:
        own = (self.own_mean.float(), self.own_slope.float()) if self.trains else (None, None)
        given = self.grad, self.x, self.weight, self.mean, self.variance, *own
        return batch_norm_backward(*given, self.trains, EPSILON, mask, count)


def near(got: torch.Tensor | None, want: torch.Tensor, scale: float = 1e-5) -> None:
    assert got is not None
    torch.testing.assert_close(got.double(), want, rtol=scale, atol=scale * max(1.0, float(want.abs().max())))


@pytest.mark.parametrize("weighs", [True, False], ids=["weights", "no weights"])
@pytest.mark.parametrize("trains", [True, False], ids=["train", "eval"])
@pytest.mark.parametrize("way", ["at once", "copied"])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_it_is_what_the_definition_says(shape, way, trains, weighs):
    case = Case(shape, trains, weighs)
    images, channels, height, width = shape
    count = pixels_at_once(channels, images * height * width) if way == "at once" else 0
    y, mean, slope = case.forward(count)
    near(y, case.y)
    for got, want in zip((case.mean, case.variance), case.running, strict=True):
        near(got, want)
    if trains:
        near(mean, case.own_mean)
        near(slope, case.own_slope)
    assert y.stride() == case.x.stride()
    for mask in ([True, True, True], [False, True, True], [True, False, False]):
        found = case.backward(count, mask)
        for wanted, got, want in zip(mask, found, case.gradients, strict=True):
            if wanted:
                near(got, want)
            else:
                assert got is None
        if mask[0]:
            assert found[0].stride() == case.x.stride()


def test_numbers_far_from_zero_are_as_near_as_torch_s():
    case = Case((4, 6, 16, 16), True, around=300.0)
    count = pixels_at_once(6, 4 * 256)
    given = case.x, case.weight, case.bias, None, None, True, MOMENTUM, EPSILON
    by_torch = aten.native_batch_norm(*given)[0]
    found = batch_norm(*given, count)[0]
    error, of_torch = ((t.double() - case.y).abs().max() for t in (found, by_torch))
    assert error <= 2 * of_torch + 1e-5
    gradient, _, _ = case.backward(count, [True, True, True])
    near(gradient, case.gradients[0], 1e-4)


def test_pixels_at_once_are_shared_out_evenly():
    for channels in range(1, 100):
        for pixels in (1, 2, 15, 48, 98, 3 * 256, 32 * 28 * 28):
            count = pixels_at_once(channels, pixels)
            assert count == 0 or (pixels % count == 0 and count * channels % 16 == 0)
            assert count <= 16 or count * channels <= 256
    assert pixels_at_once(5, 15) == 0 and pixels_at_once(6, 32 * 28 * 28) == 32


def node(
    shape: tuple[int, ...],
    backward: bool = False,
    *,
    last: bool = True,
    dtype: Any = torch.float32,
    trains: bool = True,
    epsilon: float = EPSILON,
) -> fx.Node:
    graph = fx.Graph()
    given = [graph.placeholder(name) for name in ("grad", "x")]
    made = torch.empty(shape, dtype=dtype, device="meta")
    if last:
        made = made.contiguous(memory_format=torch.channels_last)
    for each in given:
        each.meta["lies"] = (tuple(made.shape), made.stride(), dtype)
    operation = aten.native_batch_norm_backward.default if backward else aten.native_batch_norm.default
    if backward:
        return graph.call_function(operation, (*given, None, None, None, None, None, trains, epsilon, [True] * 3))
    return graph.call_function(operation, (given[1], None, None, None, None, trains, MOMENTUM, epsilon))


TABLES = {
    "ARM": norm_rules.NORMS_BY_ARM,
    "x86": norm_rules.NORMS_BY_X86_BEFORE_2_13,
    "x86, torch 2.13": norm_rules.NORMS_BY_X86_SINCE_2_13,
}


@pytest.mark.parametrize(
    ("shape", "threads", "arm", "x86", "since_2_13"),
    [
        ((32, 6, 28, 28), 1, 32, 32, 32),
        ((16, 6, 28, 28), 1, 0, 0, None),
        ((32, 6, 28, 28), 2, 0, 0, 32),
        ((8, 6, 28, 28), 2, 0, 0, 0),
        ((32, 12, 28, 28), 1, None, 16, None),
        ((64, 12, 28, 28), 1, None, 16, 16),
        ((32, 20, 28, 28), 2, None, 8, 8),
        ((32, 60, 28, 28), 2, None, 4, None),
        ((32, 60, 28, 28), 8, None, 4, 4),
        ((8, 50, 16, 16), 2, None, None, None),
        ((8, 18, 16, 16), 2, 0, 0, None),
        ((8, 18, 16, 16), 8, 0, 0, 0),
        ((2, 5, 8, 8), 1, None, None, None),
        ((32, 16, 28, 28), 1, None, None, None),
        ((32, 8, 28, 28), 2, None, None, None),
    ],
)
def test_where_the_rules_apply(monkeypatch, shape, threads, arm, x86, since_2_13):
    """So many pixels at once, or a copy (0)."""
    monkeypatch.setattr(norm_rules.torch, "get_num_threads", lambda: threads)
    for rules, want in zip(TABLES.values(), (arm, x86, since_2_13), strict=True):
        replace = normalized(rules)
        found = replace(node(shape))
        assert (found and (found[0], found[1][-1])) == (None if want is None else (batch_norm, want))
        assert replace(node(shape, last=False)) is None
        assert replace(node(shape, dtype=torch.float64)) is None


@pytest.mark.parametrize(
    ("shape", "threads", "want"),
    [
        ((32, 6, 28, 28), 1, 32),
        ((8, 6, 28, 28), 1, 0),
        ((4, 6, 28, 28), 1, None),
        ((8, 12, 28, 28), 1, None),
        ((2, 12, 28, 28), 2, 0),
        ((1, 12, 28, 28), 2, None),
        ((8, 8, 16, 16), 2, 0),
        ((8, 36, 16, 16), 2, 0),
        ((32, 36, 16, 16), 2, None),
        ((32, 36, 28, 28), 2, 4),
    ],
)
def test_which_gradients_the_newer_rules_compute(monkeypatch, shape, threads, want):
    monkeypatch.setattr(norm_rules.torch, "get_num_threads", lambda: threads)
    found = normalized(norm_rules.NORMS_BY_X86_SINCE_2_13)(node(shape, True))
    assert (found and (found[0], found[1][-1])) == (None if want is None else (batch_norm_backward, want))


@pytest.mark.parametrize(
    ("version", "want"), [("2.12.1", "x86"), ("2.13.0+cpu", "x86, torch 2.13"), ("2.15.0", "x86, torch 2.13")]
)
def test_the_version_of_torch_decides(version, want):
    assert norm_rules.norms_by_x86(TorchVersion(version)) is TABLES[want]


def test_channels_that_are_constant_are_left_to_torch_where_there_is_no_epsilon():
    """It gives them a slope of 0."""
    for backward in (False, True):
        found = normalized(norm_rules.NORMS_BY_ARM)(node((32, 6, 28, 28), backward, epsilon=0.0))
        assert found is not None and found[1][-1] == 0
    x = image((4, 6, 8, 8), 1)
    x[:, 2] = 0
    y, _, slope = batch_norm(x, None, None, None, None, True, MOMENTUM, 0.0, 0)
    assert (y[:, 2] == 0).all() and slope[2] == 0


@pytest.mark.parametrize(("threads", "want"), [(1, 0), (2, 0), (8, None)])
def test_threads_share_an_inference_evenly(monkeypatch, threads, want):
    monkeypatch.setattr(norm_rules.torch, "get_num_threads", lambda: threads)
    found = normalized(norm_rules.NORMS_BY_X86_BEFORE_2_13)(node((8, 12, 16, 16), trains=False))
    assert (found and found[1][-1]) == want
    assert normalized(norm_rules.NORMS_BY_X86_SINCE_2_13)(node((8, 12, 16, 16), trains=False)) is None


def test_sums_of_several_threads_in_one_line_of_a_cache(monkeypatch):
    for threads, want in ((1, None), (2, 0), (8, 0)):
        monkeypatch.setattr(norm_rules.torch, "get_num_threads", lambda threads=threads: threads)
        found = normalized(norm_rules.NORMS_BY_X86_BEFORE_2_13)(node((32, 8, 28, 28), True))
        assert (found and found[1][-1]) == want
        assert found is None or found[0] is batch_norm_backward
        assert normalized(norm_rules.NORMS_BY_ARM)(node((32, 8, 28, 28), True)) is None


@pytest.mark.parametrize("vector_code", [True, False])
def test_groups_of_an_odd_number_of_channels_are_normalized_over_contiguous_images(monkeypatch, vector_code):
    pretend(monkeypatch, vector_code)
    seen = []
    for channels in (6, 24, 16):
        module = nn.GroupNorm(2, channels)
        module.register_forward_pre_hook(lambda _, given: seen.append(given[0].is_contiguous()))
        x = image((2, channels, 4, 4), 1).requires_grad_()
        made = images.call_over_images(module, dict(module.named_parameters()), [x])
        want = nn.functional.group_norm(x.double(), 2, eps=module.eps)
        torch.testing.assert_close(made.double(), want, rtol=1e-5, atol=1e-5)
    assert seen == [True, vector_code, False]


@pytest.mark.parametrize("since_2_13", [False, True])
@pytest.mark.parametrize("table", ["ARM", "AVX2", "AVX-512"])
@pytest.mark.parametrize("samples", [4, 32], ids=["copied", "at once"])
def test_a_network_is_trained_and_asked_by_the_rules_of_every_processor(monkeypatch, table, samples, since_2_13):
    """Two steps, against plain torch in 64 bits."""
    pretend(monkeypatch, table != "ARM")
    monkeypatch.setattr(kernels, "has_avx512", lambda: table == "AVX-512")
    norms, usual = (
        kernels._normalizes(TABLES["x86, torch 2.13" if since_2_13 else "x86"]),
        kernels.KERNELS_WITH_VECTOR_CODE,
    )
    for name in ("KERNELS_WITH_VECTOR_CODE", "KERNELS_WITH_AVX512"):
        others = [rule for rule in getattr(kernels, name) if rule not in usual]
        monkeypatch.setattr(kernels, name, (*others, *norms))
    monkeypatch.setattr(norm_rules.torch, "get_num_threads", lambda: 1)
    used = []
    for name in ("batch_norm", "batch_norm_backward"):
        function = getattr(norm_rules, name)
        counted = lambda *given, name=name, function=function: used.append((name, given[-1] > 0)) or function(*given)  # noqa: E731
        monkeypatch.setattr(norm_rules, name, counted)
    twin = nn.Sequential(
        nn.Conv2d(4, 6, 3, padding=1), nn.BatchNorm2d(6), nn.ReLU(), nn.Flatten(), nn.Linear(6 * 784, 2)
    )
    twin = twin.double()
    workload = Workload(
        "", lambda: copy.deepcopy(twin).float(), translate, (samples, 4, 28, 28), "sgd plain", classes=2
    )
    ours = MLCompute(workload, torch.device("cpu"))
    optimizer = torch.optim.SGD(twin.parameters(), lr=0.01)
    for number in range(2):
        found = ours.values(number)
        optimizer.zero_grad()
        given = torch.from_numpy(workload.inputs(number)[0]).double()
        loss = nn.functional.cross_entropy(twin(given), torch.from_numpy(workload.labels(number)))
        loss.backward()
        optimizer.step()
        np.testing.assert_allclose(found, loss.item(), rtol=1e-4)
    left_to_torch = since_2_13 and table != "ARM" and samples == 4
    assert set(used) == {(name, samples == 32) for name in ("batch_norm", "batch_norm_backward") if not left_to_torch}


@pytest.mark.parametrize("channels", [5, 8, 12])
@pytest.mark.parametrize("options", [[], [MLCGraphCompilationOptions.debugLayers]], ids=["planned", "plain"])
@pytest.mark.parametrize("arm", [False, True], ids=["x86", "ARM"])
def test_statistics_move_where_nobody_reads_the_result(monkeypatch, arm, options, channels):
    """A second head, which only an inference will read."""
    pretend(monkeypatch, not arm)
    draw, shape = np.random.default_rng(4), (8, 3, 16, 16)
    weights = draw.standard_normal((1, 3 * channels, 1, 1), np.float32)
    convolution = MLCConvolutionLayer(
        weights=MLCTensor.from_numpy(weights),
        biases=None,
        descriptor=MLCConvolutionDescriptor(
            kernelSizes=(1, 1), inputFeatureChannelCount=3, outputFeatureChannelCount=channels
        ),
    )
    mean, variance = np.zeros((1, channels, 1, 1), np.float32), np.ones((1, channels, 1, 1), np.float32)
    norm = MLCBatchNormalizationLayer(
        featureChannelCount=channels, mean=MLCTensor.from_numpy(mean), variance=MLCTensor.from_numpy(variance),
        beta=None, gamma=None, varianceEpsilon=1e-5, momentum=0.5,
    )  # fmt: skip
    graph, x, t = MLCGraph(), placeholder(*shape), placeholder(8, channels, 16, 16)
    y = graph.node(convolution, source=x)
    graph.node(norm, source=y)
    graph.node(MLCActivationLayer.tanh, source=y)
    training = MLCTrainingGraph(graphObjects=[graph], lossLayer=loss(), optimizer=None)
    assert training.addInputs({"x": x}, lossLabels={"t": t}) and training.compile(options=options, device=cpu())
    given = draw.standard_normal(shape, np.float32)
    for _ in range(3):
        labels = {"t": data(np.zeros((8, channels, 16, 16), np.float32))}
        assert training.execute(
            inputsData={"x": data(given)}, lossLabelsData=labels, lossLabelWeightsData=None, batchSize=8
        )
    made = np.einsum("nchw,oc->nohw", given.astype(float), weights.reshape(channels, 3))
    np.testing.assert_allclose(mean.ravel(), (1 - 0.5**3) * made.mean((0, 2, 3)), rtol=1e-4, atol=1e-5)
    want = 0.5**3 + (1 - 0.5**3) * made.var((0, 2, 3))
    np.testing.assert_allclose(variance.ravel(), want, rtol=1e-4)
