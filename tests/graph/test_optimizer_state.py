"""Optimizer state: bound by the program, updated in place, saved, restored, and continued bit for bit."""

from __future__ import annotations

import copy
import gc
import warnings

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from mlc_torch import (
    MLCAdamOptimizer,
    MLCRMSPropOptimizer,
    MLCSGDOptimizer,
    MLCTensor,
    MLCTensorData,
    MLCTensorParameter,
    MLCTrainingGraph,
    MLCTrainingWarning,
    last_refusal,
)
from mlc_torch.interop import save_checkpoint
from tests.graph.optimizer_bench import (
    KINDS,
    SHAPES,
    STEPS,
    Bench,
    Kind,
    descriptor,
    gradients,
    starts,
)
from tests.graph.programs import array, cpu, data, hyper, loss, on, predictions, regression, sgd, tensor, values
from tests.graph.reference_optimizers import Settings


def state_count(kind: Kind) -> int:
    """evidence.md F.2, last column."""
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


@pytest.mark.parametrize("how", ["graph", "tensor", "parameter"])
def test_where_nothing_is_bound_the_optimizer_keeps_what_it_has(how):
    kind, settings = KINDS[3], Settings()
    bench, twin = Bench(kind.make(descriptor(settings))).compile(), kind.twin(starts(), settings)
    for number in range(4):
        bench.step(number)
        twin.step(gradients(number))
        for parameter in bench.params:
            bound = {
                "graph": lambda p=parameter: bench.training.bindOptimizerData([], deviceData=None, with_=p),
                "tensor": lambda p=parameter: p.bindOptimizerData([], deviceData=[]),
                "parameter": lambda p=parameter: MLCTensorParameter(tensor=p, optimizerData=[]),
            }[how]()
            assert bound
    for got, want in zip(bench.weights(), twin.params, strict=True):
        np.testing.assert_allclose(got, want, rtol=2e-5, atol=1e-6)


def test_state_of_the_wrong_number_is_refused_and_may_be_put_right():
    bench = Bench(KINDS[3].make(descriptor(Settings())))
    bad = [data(np.zeros((3, 4), np.float32))]
    assert bench.training.bindOptimizerData(bad, deviceData=None, with_=bench.params[0])
    assert not bench.training.compile(options=[], device=cpu())
    assert "keeps 2 tensors" in str(last_refusal()) and "1 are bound" in str(last_refusal())
    good = [data(np.zeros((3, 4), np.float32)) for _ in range(2)]
    assert bench.training.bindOptimizerData(good, deviceData=None, with_=bench.params[0])
    bench.compile().step(0)


@pytest.mark.parametrize("number", [0, 1], ids=["sgd", "sgd momentum"])
def test_of_more_state_than_is_kept_the_first_is_used(number):
    kind = KINDS[number]
    exact, more = (Bench(kind.make(descriptor(Settings()))).compile() for _ in range(2))
    buffers = [[np.zeros(shape, np.float32) for _ in range(2)] for shape in SHAPES]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", MLCTrainingWarning)
        bind(more, buffers)
        for step in range(3):
            exact.step(step)
            more.step(step)
    for got, want in zip(more.weights(), exact.weights(), strict=True):
        np.testing.assert_array_equal(got, want)
    assert all(first.any() == bool(number) and not second.any() for first, second in buffers)


@pytest.mark.parametrize("when", ["bound, then compiled", "compiled, then bound"])
def test_spare_state_warns_once(when):
    bench = Bench(KINDS[1].make(descriptor(Settings())))
    buffers = [[np.zeros(shape, np.float32) for _ in range(2)] for shape in SHAPES]
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        if when == "bound, then compiled":
            bind(bench, buffers)
            bench.compile()
        else:
            bench.compile()
            bind(bench, buffers)
        bench.step(0)
        bench.step(1)
    assert [w.category for w in caught] == [MLCTrainingWarning]
    assert "keeps 1 tensors" in str(caught[0].message) and "2 are bound as optimizer data; the first are used" in str(
        caught[0].message
    )


def test_too_little_state_for_a_compiled_graph_is_refused_when_it_is_bound():
    bench = Bench(KINDS[3].make(descriptor(Settings()))).compile()
    one = [data(np.zeros((3, 4), np.float32))]
    assert not bench.training.bindOptimizerData(one, deviceData=None, with_=bench.params[0])
    assert "keeps 2 tensors" in str(last_refusal()) and "1 are bound" in str(last_refusal())
    bench.step(0)  # as if nothing had been bound


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


def sgd_with_momentum():
    return MLCSGDOptimizer(descriptor=hyper(0.05), momentumScale=0.9, usesNesterovMomentum=False)


PAIRS = {
    "SGD and RMSProp": (
        sgd_with_momentum,
        lambda: MLCRMSPropOptimizer(descriptor=hyper(0.01), momentumScale=0, alpha=0.9, epsilon=1e-8, isCentered=False),
        lambda p: torch.optim.SGD(p, lr=0.05, momentum=0.9),
        lambda p: torch.optim.RMSprop(p, lr=0.01, alpha=0.9),
    ),
    "two Adams": (
        lambda: MLCAdamOptimizer(descriptor=hyper(0.05)),
        lambda: MLCAdamOptimizer(descriptor=hyper(0.01)),
        lambda p: torch.optim.Adam(p, lr=0.05),
        lambda p: torch.optim.Adam(p, lr=0.01),
    ),
    "SGD and Adam": (
        sgd_with_momentum,
        lambda: MLCAdamOptimizer(descriptor=hyper(0.01)),
        lambda p: torch.optim.SGD(p, lr=0.05, momentum=0.9),
        lambda p: torch.optim.Adam(p, lr=0.01),
    ),
}


@pytest.mark.parametrize("pair", PAIRS)
@pytest.mark.parametrize("turns", ["in turn", "one behind the other", "in one graph"])
def test_each_optimizer_of_the_same_layers_has_its_own_state(pair, turns, tmp_path):
    first, second, *by_hand = PAIRS[pair]
    program = regression(first(), widths=(6, 5, 3))
    assert program.compile()
    other = MLCTrainingGraph(graphObjects=[program.graph], lossLayer=loss(), optimizer=second())
    assert other.addInputs(program.inputs, lossLabels=program.labels)
    module = copy.deepcopy(program.graph.to_module())
    hand = [make(module.parameters()) for make in by_hand]
    optimizers = [program.training.optimizer, other.optimizer]
    order = [0, 1] * 4 if turns == "in turn" else [0] * 4 + [1] * 4 + [0] * 2
    for step, who in enumerate(order):
        graph = [program.training, other][who]
        if turns == "in one graph":
            graph = program.training
            assert graph.compileOptimizer(optimizers[who])
        elif step == order.index(1):
            assert other.compile(options=[], device=cpu())  # the other one's state is there by now
        x, t = values(4, 6, seed=step), values(4, 3, seed=50 + step)
        found = graph.step(x, t)
        hand[who].zero_grad()
        wanted = torch.nn.functional.mse_loss(module(torch.from_numpy(x)), torch.from_numpy(t))
        wanted.backward()
        hand[who].step()
        assert found == pytest.approx(wanted.item(), rel=1e-4)
    if turns == "in turn":  # what is saved is the graph's own, and goes on
        save_checkpoint(program.training, tmp_path / "first")
        saved = load_file(tmp_path / "first")
        name = next(n for n in saved if n.startswith("optimizer/") and n.endswith("weights/momentum"))
        theirs = hand[0].state[next(iter(module.parameters()))]
        # ML Compute's momentum of SGD holds the learning rate, torch's does not.
        wanted = theirs["exp_avg"] if "exp_avg" in theirs else 0.05 * theirs["momentum_buffer"]
        np.testing.assert_allclose(saved[name].ravel(), wanted.ravel(), rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("kind", ["bytes", "array"])
def test_state_over_read_only_memory_is_trained_in_a_copy(kind, torch_device):
    """As weights are. Adam's first moment by hand: it forgets a tenth in each step."""
    program = regression(MLCAdamOptimizer(descriptor=hyper(0.01)), device=on(torch_device))
    weights, start = program.layers[0].weights, values(3, 6, seed=8)
    saved = start.tobytes() if kind == "bytes" else start.copy()
    if kind == "array":
        saved.flags.writeable = False
    state = [MLCTensorData(immutableBytesNoCopy=saved, length=start.nbytes) for _ in range(2)]
    state[1] = MLCTensorData(immutableBytesNoCopy=bytes(start.nbytes), length=start.nbytes)
    assert program.compile()
    assert program.training.bindOptimizerData(state, deviceData=None, with_=weights)
    mean = start.astype(float)
    for _ in range(3):
        error = predictions(program) - program.given["t"]
        mean = 0.9 * mean + 0.1 * (2 / error.size * error.T @ program.given["x"])
        assert program.execute()
    assert weights.synchronizeOptimizerData()
    np.testing.assert_allclose(np.frombuffer(weights.optimizerData[0].bytes, np.float32).reshape(3, 6), mean, rtol=1e-4)
    assert np.frombuffer(weights.optimizerData[1].bytes, np.float32).any()
    assert np.array_equal(np.frombuffer(saved, np.float32), start.ravel())


def adam(rate=0.01):
    return MLCAdamOptimizer(descriptor=hyper(rate))


@pytest.mark.parametrize("first", [0, 1], ids=["its graph begins", "the other begins"])
def test_state_that_is_bound_through_a_graph_is_its_optimizers_alone(first):
    """Another graph over the same layers begins without; against two ``torch.optim.Adam`` of the same parameters."""
    program = regression(adam(0.05), widths=(6, 3))
    other = MLCTrainingGraph(graphObjects=[program.graph], lossLayer=loss(), optimizer=adam())
    assert other.addInputs(program.inputs, lossLabels=program.labels)
    assert program.compile() and other.compile(options=[], device=cpu())
    weights = program.layers[0].weights
    buffers = [np.zeros((3, 6), np.float32) for _ in range(2)]
    assert program.training.bindOptimizerData([data(b) for b in buffers], deviceData=None, with_=weights)
    module = copy.deepcopy(program.graph.to_module())
    hand = [torch.optim.Adam(module.parameters(), lr=rate) for rate in (0.05, 0.01)]
    for step in range(6):
        who = (step + first) % 2
        x, t = values(4, 6, seed=step), values(4, 3, seed=50 + step)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", MLCTrainingWarning)
            found = [program.training, other][who].step(x, t)
        hand[who].zero_grad()
        wanted = torch.nn.functional.mse_loss(module(torch.from_numpy(x)), torch.from_numpy(t))
        wanted.backward()
        hand[who].step()
        assert found == pytest.approx(wanted.item(), rel=1e-4)
    theirs = hand[0].state[next(iter(module.parameters()))]
    np.testing.assert_allclose(buffers[0].ravel(), theirs["exp_avg"].ravel(), rtol=1e-3, atol=1e-6)
    np.testing.assert_allclose(buffers[1].ravel(), theirs["exp_avg_sq"].ravel(), rtol=1e-3, atol=1e-6)
    assert weights.synchronizeOptimizerData()  # what the tensor shows may be the other one's
    np.testing.assert_allclose(buffers[0].ravel(), theirs["exp_avg"].ravel(), rtol=1e-3, atol=1e-6)


@pytest.mark.parametrize("next_one", [adam, sgd_with_momentum], ids=["Adam", "SGD"])
@pytest.mark.parametrize("how", ["through the graph", "through the tensor"])
def test_a_new_optimizer_does_not_take_over_bound_state_and_says_so(next_one, how):
    program = regression(adam(), widths=(6, 3))
    weights = program.layers[0].weights
    buffers = [np.zeros((3, 6), np.float32) for _ in range(2)]
    bound = [data(b) for b in buffers]
    if how == "through the tensor":
        assert weights.bindOptimizerData(bound, deviceData=None)
    assert program.compile()
    if how == "through the graph":
        assert program.training.bindOptimizerData(bound, deviceData=None, with_=weights)
    for _ in range(3):
        program.step()
    kept = [b.copy() for b in buffers]
    assert program.training.compileOptimizer(next_one())
    before = array(weights)
    with pytest.warns(MLCTrainingWarning, match="is another optimizer.s; this one begins without state"):
        program.step()
    moved = array(weights) - before
    for buffer, was in zip(buffers, kept, strict=True):
        np.testing.assert_array_equal(buffer, was)
    if next_one is adam:  # its very first step is the learning rate itself, whatever the gradient
        np.testing.assert_allclose(np.abs(moved), 0.01, rtol=1e-2)
    assert program.training.bindOptimizerData(
        [data(b) for b in kept[: len(next_one()._state_names())]], deviceData=None, with_=weights
    )
    program.step()
    assert not np.array_equal(kept[0], buffers[0])


def test_state_that_is_bound_for_one_optimizer_leaves_the_others_theirs():
    program = regression(adam(0.05), widths=(6, 3))
    other = MLCTrainingGraph(graphObjects=[program.graph], lossLayer=loss(), optimizer=adam())
    assert other.addInputs(program.inputs, lossLabels=program.labels)
    assert program.compile() and other.compile(options=[], device=cpu())
    module = copy.deepcopy(program.graph.to_module())
    hand = [torch.optim.Adam(module.parameters(), lr=rate) for rate in (0.05, 0.01)]
    for step in range(8):
        who = step % 2
        if step == 4:  # one of the two begins anew
            buffers = [data(np.zeros(shape, np.float32)) for shape in ((3, 6), (3, 6), (1, 3), (1, 3))]
            layer = program.layers[0]
            for bound, with_ in ((buffers[:2], layer.weights), (buffers[2:], layer.biases)):
                assert program.training.bindOptimizerData(bound, deviceData=None, with_=with_)
            for parameter in module.parameters():
                for name in ("exp_avg", "exp_avg_sq"):
                    hand[0].state[parameter][name].zero_()
        x, t = values(4, 6, seed=step), values(4, 3, seed=50 + step)
        found = [program.training, other][who].step(x, t)
        hand[who].zero_grad()
        wanted = torch.nn.functional.mse_loss(module(torch.from_numpy(x)), torch.from_numpy(t))
        wanted.backward()
        hand[who].step()
        assert found == pytest.approx(wanted.item(), rel=1e-4), step


class TwoAdams:
    """Two graphs over one layer, each with an Adam of its own, beside two of torch's over the same parameters."""

    def __init__(self) -> None:
        self.program = regression(adam(0.05), widths=(6, 3))
        other = MLCTrainingGraph(graphObjects=[self.program.graph], lossLayer=loss(), optimizer=adam())
        assert other.addInputs(self.program.inputs, lossLabels=self.program.labels)
        assert self.program.compile() and other.compile(options=[], device=cpu())
        self.graphs, self.layer = (self.program.training, other), self.program.layers[0]
        self.module = copy.deepcopy(self.program.graph.to_module())
        self.hand = [torch.optim.Adam(self.module.parameters(), lr=rate) for rate in (0.05, 0.01)]
        self.count = 0

    def bind(self, who: int | None, scale: float) -> None:
        """State for all parameters, through a graph or (``None``) through the tensors, where torch's first one is to have it."""
        parameters = dict(zip((self.layer.weights, self.layer.biases), self.module.parameters(), strict=True))
        for tensor_, parameter in parameters.items():
            mean = values(*parameter.shape, seed=7) * np.float32(scale)
            state = [mean, mean**2 + np.float32(0.1)]
            bound = [data(s.copy()) for s in state]
            if who is None:
                assert tensor_.bindOptimizerData(bound, deviceData=None)
            else:
                assert self.graphs[who].bindOptimizerData(bound, deviceData=None, with_=tensor_)
            names = ("exp_avg", "exp_avg_sq")
            kept = self.hand[who or 0].state[parameter]
            kept.setdefault("step", torch.zeros(()))
            kept |= {n: torch.from_numpy(s.reshape(parameter.shape).copy()) for n, s in zip(names, state, strict=True)}

    def step(self, who: int) -> None:
        x, t = values(4, 6, seed=self.count), values(4, 3, seed=50 + self.count)
        self.count += 1
        found = self.graphs[who].step(x, t)
        self.hand[who].zero_grad()
        wanted = torch.nn.functional.mse_loss(self.module(torch.from_numpy(x)), torch.from_numpy(t))
        wanted.backward()
        self.hand[who].step()
        assert found == pytest.approx(wanted.item(), rel=1e-4)


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
def test_two_optimizers_are_restored_before_either_goes_on(order):
    net = TwoAdams()
    net.bind(0, 0.5)
    net.bind(1, -0.5)
    for _ in range(3):
        for who in order:
            net.step(who)


def test_what_is_bound_through_the_tensor_waits_for_an_update():
    """A graph that evaluates takes up nothing, nor does a compile; whoever updates next goes on with it, the other does not."""
    net = TwoAdams()
    net.bind(None, 0.5)
    assert net.graphs[1].evaluate([(values(4, 6), values(4, 3))]) > 0
    assert net.graphs[1].compile(options=[], device=cpu())
    for who in (0, 1, 0, 1):
        net.step(who)


def test_what_is_bound_through_the_tensor_later_goes_before_what_was_bound_through_a_graph():
    net = TwoAdams()
    net.bind(0, 0.5)
    net.bind(1, -0.5)
    net.bind(None, 0.25)
    for who in (0, 1, 0, 1):
        net.step(who)


@pytest.mark.parametrize("when", ["in the update phase", "in the whole step"])
def test_an_optimizer_that_comes_between_the_phases_says_so_too(when):
    program = regression(adam(), widths=(6, 3))
    weights = program.layers[0].weights
    assert program.compile()
    bound = [data(np.zeros((3, 6), np.float32)) for _ in range(2)]
    assert program.training.bindOptimizerData(bound, deviceData=None, with_=weights)
    assert program.phases() and program.update() and program.phases()
    if when == "in the whole step":
        assert program.update()
    assert program.training.compileOptimizer(adam())
    with pytest.warns(MLCTrainingWarning, match="this one begins without state"):
        assert program.update() if when == "in the update phase" else program.execute()


def test_an_optimizer_that_keeps_no_state_has_nothing_to_say():
    program = regression(adam(), widths=(6, 3))
    assert program.compile()
    bound = [data(np.zeros((3, 6), np.float32)) for _ in range(2)]
    assert program.training.bindOptimizerData(bound, deviceData=None, with_=program.layers[0].weights)
    program.step()
    assert program.training.compileOptimizer(sgd())
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        program.step()
        assert program.compile()


def test_state_is_brought_back_when_its_optimizer_is_gone():
    """It lies apart from the bound memory, as on a GPU; Adam's first moment of one step is a tenth of the gradient."""
    program = regression(adam(), widths=(6, 3))
    weights = program.layers[0].weights
    buffers = [np.full((3, 6), 7, np.float32) for _ in range(2)]
    elsewhere = regression(adam(), widths=(6, 3))
    assert elsewhere.compile()  # whose state, zeros, is on the device
    there = elsewhere.layers[0].weights.optimizerDeviceData
    assert program.compile()
    bound = [data(b) for b in buffers]
    assert program.training.bindOptimizerData(bound, deviceData=there, with_=weights)
    error = predictions(program) - program.given["t"]
    gradient = 2 / error.size * error.T @ program.given["x"]
    assert program.execute()
    assert (buffers[0] == 7).all()
    del program, elsewhere, there
    gc.collect()
    assert weights.synchronizeOptimizerData()
    np.testing.assert_allclose(buffers[0], 0.1 * gradient, rtol=1e-4, atol=1e-7)
