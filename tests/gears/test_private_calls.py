"""Every call that torch does not promise has a public way to the same numbers."""

from __future__ import annotations

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from mlc_torch.torch_private import available
from mlc_torch.torch_private.convolution import _MANY, _TOO_MANY, own_conv_backward
from mlc_torch.torch_private.hooks import hooks_on_every_module
from mlc_torch.torch_private.lists import copy_all
from mlc_torch.torch_private.updates import fused_adam_
from tests.gears.training import GRAPHS, train

ELSEWHERE = ("inductor", "quiet_tracer", "cudnn_lstm")
"""Not asked for on the CPU unless a program does: test_compiled.py and test_lstm_cudnn.py have them."""


@pytest.mark.parametrize("name", [n for n in available if n not in ELSEWHERE])
@pytest.mark.parametrize("graph", GRAPHS, ids=lambda g: g.__name__)
def test_training_without_it_gives_the_same(name, graph, monkeypatch):
    with_it = train(graph, steps=4)
    assert available[name], "this torch does not have it, so the comparison would compare nothing"
    monkeypatch.setitem(available, name, False)
    without = train(graph, steps=4)
    # Adam divides a gradient by its own size: the last bits of a small one are a part of the rate, which is 0.05. Where another
    # formula makes the update, they differ.
    atol = 5e-6 if name == "fused_adam" else 1e-6
    for a, b in zip(with_it, without, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-5, atol=atol)


@pytest.mark.parametrize("fused", [True, False])
@pytest.mark.parametrize("rate", [0.01, 0.0])
def test_weights_decay_by_the_formula(fused, rate, monkeypatch):
    """w = 0.9·w, then m = β1·m + (1-β1)·g, v = β2·v + (1-β2)·g², w -= lr·m/(√v + ε)."""
    assert available["fused_adam"]
    monkeypatch.setitem(available, "fused_adam", fused)
    w, g, m, v = (torch.rand(5, generator=torch.Generator().manual_seed(n)) + 0.1 for n in range(4))
    exact = [t.double() for t in (w, g, m, v)]
    how = {"lr": rate, "beta1": 0.9, "beta2": 0.99, "eps": 1e-3, "weight_decay": 0.0, "decay": 0.9}
    fused_adam_([w], [g], [m], [v], [], **how)
    m64, v64 = 0.9 * exact[2] + 0.1 * exact[1], 0.99 * exact[3] + 0.01 * exact[1] ** 2
    want = 0.9 * exact[0] - rate * m64 / (v64.sqrt() + 1e-3)
    for got, true in zip((w, m, v), (want, m64, v64), strict=True):
        torch.testing.assert_close(got.double(), true, rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize("foreach", [True, False])
def test_several_copies_are_made_and_none(foreach, monkeypatch):
    monkeypatch.setitem(available, "foreach", foreach)
    copy_all([], [])
    made = [torch.zeros(2), torch.zeros(3)]
    copy_all(made, [torch.tensor([1.0, 2.0]), torch.tensor([3.0, 4.0, 5.0])])
    assert [t.tolist() for t in made] == [[1, 2], [3, 4, 5]]


@pytest.mark.parametrize("images", [9, 8])
def test_gradients_of_half_of_the_images_at_a_time(images):
    """Between two sizes the kernel's matrix of windows is made in two parts; the gradients are those of the whole."""
    x, weight = torch.randn(images, 16, 32, 32, dtype=torch.float64), torch.randn(8, 16, 3, 3, dtype=torch.float64)
    columns = 4 * images * 16 * 9 * 32 * 32
    assert _MANY < columns < _TOO_MANY
    x, weight = x.requires_grad_(), weight.requires_grad_()
    y = torch.nn.functional.conv2d(x, weight, padding=1)
    grad = torch.randn_like(y)
    want = torch.autograd.grad(y, (x, weight), grad)
    last = torch.channels_last
    given = (t.detach().float().contiguous(memory_format=last) for t in (grad, x, weight))
    for mine, theirs in zip(own_conv_backward(*given, (1, 1), (1, 1), True, True), want, strict=True):
        torch.testing.assert_close(mine.double(), theirs, rtol=1e-4, atol=1e-4 * float(theirs.abs().max()))


@pytest.mark.parametrize(("dtype", "parts"), [(torch.float32, 1), (torch.float64, 2)])
def test_the_matrix_of_windows_is_as_large_as_its_elements(dtype, parts):
    """Just below the size from which on it is made in two parts, of 32 bits; of 64 it is above."""
    x, weight = torch.ones(2, 4, 60, 60, dtype=dtype), torch.ones(4, 4, 3, 3, dtype=dtype)
    assert _MANY / 8 < 2 * 4 * 9 * 58 * 58 < _MANY / 4
    grad = torch.ones(2, 4, 58, 58, dtype=dtype)
    calls = []

    class Counting(TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            calls.append(func.overloadpacket.__name__)
            return func(*args, **(kwargs or {}))

    with Counting():
        _, by_weight = own_conv_backward(grad, x, weight, (1, 1), (0, 0), True, True)
    assert calls.count("_slow_conv2d_backward") == parts
    assert by_weight is not None and set(by_weight.unique().tolist()) == {2.0 * 58 * 58}


def test_hooks_on_every_module_are_found():
    """In the order in which a module's own are looked at: what does not differentiate leaves out the last two."""
    every, ways = torch.nn.modules.module, ("forward", "forward_pre", "full_backward", "full_backward_pre")
    for place, way in enumerate(ways):
        handle = getattr(every, f"register_module_{way}_hook")(lambda *_: None)
        try:
            assert [bool(hooks) for hooks in hooks_on_every_module()] == [n == place for n in range(4)]
        finally:
            handle.remove()
    assert not any(hooks_on_every_module())
