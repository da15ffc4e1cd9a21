"""``TorchLayer``: torch modules trained inside ML Compute graphs, held to plain PyTorch loops."""

from __future__ import annotations

import copy
import random
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import torch
from torch import nn

import mlc_torch as mlc
from mlc_torch.engine.recorder import Recorder
from mlc_torch.interop import TorchLayer, TorchOptimizer
from mlc_torch.running.state import Variant
from tests.interop.programs import DEVICES, data, device, empty, numbers, settings, squared_error

RATE = 0.1
PLAIN = mlc.MLCGraphCompilationOptions.disableLayerFusion


class TwoInTwoOut(nn.Module):
    """(a, b) to (W·a + b, a·b)."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(3, 3)

    def forward(self, a, b):
        return self.linear(a) + b, a * b


class Named(nn.Module):
    """Gives a dictionary with something in it that is no tensor."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(3, 2)

    def forward(self, x):
        return {"result": self.linear(x), "nested": [(x.sum(1),)], "note": "none"}


class Rebinding(nn.Module):
    """Replaces its buffer in every training pass instead of writing into it."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(3, 2)
        self.register_buffer("seen", torch.zeros(2))

    def forward(self, x):
        y = self.linear(x)
        if self.training:
            self.seen = 0.5 * self.seen + y.detach().mean(0)
        return y


class Odd(nn.Module):
    """A constant that is no buffer, buffers that are empty or of a type that ML Compute lacks, odd parameters."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.tensor(2.0))
        self.frozen = nn.Parameter(torch.ones(2, 3), requires_grad=False)
        self.weight = nn.Parameter(torch.rand(3, 2).t())  # not contiguous
        self.register_buffer("factor", torch.tensor([1.5, 2.5], dtype=torch.float64))
        self.register_buffer("empty", torch.zeros(0))
        self.shift = torch.tensor(0.5)
        self.calls = []

    def forward(self, x):
        self.calls.append(tuple(x.shape))
        return self.scale * (x @ (self.weight + self.frozen).t()) * self.factor.float() + self.shift


class Shifted(Odd):
    """Its constant lies on the CPU, where no copy without memory can meet it."""

    def __init__(self) -> None:
        super().__init__()
        self.shift = torch.tensor([0.5, -0.5])


class WithLoss(nn.Module):
    """Weighs its result by a loss of torch's, a mean unless one asks for something else."""

    def __init__(self) -> None:
        super().__init__()
        self.linear, self.loss = nn.Linear(3, 2), nn.MSELoss()

    def forward(self, x):
        y = self.linear(x)
        return y * self.loss(y, torch.ones_like(y))


class Indexed(nn.Module):
    """Writes into columns behind what stays as it is, for which torch has no index, and reads where its data say."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(3, 4)

    def forward(self, x):
        y = self.linear(x) * 2
        y[..., torch.tensor([1, 3])] = x[:, :2].tanh()
        return y + y[torch.arange(len(y), device=y.device), x.argmax(1)].unsqueeze(1)


class Complex(nn.Module):
    """Of conjugates torch computes nothing until it must: they lie where the numbers themselves lie, with a mark."""

    def __init__(self) -> None:
        super().__init__()
        self.real, self.imaginary = nn.Linear(3, 2), nn.Linear(3, 2)

    def forward(self, x):
        a, b = self.real(x), self.imaginary(x)
        z = torch.complex(a, b) * torch.complex(b, a.tanh()).conj()
        return z.real + 2 * z.conj().imag + (z.unsqueeze(1) @ z.unsqueeze(1).mH).real.flatten(1)


class Signed(nn.Module):
    """Autograd gives a sign's gradient zeros without memory; torch 2.13 and 2.6 die of a product of those that is watched."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(3, 2)

    def forward(self, x):
        y = self.linear(x)
        return y + (y.square() + 0.5).rsqrt().sgn()


NETWORKS: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...], tuple[int, ...]]] = {
    "perceptron": (lambda: nn.Sequential(nn.Linear(3, 8), nn.Tanh(), nn.Linear(8, 2)), (4, 3), (4, 2)),
    "batch norm": (lambda: nn.Sequential(nn.Linear(3, 8), nn.BatchNorm1d(8), nn.Linear(8, 2)), (4, 3), (4, 2)),
    "five dimensions": (
        lambda: nn.Sequential(nn.Unflatten(1, (1, 2, 2, 2)), nn.Conv3d(1, 2, 2), nn.Flatten()),
        (4, 8),
        (4, 2),
    ),
    "nested results": (lambda: nn.LSTM(3, 5, batch_first=True), (2, 4, 3), (2, 4, 5)),
    "dictionary": (Named, (4, 3), (4, 2)),
    "odd tensors": (Odd, (4, 3), (4, 2)),
    "a loss inside": (WithLoss, (4, 3), (4, 2)),
    "indices": (Indexed, (4, 3), (4, 4)),
    "complex numbers": (Complex, (4, 3), (4, 2)),
    "signs": (Signed, (4, 3), (4, 2)),
    "tied": (lambda: tied(), (4, 3), (4, 3)),
    "used twice": (lambda: used_twice(), (4, 3), (4, 3)),
    "convolutions": (
        lambda: nn.Sequential(nn.Conv2d(3, 4, 3, padding=1), nn.GELU("tanh"), nn.Conv2d(4, 2, 3)),
        (2, 3, 6, 5),
        (2, 2, 4, 3),
    ),
    "channels last": (
        lambda: nn.Conv2d(3, 2, 3, padding=1).to(memory_format=torch.channels_last),
        (2, 3, 4, 4),
        (2, 2, 4, 4),
    ),
    "parametrized": (
        lambda: nn.utils.parametrizations.weight_norm(nn.Linear(3, 2)),
        (4, 3),
        (4, 2),
    ),
}


def used_twice() -> nn.Module:
    one = nn.Linear(3, 3)
    return nn.Sequential(one, nn.Tanh(), one)


def tied() -> nn.Module:
    net = nn.Sequential(nn.Linear(3, 3), nn.Tanh(), nn.Linear(3, 3))
    net[2].weight = net[0].weight
    return net


def made(build: Callable[[], nn.Module]) -> nn.Module:
    """A module with the same random weights every time, torch's generator left as it was."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(3)
        return build()


class Trained:
    """A graph of one TorchLayer, trained by MLC's gradient descent."""

    def __init__(self, module, inputs, labels, where="cpu", options=(), optimizer=None) -> None:
        self.inputs, self.labels = inputs, labels
        self.x, self.y = empty(*inputs), empty(*labels)
        self.graph, self.layer = mlc.MLCGraph(), TorchLayer(module, label="net")
        self.result = self.graph.node(self.layer, source=self.x)
        assert self.result is not None, mlc.last_refusal()
        optimizer = optimizer or mlc.MLCSGDOptimizer(descriptor=settings(RATE))
        self.training = mlc.MLCTrainingGraph(graphObjects=[self.graph], lossLayer=squared_error(), optimizer=optimizer)
        self.training.addInputs({"x": self.x}, lossLabels={"y": self.y})
        assert self.training.compile(options=list(options), device=device(where)), mlc.last_refusal()

    def batch(self, step: int) -> tuple[np.ndarray, np.ndarray]:
        return numbers(*self.inputs, seed=step), numbers(*self.labels, seed=50 + step)

    def train(self, steps: int) -> list[float]:
        losses: list[float] = []
        for step in range(steps):
            x, y = self.batch(step)
            assert self.training.execute(
                inputsData={"x": data(x)},
                lossLabelsData={"y": data(y)},
                lossLabelWeightsData=None,
                batchSize=self.inputs[0],
                options=[mlc.MLCExecutionOptions.synchronous],
                completionHandler=lambda result, error, seconds: losses.append(float(result.numpy()[0])),
            ), mlc.last_refusal()
        return losses

    def gear(self) -> str:
        return self.training._runs.sessions[Variant.whole].gear.name


def first(result):
    while not isinstance(result, torch.Tensor):
        result = next(iter(result.values())) if isinstance(result, dict) else result[0]
    return result


def plain_loop(net: nn.Module, inputs, labels, steps: int) -> list[float]:
    optimizer = torch.optim.SGD([p for p in net.parameters() if p.requires_grad], lr=RATE)
    losses = []
    for step in range(steps):
        x, y = torch.from_numpy(numbers(*inputs, seed=step)), torch.from_numpy(numbers(*labels, seed=50 + step))
        optimizer.zero_grad()
        loss = ((first(net(x)) - y) ** 2).mean()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


@pytest.mark.parametrize("where", DEVICES)
@pytest.mark.parametrize("options", [(), (PLAIN,)], ids=["fast", "plain"])
@pytest.mark.parametrize("name", NETWORKS)
def test_it_trains_as_in_torch(name, options, where):
    build, inputs, labels = NETWORKS[name]
    ours, theirs = made(build), made(build)
    program = Trained(ours, inputs, labels, where, options)
    got, want = program.train(4), plain_loop(theirs, inputs, labels, 4)
    np.testing.assert_allclose(got, want, rtol=1e-4)
    for key, value in theirs.state_dict().items():
        torch.testing.assert_close(ours.state_dict()[key].cpu(), value, rtol=1e-4, atol=1e-5)
    if where == "cpu" and not options:
        assert program.gear() == "planned"


def test_rebound_buffers_are_written_back():
    ours, theirs = made(Rebinding), made(Rebinding)
    memory = ours.seen
    program = Trained(ours, (4, 3), (4, 2))
    np.testing.assert_allclose(program.train(3), plain_loop(theirs, (4, 3), (4, 2), 3), rtol=1e-5)
    assert ours.seen is memory
    torch.testing.assert_close(ours.seen, theirs.seen)
    (cell,) = program.layer._buffer_cells
    torch.testing.assert_close(cell.value, theirs.seen)


@pytest.mark.parametrize("options", [(), (PLAIN,)], ids=["fast", "plain"])
@pytest.mark.parametrize("phases", [False, True], ids=["one call", "phases"])
def test_sparse_gradients_train_as_dense_ones(phases, options):
    """A row that is read twice, rows that are not, and momentum, which moves those as well."""
    ours, theirs = made(lambda: nn.Embedding(6, 4, sparse=True)), made(lambda: nn.Embedding(6, 4))
    graph, x, y = mlc.MLCGraph(), empty(3, type=mlc.MLCDataType.int64), empty(3, 4)
    graph.node(TorchLayer(ours), source=x)
    rule = mlc.MLCSGDOptimizer(descriptor=settings(RATE), momentumScale=0.9, usesNesterovMomentum=False)
    training = mlc.MLCTrainingGraph(graphObjects=[graph], lossLayer=squared_error(), optimizer=rule)
    assert training.addInputs({"x": x}, lossLabels={"y": y}) and training.compile(
        options=list(options), device=device()
    )
    assert options or "sparse" in training.summary().why
    optimizer = torch.optim.SGD(theirs.parameters(), lr=RATE, momentum=0.9)
    for step, indices in enumerate(([1, 1, 3], [0, 3, 3], [5, 1, 0])):
        given, labels = np.array(indices), numbers(3, 4, seed=step)
        bound = {"x": data(given), "y": data(labels)}
        if phases:
            assert training.bindAndWriteData(bound, forInputs={"x": x, "y": y}, to=device(), synchronous=True)
            assert training.executeForward(batchSize=3) and training.executeGradient(batchSize=3)
            assert training.executeOptimizerUpdate()
        else:
            assert training.execute(
                inputsData={"x": bound["x"]}, lossLabelsData={"y": bound["y"]}, lossLabelWeightsData=None, batchSize=3
            ), mlc.last_refusal()
        optimizer.zero_grad()
        ((theirs(torch.from_numpy(given)) - torch.from_numpy(labels)) ** 2).mean().backward()
        optimizer.step()
        torch.testing.assert_close(ours.weight, theirs.weight, rtol=1e-5, atol=1e-6)


class UsedAndReplaced(nn.Module):
    """Computes with a buffer, of which autograd keeps the value, and then puts another into its place; it has two names."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(3, 2)
        self.register_buffer("scale", torch.ones(2))
        self.register_buffer("first", self.scale)
        self.register_buffer("runs", torch.zeros(1))
        self.register_buffer("cache", None)

    def forward(self, x):
        y = self.linear(x) * self.scale
        self.scale = self.scale + 0.5 * y.detach().mean(0)
        self.runs += 1
        return y


def in_phases(program, step):
    x, y = program.batch(step)
    bound, tensors = {"x": data(x), "y": data(y)}, {"x": program.x, "y": program.y}
    assert program.training.bindAndWriteData(bound, forInputs=tensors, to=device(), synchronous=True)
    assert program.training.executeForward(batchSize=4)
    assert program.training.executeGradient(batchSize=4), mlc.last_refusal()
    assert program.training.executeOptimizerUpdate()


@pytest.mark.parametrize("phases", [False, True], ids=["one call", "phases"])
@pytest.mark.parametrize("options", [(), (PLAIN,)], ids=["fast", "plain"])
def test_a_buffer_is_replaced_after_it_was_used(options, phases):
    ours, theirs = made(UsedAndReplaced), made(UsedAndReplaced)
    memory = ours.scale
    program = Trained(ours, (4, 3), (4, 2), options=options)
    want = plain_loop(theirs, (4, 3), (4, 2), 4)
    if phases:
        for step in range(4):
            in_phases(program, step)
    else:
        np.testing.assert_allclose(program.train(4), want, rtol=1e-5)
    assert ours.scale is memory
    for name in ("linear.weight", "linear.bias", "scale", "runs"):
        torch.testing.assert_close(ours.state_dict()[name], theirs.state_dict()[name], rtol=1e-5, atol=1e-6)


class StopsBehind(UsedAndReplaced):
    stops = False

    def forward(self, x):
        y = super().forward(x)
        if self.stops:
            raise RuntimeError("no more")
        return y


class StopsInStep(torch.optim.SGD):
    stops = False

    def step(self, closure=None):
        if self.stops:
            raise RuntimeError("no more")
        return super().step(closure)


@pytest.mark.parametrize("where", ["forward", "update"])
def test_a_step_that_fails_leaves_a_replaced_buffer(where):
    ours, theirs = made(StopsBehind), made(StopsBehind)
    memory, rule = ours.scale, StopsInStep(ours.parameters(), lr=RATE)
    program = Trained(ours, (4, 3), (4, 2), options=(PLAIN,), optimizer=TorchOptimizer(rule))
    program.train(2)
    plain_loop(theirs, (4, 3), (4, 2), 2)
    stopping = {"forward": ours, "update": rule}[where]
    stopping.stops = True
    x, y = program.batch(2)
    step = {"inputsData": {"x": data(x)}, "lossLabelsData": {"y": data(y)}, "lossLabelWeightsData": None}
    with pytest.raises(RuntimeError, match="no more"):
        program.training.execute(**step, batchSize=4)
    assert ours.scale is memory and ours.runs.item() == 2
    torch.testing.assert_close(ours.scale, theirs.scale)
    stopping.stops = False
    assert program.training.execute(**step, batchSize=4)
    theirs(torch.from_numpy(x))
    torch.testing.assert_close(ours.scale, theirs.scale)


def test_making_the_node_runs_nothing():
    """Shapes come from a copy without memory: no random numbers, no statistics, no calls."""
    net = nn.Sequential(nn.Linear(3, 4), nn.Dropout(0.5), nn.BatchNorm1d(4))
    odd = made(Shifted)
    state, before = copy.deepcopy(net.state_dict()), torch.get_rng_state()
    graph = mlc.MLCGraph()
    for module in (net, odd):
        result = graph.node(TorchLayer(module), source=empty(4, 3))
        assert result.descriptor.shape == [4, 4 if module is net else 2]
    assert torch.equal(torch.get_rng_state(), before)
    assert all(torch.equal(v, state[n]) for n, v in net.state_dict().items())
    assert odd.calls == [] and net.training


def test_several_inputs_and_outputs():
    net = made(TwoInTwoOut)
    a, b = empty(2, 3), empty(2, 3)
    graph = mlc.MLCGraph()
    layer = TorchLayer(net)
    graph.node(layer, sources=[a, b])
    summed, product = graph.resultTensors(for_=layer)
    assert (summed.descriptor.shape, product.descriptor.shape) == ([2, 3], [2, 3])
    graph.node(mlc.MLCArithmeticLayer(operation=mlc.MLCArithmeticOperation.subtract), sources=[summed, product])
    inference = mlc.MLCInferenceGraph(graphObjects=[graph])
    inference.addInputs({"a": a, "b": b})
    assert inference.compile(options=[], device=device())
    given, found = [numbers(2, 3, seed=n) for n in (1, 2)], []
    inference.execute(
        inputsData={"a": data(given[0]), "b": data(given[1])},
        batchSize=2,
        completionHandler=lambda result, error, seconds: found.append(result.numpy().copy()),
    )
    weight, bias = net.linear.weight.detach().numpy(), net.linear.bias.detach().numpy()
    want = given[0] @ weight.T + bias + given[1] - given[0] * given[1]
    np.testing.assert_allclose(found[0], want, rtol=1e-5, atol=1e-6)


def test_gradients_can_be_read():
    net = made(NETWORKS["five dimensions"][0])
    program = Trained(net, (4, 8), (4, 2))
    x, y = program.batch(0)
    assert program.training.bindAndWriteData(
        {"x": data(x), "y": data(y)}, forInputs={"x": program.x, "y": program.y}, to=device(), synchronous=True
    )
    assert program.training.executeForward(batchSize=4) and program.training.executeGradient(batchSize=4)
    ((net(torch.from_numpy(x)) - torch.from_numpy(y)) ** 2).mean().backward()
    for name, parameter in program.layer.parameters_by_name.items():
        got = program.training.gradientData(forParameter=parameter.tensor, layer=program.layer)
        want = net.get_parameter(name).grad.numpy()
        np.testing.assert_allclose(np.frombuffer(got, np.float32), want.ravel(), rtol=1e-4, atol=1e-6)
    assert program.layer.parameters_by_name["1.weight"].tensor.descriptor.shape == [2, 1, 2, 4]


def test_memory_is_shared():
    net = made(NETWORKS["perceptron"][0])
    address = net[0].weight.data_ptr()
    program = Trained(net, (4, 3), (4, 2))
    weight = program.layer.parameters_by_name["0.weight"]
    assert net[0].weight.data_ptr() == address == weight.tensor.torch.data_ptr()
    program.train(1)
    assert np.array_equal(weight.tensor.numpy(), net[0].weight.detach().numpy())
    with torch.no_grad():
        net[0].weight.fill_(0.25)
    assert (weight.tensor.numpy() == 0.25).all()
    assert program.training.to_module().net is net


def test_freezing():
    net = made(NETWORKS["perceptron"][0])
    net[0].bias.requires_grad_(False)
    program = Trained(net, (4, 3), (4, 2))
    program.layer.parameters_by_name["0.weight"].isUpdatable = False
    before = copy.deepcopy(net.state_dict())
    program.train(2)
    changed = {n for n, v in net.state_dict().items() if not torch.equal(v, before[n])}
    assert changed == {"2.weight", "2.bias"}


def test_two_layers_may_share_a_parameter():
    """Head and embedding, as language models tie them: one tensor, the gradients add."""
    first_layer, second = nn.Linear(3, 3, bias=False), nn.Linear(3, 3, bias=False)
    second.weight = first_layer.weight
    reference = copy.deepcopy(first_layer.weight.detach())
    x, y = empty(4, 3), empty(4, 3)
    graph = mlc.MLCGraph()
    layers = TorchLayer(first_layer), TorchLayer(second)
    graph.node(layers[1], source=graph.node(layers[0], source=x))
    training = mlc.MLCTrainingGraph(
        graphObjects=[graph], lossLayer=squared_error(), optimizer=mlc.MLCSGDOptimizer(descriptor=settings(RATE))
    )
    training.addInputs({"x": x}, lossLabels={"y": y})
    assert training.compile(options=[], device=device())
    given, wanted = numbers(4, 3, seed=1), numbers(4, 3, seed=2)
    training.execute(
        inputsData={"x": data(given)}, lossLabelsData={"y": data(wanted)}, lossLabelWeightsData=None, batchSize=4
    )
    free = reference.requires_grad_()
    ((torch.from_numpy(given) @ free.T @ free.T - torch.from_numpy(wanted)) ** 2).mean().backward()
    torch.testing.assert_close(first_layer.weight.detach(), (free - RATE * free.grad).detach())
    tensors = [layer.parameters_by_name["weight"].tensor for layer in layers]
    assert tensors[0] is tensors[1]


def test_dropout_of_torch_follows_torch():
    """It draws from torch's own generator, which makes the graph run module by module."""
    build = lambda: nn.Sequential(nn.Linear(3, 8), nn.Dropout(0.5), nn.Linear(8, 2))  # noqa: E731
    ours, theirs = made(build), made(build)
    program = Trained(ours, (4, 3), (4, 2))
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(11)
        got = program.train(3)
        torch.manual_seed(11)
        want = plain_loop(theirs, (4, 3), (4, 2), 3)
    np.testing.assert_allclose(got, want, rtol=1e-5)
    assert program.gear() == "plain"


def test_short_batches():
    net = made(NETWORKS["batch norm"][0])
    program = Trained(net, (4, 3), (4, 2))
    x, y = program.batch(0)
    losses = []
    assert program.training.execute(
        inputsData={"x": data(x[:3].copy())},
        lossLabelsData={"y": data(y[:3].copy())},
        lossLabelWeightsData=None,
        batchSize=3,
        completionHandler=lambda result, error, seconds: losses.append(float(result.numpy()[0])),
    )
    theirs = made(NETWORKS["batch norm"][0])
    want = ((theirs(torch.from_numpy(x[:3])) - torch.from_numpy(y[:3])) ** 2).mean().item()
    np.testing.assert_allclose(losses, [want], rtol=1e-5)


def test_copies():
    net = made(NETWORKS["perceptron"][0])
    layer = TorchLayer(net, label="net")
    same, own = copy.copy(layer), copy.deepcopy(layer)
    assert same.module is net and own.module is not net
    with torch.no_grad():
        own.module[0].weight.zero_()
    assert (own.parameters_by_name["0.weight"].tensor.numpy() == 0).all()
    assert net[0].weight.abs().min() > 0
    assert repr(layer) == "TorchLayer('net', Sequential, 50 parameters)"


# Refusals


def refused(module, *sources) -> str:
    graph = mlc.MLCGraph()
    layer = TorchLayer(module)
    if layer is not None:
        assert graph.node(layer, sources=[empty(*s) for s in sources]) is None
    return str(mlc.last_refusal())


def returns(make: Callable[[torch.Tensor], object]) -> nn.Module:
    class Returning(nn.Module):
        def forward(self, x):
            return make(x)

    return Returning()


def with_buffer(buffer: torch.Tensor) -> nn.Module:
    made = nn.Linear(3, 2)
    made.register_buffer("kept", buffer)
    return made


def with_parameter(value: torch.Tensor) -> nn.Module:
    made = nn.Linear(3, 2)
    made.kept = nn.Parameter(value)
    return made


class Moody(nn.Module):
    def forward(self, x):
        return (x, x.sum(1)) if self.training else x


@pytest.mark.parametrize(
    ("make", "sources", "says"),
    [
        (lambda: nn.Linear(3, 2), [(4, 5)], "a and b must have same reduction dim, but got [4, 5] X [3, 2]"),
        (lambda: nn.Linear(3, 2), [(4, 3), (4, 3)], "takes 2 positional arguments but 3 were given"),
        (lambda: nn.Bilinear(3, 3, 2), [(4, 3)], "missing 1 required positional argument"),
        (lambda: nn.Linear(3, 2).double(), [(4, 3)], "float64, which ML Compute does not have"),
        (lambda: nn.Linear(3, 2, device="meta"), [(4, 3)], "no memory: it is on the meta device"),
        (lambda: nn.LazyLinear(2), [(4, 3)], "no shape yet"),
        (
            lambda: with_buffer(torch.eye(2).to_sparse()),
            [(4, 3)],
            "buffer 'kept' is torch.sparse_coo, a layer's tensors",
        ),
        (
            lambda: with_buffer(torch.ones(2, device="meta")),
            [(4, 3)],
            "TorchLayer(_:label:): buffer 'kept' has no memory",
        ),
        (lambda: nn.LazyBatchNorm1d(affine=False), [(4, 3)], "buffer 'running_mean' has no shape yet"),
        (lambda: with_parameter(torch.eye(2).to_sparse()), [(4, 3)], "parameter 'kept' is torch.sparse_coo"),
        (lambda: returns(lambda x: "text"), [(4, 3)], "returns str, and no tensor in it"),
        (lambda: returns(lambda x: x.double()), [(4, 3)], "gives torch.float64; ML Compute has float32"),
        (lambda: returns(lambda x: x[..., None, None, None]), [(4, 3)], "5 dimensions"),
        (lambda: returns(lambda x: x if x.sum().item() > 0 else -x), [(4, 3)], "decides by the values it sees"),
        (Moody, [(4, 3)], "[4, 3] float32 in inference and [4, 3] float32, [4] float32 in training"),
    ],
)
def test_refusals_repeat_torchs_words(make, sources, says, capfd):
    assert says in refused(make(), *sources)
    assert capfd.readouterr().err == ""


def test_what_torch_checks_with_values_only_is_refused_when_the_graph_runs():
    """docs/pytorch.md; without values torch multiplies float32 by float16."""
    graph, x = mlc.MLCGraph(), mlc.MLCTensor(shape=[4, 3])
    assert graph.node(TorchLayer(nn.Linear(3, 2).half()), source=x) is not None
    inference = mlc.MLCInferenceGraph(graphObjects=[graph])
    assert inference.addInputs({"x": x}) and inference.compile(options=[], device=mlc.MLCDevice.cpu())
    assert not inference.execute(inputsData={"x": np.ones((4, 3), np.float32)}, batchSize=4)
    assert "torch cannot compute this, in layer 'Linear'" in str(mlc.last_refusal())


def test_a_module_that_was_moved_is_refused_at_compile():
    net = made(NETWORKS["perceptron"][0])
    program = Trained(net, (4, 3), (4, 2))
    net.half()
    assert not program.training.compile(options=[], device=device())
    assert "no longer lies in the layer's memory" in str(mlc.last_refusal())


def replace_weight(net):
    net[0].weight = nn.Parameter(torch.zeros_like(net[0].weight))


def replace_layer(net):
    net[0] = nn.Linear(net[0].in_features, net[0].out_features)


def assign(net):
    net.load_state_dict({n: t.clone() for n, t in net.state_dict().items()}, assign=True)


@pytest.mark.parametrize("change", [replace_weight, replace_layer, assign, lambda net: net.append(nn.Linear(2, 2))])
def test_a_module_with_other_parameters_is_refused_at_compile(change):
    net = made(NETWORKS["perceptron"][0])
    program = Trained(net, (4, 3), (4, 2))
    change(net)
    assert not program.training.compile(options=[], device=device())
    assert "was replaced, added or removed" in str(mlc.last_refusal())


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


@pytest.mark.parametrize("wrong", [3, None, "net", nn.Linear, torch.ones(2)])
def test_what_is_no_module_is_a_type_error(wrong):
    with pytest.raises(TypeError, match=r"torch\.nn\.Module"):
        TorchLayer(wrong)


@pytest.mark.parametrize("kind", [nn.LSTM, nn.GRU, nn.RNN])
def test_a_recurrent_module_has_its_own_weights_behind_a_recording(kind):
    """Where it finds others in its next pass, it moves them on CUDA."""
    module = made(lambda: nn.Sequential(kind(3, 5, num_layers=2, batch_first=True)))
    laid_out = []
    module[0].flatten_parameters = lambda: laid_out.append(True)
    trained = Trained(module, (2, 4, 3), (2, 4, 5))
    trained.train(2)
    assert trained.gear() == "planned" and laid_out, "the recording's own were laid out"
    laid_out.clear()
    module(torch.zeros(2, 4, 3))
    assert not laid_out
    assert all(a is b for a, b in zip(module[0]._flat_weights, module[0].parameters(), strict=True))


class Flattening(nn.Module):
    """Lays the weights of its LSTM side by side in each pass, as torch's documentation advises."""

    def __init__(self, kind: type[nn.LSTM]) -> None:
        super().__init__()
        self.lstm = kind(3, 5, num_layers=2, batch_first=True)

    def forward(self, x):
        self.lstm.flatten_parameters()
        return self.lstm(x)[0]


class MovesAlways(nn.LSTM):
    """As CUDA's does, on the CPU too."""

    def flatten_parameters(self) -> None:
        for p in self.parameters():
            p.data = p.data.clone()


@pytest.mark.parametrize("options", [[], [PLAIN]], ids=["planned", "plain"])
def test_a_module_may_flatten_its_weights_in_each_pass(options, torch_device):
    flattened(nn.LSTM, torch_device.type, options)


@pytest.mark.parametrize("options", [[], [PLAIN]], ids=["planned", "plain"])
def test_weights_that_flattening_has_moved_are_put_back(options):
    flattened(MovesAlways, "cpu", options)


def flattened(kind: type[nn.LSTM], where: str, options: list[mlc.MLCGraphCompilationOptions]) -> None:
    """Train such a module by the graph and by torch; both come to the same."""
    module = made(lambda: Flattening(kind))
    twin = copy.deepcopy(module)
    trained = Trained(module, (2, 4, 3), (2, 4, 5), where, options)
    optimizer = torch.optim.SGD(twin.parameters(), lr=RATE)
    expected = []
    for step in range(3):
        x, y = map(torch.from_numpy, trained.batch(step))
        optimizer.zero_grad()
        loss = nn.functional.mse_loss(twin(x), y)
        loss.backward()
        optimizer.step()
        expected.append(loss.item())
    assert trained.train(3) == pytest.approx(expected, rel=1e-4)
    assert where != "cpu" or trained.gear() == ("plain" if options else "planned")
    for ours, theirs in zip(module.parameters(), twin.parameters(), strict=True):
        torch.testing.assert_close(ours.detach().cpu(), theirs.detach(), rtol=1e-4, atol=1e-5)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs CUDA")
def test_a_recurrent_module_keeps_its_weights_in_one_block_on_cuda():
    """Otherwise cuDNN warns, which is an error here, and joins them before each run."""
    module = made(lambda: nn.LSTM(3, 5, num_layers=2, bidirectional=True, batch_first=True))
    trained = Trained(module, (2, 4, 3), (2, 4, 10), "cuda")
    own = {p.untyped_storage().data_ptr() for p in module.parameters()}
    assert len(own) == 1 and all(p.is_cuda for p in module.parameters())
    before = [p.detach().cpu().clone() for p in module.parameters()]
    trained.train(3)
    assert {p.untyped_storage().data_ptr() for p in module.parameters()} == own
    assert not any(torch.equal(p.detach().cpu(), old) for p, old in zip(module.parameters(), before, strict=True))
    for where in ("cpu", "cuda"):
        assert trained.training.compile(options=[], device=device(where))
        trained.train(1)
    assert len({p.untyped_storage().data_ptr() for p in module.parameters()}) == 1


@pytest.mark.parametrize("width", [6, 6000], ids=["little", "much"])
@pytest.mark.parametrize("behind", ["the input", "another way to look at it"])
@pytest.mark.parametrize("batch", [4, 3])
def test_a_module_that_works_in_place_leaves_the_caller_s_data_alone(width, behind, batch):
    """Bytes cannot be written at all; the result is of what was given, in every call."""
    graph, x = mlc.MLCGraph(), mlc.MLCTensor(shape=[4, width])
    source = graph.reshape(shape=[4, 2, width // 2], source=x) if behind != "the input" else x
    result = graph.node(TorchLayer(nn.ReLU(inplace=True)), source=source)
    inference = mlc.MLCInferenceGraph(graphObjects=[graph])
    assert (
        inference.addInputs({"x": x})
        and inference.addOutputs({"y": result})
        and inference.compile(device=mlc.MLCDevice.cpu())
    )
    given = np.random.default_rng(1).standard_normal((4, width), np.float32)
    raw = given.tobytes()
    fed = {"x": mlc.MLCTensorData(immutableBytesNoCopy=raw, length=len(raw))}
    for _ in range(4):
        assert inference.execute(inputsData=fed, batchSize=batch)
        np.testing.assert_array_equal(result.numpy().reshape(4, width)[:batch], np.maximum(given, 0)[:batch])
        assert raw == given.tobytes()


@pytest.mark.parametrize("where", DEVICES)
@pytest.mark.parametrize("options", [[], [PLAIN]], ids=["fast", "plain"])
@pytest.mark.parametrize("width", [6, 6000], ids=["little", "much"])
def test_a_module_that_works_in_place_leaves_what_is_bound_alone(where, options, width):
    """Also where somebody has looked at it, which brings it to a GPU."""
    graph, x = mlc.MLCGraph(), mlc.MLCTensor(shape=[4, width])
    result = graph.node(TorchLayer(nn.ReLU(inplace=True)), source=x)
    inference = mlc.MLCInferenceGraph(graphObjects=[graph])
    assert inference.addInputs({"x": x}) and inference.addOutputs({"y": result})
    assert inference.compile(options=options, device=device(where))
    given = np.random.default_rng(3).standard_normal((4, width), np.float32)
    bound = {"x": mlc.MLCTensorData(bytesNoCopy=given, length=given.nbytes)}
    assert inference.bindAndWriteData(bound, forInputs={"x": x}, to=device(where), synchronous=True)
    for _ in range(4):
        np.testing.assert_array_equal(x.torch.cpu().numpy(), given)
        skips = mlc.MLCExecutionOptions.skipWritingInputDataToDevice
        assert inference.execute(inputsData={}, batchSize=4, options=[skips, mlc.MLCExecutionOptions.synchronous])
        np.testing.assert_array_equal(result.numpy(), np.maximum(given, 0))


def test_a_module_that_works_in_place_leaves_a_constant_alone():
    """Module by module, in the first call of a batch size, and as planned."""
    held = np.random.default_rng(2).standard_normal((4, 6)).astype(np.float32)
    graph, x = mlc.MLCGraph(), mlc.MLCTensor(shape=[4, 6])
    constant = mlc.MLCTensor.from_numpy(held.copy())
    active = graph.node(TorchLayer(nn.ReLU(inplace=True)), source=constant)
    add = mlc.MLCArithmeticLayer(operation=mlc.MLCArithmeticOperation.add)
    result = graph.node(add, sources=[x, active])
    inference = mlc.MLCInferenceGraph(graphObjects=[graph])
    assert inference.addInputs({"x": x}) and inference.compile(device=mlc.MLCDevice.cpu())
    for profiling in (mlc.MLCExecutionOptions.perLayerProfiling, mlc.MLCExecutionOptions.synchronous):
        zeros = mlc.MLCTensorData(bytesNoCopy=np.zeros((4, 6), np.float32), length=96)
        assert inference.execute(inputsData={"x": zeros}, batchSize=4, options=[profiling])
        np.testing.assert_array_equal(result.numpy(), np.maximum(held, 0))
        np.testing.assert_array_equal(constant.numpy(), held)


class ThroughData(nn.Module):
    """Writes into what it is given past torch's count of writes."""

    def forward(self, x):
        x.data.clamp_(min=0)
        return x * 1


@pytest.mark.parametrize("rows", [2, 64], ids=["little", "much"])
@pytest.mark.parametrize("options", [[], [PLAIN]], ids=["fast", "plain"])
@pytest.mark.parametrize("is_constant", [False, True])
def test_a_module_that_writes_through_data_leaves_the_caller_s_alone(rows, options, is_constant):
    held = np.random.default_rng(2).standard_normal((rows, 600)).astype(np.float32)
    given = held.copy()
    graph, x = mlc.MLCGraph(), mlc.MLCTensor(shape=[rows, 600])
    source = mlc.MLCTensor.from_torch(torch.from_numpy(given)) if is_constant else x
    result = graph.node(TorchLayer(ThroughData()), source=source)
    if is_constant:
        result = graph.node(mlc.MLCArithmeticLayer(operation=mlc.MLCArithmeticOperation.add), sources=[result, x])
    inference = mlc.MLCInferenceGraph(graphObjects=[graph])
    assert inference.addInputs({"x": x}) and inference.compile(options=options, device=device())
    fed = np.zeros_like(held) if is_constant else given
    for _ in range(4):
        assert inference.execute(inputsData={"x": data(fed)}, batchSize=rows)
        np.testing.assert_array_equal(given, held)
        np.testing.assert_array_equal(result.numpy(), np.maximum(held, 0))


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
