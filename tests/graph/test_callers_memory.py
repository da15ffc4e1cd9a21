"""A program keeps what it was given, writes into memory of its own, sends it away: no number changes that should not."""

from __future__ import annotations

import gc

import numpy as np
import pytest
import torch
from torch import nn

from mlc_torch import (
    MLCArithmeticLayer,
    MLCArithmeticOperation,
    MLCBatchNormalizationLayer,
    MLCDataType,
    MLCGraph,
    MLCGraphCompilationOptions,
    MLCTensor,
    MLCTensorData,
    MLCTensorParameter,
    MLCTrainingGraph,
)
from mlc_torch.interop import TorchLayer
from mlc_torch.tensor import TensorState
from tests.graph.programs import (
    Program,
    array,
    close,
    compiled,
    cpu,
    data,
    dense,
    inferring,
    loss,
    placeholder,
    regression,
    sgd,
    slopes,
    values,
)
from tests.layers.records import tensor

WIDTHS = (6, 5, 3)
GEARS = pytest.mark.parametrize(
    "options", [[], [MLCGraphCompilationOptions.disableLayerFusion]], ids=["planned", "plain"]
)


def overwrite(count: int) -> list[bytes]:
    """Memory that was let go is likely to be this afterwards."""
    gc.collect()
    return [b"\xff" * count for _ in range(200)]


# Memory that moves, and memory that must not be written


def test_a_bound_tensor_that_processes_share_takes_new_data():
    program = compiled()
    assert program.bind()
    x = program.inputs["x"]
    x.torch.share_memory_()  # what torch does with a tensor that is sent to another process; where it was is free again
    for seed in (50, 60, 70):
        program.given["x"] = values(4, 6, seed=seed)
        want = slopes(program)["w1"]
        assert program.phases()
        np.testing.assert_array_equal(x.numpy(), program.given["x"])
        close(program.gradient_of(program.layers[0].weights, program.layers[0]).reshape(5, 6), want)


def test_weights_that_processes_share_are_still_the_caller_s():
    program = compiled()
    weights = program.layers[0].weights
    owner = weights._cell.host._owner
    weights.torch.share_memory_()
    want = array(weights).reshape(5, 6) - 0.1 * slopes(program)["w1"]
    assert program.execute()
    close(weights.numpy().reshape(5, 6), want)
    close(np.frombuffer(weights.data, np.float32).reshape(5, 6), want)
    program.training.synchronizeUpdates()
    close(np.asarray(owner).reshape(5, 6), want)


@pytest.mark.parametrize("kind", ["bytes", "array"])
def test_what_is_kept_of_read_only_memory_lives_and_leaves_it_alone(kind):
    numbers = values(3000, 6, seed=1)
    memory = numbers.tobytes() if kind == "bytes" else numbers.copy()
    if kind == "array":
        memory.flags.writeable = False
    x = placeholder(3000, 6)
    assert x.bindAndWriteData(MLCTensorData(immutableBytesNoCopy=memory, length=numbers.nbytes), to=cpu())
    kept = x.torch
    x.numpy()[0, 0] = 123
    assert np.frombuffer(memory, np.float32)[0] == numbers[0, 0] and kept[0, 0] == 123
    del memory
    assert x.bindAndWriteData(data(np.zeros((3000, 6), np.float32)), to=cpu())
    taken = overwrite(numbers.nbytes)
    np.testing.assert_array_equal(kept.numpy().ravel()[1:], numbers.ravel()[1:])
    assert taken


def test_a_hook_may_keep_what_came_from_bytes():
    graph, x, layer = MLCGraph(), placeholder(3000, 6), dense(6, 3)
    graph.node(layer, source=x)
    numbers, seen = values(3000, 6, seed=1), []
    layer.module.register_forward_hook(lambda module, given, result: seen.append(given[0]))
    inference = inferring(graph, x)
    memory = numbers.tobytes()
    fed = {"x": MLCTensorData(immutableBytesNoCopy=memory, length=len(memory))}
    assert inference.execute(inputsData=fed, batchSize=3000)
    del memory, fed
    taken = overwrite(numbers.nbytes)
    np.testing.assert_array_equal(seen[0].numpy(), numbers)
    assert taken


# While another thread binds


def test_a_look_in_the_middle_of_a_bind_is_seen(monkeypatch):
    """Another thread may look as soon as there is something to see."""
    publish, looked = TensorState.publish, []

    def looking(cell, value, device):
        publish(cell, value, device)
        looked.append(value.detach())

    program = compiled()
    monkeypatch.setattr(TensorState, "publish", looking)
    assert program.bind()
    monkeypatch.undo()
    before = [view.clone() for view in looked]
    assert len(before) == 2
    for seed in (50, 60):
        program.given = {"x": values(4, 6, seed=seed), "t": values(4, 3, seed=seed)}
        assert program.bind()
    for view, was in zip(looked, before, strict=True):
        np.testing.assert_array_equal(view, was)


# Bound through a graph


@pytest.mark.parametrize("through", ["training", "graph", "inference"])
def test_a_trained_tensor_is_trained_whoever_binds_it(through):
    graph, x, t = MLCGraph(), placeholder(4, 3), placeholder(4, 3)
    p = MLCTensor(shape=[4, 3], fillWithData=1.0, dataType=MLCDataType.float32)
    graph.node(MLCArithmeticLayer(operation=MLCArithmeticOperation.multiply), sources=[x, p])
    training = MLCTrainingGraph(graphObjects=[graph], lossLayer=loss(), optimizer=sgd(0.5))
    assert training.addInputs({"x": x}, lossLabels={"t": t})
    assert training.setTrainingTensorParameters([MLCTensorParameter(tensor=p)])
    assert training.compile(options=[], device=cpu())
    binds = {"training": training, "graph": graph, "inference": inferring(graph, x)}[through]
    start = np.full((4, 3), 2.0, np.float32)
    assert binds.bindAndWriteData({"p": data(start)}, forInputs={"p": p}, to=cpu(), synchronous=True)
    one, zero, want = np.ones((4, 3), np.float32), np.zeros((4, 3), np.float32), 2.0
    for _ in range(4):
        fed = {"inputsData": {"x": data(one)}, "lossLabelsData": {"t": data(zero)}, "lossLabelWeightsData": None}
        assert training.execute(**fed, batchSize=4)
        want -= 0.5 * 2 * want / 12
        close(p.numpy(), np.full((4, 3), want))
        close(start, np.full((4, 3), want))


@pytest.mark.parametrize("how", ["made with data", "filled", "bound by itself"])
def test_data_bound_through_a_graph_is_the_tensor_s(how):
    old, new, short = (values(4, 6, seed=seed) for seed in (1, 2, 3))
    was = old.copy()
    x = {
        "made with data": lambda: tensor(old, [4, 6]),
        "filled": lambda: MLCTensor(shape=[4, 6], fillWithData=0.25, dataType=MLCDataType.float32),
        "bound by itself": lambda: placeholder(4, 6),
    }[how]()
    graph = MLCGraph()
    graph.node(dense(6, 3), source=x)
    inference = inferring(graph, x)
    if how == "bound by itself":
        assert x.bindAndWriteData(data(old), to=cpu())
    assert inference.bindAndWriteData({"x": data(new)}, forInputs={"x": x}, to=cpu(), synchronous=True)
    assert x.synchronizeData()
    for seen in (array(x), x.numpy()):
        np.testing.assert_array_equal(seen, new)
    named = {"forInputs": {"x": x}, "to": cpu(), "synchronous": True}
    assert inference.bindAndWriteData({"x": data(short)}, batchSize=2, **named)
    for seen in (array(x), x.numpy()):
        np.testing.assert_array_equal(seen, np.vstack([short[:2], new[2:]]))
    np.testing.assert_array_equal(old, was)


def test_weights_bound_through_a_graph_before_compile_are_trained_in_that_memory():
    program = regression(widths=WIDTHS)
    weights, new = program.layers[0].weights, values(5, 6, seed=33)
    named = {"forInputs": {"w": weights}, "to": cpu(), "synchronous": True}
    assert program.training.bindAndWriteData({"w": data(new)}, **named)
    np.testing.assert_array_equal(array(weights).reshape(5, 6), new)
    assert program.compile()
    want = new - 0.1 * slopes(program)["w1"]
    assert program.execute()
    for seen in (array(weights).reshape(5, 6), weights.numpy().reshape(5, 6), new):
        close(seen, want)


# Between the phases


@pytest.mark.parametrize("how", ["its own bind", "the graph's bind"])
def test_a_user_gradient_is_read_by_the_gradient_phase(how):
    graph, x = MLCGraph(), placeholder(4, 3)
    p = MLCTensor(shape=[4, 3], fillWithData=1.0, dataType=MLCDataType.float32)
    y = graph.node(MLCArithmeticLayer(operation=MLCArithmeticOperation.add), sources=[x, p])
    training = MLCTrainingGraph(graphObjects=[graph], lossLayer=None, optimizer=sgd(0.1))
    assert training.addInputs({"x": x}, lossLabels=None)
    assert training.setTrainingTensorParameters([MLCTensorParameter(tensor=p)])
    user = training.allocateUserGradient(for_=y)
    assert training.compile(options=[], device=cpu())
    upstream, named = np.full((4, 3), 2.0, np.float32), {"to": cpu(), "synchronous": True}
    assert training.bindAndWriteData({"x": data(values(4, 3))}, forInputs={"x": x}, **named)
    if how == "its own bind":
        assert user.bindAndWriteData(data(upstream), to=cpu())
    else:
        assert training.bindAndWriteData({"u": data(upstream)}, forInputs={"u": user}, **named)
    assert training.executeForward(batchSize=4) and training.executeGradient(batchSize=4)
    found = training.gradientTensor(forInput=p)
    upstream[:] = 1000
    user.numpy()[:] = 1000
    late = training.resultGradientTensors(for_=graph.layers[0])[0]
    np.testing.assert_array_equal(found.numpy(), np.full((4, 3), 2.0))
    np.testing.assert_array_equal(late.numpy(), np.full((4, 3), 2.0))
    assert training.executeOptimizerUpdate()
    close(p.numpy(), np.full((4, 3), 0.8))


@GEARS
def test_constants_are_those_of_the_forward_pass(options):
    graph, x, t, layer = MLCGraph(), placeholder(4, 6), placeholder(4, 3), dense(6, 3, bias=False)
    factors = values(4, 3, seed=3)
    was, constant = factors.copy(), tensor(factors, [4, 3])
    y = graph.node(layer, source=x)
    graph.node(MLCArithmeticLayer(operation=MLCArithmeticOperation.multiply), sources=[y, constant])
    training = MLCTrainingGraph(graphObjects=[graph], lossLayer=loss(), optimizer=sgd())
    assert training.addInputs({"x": x}, lossLabels={"t": t})
    given = {"x": values(4, 6, seed=1), "t": values(4, 3, seed=2)}
    program = Program(training, graph, {"x": x}, {"t": t}, given, [layer])
    assert program.compile(options) and program.bind() and program.forward()
    constant.numpy()[:] = 0
    assert program.gradient()
    made = given["x"] @ layer.weights.numpy().reshape(3, 6).T
    want = (2 * (made * was - given["t"]) / 12 * was).T @ given["x"]
    close(program.gradient_of(layer.weights, layer).reshape(3, 6), want)


class Twice(nn.Module):
    """Two parameters with the same gradient, and one whose gradient is one number for all its elements."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b, self.c = (nn.Parameter(torch.zeros(4, 3)) for _ in range(3))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.a + self.b + self.c.sum()


@GEARS
def test_each_parameter_s_grad_has_memory_of_its_own(options):
    module, other, graph = Twice(), Twice(), MLCGraph()
    x, t = placeholder(4, 3), placeholder(4, 3)
    graph.node(TorchLayer(module), source=x)
    training = MLCTrainingGraph(graphObjects=[graph], lossLayer=loss(), optimizer=sgd(1.0))
    assert training.addInputs({"x": x}, lossLabels={"t": t})
    given = {"x": values(4, 3, seed=1), "t": values(4, 3, seed=2)}
    program = Program(training, graph, {"x": x}, {"t": t}, given)
    assert program.compile(options) and program.phases()
    nn.functional.mse_loss(other(torch.tensor(given["x"])), torch.tensor(given["t"])).backward()
    for each in (module, other):
        nn.utils.clip_grad_norm_(each.parameters(), 0.1, foreach=False)
    for mine, theirs in zip(module.parameters(), other.parameters(), strict=True):
        torch.testing.assert_close(mine.grad, theirs.grad)
    assert program.update()
    for mine, theirs in zip(module.parameters(), other.parameters(), strict=True):
        torch.testing.assert_close(mine.detach(), -theirs.grad)


def test_a_step_that_fails_leaves_statistics_that_were_bound_meanwhile():
    ones = {n: tensor(np.full(3, n == "gamma", np.float32), [1, 3, 1, 1]) for n in ("beta", "gamma")}
    mean, variance = tensor(np.zeros(3, np.float32), [1, 3, 1, 1]), tensor(np.ones(3, np.float32), [1, 3, 1, 1])
    layer = MLCBatchNormalizationLayer(
        featureChannelCount=3, mean=mean, variance=variance, **ones, varianceEpsilon=1e-5, momentum=0.9
    )
    graph, x, t = MLCGraph(), placeholder(4, 3, 5, 5), placeholder(4, 3, 5, 5)
    y = graph.node(layer, source=x)
    training = MLCTrainingGraph(graphObjects=[graph], lossLayer=loss(), optimizer=sgd())
    assert training.addInputs({"x": x}, lossLabels={"t": t}) and training.compile(options=[], device=cpu())

    def hook(gradient):
        raise KeyError("the program's")

    training.register_gradient_hook(y, hook)
    given = {"x": values(4, 3, 5, 5, seed=1), "t": values(4, 3, 5, 5, seed=2)}
    program = Program(training, graph, {"x": x}, {"t": t}, given)
    assert program.bind() and program.forward()
    assert not np.array_equal(array(variance).ravel(), np.ones(3))
    new = np.full(3, 42.0, np.float32)
    assert mean.bindAndWriteData(data(new), to=cpu())
    with pytest.raises(KeyError, match="the program's"):
        program.gradient()
    np.testing.assert_array_equal(new, np.full(3, 42.0))
    np.testing.assert_array_equal(array(variance).ravel(), np.ones(3))


# Results


@GEARS
@pytest.mark.parametrize("renewed", ["compile", "bind"])
def test_a_result_that_was_let_go_never_shows_an_older_run(options, renewed):
    graph, x, first, second = MLCGraph(), placeholder(4, 6), dense(6, 5), dense(5, 3, seed=4)
    h = graph.node(first, source=x)
    graph.node(second, source=h)
    inference = inferring(graph, x, options)
    old, new = values(4, 6, seed=1), values(4, 6, seed=2)
    assert inference.execute(inputsData={"x": data(old)}, batchSize=4) and h.data is not None
    del h
    gc.collect()
    if renewed == "compile":
        assert inference.compile(options=options, device=cpu())
    else:
        assert first.weights.bindAndWriteData(data(values(5, 6, seed=9)), to=cpu())
    assert inference.execute(inputsData={"x": data(new)}, batchSize=4)
    wanted = new @ first.weights.numpy().reshape(5, 6).T + first.biases.numpy().ravel()
    for asked in (graph, inference):
        close(asked.resultTensors(for_=first)[0].numpy(), wanted)


class Shows(nn.Module):
    """Gives what it has learned beside its result."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(3, 6))
        self.register_buffer("count", torch.zeros(2))

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        self.count.add_(1)
        return x @ self.weight.T, self.weight.T, self.count


@GEARS
def test_a_result_that_is_a_module_s_own_stays_as_it_was(options):
    module, graph, x, t = Shows(), MLCGraph(), placeholder(4, 6), placeholder(4, 3)
    layer = TorchLayer(module)
    y, *shown = graph.node(layer, source=x), *graph.resultTensors(for_=layer)[1:]
    graph.node(loss(), sources=[y], lossLabels=[t])
    training = MLCTrainingGraph(graphObjects=[graph], lossLayer=None, optimizer=sgd())
    assert training.addInputs({"x": x}, lossLabels={"t": t})
    given = {"x": values(4, 6, seed=1), "t": values(4, 3, seed=2)}
    program = Program(training, graph, {"x": x}, {"t": t}, given)
    assert program.compile(options) and program.execute()
    kept = [s.numpy() for s in shown]
    was = [k.copy() for k in kept]
    assert program.execute()
    for now, before in zip(kept, was, strict=True):
        np.testing.assert_array_equal(now, before)
    learned = module.weight.detach().clone()
    for s in shown:
        s.torch.fill_(9.0)
    torch.testing.assert_close(module.weight.detach(), learned)
    assert module.count.tolist() == [2.0, 2.0]
