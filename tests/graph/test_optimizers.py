"""Optimizers against the formulas of evidence.md F.2, in float64, for 20 steps with every way to prepare a gradient."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import torch

import mlc_torch
from mlc_torch import (
    MLCAdamOptimizer,
    MLCAdamWOptimizer,
    MLCGraphCompilationOptions,
    MLCOptimizer,
    MLCRMSPropOptimizer,
    MLCSGDOptimizer,
    last_refusal,
)
from mlc_torch.engine import updater
from mlc_torch.interop import load_checkpoint, save_checkpoint
from mlc_torch.optimizers import base
from mlc_torch.spelling import CLASSES
from mlc_torch.torch_private import available
from tests.graph import reference_optimizers as reference
from tests.graph.optimizer_bench import (
    KINDS,
    PREPARATIONS,
    STEPS,
    Bench,
    descriptor,
    gradients,
    starts,
)
from tests.graph.programs import array, hyper, on, regression, values
from tests.graph.reference_optimizers import Settings


def assert_follows(bench: Bench, twin, number: int) -> None:
    for got, want in zip(bench.weights(), twin.params, strict=True):
        np.testing.assert_allclose(got, want, rtol=2e-5, atol=2e-6, err_msg=f"step {number}")


@pytest.mark.parametrize("preparation", PREPARATIONS)
@pytest.mark.parametrize("kind", KINDS, ids=lambda k: k.name)
def test_the_formulas(kind, preparation):
    settings = PREPARATIONS[preparation]
    bench, twin = Bench(kind.make(descriptor(settings))).compile(), kind.twin(starts(), settings)
    for number in range(STEPS):
        bench.step(number)
        twin.step(gradients(number))
        assert_follows(bench, twin, number)


@pytest.mark.parametrize("clips", ["norm", "global"])
@pytest.mark.parametrize("times", [0.0, 1.0], ids=["no gradient", "a gradient"])
@pytest.mark.parametrize("kind", KINDS, ids=lambda k: k.name)
def test_clipped_to_a_norm_of_0_no_gradient_moves_a_weight(kind, times, clips):
    bench = Bench(kind.make(descriptor(Settings(clips=clips, max_norm=0.0, custom_norm=0.0)))).compile()
    for number in range(3):
        bench.step(number, times)
        for got, start in zip(bench.weights(), starts(), strict=True):
            np.testing.assert_array_equal(got, start.astype(np.float32))


@pytest.mark.parametrize("options", [[], [MLCGraphCompilationOptions.debugLayers]], ids=["fast", "plain"])
@pytest.mark.parametrize("clips", ["norm", "global"])
@pytest.mark.parametrize("max_norm", [0.0, 1.0])
def test_a_gradient_of_0_is_clipped_in_every_gear(clips, max_norm, options):
    settings = descriptor(Settings(clips=clips, max_norm=max_norm, custom_norm=0.0))
    program = regression(MLCSGDOptimizer(descriptor=settings), widths=(6, 5))
    (layer,) = program.layers
    program.given["x"][...] = 0
    program.given["t"][...] = array(layer.biases).ravel()
    before = [array(layer.weights), array(layer.biases)]
    assert program.compile(options)
    for _ in range(3):
        assert program.execute()
        np.testing.assert_array_equal(array(layer.weights), before[0])
        np.testing.assert_array_equal(array(layer.biases), before[1])


CHUNKED = [k for k in KINDS if k.make(descriptor(Settings()))._in_chunks]


@pytest.mark.parametrize("preparation", PREPARATIONS)
@pytest.mark.parametrize("kind", CHUNKED, ids=lambda k: k.name)
def test_the_formulas_in_chunks(kind, preparation, monkeypatch):
    for cls in (MLCOptimizer, MLCRMSPropOptimizer):
        monkeypatch.setattr(cls, "_chunks_from", 1)
    monkeypatch.setattr(updater, "has_avx", lambda: True)
    monkeypatch.setattr(base, "chunk_size", lambda: 5)
    test_the_formulas(kind, preparation)


SGDS = [k for k in KINDS if k.name.startswith("sgd")]


@pytest.mark.parametrize("chunked", [False, True], ids=["whole", "in chunks"])
@pytest.mark.parametrize("scale", [0.0, 0.1], ids=["", "l2"])
@pytest.mark.parametrize("rate", [1e-9, 1e-12, 1e-17, 1e-20, -1e-12])
@pytest.mark.parametrize("kind", SGDS, ids=lambda k: k.name)
def test_steps_of_ordinary_size_at_a_rate_that_1_does_not_notice(kind, rate, scale, chunked, monkeypatch):
    if chunked:
        monkeypatch.setattr(MLCOptimizer, "_chunks_from", 1)
        monkeypatch.setattr(updater, "has_avx", lambda: True)
        monkeypatch.setattr(base, "chunk_size", lambda: 5)
    # Clipped, so that the gradient of a chunk is made on the way; rescaled, so that weights move by as much as they are.
    large = 1e-3 / abs(rate)
    settings = Settings(lr=rate, clips="value", rescale=large, regularization="l2", scale=scale * large)
    first = [(start * 1e-3).astype(np.float32) for start in starts()]
    bench = Bench(kind.make(descriptor(settings)), starts=first).compile()
    twin = kind.twin([start.astype(np.float64) for start in first], settings)
    for number in range(5):
        bench.step(number)
        twin.step(gradients(number))
        for got, want in zip(bench.weights(), twin.params, strict=True):
            np.testing.assert_allclose(got, want, rtol=2e-6, atol=2e-9, err_msg=f"step {number}")


@pytest.mark.parametrize("kind", KINDS, ids=lambda k: k.name)
def test_the_formulas_on_every_device_with_changing_settings(kind, torch_device):
    """Learning rate and clipping are set between steps; a momentum keeps the steps it was made with."""
    settings = Settings(clips="norm", max_norm=0.5, rescale=0.5, regularization="l2", scale=0.05)
    optimizer = kind.make(descriptor(settings))
    bench, twin = Bench(optimizer, on(torch_device)).compile(), kind.twin(starts(), settings)
    for number in range(STEPS):
        if number in (6, 12):
            optimizer.learningRate = settings.lr = settings.lr / 10
        if number == 9:
            optimizer.appliesGradientClipping, settings.clips = False, None
        if number == 15:
            optimizer.appliesGradientClipping, settings.clips = True, "norm"
        bench.step(number)
        twin.step(gradients(number))
        assert_follows(bench, twin, number)


def test_every_optimizer_has_a_twin():
    """The two tests above are for all there are: a class without a line in ``KINDS`` would escape them."""
    public = {c for n, c in CLASSES.items() if n in mlc_torch.__all__ and issubclass(c, MLCOptimizer)} - {MLCOptimizer}
    assert {type(kind.make(descriptor(Settings()))) for kind in KINDS} == public


def test_the_oracle_of_the_momentum_that_keeps_its_rate():
    """m = μ·m + lr·g: after the rate drops to nothing the old steps go on at their old size."""
    optimizer = MLCSGDOptimizer(descriptor=hyper(1.0), momentumScale=0.5, usesNesterovMomentum=False)
    bench = Bench(optimizer).compile()
    bench.step(0)
    before = bench.weights()
    optimizer.learningRate = 0.0
    bench.step(1)
    for got, was, g in zip(bench.weights(), before, gradients(0), strict=True):
        np.testing.assert_allclose(got, was - 0.5 * g, rtol=1e-5, atol=1e-6)


def test_a_centered_mean_that_keeps_nothing_leaves_no_spread():
    """alpha = 0: n = g² and a = g, both rounded alike, so that the step is lr·g/ε and not what rounding left of n - a²."""
    optimizer = MLCRMSPropOptimizer(descriptor=hyper(0.01), momentumScale=0.0, alpha=0.0, epsilon=0.01, isCentered=True)
    bench = Bench(optimizer).compile()
    before = bench.weights()
    bench.step(0)
    for got, was, g in zip(bench.weights(), before, gradients(0), strict=True):
        np.testing.assert_allclose(got, was - 0.01 * g / 0.01, rtol=1e-5, atol=1e-6)


def test_the_time_step_counts_updates():
    optimizer = MLCAdamOptimizer(descriptor=hyper(), beta1=0.9, beta2=0.999, epsilon=1e-8, timeStep=5)
    program = regression(optimizer)
    assert program.compile() and optimizer.timeStep == 5
    program.step()
    assert optimizer.timeStep == 6 and program.phases() and optimizer.timeStep == 6
    assert program.update() and optimizer.timeStep == 7 and program.update() and optimizer.timeStep == 8
    assert program.training.optimizer is optimizer


def test_the_time_step_stays_at_the_largest_int(tmp_path):
    last = 2**63 - 1
    optimizer = MLCAdamOptimizer(
        descriptor=descriptor(Settings()), beta1=0.9, beta2=0.99, epsilon=1e-8, timeStep=last - 1
    )
    bench = Bench(optimizer).compile()
    twin = reference.Adam(starts(), Settings(), beta2=0.99, t=last - 1)
    for number in range(3):
        bench.step(number)
        twin.step(gradients(number))
        assert_follows(bench, twin, number)
        assert optimizer.timeStep == last
    save_checkpoint(bench.training, tmp_path / "late.safetensors")
    load_checkpoint(bench.training, tmp_path / "late.safetensors")
    bench.step(3)
    assert optimizer.timeStep == last


NAN, INF = float("nan"), float("inf")
SETTINGS = descriptor(Settings())
NO_NUMBERS = {
    "momentumScale of SGD": lambda v: MLCSGDOptimizer(descriptor=SETTINGS, momentumScale=v, usesNesterovMomentum=False),
    "momentumScale of RMSProp": lambda v: MLCRMSPropOptimizer(
        descriptor=SETTINGS, momentumScale=v, alpha=0.9, epsilon=1e-8, isCentered=False
    ),
    "epsilon of RMSProp": lambda v: MLCRMSPropOptimizer(
        descriptor=SETTINGS, momentumScale=0.0, alpha=0.9, epsilon=v, isCentered=False
    ),
    "epsilon of Adam": lambda v: MLCAdamOptimizer(descriptor=SETTINGS, beta1=0.9, beta2=0.99, epsilon=v, timeStep=1),
    "epsilon of AdamW": lambda v: MLCAdamWOptimizer(
        descriptor=SETTINGS, beta1=0.9, beta2=0.99, epsilon=v, usesAMSGrad=False, timeStep=1
    ),
    "gradientRescale": lambda v: descriptor(Settings(rescale=v)),
    "regularizationScale": lambda v: descriptor(Settings(scale=v)),
    "customGlobalNorm": lambda v: descriptor(Settings(custom_norm=v)),
}


@pytest.mark.parametrize("value", [NAN, INF, -INF])
@pytest.mark.parametrize("what", NO_NUMBERS)
def test_what_would_leave_no_weight_a_number_is_refused(what, value):
    assert NO_NUMBERS[what](value) is None
    assert last_refusal().reason == f"{what.split()[0]} must be finite, got {value}"
    assert NO_NUMBERS[what](0.5 if what == "customGlobalNorm" else -0.5) is not None


@pytest.mark.parametrize(("given", "first"), [(0, 1), (1, 1), (3, 3)])
def test_time_steps_count_from_1(given, first):
    """An optimizer at step 3 has made two updates, and 0 is where it begins."""

    def made(step: int) -> MLCAdamOptimizer | None:
        return MLCAdamOptimizer(descriptor=SETTINGS, beta1=0.9, beta2=0.99, epsilon=1e-8, timeStep=step)

    assert made(-1) is None and last_refusal().reason == "timeStep counts updates from 1, got -1"
    bench, twin = Bench(made(given)).compile(), reference.Adam(starts(), Settings(), beta2=0.99, t=first)
    for number in range(3):
        bench.step(number)
        twin.step(gradients(number))
        assert_follows(bench, twin, number)


@pytest.mark.parametrize(("name", "field"), [("maximumClippingNorm", "max_norm"), ("customGlobalNorm", "custom_norm")])
def test_a_norm_below_0_which_would_turn_gradients_round_is_refused(name, field):
    for value in (-1.0, -1e-30):
        assert descriptor(Settings(**{field: value})) is None
        assert last_refusal().reason == f"{name} must be a number of at least 0, got {value}"
    for value in (0.0, 1e-30):
        assert getattr(descriptor(Settings(**{field: value})), name) == value


def test_the_norm_to_clip_to_may_be_infinite_which_is_none():
    for value in (NAN, -INF):
        assert descriptor(Settings(max_norm=value)) is None
        assert last_refusal().reason == f"maximumClippingNorm must be a number of at least 0, got {value}"
    assert descriptor(Settings(max_norm=INF)) is not None


def test_a_clipping_bound_may_be_infinite_where_that_means_none():
    for name, never in (("clip_max", -INF), ("clip_min", INF)):
        for value in (NAN, never):
            assert descriptor(Settings(**{name: value})) is None
            assert last_refusal().reason.endswith(f"must be a number and not {never}, got {value}")
        assert descriptor(Settings(**{name: -never})) is not None


def test_clipping_bounds_that_were_mixed_up_are_refused():
    """Every gradient would become the upper one, whichever way it points."""
    assert descriptor(Settings(clip_min=0.5, clip_max=-0.5)) is None
    assert last_refusal().reason == "gradientClipMin is 0.5 and gradientClipMax -0.5; no gradient lies between"
    assert descriptor(Settings(clip_min=0.5, clip_max=0.5)) is not None


def test_defaults_of_the_short_initializers():
    """evidence.md F.2, and C24 for the custom norm."""
    short = descriptor(Settings())
    made = MLCAdamOptimizer(descriptor=hyper(0.3))
    assert (made.beta1, made.beta2, made.epsilon, made.timeStep, made.usesAMSGrad) == (0.9, 0.999, 1e-8, 1, False)
    made = MLCRMSPropOptimizer(descriptor=short)
    assert (made.momentumScale, made.alpha, made.epsilon, made.isCentered) == (0.0, 0.99, 1e-8, False)
    made = MLCSGDOptimizer(descriptor=hyper())
    assert (made.momentumScale, made.usesNesterovMomentum, made.customGlobalNorm) == (0.0, False, 1.0)


def test_a_regularized_parameter_without_a_gradient_stays():
    program = regression(
        MLCSGDOptimizer(descriptor=descriptor(Settings(regularization="l2", scale=1.0))), widths=(6, 5, 3)
    )
    first, second = program.layers
    program.training.stopGradient(for_=program.training.resultTensors(for_=first))
    assert program.compile()
    before = array(first.weights), array(second.weights)
    program.step()
    np.testing.assert_array_equal(array(first.weights), before[0])
    assert not np.array_equal(array(second.weights), before[1])


# Ways to the same numbers


@pytest.mark.parametrize("switched_off", [*available, "all"])
def test_without_torch_s_private_calls_the_numbers_are_the_same(switched_off, monkeypatch):
    settings = Settings(clips="global", max_norm=0.7, custom_norm=0.0, rescale=2.0, regularization="l1", scale=0.05)
    kinds = [
        k
        for k in KINDS
        if k.name in ("sgd", "sgd momentum", "sgd nesterov", "adam amsgrad", "adamw", "rmsprop centered momentum")
    ]
    usual = [Bench(k.make(descriptor(settings))).compile() for k in kinds]
    for bench, number in itertools.product(usual, range(8)):
        bench.step(number)
    names = available if switched_off == "all" else [switched_off]
    for name in names:
        monkeypatch.setitem(available, name, False)
    public = [Bench(k.make(descriptor(settings))).compile() for k in kinds]
    for bench, number in itertools.product(public, range(8)):
        bench.step(number)
    for a, b in zip(usual, public, strict=True):
        for got, want in zip(a.weights(), b.weights(), strict=True):
            np.testing.assert_allclose(got, want, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("parameters", [1, 40])
def test_one_update_moves_any_number_of_parameters(parameters):
    widths = (3,) * (parameters + 1)
    program = regression(MLCAdamOptimizer(descriptor=hyper(1e-3)), widths=widths)
    assert program.compile()
    before = [array(layer.biases) for layer in program.layers]
    program.step()
    moved = sum(not np.array_equal(b, array(layer.biases)) for b, layer in zip(before, program.layers, strict=True))
    assert moved >= min(parameters, 3)


@pytest.mark.parametrize("phases", [False, True], ids=["one call", "three phases"])
def test_all_parameters_are_moved_by_one_fused_call(phases, monkeypatch):
    calls = []
    fused = torch._fused_adam_

    def counting(params, *rest, **more):
        calls.append(len(params))
        return fused(params, *rest, **more)

    program = regression(MLCAdamOptimizer(descriptor=hyper(1e-3)), widths=(3,) * 11)
    assert program.compile()
    program.step()
    monkeypatch.setattr(torch, "_fused_adam_", counting)
    assert (program.phases() and program.update()) if phases else program.execute()
    assert calls == [20]


@pytest.mark.parametrize("kind", CHUNKED, ids=lambda k: k.name)
def test_chunks_of_many_numbers(kind, monkeypatch):
    """Several tensors, one in no chunk's size and one of two numbers, held to the formulas."""
    settings = Settings(clips="norm", max_norm=0.5, rescale=0.5, regularization="l1", scale=0.01)
    optimizer = kind.make(descriptor(settings))
    shapes = ((800, 700), (2,), (131_072,))
    weights, slopes = ([values(*shape, seed=n + k) for n, shape in enumerate(shapes)] for k in (0, 7))
    twin = kind.twin([w.astype(np.float64) for w in weights], settings)
    params, grads = ([torch.from_numpy(a.copy()) for a in arrays] for arrays in (weights, slopes))
    states = [[torch.zeros_like(p) for p in params] for _ in optimizer._state_names()]
    was_asked = []
    own = base.are_many
    monkeypatch.setattr(base, "are_many", lambda *given: was_asked.append(own(*given)) or was_asked[-1])
    torch.set_default_dtype(torch.float64)  # which is no business of ours
    try:
        for step in range(3):
            optimizer._update(params, grads, states, optimizer._scalars(optimizer._next_step() + step), in_chunks=True)
            twin.step(slopes)
    finally:
        torch.set_default_dtype(torch.float32)
    assert was_asked == [True] * 3
    for mine, want in zip(params, twin.params, strict=True):
        np.testing.assert_allclose(mine.numpy(), want, rtol=2e-5, atol=2e-6)


def test_an_update_in_chunks_is_made_or_not(monkeypatch):
    """Everything is ready before the first number changes, and Ctrl-C strikes no longer then."""
    optimizer = KINDS[0].make(descriptor(Settings(regularization="l1", scale=0.1)))
    weights, gradients_ = [torch.ones(2**19)], [torch.ones(2**19)]
    states = [[torch.zeros(2**19)] for _ in optimizer._state_names()]

    def interrupted(*given: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(base, "at_once", interrupted)
    before = optimizer._before_update(weights)
    with pytest.raises(KeyboardInterrupt):
        optimizer._update(weights, gradients_, states, optimizer._scalars(1), in_chunks=True)
    assert not optimizer._was_made(weights, before) and bool((weights[0] == 1).all())
    monkeypatch.undo()
    optimizer._update(weights, gradients_, states, optimizer._scalars(1), in_chunks=True)
    assert optimizer._was_made(weights, before)
