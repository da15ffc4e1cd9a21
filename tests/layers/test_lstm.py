"""LSTM: against torch.nn.LSTM, shared tensors, dropout, padding, the ways of computing it, tracing."""

from __future__ import annotations

import copy
import warnings

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from torch.fx.experimental.proxy_tensor import make_fx

from mlc_torch.descriptors import MLCActivationDescriptor, MLCLSTMDescriptor
from mlc_torch.enums import MLCActivationType as Kind
from mlc_torch.enums import MLCLSTMResultMode as Mode
from mlc_torch.layers.lstm import MLCLSTMLayer
from mlc_torch.layers.lstm_sequence import lstm_sequence
from tests.layers.lstm_records import arrays, stack, tensors
from tests.layers.records import tensor, values

STANDARD = (torch.sigmoid, torch.sigmoid, torch.tanh, torch.sigmoid, torch.tanh)


def make(inputs=3, hidden=4, layers=2, bidirectional=False, biased=True, dropout=0.0, mode=Mode.outputAndStates, **kw):
    d = MLCLSTMDescriptor(
        inputSize=inputs,
        hiddenSize=hidden,
        layerCount=layers,
        usesBiases=biased,
        batchFirst=True,
        isBidirectional=bidirectional,
        returnsSequences=True,
        dropout=dropout,
        resultMode=mode,
    )
    wi, wh, _, b = tensors(arrays(inputs, hidden, layers, 2 if bidirectional else 1))
    return MLCLSTMLayer(descriptor=d, inputWeights=wi, hiddenWeights=wh, biases=b if biased else None, **kw)


def torch_lstm(inputs, hidden, layers, bidirectional, biased=True) -> nn.LSTM:
    """torch's own LSTM with the weights of ``make``."""
    directions = 2 if bidirectional else 1
    wi, wh, _, b = arrays(inputs, hidden, layers, directions)
    made = nn.LSTM(inputs, hidden, layers, bias=biased, batch_first=True, bidirectional=bidirectional)
    with torch.no_grad():
        for layer in range(layers):
            for direction in range(directions):
                first = (direction * layers + layer) * 4
                name = f"l{layer}{'_reverse' * direction}"
                for kind, source in (("weight_ih", wi), ("weight_hh", wh), ("bias_ih", b)):
                    if biased or kind != "bias_ih":
                        joined = np.concatenate(source[first : first + 4])
                        getattr(made, f"{kind}_{name}").copy_(torch.from_numpy(joined))
                if biased:
                    getattr(made, f"bias_hh_{name}").zero_()
    return made


@pytest.mark.parametrize("biased", [True, False])
@pytest.mark.parametrize("bidirectional", [False, True])
@pytest.mark.parametrize("layers", [1, 3])
def test_torch_lstm_gives_the_same(layers, bidirectional, biased, torch_device):
    theirs = torch_lstm(3, 4, layers, bidirectional, biased).to(torch_device)
    ours = copy.deepcopy(make(3, 4, layers, bidirectional, biased).module).to(torch_device)
    x, directions = torch.from_numpy(values(2, 5, 3)).to(torch_device), 2 if bidirectional else 1
    h0, c0 = (torch.from_numpy(values(layers, directions, 2, 4, seed=s)).to(torch_device) for s in (1, 2))
    y, (h, c) = theirs(x, (h0.flatten(0, 1), c0.flatten(0, 1)))
    for got, want in zip(ours(x, h0, c0), (y, h.view_as(h0), c.view_as(c0)), strict=True):
        torch.testing.assert_close(got, want, rtol=1e-5, atol=1e-6)


def test_packed_sequences_give_the_same():
    theirs, ours = torch_lstm(3, 4, 2, True), make(bidirectional=True).module
    x, lengths = torch.from_numpy(values(4, 6, 3)), torch.tensor([6, 4, 4, 1], dtype=torch.int32)
    packed = nn.utils.rnn.pack_padded_sequence(x, lengths, batch_first=True)
    y, (h, c) = theirs(packed)
    y, _ = nn.utils.rnn.pad_packed_sequence(y, batch_first=True)
    got = ours(x, lengths)
    for a, b in zip(got, (y, h.view(2, 2, 4, 4), c.view(2, 2, 4, 4)), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-5, atol=1e-6)
    assert not got[0][3, 1:].any()


@settings(max_examples=30, deadline=None)
@given(st.data())
def test_any_size(data):
    batch, time, inputs, hidden, layers = (data.draw(st.integers(1, high)) for high in (3, 4, 3, 3, 3))
    bidirectional = data.draw(st.booleans())
    layer = make(inputs, hidden, layers, bidirectional)
    x = values(batch, time, inputs)
    lengths = data.draw(st.none() | st.lists(st.integers(0, time), min_size=batch, max_size=batch))
    sources = [x] if lengths is None else [x, np.array(lengths, np.int32)]
    got = layer.module(*map(torch.from_numpy, sources))
    directions = 2 if bidirectional else 1
    want = stack(
        x.astype(float), arrays(inputs, hidden, layers, directions), layers, directions, hidden, lengths=lengths
    )
    for a, b in zip(got, want, strict=True):
        np.testing.assert_allclose(a.detach().numpy(), b, rtol=1e-4, atol=1e-5)


# The ways of computing one sequence


def _sequence(device, dtype=torch.float64, time=5, batch=3, inputs=2, hidden=4):
    gates, state = 4 * hidden, (batch, hidden)
    shapes = [(time, batch, inputs), (gates, inputs), (gates, hidden), (gates,), state, state]
    return [
        torch.from_numpy(values(*shape, seed=n, low=-1, high=1)).to(device, dtype).requires_grad_()
        for n, shape in enumerate(shapes)
    ]


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("biased", [True, False])
def test_the_plain_way_and_the_general_loop_agree_in_values_and_gradients(torch_device, reverse, biased):
    dtype = torch.float32 if torch_device.type == "mps" else torch.float64
    x, wi, wh, b, h0, c0 = _sequence(torch_device, dtype)
    b = b if biased else None
    wanted = [t for t in (x, wi, wh, b, h0, c0) if t is not None]

    def run(**kw):
        results = lstm_sequence(x, wi, wh, b, h0, c0, reverse=reverse, **kw)
        loss = sum((r * torch.linspace(-1, 1, r.numel()).to(r).view_as(r)).sum() for r in results)
        return [*results, *torch.autograd.grad(loss, wanted)]

    with warnings.catch_warnings():
        warnings.simplefilter("error")  # cuDNN warns about weights that are not one piece of memory
        plain = run()
    for a, b_ in zip(plain, run(activations=STANDARD), strict=True):
        torch.testing.assert_close(a, b_, rtol=1e-5, atol=1e-7)
    with torch.no_grad():
        for a, b_ in zip(lstm_sequence(x, wi, wh, b, h0, c0, reverse=reverse), plain, strict=False):
            torch.testing.assert_close(a, b_, rtol=1e-5, atol=1e-7)


def test_the_kernel_against_finite_differences():
    assert torch.autograd.gradcheck(lstm_sequence, _sequence("cpu"))


def test_only_some_results_and_sources_need_a_gradient():
    x, wi, wh, b, h0, c0 = _sequence("cpu")
    c = lstm_sequence(x.detach(), wi, wh, b, h0.detach(), c0)[2]
    whole = torch.autograd.grad(lstm_sequence(x, wi, wh, b, h0, c0, activations=STANDARD)[2].sum(), (wi, c0))
    for a, b_ in zip(torch.autograd.grad(c.sum(), (wi, c0)), whole, strict=True):
        torch.testing.assert_close(a, b_)


def test_lengths_that_reach_the_end_change_nothing():
    module, x = make(bidirectional=True).module, torch.from_numpy(values(2, 4, 3))
    for a, b in zip(module(x), module(x, torch.tensor([4, 4], dtype=torch.int32)), strict=True):
        torch.testing.assert_close(a, b)


def test_what_lies_past_the_end_does_not_matter():
    module = make(bidirectional=True).module
    x, lengths = torch.from_numpy(values(2, 4, 3)), torch.tensor([4, 2], dtype=torch.int32)
    spoilt = x.clone()
    spoilt[1, 2:] = float("nan")
    grads = []
    for source in (x, spoilt):
        module.zero_grad()
        sum(r.sum() for r in module(source, lengths)).backward()
        grads.append([p.grad.clone() for p in module.parameters()])
    for a, b in zip(*grads, strict=True):
        assert torch.isfinite(b).all()
        torch.testing.assert_close(a, b)


def test_a_shorter_batch_is_the_beginning_of_the_whole():
    module = make(bidirectional=True).module
    x, lengths = torch.from_numpy(values(4, 5, 3)), torch.tensor([5, 4, 3, 2], dtype=torch.int32)
    h0, c0 = (torch.from_numpy(values(2, 2, 4, 4, seed=s)) for s in (1, 2))
    whole, part = module(x, h0, c0, lengths), module(x[:3], h0, c0, lengths)
    torch.testing.assert_close(part[0], whole[0][:3])
    for a, b in zip(part[1:], whole[1:], strict=True):
        torch.testing.assert_close(a, b[:, :, :3])


# Tensors


def test_one_tensor_for_every_gate_adds_its_gradients():
    hidden = 3
    weights, bias = tensor(values(hidden, hidden, low=-0.5, high=0.5)), tensor(values(hidden, low=-0.5, high=0.5))
    d = MLCLSTMDescriptor(inputSize=hidden, hiddenSize=hidden, layerCount=2)
    layer = MLCLSTMLayer(descriptor=d, inputWeights=[weights] * 8, hiddenWeights=[weights] * 8, biases=[bias] * 8)
    assert len(layer._parameter_uses) == 24
    assert {use.cell for use in layer._parameter_uses} == {weights._cell, bias._cell}
    assert len({use.torch.data_ptr() for use in layer._parameter_uses}) == 2

    x = torch.from_numpy(values(2, 3, hidden))
    layer.module(x).sum().backward()
    total = {weights._cell: 0, bias._cell: 0}
    for use in layer._parameter_uses:
        total[use.cell] = total[use.cell] + use.torch.grad.reshape(use.cell.shape).double()

    def loss(w, b):
        zeros = np.zeros(hidden)
        return stack(x.numpy().astype(float), ([w] * 8, [w] * 8, [zeros] * 8, [b] * 8), 2, 1, hidden)[0].sum()

    step = 1e-6
    w, b = (t.numpy().astype(float) for t in (weights, bias))
    for which, held in ((0, weights), (1, bias)):
        for index in np.ndindex(held.numpy().shape):
            up, down = [w.copy(), b.copy()], [w.copy(), b.copy()]
            up[which][index] += step
            down[which][index] -= step
            assert total[held._cell][index] == pytest.approx((loss(*up) - loss(*down)) / (2 * step), rel=1e-3, abs=1e-4)


def test_parameters_are_the_tensors_own_memory():
    layer = make(bidirectional=True)
    roles = [use.role for use in layer._parameter_uses]
    assert len(roles) == len(set(roles)) == 3 * 16
    assert {"inputWeights.0", "hiddenWeights.15", "biases.7"} <= set(roles)
    with torch.no_grad():
        layer.module.inputWeights_5.fill_(7)
        layer.module.biases_15.fill_(-2)
    assert (layer.inputWeights[5].numpy() == 7).all()
    assert (layer.biases[15].numpy() == -2).all()
    assert layer.inputWeights[5].numpy().shape == (1, 32, 1, 1)


def test_properties():
    layer = make(biased=False)
    assert layer.label == "LSTM"
    assert [a.activationType for a in layer.gateActivations] == [Kind.sigmoid, Kind.sigmoid, Kind.tanh, Kind.sigmoid]
    assert layer.outputResultActivation == MLCActivationDescriptor(type=Kind.tanh)
    assert layer.biases is None and layer.biasesParameters is None
    assert layer.peepholeWeights is None and layer.peepholeWeightsParameters is None
    assert [p.tensor for p in layer.inputWeightsParameters] == layer.inputWeights
    assert [p.tensor for p in layer.hiddenWeightsParameters] == layer.hiddenWeights
    layer.inputWeights.clear()
    assert len(layer.inputWeights) == 8
    assert repr(layer).startswith("MLCLSTMLayer('LSTM', ")


def test_the_peephole_of_the_cell_gate_is_held_but_not_read():
    wi, wh, peep, b = tensors(arrays(2, 3, 1, 1, peepholes=True))
    layer = MLCLSTMLayer(
        descriptor=MLCLSTMDescriptor(inputSize=2, hiddenSize=3, layerCount=1),
        inputWeights=wi,
        hiddenWeights=wh,
        peepholeWeights=peep,
        biases=b,
    )
    assert [p.tensor for p in layer.peepholeWeightsParameters] == layer.peepholeWeights == peep
    layer.module(torch.from_numpy(values(2, 3, 2))).sum().backward()
    grads = [getattr(layer.module, f"peepholeWeights_{n}").grad for n in range(4)]
    assert [grad is not None and bool(grad.any()) for grad in grads] == [True, True, False, True]
    assert grads[2] is None  # and so it is not regularized either


# Dropout


def test_dropout_lies_between_the_layers_only():
    layer = make(3, 4, 3, dropout=0.5)
    module, x = layer.module.train(), torch.from_numpy(values(2, 5, 3))
    places = [place.noise for place in module.dropouts]
    assert len(places) == 2
    masks = [torch.from_numpy((values(5, 2, 4, seed=s) > 0).astype(np.float32) * 2) for s in (1, 2)]
    with places[0].fed([masks[0]]), places[1].fed([masks[1]]):
        got = module(x)[0]

    wi, wh, _, b = arrays(3, 4, 3, 1)
    y = x.numpy().astype(float)
    for n in range(3):
        lists = [part[4 * n : 4 * n + 4] for part in (wi, wh, [np.zeros(4)] * 12, b)]
        y = stack(y, lists, 1, 1, 4)[0]
        if n < 2:
            y = y * masks[n].numpy().swapaxes(0, 1)
    np.testing.assert_allclose(got.detach().numpy(), y, rtol=1e-4, atol=1e-5)


def test_dropout_draws_anew_in_training_and_rests_otherwise():
    layer = make(3, 4, 2, dropout=0.5)
    module, x = layer.module, torch.from_numpy(values(2, 5, 3))
    state = torch.get_rng_state()
    module.train()
    assert not torch.equal(module(x)[0], module(x)[0])
    module.eval()
    assert torch.equal(module(x)[0], module(x)[0])
    torch.testing.assert_close(module(x)[0], make(3, 4, 2).module(x)[0])
    assert torch.equal(state, torch.get_rng_state())


# Tracing


@pytest.mark.parametrize("lengths", [False, True])
def test_it_can_be_traced_with_its_gradient(lengths, torch_device):
    module = copy.deepcopy(make(bidirectional=True, mode=Mode.output).module).to(torch_device)
    names, parameters = zip(*module.named_parameters(), strict=True)
    extra = [torch.tensor([4, 2], dtype=torch.int32, device=torch_device)] * lengths

    def step(x, *weights):
        result = torch.func.functional_call(module, dict(zip(names, weights, strict=True)), (x, *extra))
        return torch.autograd.grad(result.square().sum(), weights)

    traced = make_fx(step)(torch.from_numpy(values(2, 4, 3)).to(torch_device), *parameters)
    x = torch.from_numpy(values(2, 4, 3, seed=9)).to(torch_device)
    others = [(p.detach() * 0.7 + 0.1).requires_grad_() for p in parameters]
    for a, b in zip(traced(x, *others), step(x, *others), strict=True):
        torch.testing.assert_close(a, b)


@pytest.mark.parametrize("grad", [False, True])
def test_it_can_be_exported(grad):
    module, x = make(bidirectional=True).module.eval(), torch.from_numpy(values(2, 4, 3))
    with torch.set_grad_enabled(grad):
        exported = torch.export.export(module, (x,), strict=False).module()
    fresh = torch.from_numpy(values(2, 4, 3, seed=9))
    for a, b in zip(exported(fresh), module(fresh), strict=True):
        torch.testing.assert_close(a, b)


@pytest.mark.parametrize("bidirectional", [False, True])
@pytest.mark.parametrize("trains", [False, True])
def test_of_no_sequences_come_no_outputs(trains, bidirectional, torch_device):
    """As with torch.nn.LSTM; oneDNN ended the process."""
    layer = make(bidirectional=bidirectional).module.to(torch_device)
    x = torch.zeros(0, 5, 3, device=torch_device, requires_grad=trains)
    with torch.set_grad_enabled(trains):
        outputs, h, c = layer(x)
    directions = 2 if bidirectional else 1
    assert outputs.shape == (0, 5, 4 * directions)
    assert h.shape == c.shape == (2, directions, 0, 4)
    if trains:
        outputs.sum().backward()
        assert x.grad.shape == x.shape
