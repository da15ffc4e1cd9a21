"""``TorchLayer``: torch modules trained inside ML Compute graphs, held to plain PyTorch loops."""

from __future__ import annotations

import copy
from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch import nn

import mlc_torch as mlc
from mlc_torch.interop import TorchLayer, TorchOptimizer
from tests.interop.programs import DEVICES, data, device, empty, numbers, settings, squared_error
from tests.interop.trained import PLAIN, RATE, Trained, made, perceptron, plain_loop


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
    "perceptron": (perceptron, (4, 3), (4, 2)),
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
