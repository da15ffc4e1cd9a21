"""LSTMs by cuDNN: in one piece of memory, as one operation. On the CPU torch's own LSTM stands in for the library."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from mlc_torch import MLCDevice, torch_private, unwrap
from mlc_torch.layers import lstm, lstm_cudnn, lstm_sequence
from mlc_torch.torch_private import lstm_views
from tests.gears.training import PLAIN, recurrent, train
from tests.layers.records import values
from tests.layers.test_lstm import make, torch_lstm


def _run(x, memory, h0, c0, directions, keeps):
    """What ``cudnn_lstm`` gives, by torch's loop; there is nothing to keep."""
    weights, layers = lstm_views(memory, x.shape[2], h0.shape, directions), len(h0) // directions
    made = torch.lstm(x.double(), (h0.double(), c0.double()), [w.double() for w in weights], True, layers, 0.0, True,
                      directions == 2, False)  # fmt: skip
    return *(m.to(x.dtype) for m in made), x.new_zeros(1)


def _run_back(x, memory, h0, c0, directions, outputs, kept, *gradients):
    with torch.enable_grad():
        given = [t.detach().requires_grad_() for t in (x, memory, h0, c0)]
        made = _run(*given, directions, True)[:3]
    return torch.autograd.grad(made, given, gradients)


@pytest.fixture
def by_cudnn(monkeypatch):
    """As where there is one. Gives how often it was asked, forward and back."""
    asked: list[str] = []
    monkeypatch.setattr(lstm_cudnn, "cudnn_lstm", lambda *a, keeps: (asked.append("run"), _run(*a, keeps))[1])
    monkeypatch.setattr(lstm_cudnn, "cudnn_lstm_backward", lambda *a: (asked.append("back"), _run_back(*a))[1])
    for module in (lstm, lstm_sequence):
        monkeypatch.setattr(module, "has_cudnn_lstm", lambda x: True)
    return asked


@pytest.mark.parametrize("biased", [True, False])
@pytest.mark.parametrize("bidirectional", [False, True])
@pytest.mark.parametrize("layers", [1, 3])
@pytest.mark.parametrize("wanted", ["outputs", "a state", "everything"])
def test_values_and_gradients_are_nn_lstm_s(layers, bidirectional, biased, wanted, by_cudnn):
    theirs, ours = torch_lstm(3, 4, layers, bidirectional, biased), make(3, 4, layers, bidirectional, biased).module
    directions = 2 if bidirectional else 1
    x = torch.from_numpy(values(2, 5, 3)).requires_grad_()
    h0, c0 = (torch.from_numpy(values(layers, directions, 2, 4, seed=s)).requires_grad_() for s in (1, 2))
    y, (h, c) = theirs(x, (h0.flatten(0, 1), c0.flatten(0, 1)))
    want, got = (y, h.view_as(h0), c.view_as(c0)), ours(x, h0, c0)
    for mine, other in zip(got, want, strict=True):
        torch.testing.assert_close(mine, other, rtol=1e-5, atol=1e-6)
    chosen = {"outputs": [0], "a state": [2], "everything": [0, 1, 2]}[wanted]

    def gradients(made, weights):
        total = sum((made[n] * torch.linspace(-1, 1, made[n].numel()).view_as(made[n])).sum() for n in chosen)
        return torch.autograd.grad(total, [x, h0, c0, *weights])

    own = [p for p in theirs.parameters() if p.dim() == 2]
    gates = [
        [p for kind in ("inputWeights", "hiddenWeights") for p in ours.gates(kind, layer, direction)]
        for layer in range(layers)
        for direction in range(directions)
    ]
    flat = [p for four in gates for p in four]
    found, expected = gradients(got, flat), gradients(want, own)
    for mine, other in zip(found[:3], expected[:3], strict=True):
        torch.testing.assert_close(mine, other, rtol=1e-4, atol=1e-6)
    for number, other in enumerate(expected[3:]):
        torch.testing.assert_close(torch.cat(found[3 + 4 * number : 7 + 4 * number]), other, rtol=1e-4, atol=1e-6)
    assert by_cudnn == ["run", "back"]


def test_a_recording_trains_as_the_modules_do(by_cudnn, monkeypatch):
    recorded = train(recurrent, 3)
    assert {"run", "back"} == set(by_cudnn)
    plain = train(recurrent, 3, PLAIN)
    monkeypatch.undo()
    for one, other, want in zip(recorded, plain, train(recurrent, 3, PLAIN), strict=True):
        torch.testing.assert_close(one, want, rtol=1e-4, atol=1e-5)
        torch.testing.assert_close(other, want, rtol=1e-4, atol=1e-5)


def test_where_nothing_needs_a_gradient_nothing_is_kept(by_cudnn, monkeypatch):
    monkeypatch.setattr(lstm_cudnn, "cudnn_lstm", lambda *a, keeps: pytest.fail("kept") if keeps else _run(*a, keeps))
    with torch.no_grad():
        make().module(torch.from_numpy(values(2, 5, 3)))


@pytest.mark.parametrize("layers", [1, 3])
@pytest.mark.parametrize("directions", [1, 2])
def test_views_of_one_piece_of_memory_are_nn_lstm_s_weights(layers, directions):
    """cuDNN reads all matrices, then all biases; ``nn.LSTM`` lists them layer by layer."""
    module = nn.LSTM(3, 5, num_layers=layers, bidirectional=directions == 2)
    flat = [p.detach() for p in module.parameters()]
    matrices, biases = [p for p in flat if p.dim() == 2], [p for p in flat if p.dim() == 1]
    memory = torch.cat([p.flatten() for p in (*matrices, *biases)])
    found = torch_private.lstm_views(memory, 3, (layers * directions, 4, 5), directions)
    for mine, theirs in zip(found, flat, strict=True):
        assert mine.shape == theirs.shape and torch.equal(mine, theirs)


@pytest.mark.parametrize("is_one_piece", [True, False])
def test_gradients_are_one_piece_of_memory_whether_the_library_gives_one_or_not(is_one_piece):
    memory, wanted = torch.zeros(2 * (20 * 3 + 20 * 5 + 20 + 20)), torch.arange(400.0)
    weights, gradients = (torch_private.lstm_views(m, 3, (2, 4, 5), 2) for m in (memory, wanted))
    if not is_one_piece:
        gradients = [g.clone() for g in gradients]
    found = torch_private._in_one_piece(gradients, weights, memory)
    assert torch.equal(found, wanted)
    assert (found.data_ptr() == wanted.data_ptr()) is is_one_piece


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs CUDA")
@pytest.mark.parametrize("has_it", [True, False])
def test_with_cudnn_s_own_call_or_without_it_trains_as_on_the_cpu(has_it, monkeypatch):
    monkeypatch.setitem(torch_private.available, "cudnn_lstm", has_it)
    device = unwrap(MLCDevice.gpu())
    for mine, theirs in zip(train(recurrent, 3, device=device), train(recurrent, 3), strict=True):
        torch.testing.assert_close(mine, theirs, rtol=1e-2, atol=1e-3)  # cuDNN's products have fewer bits
