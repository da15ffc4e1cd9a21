"""Training in float16: a step is computed in 32 bits, and only what is kept is rounded to 16."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from mlc_torch import (
    MLCAdamOptimizer,
    MLCAdamWOptimizer,
    MLCDataType,
    MLCFullyConnectedLayer,
    MLCGraph,
    MLCGraphCompilationOptions,
    MLCOptimizer,
    MLCRMSPropOptimizer,
    MLCSGDOptimizer,
    MLCTensor,
    MLCTrainingGraph,
)
from mlc_torch.engine.compiled import compiled_update
from mlc_torch.engine.pieces import in_pieces
from mlc_torch.engine.plan import Trained
from mlc_torch.engine.updater import Updater
from mlc_torch.torch_private import available
from mlc_torch.torch_private.modes import written_out
from tests.graph import reference_optimizers as reference
from tests.graph.optimizer_bench import KINDS, PREPARATIONS, SHAPES, descriptor, starts
from tests.graph.programs import conv, cpu, hyper, loss, placeholder, tensor, values
from tests.graph.reference_optimizers import Settings

STEPS = 3
EXACTNESS = {"rtol": 2**-10, "atol": 2**-24}
"""One bit of a number of 16 bits, and the smallest there is."""


def halves(arrays) -> list[np.ndarray]:
    return [a.astype(np.float16) for a in arrays]


def slopes(step: int) -> list[np.ndarray]:
    """Some large, some small, every third 0."""
    made = [values(*shape, seed=70 + step) * scale for shape, scale in zip(SHAPES, (1.0, 0.05, 300.0), strict=True)]
    for of_one in made:
        of_one.ravel()[::3] = 0
    return halves(made)


def on_the_whole(optimizer, *given):
    optimizer._update(*given)


def in_chunks(optimizer, *given):
    optimizer._update(*given, in_chunks=True)


def as_recorded(optimizer, params, grads, states, numbers):
    optimizer._update(params, grads, states, {k: torch.tensor(v) for k, v in numbers.items()}, cut=in_pieces)


def as_compiled(optimizer, params, grads, states, numbers):
    with written_out():
        optimizer._update(params, grads, states, {k: torch.tensor(v) for k, v in numbers.items()})


WAYS = [on_the_whole, in_chunks, as_recorded, as_compiled]


def rounded(twin: reference.Reference, is_narrow: list[bool]) -> None:
    """What is kept from step to step, in the types it is kept in."""
    for kept in (twin.params, *twin.states.values()):
        for number, narrow in enumerate(is_narrow):
            if narrow:
                kept[number] = kept[number].astype(np.float16).astype(np.float64)


def assert_follows(kind, settings, update, is_narrow=(True, True, True)) -> None:
    optimizer = kind.make(descriptor(settings))
    types = [torch.float16 if narrow else torch.float32 for narrow in is_narrow]
    first = [a.astype(np.float64) for a in halves(starts())]
    params = [torch.from_numpy(a).to(type_) for a, type_ in zip(first, types, strict=True)]
    states = [[torch.zeros_like(p) for p in params] for _ in optimizer._state_names()]
    twin, step = kind.twin(first, settings), optimizer._next_step()
    for number in range(STEPS):
        grads = [torch.from_numpy(g).to(type_) for g, type_ in zip(slopes(number), types, strict=True)]
        before = optimizer._before_update(params)
        update(optimizer, params, grads, states, optimizer._scalars(step + number))
        assert optimizer._was_made(params, before)
        twin.step(slopes(number))
        for got, want, type_ in zip(params, twin.params, types, strict=True):
            assert got.dtype is type_
            np.testing.assert_allclose(got.double().numpy(), want, **EXACTNESS, err_msg=f"step {number}")
        rounded(twin, is_narrow)
        for of_kind in states:
            assert [s.dtype for s in of_kind] == types


@pytest.mark.parametrize("preparation", PREPARATIONS)
@pytest.mark.parametrize("way", WAYS, ids=lambda w: w.__name__)
@pytest.mark.parametrize("kind", KINDS, ids=lambda k: k.name)
def test_the_formulas(kind, way, preparation, monkeypatch):
    for cls in (MLCOptimizer, MLCRMSPropOptimizer):
        monkeypatch.setattr(cls, "_chunks_from", 1)
    assert_follows(kind, PREPARATIONS[preparation], way)


@pytest.mark.parametrize("kind", KINDS, ids=lambda k: k.name)
def test_the_formulas_beside_parameters_of_32_bits(kind):
    for is_narrow in ([True, False, True], [False, False, True]):
        assert_follows(kind, PREPARATIONS["clip, rescale and regularize"], on_the_whole, is_narrow)


@pytest.mark.parametrize("kind", KINDS, ids=lambda k: k.name)
def test_the_formulas_by_what_torch_promises(kind, monkeypatch):
    for name in available:
        monkeypatch.setitem(available, name, False)
    assert_follows(kind, PREPARATIONS["by global norm"], on_the_whole)


@pytest.mark.parametrize("kind", [k for k in KINDS if k.name in ("sgd", "sgd momentum")], ids=lambda k: k.name)
def test_a_rate_that_is_0_in_16_bits(kind):
    """And gradients that only it brings into their range. (Nesterov's momentum would have to hold them.)"""
    assert np.float16(1e-9) == 0
    assert_follows(kind, Settings(lr=1e-9, rescale=1e6), on_the_whole)


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS, ids=lambda k: k.name)
def test_the_formulas_compiled(kind):
    settings = Settings(clips="norm", max_norm=0.5, regularization="l2", scale=0.05)
    cells = [tensor(start)._cell for start in halves(starts())]
    for cell in cells:
        cell.place(cpu(), writable=True)
    rule = Updater(kind.make(descriptor(settings)), [Trained(cell) for cell in cells], torch.device("cpu"))
    assert rule.keeps_numbers_in(torch.zeros(rule.number_count))
    rule.prepare()
    update = compiled_update(rule, [torch.zeros(cell.shape, dtype=torch.float16) for cell in cells])
    twin = kind.twin([a.astype(np.float64) for a in halves(starts())], settings)
    for number in range(STEPS):
        rule.prepare()
        update([torch.from_numpy(g) for g in slopes(number)])
        rule.count()
        twin.step(slopes(number))
        for got, want in zip(rule.params, twin.params, strict=True):
            np.testing.assert_allclose(got.double().numpy(), want, **EXACTNESS, err_msg=f"step {number}")
        rounded(twin, [True] * len(cells))


USUAL = {
    MLCSGDOptimizer: lambda p: reference.SGD(p, Settings(lr=0.1)),
    MLCAdamOptimizer: lambda p: reference.Adam(p, Settings(lr=0.1)),
    MLCAdamWOptimizer: lambda p: reference.Adam(p, Settings(lr=0.1), decoupled=True),
    MLCRMSPropOptimizer: lambda p: reference.RMSProp(p, Settings(lr=0.1)),
}


@pytest.mark.parametrize("options", [[], [MLCGraphCompilationOptions.debugLayers]], ids=["fast", "plain"])
@pytest.mark.parametrize("optimizer", USUAL, ids=lambda o: o.__name__)
def test_a_weight_without_a_gradient_stays_in_a_graph(optimizer, options):
    """With ε as it is unless given: 1e-8, which is 0 in 16 bits."""
    half = MLCDataType.float16
    weights = MLCTensor.from_numpy(np.ones((1, 4, 1, 1), np.float16))
    graph, x, t = MLCGraph(), placeholder(4, 2, type_=half), placeholder(4, 2, type_=half)
    graph.node(MLCFullyConnectedLayer(weights=weights, biases=None, descriptor=conv(2, 2, 1)), source=x)
    training = MLCTrainingGraph(graphObjects=[graph], lossLayer=loss(), optimizer=optimizer(descriptor=hyper(0.1)))
    assert training.addInputs({"x": x}, lossLabels={"t": t})
    assert training.compile(options=options, device=cpu())
    given = {"x": np.array([[1, 0]] * 4, np.float16)}  # nothing ever comes from the second input
    twin = USUAL[optimizer]([np.ones((2, 2))])
    for number in range(STEPS):
        assert training.execute(
            inputsData=given,
            lossLabelsData={"t": np.zeros((4, 2), np.float16)},
            lossLabelWeightsData=None,
            batchSize=4,
            options=[],
        )
        (w,) = twin.params
        y = given["x"].astype(float) @ w.T
        twin.step([(2 * y / y.size).T @ given["x"]])
        got = weights.numpy().reshape(2, 2).astype(np.float64)
        np.testing.assert_allclose(got, twin.params[0], rtol=2e-3, atol=2**-12, err_msg=f"step {number}")
        rounded(twin, [True])
