"""LSTMs by cuDNN: in one piece of memory, as one operation. On the CPU torch's own LSTM stands in for the library."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace

import pytest
import torch
from torch import nn

from mlc_torch import MLCDevice, MLCGraph, MLCTrainingGraph, unwrap
from mlc_torch import MLCLSTMResultMode as Mode
from mlc_torch.engine.mode import Mode as Running
from mlc_torch.engine.planned import Planned
from mlc_torch.layers import lstm, lstm_sequence
from mlc_torch.layers.lstm_cudnn import has_cudnn_lstm
from mlc_torch.running.state import Variant
from mlc_torch.torch_private import available
from mlc_torch.torch_private.lstm import _in_one_piece, lstm_views
from tests.gears.training import PLAIN, recurrent, train, training_graph
from tests.graph.programs import loss, placeholder, sgd
from tests.layers.records import values
from tests.layers.test_lstm import STANDARD, _sequence, make, torch_lstm


class Library:
    """What torch calls of cuDNN's, by torch's own loop in 64 bits. It insists on what cuDNN silently assumes."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.gives_one_piece = True

    def run(
        self, x, weights, stride, memory, h0, c0, mode, hidden, projected, layers, batch_first, dropout, keeps, both, *rest
    ):  # fmt: skip
        assert (stride, mode, hidden, projected, rest) == (4, 2, h0.shape[2], 0, ([], None))
        assert not batch_first and not dropout and len(h0) == layers * (1 + both)
        assert all(t.is_contiguous() and t.dtype == x.dtype for t in (x, memory, h0, c0, *weights))
        assert {w.untyped_storage().data_ptr() for w in weights} == {memory.untyped_storage().data_ptr()}
        self.asked.append("keep" if keeps else "run")
        made = self._computed(x, h0, c0, weights, layers, both)
        return *(m.to(x.dtype) for m in made), torch.ones(3), memory

    def back(
        self, x, weights, stride, memory, h0, c0, outputs, by_outputs, by_h, by_c, mode, hidden, projected, layers,
        batch_first, dropout, keeps, both, sizes, states, kept, mask,
    ):  # fmt: skip
        assert (stride, mode, hidden, projected, sizes, states) == (4, 2, h0.shape[2], 0, [], None)
        assert keeps and not batch_first and not dropout and all(mask[:3])
        assert bool((kept == 1).all()), "what was kept is gone"
        kept.numpy()[:] = 0  # as a library does, of which torch does not know that it writes
        self.asked.append("back" if mask[3] else "back, frozen")
        gradients = [g.double() for g in (by_outputs, by_h, by_c)]

        def found():
            given = [t.detach().double().requires_grad_() for t in (x, h0, c0, *weights)]
            made = self._computed(*given[:3], given[3:], layers, both)
            return [g.to(x.dtype) for g in torch.autograd.grad(made, given, gradients)]

        with ThreadPoolExecutor(1) as other:  # where no recorder has switched autograd off
            of_x, of_h, of_c, *of_weights = other.submit(found).result()
        if not mask[3]:
            return of_x, of_h, of_c, [None] * len(weights)
        if self.gives_one_piece:
            whole = torch.zeros_like(memory)
            pieces = lstm_views(whole, x.shape[2], h0.shape, 1 + both)
            for piece, gradient in zip(pieces, of_weights, strict=True):
                piece.copy_(gradient)
            of_weights = pieces
        return of_x, of_h, of_c, of_weights

    def _computed(self, x, h0, c0, weights, layers, both):
        x, h0, c0, *weights = (t.double() for t in (x, h0, c0, *weights))
        return torch.lstm(x, (h0, c0), weights, True, layers, 0.0, True, both, False)


@pytest.fixture
def library(monkeypatch):
    """As where there is a cuDNN."""
    made = Library()
    monkeypatch.setattr(torch, "_cudnn_rnn", made.run)
    monkeypatch.setattr(torch.ops.aten, "_cudnn_rnn_backward", made.back)
    for module in (lstm, lstm_sequence):
        monkeypatch.setattr(module, "has_cudnn_lstm", lambda x: True)
    return made


@pytest.mark.parametrize("biased", [True, False])
@pytest.mark.parametrize("bidirectional", [False, True])
@pytest.mark.parametrize("layers", [1, 3])
@pytest.mark.parametrize("wanted", ["outputs", "a state", "everything"])
@pytest.mark.parametrize("gives_one_piece", [True, False])
def test_values_and_gradients_are_nn_lstm_s(layers, bidirectional, biased, wanted, gives_one_piece, library):
    library.gives_one_piece = gives_one_piece
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
    assert library.asked == ["keep", "back"]


def test_a_recording_trains_as_the_modules_do(library, monkeypatch):
    graph = training_graph(recurrent(), MLCDevice.cpu())
    assert isinstance(graph._session(Variant.whole).prepared, Planned)
    recorded = train(recurrent, 3)
    assert library.asked.count("back") >= 3
    plain = train(recurrent, 3, PLAIN)
    monkeypatch.undo()
    for one, other, want in zip(recorded, plain, train(recurrent, 3, PLAIN), strict=True):
        torch.testing.assert_close(one, want, rtol=1e-4, atol=1e-5)
        torch.testing.assert_close(other, want, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("bidirectional", [False, True])
def test_a_recording_s_gradients_are_those_of_nn_lstm_in_64_bits(bidirectional, library):
    layer, width = make(3, 4, 2, bidirectional, mode=Mode.output), 8 if bidirectional else 4
    base, source, labels = MLCGraph(), placeholder(2, 5, 3), placeholder(2, 5, width)
    base.node(layer, source=source)
    graph = MLCTrainingGraph(graphObjects=[base], lossLayer=loss(), optimizer=sgd())
    assert graph.addInputs({"x": source}, lossLabels={"y": labels})
    assert graph.compile(options=[], device=MLCDevice.cpu())
    plan = graph._session(Variant.whole).plan
    feeds = [torch.from_numpy(values(2, 5, n, seed=n)) for n in (3, width)]
    gear = Planned(plan, feeds, (), (), Running.train)
    gear.forward(feeds, ())
    found = {id(t.cell): g for t, g in zip(plan.trained, gear.gradient(())[0], strict=True)}
    exact = torch_lstm(3, 4, 2, bidirectional).double()
    nn.functional.mse_loss(exact(feeds[0].double())[0], feeds[1].double()).backward()
    for kind, tensors in (("ih", layer.inputWeights), ("hh", layer.hiddenWeights)):
        for number in range(0, len(tensors), 4):
            name = f"weight_{kind}_l{number // 4 % 2}{'_reverse' * (number // 8)}"
            mine = torch.cat([found[id(t._cell)].view(4, -1) for t in tensors[number : number + 4]])
            torch.testing.assert_close(mine.double(), getattr(exact, name).grad, rtol=1e-4, atol=1e-6)
    assert "back" in library.asked


@pytest.mark.parametrize("needs", ["x", "h0", "nothing"])
def test_frozen_weights_let_gradients_through(needs, library):
    module = make(layers=1, bidirectional=True).module.requires_grad_(False)
    x, h0, c0 = (torch.from_numpy(values(*shape)) for shape in ((2, 5, 3), (1, 2, 2, 4), (1, 2, 2, 4)))
    given = {"x": x, "h0": h0}.get(needs)
    if given is not None:
        given.requires_grad_()
    made = module(x, h0, c0)[0].sum()
    assert library.asked == (["run"] if given is None else ["keep"])
    if given is not None:
        exact = torch_lstm(3, 4, 1, True)
        want = exact(x, (h0.flatten(0, 1), c0.flatten(0, 1)))[0].sum()
        torch.testing.assert_close(*(torch.autograd.grad(y, given)[0] for y in (made, want)), rtol=1e-4, atol=1e-6)
        assert library.asked == ["keep", "back, frozen"]


def test_who_goes_back_twice_finds_the_same(library):
    x = torch.from_numpy(values(2, 5, 3)).requires_grad_()
    made = make().module(x)[0].sum()
    first, second = torch.autograd.grad(made, x, retain_graph=True)[0], torch.autograd.grad(made, x)[0]
    assert torch.equal(first, second) and bool(first.any())
    assert library.asked == ["keep", "back", "keep", "back"]


def test_autocast_shortens_everything_that_goes_in(library):
    module, x = make().module, torch.from_numpy(values(2, 5, 3)).requires_grad_()
    want = module(x)[0]
    with torch.autocast("cpu", torch.bfloat16):
        made = module(x)[0]
    assert made.dtype == torch.bfloat16
    torch.testing.assert_close(made.float(), want, rtol=3e-2, atol=3e-2)
    (found,) = torch.autograd.grad(made.float().sum(), x)
    torch.testing.assert_close(found, torch.autograd.grad(want.sum(), x)[0], rtol=5e-2, atol=3e-2)


def test_where_nothing_needs_a_gradient_nothing_is_kept(library):
    with torch.no_grad():
        make().module(torch.from_numpy(values(2, 5, 3)))
    assert library.asked == ["run"]


@pytest.mark.parametrize("reverse", [False, True])
def test_one_layer_in_one_direction(reverse, library):
    given = _sequence("cpu")
    found, want = (lstm_sequence.lstm_sequence(*given, reverse=reverse, **kw) for kw in ({}, {"activations": STANDARD}))
    for mine, other in zip(found, want, strict=True):
        torch.testing.assert_close(mine, other)
    assert library.asked == ["keep"]


def test_sequences_of_lengths_of_their_own_are_not_for_it(library, monkeypatch):
    x, lengths = torch.from_numpy(values(2, 5, 3)), torch.tensor([5, 2], dtype=torch.int32)
    found = make().module(x, lengths)
    assert not library.asked
    monkeypatch.undo()
    for mine, other in zip(found, make().module(x, lengths), strict=True):
        torch.testing.assert_close(mine, other)


@pytest.mark.parametrize(("training", "calls"), [(True, 2), (False, 1)])
def test_dropout_comes_between_the_layers(training, calls, library):
    module = make(layers=2, dropout=0.5).module.train(training)
    module(torch.from_numpy(values(2, 5, 3)))
    assert library.asked == ["keep"] * calls


def test_exported_and_traced_programs_have_torch_s_operations(monkeypatch):
    monkeypatch.setattr(torch.version, "hip", None)
    monkeypatch.setattr(torch.backends.cudnn, "is_available", lambda: True)
    monkeypatch.setitem(available, "cudnn_lstm", True)
    on_cuda, empty = (SimpleNamespace(is_cuda=True, numel=lambda n=n: n) for n in (6, 0))
    assert has_cudnn_lstm(on_cuda) and not has_cudnn_lstm(empty) and not has_cudnn_lstm(SimpleNamespace(is_cuda=False))
    for where, name in ((torch.compiler, "is_compiling"), (torch.jit, "is_tracing")):
        with monkeypatch.context() as inside:
            inside.setattr(where, name, lambda: True)
            assert not has_cudnn_lstm(on_cuda)
    monkeypatch.setitem(available, "cudnn_lstm", False)
    assert not has_cudnn_lstm(on_cuda)


@pytest.mark.parametrize("layers", [1, 3])
@pytest.mark.parametrize("directions", [1, 2])
def test_views_of_one_piece_of_memory_are_nn_lstm_s_weights(layers, directions):
    """cuDNN reads all matrices, then all biases; ``nn.LSTM`` lists them layer by layer."""
    module = nn.LSTM(3, 5, num_layers=layers, bidirectional=directions == 2)
    flat = [p.detach() for p in module.parameters()]
    matrices, biases = [p for p in flat if p.dim() == 2], [p for p in flat if p.dim() == 1]
    memory = torch.cat([p.flatten() for p in (*matrices, *biases)])
    found = lstm_views(memory, 3, (layers * directions, 4, 5), directions)
    for mine, theirs in zip(found, flat, strict=True):
        assert mine.shape == theirs.shape and torch.equal(mine, theirs)


@pytest.mark.parametrize("is_one_piece", [True, False])
def test_gradients_are_one_piece_of_memory_whether_the_library_gives_one_or_not(is_one_piece):
    memory, wanted = torch.zeros(2 * (20 * 3 + 20 * 5 + 20 + 20)), torch.arange(400.0)
    weights, gradients = (lstm_views(m, 3, (2, 4, 5), 2) for m in (memory, wanted))
    if not is_one_piece:
        gradients = [g.clone() for g in gradients]
    found = _in_one_piece(gradients, weights, memory)
    assert torch.equal(found, wanted)
    assert (found.data_ptr() == wanted.data_ptr()) is is_one_piece


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs CUDA")
@pytest.mark.parametrize("has_it", [True, False])
def test_with_cudnn_s_own_call_or_without_it_trains_as_on_the_cpu(has_it, monkeypatch):
    monkeypatch.setitem(available, "cudnn_lstm", has_it)
    device = unwrap(MLCDevice.gpu())
    for mine, theirs in zip(train(recurrent, 3, device=device), train(recurrent, 3), strict=True):
        torch.testing.assert_close(mine, theirs, rtol=1e-2, atol=1e-3)  # cuDNN's products have fewer bits


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs CUDA")
@pytest.mark.parametrize("layers", [1, 3])
def test_cudnn_lets_gradients_through_frozen_weights(layers):
    module = make(3, 4, layers, True).module.requires_grad_(False).to("cuda")
    x = torch.from_numpy(values(2, 5, 3)).requires_grad_()
    (found,) = torch.autograd.grad(module(x.to("cuda"))[0].square().sum(), x)
    exact = torch_lstm(3, 4, layers, True).double()
    (want,) = torch.autograd.grad(exact(x.double())[0].square().sum(), x)
    torch.testing.assert_close(found, want, rtol=1e-2, atol=1e-3)  # cuDNN's products have fewer bits
