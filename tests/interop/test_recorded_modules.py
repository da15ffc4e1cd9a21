"""``TorchLayer``: what a recording of a module must not hold fast, and what it would not see."""

from __future__ import annotations

import random
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import torch
from torch import nn

import mlc_torch as mlc
from mlc_torch.engine.recorder import Recorder
from mlc_torch.interop import TorchLayer
from tests.interop.programs import DEVICES, data, device, empty, numbers
from tests.interop.trained import PLAIN, Trained, made, plain_loop


class CallsCompiled(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(3, 2)
        self.bent = torch.compile(torch.tanh, backend="eager")

    def forward(self, x):
        return self.bent(self.linear(x))


COMPILED = {
    "a module": lambda: torch.compile(nn.Linear(3, 2), backend="eager"),
    "a submodule": lambda: nn.Sequential(torch.compile(nn.Linear(3, 5), backend="eager"), nn.Tanh(), nn.Linear(5, 2)),
    "a function": CallsCompiled,
}


@pytest.mark.parametrize("options", [(), (PLAIN,)], ids=["fast", "plain"])
@pytest.mark.parametrize("name", COMPILED)
@pytest.mark.filterwarnings("ignore:The .grad attribute")  # torch.compile looks at it, of what is no leaf
def test_what_torch_compiled_trains_too(name, options):
    ours, theirs = made(COMPILED[name]), made(COMPILED[name])
    program = Trained(ours, (4, 3), (4, 2), "cpu", options)
    np.testing.assert_allclose(program.train(4), plain_loop(theirs, (4, 3), (4, 2), 4), rtol=1e-4)
    for mine, other in zip(ours.parameters(), theirs.parameters(), strict=True):
        torch.testing.assert_close(mine, other, rtol=1e-4, atol=1e-5)


def test_the_program_s_own_compiling_goes_on_whoever_records():
    compiled: list[int] = []

    def backend(graph, inputs):
        compiled.append(len(inputs))
        return graph.forward

    def record(number):
        for _ in range(4):
            Trained(CallsCompiled(), (4, 3), (4, 2))

    with Recorder():  # as another thread may look while this one records: the flag is the whole process's
        assert not torch.utils._python_dispatch._is_in_torch_dispatch_mode
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(record, range(4)))
    torch.compile(lambda x: x * 3, backend=backend)(torch.ones(2))
    assert compiled, "torch.compile compiles nothing any more"


class ByNumPy(torch.autograd.Function):
    """As in torch's tutorial on extensions by NumPy, but for its forward pass."""

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x.tanh()

    @staticmethod
    def backward(ctx, gradient):
        (x,) = ctx.saved_tensors
        return torch.from_numpy(gradient.numpy() * (1 - np.tanh(x.numpy()) ** 2))


class GradientByNumPy(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(3, 2)
        self.register_buffer("seen", torch.zeros(2))

    def forward(self, x):
        return ByNumPy.apply(self.linear(x))


class HookByNumbers(GradientByNumPy):
    def forward(self, x):
        y = self.linear(x)
        if y.requires_grad:
            y.register_hook(lambda g: torch.tensor((2 * np.array(g.tolist())).tolist()))
        return y


class OtherMemory(GradientByNumPy):
    """Gives its buffer other memory instead of other values."""

    def forward(self, x):
        y = self.linear(x)
        self.seen.data = 0.5 * self.seen + y.detach().mean(0)
        return y + self.seen


class SetMemory(GradientByNumPy):
    def forward(self, x):
        y = self.linear(x)
        with torch.no_grad():
            self.seen.set_(0.5 * self.seen + y.mean(0))
        return y + self.seen


@pytest.mark.parametrize("options", [(), (PLAIN,)], ids=["fast", "plain"])
@pytest.mark.parametrize("kind", [GradientByNumPy, HookByNumbers, OtherMemory, SetMemory])
def test_what_a_recording_would_not_see_runs_module_by_module(kind, options):
    ours, theirs = made(kind), made(kind)
    program = Trained(ours, (4, 3), (4, 2), "cpu", options)
    np.testing.assert_allclose(program.train(4), plain_loop(theirs, (4, 3), (4, 2), 4), rtol=1e-4)
    for key, value in theirs.state_dict().items():
        torch.testing.assert_close(ours.state_dict()[key], value, rtol=1e-4, atol=1e-5)
    assert program.gear() == "plain"
    assert program.training.summary().why.startswith("a module " if not options else "compiled with")


class LeftOutNowAndThen(nn.Module):
    """A layer that is skipped by chance, as in networks of stochastic depth."""

    def __init__(self, chance: Callable[[], float]) -> None:
        super().__init__()
        self.first, self.second, self.chance = nn.Linear(3, 2), nn.Linear(2, 2), chance

    def forward(self, x):
        y = self.first(x)
        return self.second(y) if self.chance() < 0.5 else y


@pytest.mark.parametrize("where", DEVICES)
@pytest.mark.parametrize(
    ("chance", "seed"), [(random.random, random.seed), (np.random.rand, np.random.seed)], ids=["Python", "NumPy"]
)
def test_what_a_module_asks_chance_for_is_asked_in_every_run(chance, seed, where):
    states = random.getstate(), np.random.get_state()  # noqa: NPY002 - the one that modules ask
    try:
        ours, theirs = (made(lambda: LeftOutNowAndThen(chance)) for _ in range(2))
        program = Trained(ours, (4, 3), (4, 2), where)
        seed(5)
        assert program.training.compile(
            options=[], device=device(where)
        )  # which draws nothing from the program's numbers
        got = program.train(8)
        seed(5)
        np.testing.assert_allclose(got, plain_loop(theirs, (4, 3), (4, 2), 8), rtol=1e-4)
        assert program.gear() == "plain"
    finally:
        random.setstate(states[0])
        np.random.set_state(states[1])  # noqa: NPY002


class Scaled(nn.Module):
    """Scales by a buffer of so many elements, and counts in another one how often."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.register_buffer("scale", torch.full((size,), 2.0))
        self.register_buffer("nothing", None)
        self.register_buffer("calls", torch.zeros((), dtype=torch.int64))

    def forward(self, x):
        self.calls += 1
        return x * self.scale


def _by_data(net):
    net.scale.data = torch.full_like(net.scale, 5.0)


REPLACING = {
    "attribute": lambda net: setattr(net, "scale", torch.full_like(net.scale, 5.0)),
    "equal, then written to": lambda net: (setattr(net, "scale", net.scale.clone()), net.scale.fill_(5.0)),
    "state": lambda net: net.load_state_dict(
        net.state_dict() | {"scale": torch.full_like(net.scale, 5.0)}, assign=True
    ),
    "data": _by_data,
    "in place": lambda net: net.scale.fill_(5.0),
}


@pytest.mark.parametrize("options", [(), (PLAIN,)], ids=["fast", "plain"])
@pytest.mark.parametrize("size", [1, 3])
@pytest.mark.parametrize("way", REPLACING)
def test_each_run_takes_buffers_as_they_are(way, size, options):
    net, graph, x = Scaled(size), mlc.MLCGraph(), empty(4, 3)
    y = graph.node(TorchLayer(net), source=x)
    inference = mlc.MLCInferenceGraph(graphObjects=[graph])
    assert inference.addInputs({"x": x}) and inference.compile(options=list(options), device=device())
    given = numbers(4, 3, seed=1)

    def run() -> np.ndarray:
        assert inference.execute(inputsData={"x": data(given)}, batchSize=4), mlc.last_refusal()
        return y.numpy().copy()

    for _ in range(3):
        np.testing.assert_allclose(run(), given * 2, rtol=1e-6)
    REPLACING[way](net)
    before = int(net.calls)
    for _ in range(3):
        np.testing.assert_allclose(run(), given * 5, rtol=1e-6)
    assert int(net.calls) == before + 3
    net.scale.fill_(7.0)
    np.testing.assert_allclose(run(), given * 7, rtol=1e-6)


class Choosing(nn.Module):
    """Takes columns by a list that is the program's to change, not by what its data say."""

    def __init__(self) -> None:
        super().__init__()
        self.columns = [0, 1]

    def forward(self, x):
        return 2 * x[:, self.columns]


def test_a_list_of_indices_counts_in_each_run():
    net, graph, x = Choosing(), mlc.MLCGraph(), empty(4, 3)
    y = graph.node(TorchLayer(net), source=x)
    inference = mlc.MLCInferenceGraph(graphObjects=[graph])
    assert inference.addInputs({"x": x}) and inference.compile(options=[], device=device())
    given = numbers(4, 3, seed=1)
    for columns in ([0, 1], [2, 0], [2, 2]):
        net.columns[:] = columns
        assert inference.execute(inputsData={"x": data(given)}, batchSize=4), mlc.last_refusal()
        np.testing.assert_array_equal(y.numpy(), 2 * given[:, columns])
