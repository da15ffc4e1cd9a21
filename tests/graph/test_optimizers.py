"""Optimizers against the formulas of behaviour.md F.2, in float64, for 20 steps with every way to prepare a gradient."""

from __future__ import annotations

import itertools
from dataclasses import dataclass

import numpy as np
import pytest
import torch

from mlc_torch import (
    MLCAdamOptimizer,
    MLCAdamWOptimizer,
    MLCArithmeticLayer,
    MLCArithmeticOperation,
    MLCGradientClippingType,
    MLCGraph,
    MLCOptimizerDescriptor,
    MLCRegularizationType,
    MLCRMSPropOptimizer,
    MLCSGDOptimizer,
    MLCTensor,
    MLCTensorParameter,
    MLCTrainingGraph,
    last_refusal,
)
from mlc_torch.torch_private import available
from tests.graph import reference_optimizers as reference
from tests.graph.programs import array, cpu, data, hyper, on, regression, tensor, values
from tests.graph.reference_optimizers import Settings

SHAPES = ((3, 4), (5,), (1, 2, 2, 2))
STEPS = 20


def gradients(step: int) -> list[np.ndarray]:
    """Some large, some small, none zero."""
    return [values(*shape, seed=1000 + step) * scale for shape, scale in zip(SHAPES, (1.0, 0.01, 10.0), strict=True)]


class Bench:
    """Free parameters whose gradients are given from outside, so that the optimizer alone is on trial."""

    def __init__(self, optimizer, device=None, starts=None) -> None:
        self.device = device or cpu()
        graph = MLCGraph()
        starts = starts or [values(*shape, seed=i) for i, shape in enumerate(SHAPES)]
        self.params = [tensor(start) for start in starts]
        add = MLCArithmeticOperation.add
        results = [
            graph.node(MLCArithmeticLayer(operation=add), sources=[p, tensor(np.zeros(p.descriptor.shape, np.float32))])
            for p in self.params
        ]
        self.training = MLCTrainingGraph(graphObjects=[graph], lossLayer=None, optimizer=optimizer)
        self.training.setTrainingTensorParameters([MLCTensorParameter(tensor=p) for p in self.params])
        self.outside = {f"g{i}": self.training.allocateUserGradient(for_=y) for i, y in enumerate(results)}
        self.optimizer = optimizer

    def compile(self) -> Bench:
        assert self.training.compile(options=[], device=self.device)
        return self

    def step(self, number: int) -> None:
        given = {f"g{i}": data(g) for i, g in enumerate(gradients(number))}
        assert self.training.bindAndWriteData(given, forInputs=self.outside, to=self.device, synchronous=True)
        assert self.training.executeForward(batchSize=0) and self.training.executeGradient(batchSize=0)
        assert self.training.executeOptimizerUpdate()

    def weights(self) -> list[np.ndarray]:
        self.training.synchronizeUpdates()
        return [array(p) for p in self.params]


CLIPPING = {
    "value": MLCGradientClippingType.byValue,
    "norm": MLCGradientClippingType.byNorm,
    "global": MLCGradientClippingType.byGlobalNorm,
    None: MLCGradientClippingType.byValue,
}


def descriptor(s: Settings) -> MLCOptimizerDescriptor:
    return MLCOptimizerDescriptor(
        learningRate=s.lr,
        gradientRescale=s.rescale,
        appliesGradientClipping=s.clips is not None,
        gradientClippingType=CLIPPING[s.clips],
        gradientClipMax=s.clip_max,
        gradientClipMin=s.clip_min,
        maximumClippingNorm=s.max_norm,
        customGlobalNorm=s.custom_norm,
        regularizationType=MLCRegularizationType[s.regularization],
        regularizationScale=s.scale,
    )


@dataclass(frozen=True)
class Kind:
    """An optimizer of ours and its twin in NumPy."""

    name: str
    make: object
    twin: object


def adam(cls, amsgrad: bool, decoupled: bool, epsilon: float = 1e-8, t: int = 1):
    return (
        lambda d: cls(descriptor=d, beta1=0.9, beta2=0.99, epsilon=epsilon, usesAMSGrad=amsgrad, timeStep=t),
        lambda p, s: reference.Adam(p, s, decoupled, beta2=0.99, epsilon=epsilon, amsgrad=amsgrad, t=t),
    )


def rmsprop(momentum: float, centered: bool):
    return (
        lambda d: MLCRMSPropOptimizer(
            descriptor=d, momentumScale=momentum, alpha=0.9, epsilon=1e-4, isCentered=centered
        ),
        lambda p, s: reference.RMSProp(p, s, momentum=momentum, alpha=0.9, epsilon=1e-4, centered=centered),
    )


def sgd(momentum: float, nesterov: bool):
    return (
        lambda d: MLCSGDOptimizer(descriptor=d, momentumScale=momentum, usesNesterovMomentum=nesterov),
        lambda p, s: reference.SGD(p, s, momentum=momentum, nesterov=nesterov),
    )


KINDS = [
    Kind("sgd", *sgd(0.0, False)),
    Kind("sgd momentum", *sgd(0.9, False)),
    Kind("sgd nesterov", *sgd(0.9, True)),
    Kind("adam", *adam(MLCAdamOptimizer, False, False)),
    Kind("adam amsgrad", *adam(MLCAdamOptimizer, True, False)),
    Kind("adam large epsilon, step 7", *adam(MLCAdamOptimizer, False, False, 0.1, 7)),
    Kind("adamw", *adam(MLCAdamWOptimizer, False, True)),
    Kind("adamw amsgrad", *adam(MLCAdamWOptimizer, True, True)),
    Kind("rmsprop", *rmsprop(0.0, False)),
    Kind("rmsprop centered", *rmsprop(0.0, True)),
    Kind("rmsprop momentum", *rmsprop(0.9, False)),
    Kind("rmsprop centered momentum", *rmsprop(0.9, True)),
]

PREPARATIONS = {
    "plain": Settings(),
    "rescale": Settings(rescale=0.25),
    "by value": Settings(clips="value", clip_max=0.5, clip_min=-0.25),
    "by norm": Settings(clips="norm", max_norm=0.7),
    "by global norm": Settings(clips="global", max_norm=0.7, custom_norm=0.0),
    "by custom global norm": Settings(clips="global", max_norm=0.7, custom_norm=2.0),
    "by a custom global norm below the maximum": Settings(clips="global", max_norm=2.0, custom_norm=0.5),
    "l1": Settings(regularization="l1", scale=0.1),
    "l2": Settings(regularization="l2", scale=0.1),
    "a scale without a kind": Settings(scale=0.1),
    "clip, rescale and regularize": Settings(
        clips="value", clip_max=0.5, clip_min=-0.5, rescale=3.0, regularization="l2", scale=0.2
    ),
}


def starts() -> list[np.ndarray]:
    return [values(*shape, seed=i).astype(np.float64) for i, shape in enumerate(SHAPES)]


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


def test_the_time_step_counts_updates():
    optimizer = MLCAdamOptimizer(descriptor=hyper(), beta1=0.9, beta2=0.999, epsilon=1e-8, timeStep=5)
    program = regression(optimizer)
    assert program.compile() and optimizer.timeStep == 5
    program.step()
    assert optimizer.timeStep == 6 and program.phases() and optimizer.timeStep == 6
    assert program.update() and optimizer.timeStep == 7 and program.update() and optimizer.timeStep == 8
    assert program.training.optimizer is optimizer


def test_defaults_of_the_short_initializers():
    """behaviour.md F.2, and C24 for the custom norm."""
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


# State


def state_count(kind: Kind) -> int:
    """behaviour.md F.2, last column."""
    by_name = {"sgd": 0, "sgd momentum": 1, "sgd nesterov": 1, "adam": 2, "adamw": 2, "rmsprop": 1}
    by_name |= {"adam amsgrad": 3, "adamw amsgrad": 3, "adam large epsilon, step 7": 2}
    return (by_name | {"rmsprop centered": 2, "rmsprop momentum": 2, "rmsprop centered momentum": 3})[kind.name]


def empty_state(kind: Kind) -> list[list[np.ndarray]]:
    return [[np.zeros(shape, np.float32) for _ in range(state_count(kind))] for shape in SHAPES]


def bind(bench: Bench, buffers) -> None:
    for parameter, states in zip(bench.params, buffers, strict=True):
        assert bench.training.bindOptimizerData([data(s) for s in states], deviceData=None, with_=parameter)
        assert len(parameter.optimizerData) == len(states)


@pytest.mark.parametrize("kind", KINDS, ids=lambda k: k.name)
def test_stop_save_restore_continue_is_bit_equal(kind, torch_device):
    settings, device = Settings(regularization="l2", scale=0.05), on(torch_device)
    whole = Bench(kind.make(descriptor(settings)), device).compile()
    for number in range(STEPS):
        whole.step(number)
    first, buffers = Bench(kind.make(descriptor(settings)), device), empty_state(kind)
    bind(first, buffers)
    first.compile()
    for number in range(STEPS // 2):
        first.step(number)
    for parameter in first.params:
        assert parameter.synchronizeOptimizerData()
    saved_weights, saved_state = first.weights(), [[s.copy() for s in states] for states in buffers]
    assert not state_count(kind) or all(s.any() for states in saved_state for s in states)
    restored = kind.make(descriptor(settings))
    if hasattr(restored, "timeStep"):
        cls = type(restored)
        restored = cls(
            descriptor=descriptor(settings),
            beta1=restored.beta1,
            beta2=restored.beta2,
            epsilon=restored.epsilon,
            usesAMSGrad=restored.usesAMSGrad,
            timeStep=first.optimizer.timeStep,
        )
    second = Bench(restored, device, saved_weights)
    second.compile()  # before the bind as well as after it: both must do
    bind(second, saved_state)
    for number in range(STEPS // 2, STEPS):
        second.step(number)
    for got, want in zip(second.weights(), whole.weights(), strict=True):
        np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize("kind", KINDS, ids=lambda k: k.name)
def test_the_order_of_the_state_tensors(kind):
    settings = Settings()
    bench, twin, buffers = Bench(kind.make(descriptor(settings))), kind.twin(starts(), settings), empty_state(kind)
    bind(bench, buffers)
    bench.compile()
    for number in range(5):
        bench.step(number)
        twin.step(gradients(number))
    for parameter in bench.params:
        assert parameter.synchronizeOptimizerData()
    if kind.name.startswith("sgd"):
        names = ["momentum"]
    elif kind.name.startswith("rmsprop"):
        names = ["n", *(["a"] if "centered" in kind.name else []), *(["delta"] if "momentum" in kind.name else [])]
    else:
        names = ["m", "v", "largest"]
    for number, states in enumerate(buffers):
        for name, got in zip(names, states, strict=False):
            np.testing.assert_allclose(got, twin.states[name][number], rtol=2e-5, atol=1e-7, err_msg=name)


def test_bound_state_is_updated_in_place_on_the_cpu():
    kind = KINDS[1]
    bench, buffers = Bench(kind.make(descriptor(Settings()))), empty_state(kind)
    bind(bench, buffers)
    bench.compile().step(0)
    np.testing.assert_allclose(buffers[0][0], 0.05 * gradients(0)[0], rtol=1e-6)
    assert len(bench.params[0].optimizerDeviceData) == 1


def test_binding_answers_yes_for_known_and_unknown_tensors_and_no_for_short_data():
    bench = Bench(KINDS[3].make(descriptor(Settings())))
    stranger = tensor(values(2))
    two = [data(values(2)), data(values(2))]
    assert bench.training.bindOptimizerData(two, deviceData=None, with_=stranger)
    assert bench.training.bindOptimizerData_deviceData_withTensor_(two, None, stranger)
    assert stranger.bindOptimizerData(two, deviceData=[]) and len(stranger.optimizerData) == 2
    short = [data(values(2)), data(values(2))]
    assert not bench.training.bindOptimizerData(short, deviceData=None, with_=bench.params[0])
    assert "needs 48" in str(last_refusal())


def test_state_of_the_wrong_number_is_refused_and_may_be_put_right():
    bench = Bench(KINDS[3].make(descriptor(Settings())))
    bad = [data(np.zeros((3, 4), np.float32))]
    assert bench.training.bindOptimizerData(bad, deviceData=None, with_=bench.params[0])
    assert not bench.training.compile(options=[], device=cpu())
    assert "keeps 2 tensors" in str(last_refusal()) and "1 are bound" in str(last_refusal())
    good = [data(np.zeros((3, 4), np.float32)) for _ in range(2)]
    assert bench.training.bindOptimizerData(good, deviceData=None, with_=bench.params[0])
    bench.compile().step(0)


def test_a_parameter_carries_optimizer_data_from_its_initializer():
    held, state = tensor(values(3, 4)), np.zeros((3, 4), np.float32)
    parameter = MLCTensorParameter(tensor=held, optimizerData=[data(state)])
    assert isinstance(parameter.tensor, MLCTensor) and len(held.optimizerData) == 1


def test_state_survives_a_second_compile_and_a_pause():
    kind = KINDS[3]
    plain, paused = (Bench(kind.make(descriptor(Settings()))).compile() for _ in range(2))
    for number in range(6):
        plain.step(number)
        paused.step(number)
        if number == 3:
            paused.compile()
            paused.params[0].label = "renamed"
    for got, want in zip(paused.weights(), plain.weights(), strict=True):
        np.testing.assert_array_equal(got, want)


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


# How far torch.optim is


def torch_weights(make, rates) -> list[np.ndarray]:
    params = [torch.nn.Parameter(torch.tensor(s, dtype=torch.float32)) for s in starts()]
    optimizer = make(params)
    for number in range(STEPS):
        for group in optimizer.param_groups:
            group["lr"] = rates(number)
        for p, g in zip(params, gradients(number), strict=True):
            p.grad = torch.from_numpy(g)
        optimizer.step()
    return [p.detach().numpy() for p in params]


def distance(kind: Kind, make, settings: Settings, rates=lambda number: 0.05) -> float:
    """The largest difference after 20 steps, relative to how far the weights have moved."""
    optimizer = kind.make(descriptor(settings))
    bench = Bench(optimizer).compile()
    for number in range(STEPS):
        optimizer.learningRate = rates(number)
        bench.step(number)
    pairs = zip(bench.weights(), torch_weights(make, rates), starts(), strict=True)
    return max(float(np.abs(a - b).max() / np.abs(a - s).max()) for a, b, s in pairs)


def dropping(number: int) -> float:
    return 0.05 / 10 ** (number // 7)


@pytest.mark.parametrize(
    ("kind", "make", "settings"),
    [
        (KINDS[0], lambda p: torch.optim.SGD(p, lr=0.05), Settings()),
        (KINDS[0], lambda p: torch.optim.SGD(p, lr=0.05, weight_decay=0.1), Settings(regularization="l2", scale=0.1)),
        (KINDS[1], lambda p: torch.optim.SGD(p, lr=0.05, momentum=0.9), Settings()),
        (KINDS[2], lambda p: torch.optim.SGD(p, lr=0.05, momentum=0.9, nesterov=True), Settings()),
        (KINDS[3], lambda p: torch.optim.Adam(p, lr=0.05, betas=(0.9, 0.99)), Settings()),
        (KINDS[6], lambda p: torch.optim.AdamW(p, betas=(0.9, 0.99), weight_decay=0.1), Settings(regularization="l2", scale=0.1)),
        (KINDS[8], lambda p: torch.optim.RMSprop(p, alpha=0.9, eps=1e-4), Settings()),
        (KINDS[11], lambda p: torch.optim.RMSprop(p, alpha=0.9, eps=1e-4, momentum=0.9, centered=True), Settings()),
    ],
    ids=["sgd", "sgd l2", "momentum", "nesterov", "adam", "adamw", "rmsprop", "rmsprop centered momentum"],
)  # fmt: skip
def test_torch_optim_is_the_same_while_the_rate_stays(kind, make, settings):
    assert distance(kind, make, settings) < 2e-5


def test_torch_optim_differs_where_the_formulas_differ():
    """The rate inside the accumulator, and Adam's ε outside of the bias correction (behaviour.md F.2)."""
    momentum = distance(KINDS[1], lambda p: torch.optim.SGD(p, lr=0.05, momentum=0.9), Settings(), dropping)
    assert 0.01 < momentum < 1.0
    rms = distance(KINDS[10], lambda p: torch.optim.RMSprop(p, alpha=0.9, eps=1e-4, momentum=0.9), Settings(), dropping)
    assert 0.01 < rms < 1.0
    nesterov = distance(
        KINDS[2], lambda p: torch.optim.SGD(p, lr=0.05, momentum=0.9, nesterov=True), Settings(), dropping
    )
    assert nesterov < 2e-5
    large = Kind("adam", *adam(MLCAdamOptimizer, False, False, 0.1))
    assert (
        0.001 < distance(large, lambda p: torch.optim.Adam(p, lr=0.05, betas=(0.9, 0.99), eps=0.1), Settings()) < 10.0
    )
