"""Gradients of depthwise convolutions: by products, by torch over contiguous images, and where which."""

from __future__ import annotations

import pytest
import torch
from torch import fx
from torch.nn import functional as F

from mlc_torch.engine import kernels
from mlc_torch.engine.depthwise import depthwise_gradients, is_depthwise
from mlc_torch.engine.kernels import choose_kernels
from mlc_torch.engine.replacements import depthwise_backward, depthwise_backward_contiguous
from mlc_torch.engine.trace import Recording
from tests.gears.test_kernels import pretend

aten = torch.ops.aten


@pytest.mark.parametrize("stride", [(1, 1), (2, 2), (1, 3)])
@pytest.mark.parametrize("dilation", [(1, 1), (2, 1)])
@pytest.mark.parametrize("padding", [(0, 0), (1, 1), (2, 0)])
@pytest.mark.parametrize(("size", "kernel"), [((9, 8), (3, 3)), ((7, 10), (3, 2)), ((6, 6), (1, 5))])
def test_depthwise_gradients_are_autograd_s(stride, dilation, padding, size, kernel):
    x = torch.randn(2, 5, *size, dtype=torch.float64, requires_grad=True)
    weight = torch.randn(5, 1, *kernel, dtype=torch.float64, requires_grad=True)
    bias = torch.randn(5, dtype=torch.float64, requires_grad=True)
    y = F.conv2d(x, weight, bias, stride, padding, dilation, 5)
    grad = torch.randn_like(y)
    how = (stride, padding, dilation, False, (0, 0), 5)
    if not is_depthwise(grad.shape, x.shape, weight.shape, how):
        assert any(d * (k - 1) < p for d, k, p in zip(dilation, kernel, padding, strict=True))
        return
    want = torch.autograd.grad(y, (x, weight, bias), grad)
    got = depthwise_gradients(grad, x.detach(), weight.detach(), stride, padding, dilation, (True, True, True))
    for mine, theirs in zip(got, want, strict=True):
        torch.testing.assert_close(mine, theirs)
    none = depthwise_gradients(grad, x.detach(), weight.detach(), stride, padding, dilation, (False, True, False))
    assert none[0] is None and none[2] is None and torch.equal(none[1], got[1])


@pytest.mark.parametrize(
    ("x", "weight", "groups"),
    [((2, 4, 5, 5), (8, 1, 3, 3), 4), ((2, 4, 5, 5), (4, 2, 3, 3), 2), ((2, 1, 5, 5), (1, 1, 3, 3), 1)],
)
def test_other_groups_are_not_depthwise(x, weight, groups):
    grad = (2, weight[0], 3, 3)
    assert not is_depthwise(grad, x, weight, ((1, 1), (0, 0), (1, 1), False, (0, 0), groups))


@pytest.mark.parametrize("way", [depthwise_backward, depthwise_backward_contiguous])
@pytest.mark.parametrize("mask", [(True, True, True), (False, True, False)])
def test_what_runs_in_its_place_lies_as_it_was_recorded(way, mask):
    last = torch.channels_last
    x, weight = torch.randn(2, 5, 7, 8).to(memory_format=last), torch.randn(5, 1, 3, 3)
    grad = torch.randn(2, 5, 4, 4).to(memory_format=last)
    how = ([5], [2, 2], [1, 1], [1, 1], False, [0, 0], 5, mask)
    want = aten.convolution_backward(grad.double(), x.double(), weight.double(), *how)
    strides = tuple(None if w is None else w.stride() for w in want)
    got = way(grad, x, weight, [2, 2], [1, 1], [1, 1], mask, strides)
    for mine, theirs, step in zip(got, want, strides, strict=True):
        assert (mine is None) == (theirs is None)
        if mine is not None:
            assert mine.stride() == step
            torch.testing.assert_close(mine.double(), theirs, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    ("batch", "channels", "size", "kernel", "threads", "want"),
    [
        (8, 32, 24, 3, 1, depthwise_backward),
        (8, 32, 24, 3, 2, depthwise_backward),
        (1, 16, 24, 3, 1, depthwise_backward_contiguous),
        (1, 32, 24, 3, 1, depthwise_backward),
        (1, 32, 24, 3, 2, depthwise_backward_contiguous),
        (8, 32, 24, 1, 1, depthwise_backward_contiguous),
        (16, 32, 24, 1, 1, depthwise_backward),
        (8, 32, 24, 1, 2, depthwise_backward),
    ],
)
def test_which_way_it_goes_without_vector_code(monkeypatch, batch, channels, size, kernel, threads, want):
    pretend(monkeypatch, False)
    monkeypatch.setattr(kernels.torch, "get_num_threads", lambda: threads)
    graph, image = fx.Graph(), (batch, channels, size, size)
    given = [graph.placeholder(name) for name in ("grad", "x", "weight")]
    edge, mask = [kernel // 2] * 2, [True] * 3
    node = graph.call_function(
        aten.convolution_backward.default,
        (*given, [channels], [1, 1], edge, [1, 1], False, [0, 0], channels, mask),
    )
    node.meta |= {
        "shapes": [image, image, (channels, 1, kernel, kernel)],
        "dtype": torch.float32,
        "strides": (None,) * 3,
    }
    choose_kernels(Recording(graph, {}, {}, [], [node], [], [], [], [], []), torch.device("cpu"))
    assert node.target is want
