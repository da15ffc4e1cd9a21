"""The ways of computing a plain LSTM layer on the CPU: each against torch's own loop in float64, and which is taken when."""

from __future__ import annotations

import inspect
import warnings

import pytest
import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

from mlc_torch.layers import lstm_kernel, lstm_rule
from mlc_torch.layers import lstm_sequence as lstm_sequence_module
from mlc_torch.layers.lstm_rule import Way, forced, way_for
from mlc_torch.layers.lstm_sequence import lstm_sequence
from mlc_torch.torch_private import available
from mlc_torch.torch_private.lstm import has_library_lstm
from mlc_torch.torch_private.modes import written_out
from mlc_torch.torch_private.scripts import scripted
from tests.gears.training import recurrent, train
from tests.layers.records import values
from tests.layers.test_lstm import make

LOOPS = (lstm_kernel.loop_keeping_all, lstm_kernel.loop_keeping_nothing, lstm_kernel.loop_back)


@pytest.fixture(params=["library", "script", "python"])
def way(request, monkeypatch):
    monkeypatch.setitem(available, "script", request.param == "script")
    with forced(Way.library if request.param == "library" else Way.own):
        yield request.param


def _given(time, batch, inputs, hidden):
    shapes = [(time, batch, inputs), (4 * hidden, inputs), (4 * hidden, hidden), (4 * hidden,)] + [(batch, hidden)] * 2
    return [torch.from_numpy(values(*shape, seed=n, low=-1, high=1)) for n, shape in enumerate(shapes)]


def _by_torch(x, wi, wh, b, h0, c0, reverse):
    """``nn.LSTM``'s own loop, which it takes for float64."""
    zeros = torch.zeros_like(wi[:, 0])
    flat = [wi, wh, zeros if b is None else b, zeros]
    x = x.flip(0) if reverse else x
    y, h, c = torch.lstm(x, (h0.unsqueeze(0), c0.unsqueeze(0)), flat, True, 1, 0.0, True, False, False)
    return y.flip(0) if reverse else y, h[0], c[0]


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("biased", [True, False])
@pytest.mark.parametrize("sizes", [(1, 1, 3, 4), (5, 1, 3, 4), (7, 3, 2, 5), (9, 11, 6, 8)], ids=str)
def test_values_and_gradients_agree_with_torch_in_float64(way, sizes, biased, reverse):
    given = _given(*sizes)
    if not biased:
        given[3] = None

    def run(call, dtype):
        leaves = [None if t is None else t.detach().to(dtype).requires_grad_() for t in given]
        results = call(*leaves, reverse)
        upstream = [torch.linspace(-1, 1, r.numel(), dtype=dtype).view_as(r) for r in results]
        return [*results, *torch.autograd.grad(results, [t for t in leaves if t is not None], upstream)]

    def ours(*leaves):
        return lstm_sequence(*leaves[:-1], reverse=leaves[-1])

    found, exact = run(ours, torch.float32), run(_by_torch, torch.float64)
    for a, b in zip(found, exact, strict=True):
        torch.testing.assert_close(a.double(), b, rtol=1e-4, atol=1e-5)
    with torch.no_grad():
        for a, b in zip(ours(*given, reverse), exact, strict=False):
            torch.testing.assert_close(a.double(), b, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("which", [0, 1, 2])
def test_the_gradient_of_one_result_alone(way, which):
    given = _given(4, 3, 2, 5)

    def gradient(call, dtype):
        leaves = [t.detach().to(dtype).requires_grad_() for t in given]
        return torch.autograd.grad(call(*leaves)[which].square().sum(), leaves, allow_unused=True)

    exact = gradient(lambda *leaves: _by_torch(*leaves, False), torch.float64)
    for a, b in zip(gradient(lstm_sequence, torch.float32), exact, strict=True):
        torch.testing.assert_close(a.double(), b, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("script", [True, False])
def test_our_loops_against_finite_differences(script, monkeypatch):
    monkeypatch.setitem(available, "script", script)
    given = [t.double().requires_grad_() for t in _given(3, 2, 2, 3)]
    for reverse in (False, True):
        assert torch.autograd.gradcheck(lambda *leaves, r=reverse: lstm_sequence(*leaves, reverse=r), given)


def test_sources_of_any_layout(way):
    """The input of a batch-first layer is a transposed view, the states of a short batch are cut out of larger ones."""
    module = make(3, 4, 2, bidirectional=True).module
    x, h0, c0 = (torch.from_numpy(values(*s)) for s in ((5, 6, 3), (2, 2, 7, 4), (2, 2, 7, 4)))
    laid_out = x.permute(2, 1, 0).contiguous().permute(2, 1, 0)
    for a, b in zip(module(laid_out, h0, c0), module(x, h0[:, :, :5].clone(), c0[:, :, :5].clone()), strict=True):
        torch.testing.assert_close(a, b)


def test_a_graph_trains_alike_each_way_and_in_every_mode_of_torch(way):
    with forced(Way.own):
        expected = train(recurrent, steps=3)
    for mode in (torch.enable_grad, torch.no_grad, torch.inference_mode):
        with mode():
            found = train(recurrent, steps=3)
        for a, b in zip(found, expected, strict=True):
            torch.testing.assert_close(a, b, rtol=1e-5, atol=1e-6)


# TorchScript


@pytest.mark.parametrize("loop", LOOPS, ids=lambda loop: loop.__name__)
def test_every_loop_is_taken_by_torchscript_without_a_warning(loop):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        loop.compiled.cache_clear()
        assert isinstance(loop.compiled(), torch.jit.ScriptFunction)


def test_without_its_text_a_loop_is_python(monkeypatch):
    def no_text(_):
        raise OSError("could not get source code")

    @scripted
    def twice(x):
        return x + x

    monkeypatch.setattr(inspect, "getsource", no_text)
    assert twice.compiled() is twice.__wrapped__
    assert twice(3) == 6


# What is run


class _Names(TorchDispatchMode):
    def __init__(self):
        super().__init__()
        self.seen = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.seen.append(str(func))
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize("options", [{}, {"lengths": True}], ids=["plain", "lengths"])
def test_the_input_is_multiplied_by_one_product_of_two_dimensions(options):
    module, x = make(3, 4, 1).module, torch.from_numpy(values(2, 5, 3))
    extra = [torch.tensor([5, 2], dtype=torch.int32)] if options else []
    with forced(Way.own), torch.no_grad(), _Names() as names:
        module(x, *extra)
    assert not [name for name in names.seen if "bmm" in name]
    assert [name for name in names.seen if "addmm" in name]


def test_an_inference_keeps_nothing_for_a_gradient(way):
    module, x = make(3, 4, 1).module, torch.from_numpy(values(2, 5, 3))
    with torch.no_grad(), _Names() as names:
        module(x)
    assert not [name for name in names.seen if "lstm_forward" in name or "library_forward" in name]


# The rule


def _taken(batch, inputs, hidden, dtype=torch.float32, infers=False):
    return way_for(torch.empty(1, batch, inputs, dtype=dtype), hidden, infers)


def test_on_x86_the_library_is_taken_for_every_size(monkeypatch):
    monkeypatch.setattr(lstm_rule, "_X86", True)
    assert {_taken(b, 64, h) for b in (1, 1000) for h in (1, 512)} == {Way.library}


def test_elsewhere_for_few_multiplications(monkeypatch):
    monkeypatch.setattr(lstm_rule, "_X86", False)
    monkeypatch.setattr(torch, "get_num_threads", lambda: 1)
    assert _taken(8, 16, 32) is Way.library
    assert _taken(16, 16, 32) is _taken(1, 64, 128) is Way.own
    monkeypatch.setattr(torch, "get_num_threads", lambda: 2)
    assert _taken(16, 16, 32) is Way.library
    assert _taken(16, 32, 64) is _taken(32, 32, 32) is Way.own
    assert _taken(32, 32, 32, infers=True) is Way.library  # where no gradient is to follow, up to more
    assert _taken(64, 32, 32, infers=True) is Way.own


@pytest.mark.parametrize("follows", [False, True])
def test_the_rule_is_told_whether_a_gradient_is_to_follow(monkeypatch, follows):
    told = []
    monkeypatch.setattr(lstm_sequence_module, "way_for", lambda x, hidden, infers: told.append(infers) or Way.own)
    given = _given(2, 1, 3, 4)
    given[1].requires_grad_()
    with torch.set_grad_enabled(follows):
        assert lstm_sequence(*given)[0].requires_grad is follows
    assert told == [not follows]


def test_only_what_the_library_computes_goes_there(monkeypatch):
    monkeypatch.setattr(lstm_rule, "_X86", True)
    assert _taken(1, 2, 3, torch.float64) is _taken(1, 2, 3, torch.float16) is Way.own
    with written_out():
        assert _taken(1, 2, 3) is Way.own
    torch._C._set_mkldnn_enabled(False)  # as torch.backends.mkldnn.flags does, which warns of other switches
    try:
        assert _taken(1, 2, 3) is Way.own
    finally:
        torch._C._set_mkldnn_enabled(True)
    monkeypatch.setitem(available, "library_lstm", False)
    assert _taken(1, 2, 3) is Way.own


def test_torch_lstm_takes_the_library_where_the_rule_says_it_does():
    """What has_library_lstm claims of torch, seen in torch."""
    lstm, x = nn.LSTM(3, 4), torch.zeros(2, 1, 3)
    with torch.no_grad(), _Names() as names:
        lstm(x)
    assert any("mkldnn_rnn_layer" in name for name in names.seen) == has_library_lstm()


@pytest.mark.parametrize("given_short", [False, True])
def test_autocast_shortens_products_whatever_the_way(way, given_short):
    module, x = make(bidirectional=True).module, torch.from_numpy(values(2, 5, 3)).requires_grad_()
    want = module(x)[0]
    with torch.autocast("cpu", torch.bfloat16):
        made = module(x.bfloat16() if given_short else x)[0]
    torch.testing.assert_close(made.float(), want, rtol=2e-2, atol=2e-2)
    found = torch.autograd.grad(made.float().sum(), [x, *module.parameters()])
    for mine, exact in zip(found, torch.autograd.grad(want.sum(), [x, *module.parameters()]), strict=True):
        torch.testing.assert_close(mine, exact, rtol=5e-2, atol=5e-2)
