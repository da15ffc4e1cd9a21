"""Derivatives of an LSTM that torch takes in other ways than ``backward()``: second ones, and those of ``torch.func``.

The kernels know one gradient. What they give must not be taken for a constant where somebody differentiates it again.
"""

from __future__ import annotations

import copy

import pytest
import torch

from mlc_torch import MLCGraph, MLCTensor
from mlc_torch import MLCLSTMResultMode as Mode
from mlc_torch.layers.lstm_rule import WAYS, Way, forced
from mlc_torch.layers.lstm_sequence import lstm_sequence
from tests.layers.records import values
from tests.layers.test_lstm import _sequence, make, torch_lstm
from tests.layers.test_lstm_cudnn import library  # noqa: F401 - a fixture

SIZES = [(1, False, True), (1, True, False), (2, True, True)]


def _states(layers, bidirectional):
    shape = layers, 2 if bidirectional else 1, 2, 4
    return [torch.from_numpy(values(*shape, seed=s, low=-1, high=1)) for s in (1, 2)]


def _exact(layers, bidirectional, biased):
    """(x, h0, c0) to the output and both states, by ``nn.LSTM`` in 64 bits, and its matrices."""
    theirs = torch_lstm(3, 4, layers, bidirectional, biased).double()

    def run(x, h0, c0):
        y, (h, c) = theirs(x, (h0.flatten(0, 1), c0.flatten(0, 1)))
        return y, h.view_as(h0), c.view_as(c0)

    places = [f"l{layer}{'_reverse' * direction}" for direction in range(1 + bidirectional) for layer in range(layers)]
    return run, [getattr(theirs, f"weight_{kind}_{place}") for kind in ("ih", "hh") for place in places]


def _matrices(module):
    """In the same order, each as its four gates."""
    found = []
    for kind in ("inputWeights", "hiddenWeights"):
        named = [(int(name.rpartition("_")[2]), p) for name, p in module.named_parameters() if name.startswith(kind)]
        gates = [p for _, p in sorted(named, key=lambda pair: pair[0])]
        found += [gates[first : first + 4] for first in range(0, len(gates), 4)]
    return found


def _penalised(run, given, weights, which, moves):
    """The gradient of |d/dx|² (of all that is given), once more differentiated; ``moves``: of a result that is not linear."""
    leaves = [t.clone().requires_grad_() for t in given]
    results = run(*leaves)
    results = results if isinstance(results, tuple) else (results,)
    chosen = results if which is None else [results[which]]
    total = sum((r.square() if moves else r).sum() for r in chosen)
    first = torch.autograd.grad(total, leaves, create_graph=True)
    return [*first, *torch.autograd.grad(sum(g.square().sum() for g in first), [*leaves, *weights])]


def _agree(module, sizes, which, moves):
    layers, bidirectional, _ = sizes
    given = [torch.from_numpy(values(2, 5, 3)), *_states(layers, bidirectional)]
    run, matrices = _exact(*sizes)
    gates = [gate for four in _matrices(module) for gate in four]
    found = _penalised(module, given, gates, which, moves)
    want = _penalised(run, [t.double() for t in given], matrices, which, moves)
    for mine, exact in zip(found[:6], want[:6], strict=True):
        torch.testing.assert_close(mine.double(), exact, rtol=1e-4, atol=1e-5)
    for number, exact in enumerate(want[6:]):
        mine = torch.cat(found[6 + 4 * number : 10 + 4 * number])
        torch.testing.assert_close(mine.double().view_as(exact), exact, rtol=1e-4, atol=1e-5)


# Second derivatives


@pytest.mark.parametrize("moves", [False, True], ids=["the gradient comes in constant", "it comes in moving"])
@pytest.mark.parametrize("which", [0, 1, 2, None], ids=["output", "h", "c", "everything"])
@pytest.mark.parametrize("sizes", SIZES, ids=str)
@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.name)
def test_a_gradient_penalty_is_nn_lstm_s(way, sizes, which, moves):
    layers, bidirectional, biased = sizes
    with forced(way):
        _agree(make(3, 4, layers, bidirectional, biased).module, sizes, which, moves)


@pytest.mark.parametrize("moves", [False, True])
@pytest.mark.parametrize("sizes", SIZES, ids=str)
def test_a_gradient_penalty_through_cudnn_s_stack(library, sizes, moves):  # noqa: F811
    layers, bidirectional, biased = sizes
    _agree(make(3, 4, layers, bidirectional, biased).module, sizes, None, moves)
    assert library.asked == ["keep", *["back"] * moves]  # a result that moves the gradient is itself differentiated


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs CUDA")
@pytest.mark.parametrize("sizes", SIZES, ids=str)
def test_a_gradient_penalty_on_a_gpu(sizes):
    layers, bidirectional, biased = sizes
    module = copy.deepcopy(make(3, 4, layers, bidirectional, biased).module).to("cuda")
    given = [torch.from_numpy(values(2, 5, 3)), *_states(layers, bidirectional)]
    found = _penalised(module, [t.cuda() for t in given], [], None, False)
    for mine, exact in zip(
        found, _penalised(_exact(*sizes)[0], [t.double() for t in given], [], None, False), strict=True
    ):
        torch.testing.assert_close(mine.cpu().double(), exact, rtol=1e-2, atol=1e-3)  # a GPU's products have fewer bits


@pytest.mark.parametrize("needs", [[0], [1, 2], [4], [5], [0, 1, 2, 3, 4, 5]], ids=["x", "weights", "h0", "c0", "all"])
@pytest.mark.parametrize("biased", [True, False])
@pytest.mark.parametrize("reverse", [False, True])
def test_second_derivatives_against_finite_differences(reverse, biased, needs):
    given = [t.detach().requires_grad_(n in needs) for n, t in enumerate(_sequence("cpu", time=3, batch=2, hidden=3))]
    if not biased:
        given[3] = None
    leaves = [t for t in given if t is not None and t.requires_grad]

    def run(*tensors):
        return lstm_sequence(*tensors, reverse=reverse)

    def first(*tensors):
        """The gradient of a sum: what comes in is a constant."""
        wanted = [t for t in tensors if t is not None and t.requires_grad]
        return torch.autograd.grad(sum(r.sum() for r in run(*tensors)), wanted, create_graph=True)

    assert leaves
    assert torch.autograd.gradgradcheck(run, given, fast_mode=True)
    assert torch.autograd.gradcheck(first, given, fast_mode=True)


def test_a_stack_s_second_and_third_derivatives_against_finite_differences():
    module = copy.deepcopy(make(2, 3, 2, bidirectional=True, mode=Mode.output).module).double()
    x = torch.from_numpy(values(1, 3, 2)).double().requires_grad_()

    def first(x):
        return torch.autograd.grad(module(x).sum(), x, create_graph=True)[0]

    assert torch.autograd.gradcheck(first, x)
    assert torch.autograd.gradgradcheck(first, x)


def _by_torch(x, wi, wh, b, h0, c0):
    """One layer by ``torch.lstm``, which takes a loop of its own for float64."""
    flat = [wi, wh, b, torch.zeros_like(b)]
    return torch.lstm(x, (h0.unsqueeze(0), c0.unsqueeze(0)), flat, True, 1, 0.0, True, False, False)


@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.name)
def test_states_that_are_made_of_the_source_or_of_each_other_count_once(way):
    """What the layer is given may hang together outside of it."""
    weights = [t.detach() for t in _sequence("cpu", torch.float32, inputs=4)[1:4]]
    x = torch.from_numpy(values(5, 3, 4, low=-1, high=1))

    def penalty(dtype, run):
        v = x.to(dtype, copy=True).requires_grad_()
        state = v[0].tanh()
        (first,) = torch.autograd.grad(
            run(v, *(w.to(dtype) for w in weights), state, state)[0].sum(), v, create_graph=True
        )
        return first, torch.autograd.grad(first.square().sum(), v)[0]

    with forced(way):
        found = penalty(torch.float32, lstm_sequence)
    for mine, exact in zip(found, penalty(torch.float64, _by_torch), strict=True):
        torch.testing.assert_close(mine.double(), exact, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.name)
def test_who_goes_back_with_and_without_a_second_derivative_finds_the_same(way):
    module, x = make(mode=Mode.output).module, torch.from_numpy(values(2, 5, 3)).requires_grad_()
    want = torch.autograd.grad(torch_lstm(3, 4, 2, False).double()(x.double())[0].sum(), x)[0]
    with forced(way):
        total = module(x).sum()
        for kw in ({"retain_graph": True}, {"create_graph": True}, {"retain_graph": True}, {}):
            torch.testing.assert_close(torch.autograd.grad(total, x, **kw)[0], want, rtol=1e-4, atol=1e-6)
        with pytest.raises(RuntimeError, match="second time"):
            torch.autograd.grad(total, x, create_graph=True)


def test_states_without_a_gradient_may_be_written_before_it_is_taken():
    """As a program does that carries them from call to call; a second derivative knows what they were, too."""
    given = [t.detach() for t in _sequence("cpu", torch.float32)]

    def penalty(dtype, run, writes):
        v, *weights, h0, c0 = (t.to(dtype, copy=True) for t in given)
        total = run(v.requires_grad_(), *weights, h0, c0)[0].sum()
        if writes:
            h0.zero_()
            c0.zero_()
        return torch.autograd.grad(torch.autograd.grad(total, v, create_graph=True)[0].square().sum(), v)[0]

    with forced(Way.own):
        found = penalty(torch.float32, lstm_sequence, True)
    torch.testing.assert_close(found.double(), penalty(torch.float64, _by_torch, False), rtol=1e-4, atol=1e-5)


# torch.func


@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.name)
@pytest.mark.parametrize("bidirectional", [False, True])
def test_torch_func_differentiates_a_graph_s_module(way, bidirectional):
    graph, source = MLCGraph(), MLCTensor(shape=[2, 5, 3])
    graph.node(make(3, 4, 2, bidirectional, mode=Mode.output), source=source)
    module, theirs = graph.to_module(), torch_lstm(3, 4, 2, bidirectional).double()
    x = torch.from_numpy(values(2, 5, 3))

    def ours(v):
        return module(v).square().sum()

    def exact(v):
        return theirs(v)[0].square().sum()

    with forced(way):
        v = x.double().requires_grad_()
        (want,) = torch.autograd.grad(exact(v), v, create_graph=True)
        torch.testing.assert_close(torch.func.grad(ours)(x).double(), want, rtol=1e-4, atol=1e-5)
        _, back = torch.func.vjp(ours, x)
        torch.testing.assert_close(back(torch.tensor(1.0))[0].double(), want, rtol=1e-4, atol=1e-5)
        slopes = torch.func.jacrev(module)(x)
        rows = torch.autograd.functional.jacobian(lambda v: theirs(v)[0], x.double())
        torch.testing.assert_close(slopes.double(), rows, rtol=1e-4, atol=1e-5)
        twice = torch.func.grad(lambda v: torch.func.grad(ours)(v).square().sum())(x)
        (bent,) = torch.autograd.grad(want.square().sum(), v)
        torch.testing.assert_close(twice.double(), bent, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.name)
def test_torch_func_differentiates_weights(way):
    module, theirs = make(layers=1, mode=Mode.output).module, torch_lstm(3, 4, 1, False)
    x, weights = torch.from_numpy(values(2, 5, 3)), {name: p.detach() for name, p in module.named_parameters()}

    def total(weights):
        return torch.func.functional_call(module, weights, (x,)).square().sum()

    with forced(way):
        found = torch.func.grad(total)(weights)
    theirs(x)[0].square().sum().backward()
    mine = torch.cat([found[f"hiddenWeights_{gate}"].view(4, 4) for gate in range(4)])
    torch.testing.assert_close(mine, theirs.weight_hh_l0.grad, rtol=1e-4, atol=1e-5)


@pytest.mark.filterwarnings("ignore:.torch.jit.script. is deprecated")  # torch's own call of it, since 2.15
@pytest.mark.filterwarnings("ignore:`torch.jit.script` is deprecated:DeprecationWarning")  # torch's own, of its jvp
@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.name)
def test_torch_func_goes_forward_and_over_many_as_well(way):
    """Where ``nn.LSTM`` refuses."""
    module, theirs = make(mode=Mode.output).module, torch_lstm(3, 4, 2, False).double()
    many, along = (torch.from_numpy(values(3, 2, 5, 3, seed=s)) for s in (1, 2))
    with forced(way):
        found = torch.vmap(module)(many)
        _, slope = torch.func.jvp(module, (many[0],), (along[0],))
    want = torch.stack([theirs(x)[0] for x in many.double()])
    torch.testing.assert_close(found.double(), want, rtol=1e-4, atol=1e-5)
    rows = torch.autograd.functional.jacobian(lambda v: theirs(v)[0], many[0].double())
    torch.testing.assert_close(slope.double(), torch.tensordot(rows, along[0].double(), 3), rtol=1e-4, atol=1e-5)
