"""Short batches of results whose samples do not lie along the first dimension: LSTMs that take time first, their states,
transposed results. Where another dimension is as long as the batch, cutting along the wrong one would go unnoticed."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from mlc_torch import (
    MLCActivationLayer,
    MLCArithmeticLayer,
    MLCArithmeticOperation,
    MLCGraph,
    MLCGraphCompilationOptions,
    MLCInferenceGraph,
    MLCLossDescriptor,
    MLCLossLayer,
    MLCLossType,
    MLCLSTMResultMode,
    MLCMatMulDescriptor,
    MLCMatMulLayer,
    MLCReductionLayer,
    MLCReductionType,
    MLCReshapeLayer,
    MLCSoftmaxLayer,
    MLCSoftmaxOperation,
    MLCTensor,
    MLCTrainingGraph,
    MLCTransposeLayer,
    last_refusal,
)
from mlc_torch.interop import TorchLayer
from tests.graph.programs import cpu, data, dense, loss, lstm, on, placeholder, values

SUM = MLCReductionType.sum
LINK = MLCGraphCompilationOptions.linkGraphs


def gradient(graph: MLCTrainingGraph, parameter: MLCTensor, layer) -> np.ndarray:
    held = graph.gradientData(forParameter=parameter, layer=layer)
    assert held is not None
    return np.frombuffer(held, np.float32)


@pytest.mark.parametrize("weighted", ["", "each element", "each step", "by the layer"])
@pytest.mark.parametrize(("time", "batch", "count"), [(3, 3, 2), (5, 3, 2), (3, 3, 1), (5, 3, 1)])
def test_labels_lie_where_the_predictions_do(time, batch, count, weighted):
    layer, reference = lstm(batch_first=False)
    graph, x, t = MLCGraph(), placeholder(time, batch, 2), placeholder(time, batch, 2)
    graph.node(layer, source=x)
    numbers, wanted = values(time, batch, 2, seed=1), values(time, batch, 2, seed=2)
    shape = (time, 1, 1) if weighted == "each step" else (time, batch, 2)
    weights = np.abs(values(*shape, seed=3)) if weighted else np.ones(shape, np.float32)
    named = {"t": placeholder(*shape)} if weighted.startswith("each") else None
    descriptor = MLCLossDescriptor(type=MLCLossType.meanSquaredError, reductionType=SUM)
    own = MLCTensor.from_numpy(weights) if weighted == "by the layer" else None
    cost = MLCLossLayer(descriptor=descriptor) if own is None else MLCLossLayer(descriptor=descriptor, weights=own)
    training = MLCTrainingGraph(graphObjects=[graph], lossLayer=cost, optimizer=None)
    assert training.addInputs({"x": x}, lossLabels={"t": t}, lossLabelWeights=named)
    assert training.compile(options=[], device=cpu())

    predicted = reference(torch.from_numpy(numbers[:, :count]))[0]
    want = (torch.from_numpy(weights[:, :count]) * (predicted - torch.from_numpy(wanted[:, :count])) ** 2).sum()
    (want_gradient,) = torch.autograd.grad(want, [reference.weight_ih_l0])

    given, losses = {"t": data(weights)} if named else None, []
    assert training.execute(
        inputsData={"x": data(numbers)},
        lossLabelsData={"t": data(wanted)},
        lossLabelWeightsData=given,
        batchSize=count,
        completionHandler=lambda result, error, seconds: losses.append(float(result)),
    ), last_refusal()
    bound = {"x": data(numbers), "t": data(wanted)} | ({"w": data(weights)} if named else {})
    tensors = {"x": x, "t": t} | ({"w": named["t"]} if named else {})
    assert training.bindAndWriteData(bound, forInputs=tensors, to=cpu(), batchSize=count, synchronous=True)
    assert training.executeForward(
        batchSize=count, completionHandler=lambda result, error, seconds: losses.append(float(result))
    )
    np.testing.assert_allclose(losses, [want.item()] * 2, rtol=1e-5)
    assert training.executeGradient(batchSize=count)
    first_gate = gradient(training, layer.inputWeights[0], layer).reshape(2, 2)
    np.testing.assert_allclose(first_gate, want_gradient[:2].numpy(), rtol=1e-4, atol=1e-6)


def test_a_loss_for_each_element_lies_where_the_predictions_do():
    layer, reference = lstm(batch_first=False)
    graph, x, t = MLCGraph(), placeholder(3, 3, 2), placeholder(3, 3, 2)
    graph.node(layer, source=x)
    cost = loss(reduction=MLCReductionType.none)
    training = MLCTrainingGraph(graphObjects=[graph], lossLayer=cost, optimizer=None)
    assert training.addInputs({"x": x}, lossLabels={"t": t})
    (result,) = training.resultTensors(for_=cost)
    assert training.addOutputs({"loss": result}) and training.compile(options=[], device=cpu())
    numbers, wanted, out = values(3, 3, 2, seed=1), values(3, 3, 2, seed=2), np.full((3, 3, 2), 7, np.float32)
    assert training.execute(
        inputsData={"x": data(numbers)},
        lossLabelsData={"t": data(wanted)},
        lossLabelWeightsData=None,
        outputsData={"loss": data(out)},
        batchSize=2,
    ), last_refusal()
    want = np.full((3, 3, 2), 7, np.float32)
    want[:, :2] = (reference(torch.from_numpy(numbers[:, :2]))[0].detach().numpy() - wanted[:, :2]) ** 2
    np.testing.assert_allclose(out, want, rtol=1e-5, atol=1e-6)


class Turned:
    """x·Wᵀ, turned round: [channels, batch]."""

    def __init__(self, channels: int) -> None:
        self.layer, self.x = dense(3, channels, bias=False), placeholder(4, 3)
        self.weights = self.layer.weights.numpy().reshape(channels, 3).copy()
        self.graph, self.numbers = MLCGraph(), values(4, 3, seed=5)
        self.y = self.graph.node(
            MLCTransposeLayer(dimensions=[1, 0]), source=self.graph.node(self.layer, source=self.x)
        )


@pytest.mark.parametrize("bound", [0, 2], ids=["bound whole", "bound for the batch"])
@pytest.mark.parametrize("channels", [4, 5])
def test_a_gradient_from_outside_is_cut_as_its_result(channels, bound):
    turned = Turned(channels)
    training = MLCTrainingGraph(graphObjects=[turned.graph], lossLayer=None, optimizer=None)
    assert training.addInputs({"x": turned.x}, lossLabels=None)
    given = training.allocateUserGradient(for_=turned.y)
    assert training.compile(options=[], device=cpu())
    outside = values(channels, 4, seed=6)
    assert training.bindAndWriteData(
        {"x": data(turned.numbers), "u": data(outside)},
        forInputs={"x": turned.x, "u": given},
        to=cpu(),
        batchSize=bound,
        synchronous=True,
    )
    for count in (2, 4 if not bound else 2):
        assert training.executeForward(batchSize=count) and training.executeGradient(batchSize=count), last_refusal()
        found = gradient(training, turned.layer.weights, turned.layer).reshape(channels, 3)
        np.testing.assert_allclose(found, outside[:, :count] @ turned.numbers[:count], rtol=1e-4, atol=1e-6)


def test_a_gradient_of_mixed_samples_is_refused_in_words():
    layer, graph, x = dense(3, 2, bias=False), MLCGraph(), placeholder(4, 3)
    y = graph.node(layer, source=x)
    product = MLCMatMulLayer(descriptor=MLCMatMulDescriptor(alpha=1, transposesX=False, transposesY=True))
    mixed = graph.node(product, sources=[y, y])
    mixed.label = "products"
    training = MLCTrainingGraph(graphObjects=[graph], lossLayer=None, optimizer=None)
    assert training.addInputs({"x": x}, lossLabels=None)
    given = training.allocateUserGradient(for_=mixed)
    assert training.compile(options=[], device=cpu())
    bound = {"x": data(values(4, 3)), "u": data(values(4, 4))}
    assert training.bindAndWriteData(bound, forInputs={"x": x, "u": given}, to=cpu(), synchronous=True)
    assert training.executeForward(batchSize=2) and not training.executeGradient(batchSize=2)
    assert "batchSize is 2, and which part of the gradient of the result 'products' of shape [4, 4]" in str(
        last_refusal()
    )
    assert training.executeForward(batchSize=4) and training.executeGradient(batchSize=4)


def test_a_softmax_over_the_samples_leaves_them_where_they_are():
    layer, graph, x = dense(3, 3, bias=False), MLCGraph(), placeholder(3, 3)
    y = graph.node(
        MLCSoftmaxLayer(operation=MLCSoftmaxOperation.softmax, dimension=0), source=graph.node(layer, source=x)
    )
    t, numbers, wanted = placeholder(3, 3), values(3, 3, seed=1), values(3, 3, seed=2)
    training = MLCTrainingGraph(graphObjects=[graph], lossLayer=loss(reduction=SUM), optimizer=None)
    assert training.addInputs({"x": x}, lossLabels={"t": t}) and training.addOutputs({"y": y})
    assert training.compile(options=[], device=cpu())
    out, losses = np.full((2, 3), 7, np.float32), []
    assert training.execute(
        inputsData={"x": data(numbers)},
        lossLabelsData={"t": data(wanted)},
        lossLabelWeightsData=None,
        outputsData={"y": data(out)},
        batchSize=2,
        completionHandler=lambda result, error, seconds: losses.append(float(result)),
    )
    raised = np.exp(numbers[:2] @ layer.weights.numpy().reshape(3, 3).T)
    want = raised / raised.sum(0)
    np.testing.assert_allclose(out, want, rtol=1e-5)
    np.testing.assert_allclose(losses, [((want - wanted[:2]) ** 2).sum()], rtol=1e-5)


@pytest.mark.parametrize("layers", [2, 3])
@pytest.mark.parametrize("count", [1, 2])
def test_buffers_for_states_get_the_samples_that_ran(layers, count):
    layer, reference = lstm(True, layers, MLCLSTMResultMode.outputAndStates)
    graph, x, numbers = MLCGraph(), placeholder(3, 4, 2), values(3, 4, 2, seed=1)
    graph.node(layer, source=x)
    _, hidden, cell = graph.resultTensors(for_=layer)
    inference = MLCInferenceGraph(graphObjects=[graph])
    assert inference.addInputs({"x": x}) and inference.addOutputs({"h": hidden, "c": cell})
    assert inference.compile(options=[], device=cpu())
    states = reference(torch.from_numpy(numbers[:count]))[1]
    for _ in range(3):  # the third takes the short way
        buffers = {name: np.full((layers, 1, 3, 2), 7, np.float32) for name in ("h", "c")}
        outputs = {name: data(buffer) for name, buffer in buffers.items()}
        assert inference.execute(inputsData={"x": data(numbers)}, outputsData=outputs, batchSize=count)
        for buffer, state in zip(buffers.values(), states, strict=True):
            want = np.full((layers, 1, 3, 2), 7, np.float32)
            want[:, 0, :count] = state.detach().numpy()
            np.testing.assert_allclose(buffer, want, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(("below", "count"), [(2, 2), (3, 3), (4, 4), (4, 2), (3, 1)])
@pytest.mark.parametrize("channels", [4, 5])
def test_linked_graphs_cut_the_tensor_between_them_as_it_lies(channels, below, count):
    turned, upper, t = Turned(channels), MLCGraph(), placeholder(4, 2)
    last, wanted = dense(channels, 2, seed=7, bias=False), values(4, 2, seed=8)
    weights = last.weights.numpy().reshape(2, channels).copy()
    upper.node(last, source=upper.node(MLCTransposeLayer(dimensions=[1, 0]), source=turned.y))
    one = MLCTrainingGraph(graphObjects=[turned.graph], lossLayer=None, optimizer=None)
    two = MLCTrainingGraph(graphObjects=[upper], lossLayer=loss(reduction=SUM), optimizer=None)
    assert one.addInputs({"x": turned.x}, lossLabels=None) and two.addInputs({}, lossLabels={"t": t})
    assert all(graph.compile(options=[LINK], device=cpu()) for graph in (one, two)) and one.link(with_=[two])
    assert one.bindAndWriteData({"x": data(turned.numbers)}, forInputs={"x": turned.x}, to=cpu(), synchronous=True)
    assert two.bindAndWriteData({"t": data(wanted)}, forInputs={"t": t}, to=cpu(), synchronous=True)
    assert one.executeForward(batchSize=below) and two.executeForward(batchSize=count), last_refusal()
    assert two.executeGradient(batchSize=count) and one.executeGradient(batchSize=below), last_refusal()
    inner = turned.numbers[:count] @ turned.weights.T
    error = 2 * (inner @ weights.T - wanted[:count])
    np.testing.assert_allclose(gradient(two, last.weights, last).reshape(2, -1), error.T @ inner, rtol=1e-4, atol=1e-5)
    want = (error @ weights).T @ turned.numbers[:count]
    found = gradient(one, turned.layer.weights, turned.layer).reshape(channels, 3)
    np.testing.assert_allclose(found, want, rtol=1e-4, atol=1e-5)


def test_a_linked_tensor_of_mixed_samples_is_refused_in_words():
    lower, upper, x = MLCGraph(), MLCGraph(), placeholder(4, 3)
    product = MLCMatMulLayer(descriptor=MLCMatMulDescriptor(alpha=1, transposesX=False, transposesY=True))
    mixed = lower.node(product, sources=[x, x])
    mixed.label = "products"
    upper.node(dense(4, 2), source=mixed)
    one, two = (MLCInferenceGraph(graphObjects=[graph]) for graph in (lower, upper))
    assert one.addInputs({"x": x}) and two.addInputs({})
    assert all(graph.compile(options=[LINK], device=cpu()) for graph in (one, two)) and one.link(with_=[two])
    assert one.execute(inputsData={"x": data(values(4, 3))}, batchSize=2)
    assert not two.execute(inputsData={}, batchSize=2)
    assert "which part of the linked tensor 'products' of shape [4, 4]" in str(last_refusal())


@pytest.mark.parametrize("count", [1, 2, 3])
@pytest.mark.parametrize("time", [4, 5])
def test_bound_samples_are_written_where_they_lie(torch_device, time, count):
    """The others keep what they hold; with as many steps as samples, too. Data comes whole."""
    graph, x, t = MLCGraph(), placeholder(time, 4, 2), placeholder(time, 4, 2)
    layer, reference = lstm(batch_first=False)
    y = graph.node(layer, source=x)
    training = MLCTrainingGraph(graphObjects=[graph], lossLayer=loss(), optimizer=None)
    assert training.addInputs({"x": x}, lossLabels={"t": t}) and training.compile(options=[], device=on(torch_device))
    first, second, how = values(time, 4, 2), values(time, 4, 2, seed=1), {"to": on(torch_device), "synchronous": True}
    assert training.bindAndWriteData({"x": data(first), "t": data(first)}, forInputs={"x": x, "t": t}, **how)
    assert training.bindAndWriteData({"x": data(second)}, forInputs={"x": x}, batchSize=count, **how)
    want = first.copy()
    want[:, :count] = second[:, :count]
    np.testing.assert_array_equal(x.numpy(), want)
    assert training.executeForward(batchSize=0)
    np.testing.assert_allclose(y.numpy(), reference(torch.from_numpy(want))[0].detach(), rtol=1e-4, atol=1e-5)
    short = {"x": data(second[: time - 1].copy())}
    assert not training.bindAndWriteData(short, forInputs={"x": x}, batchSize=count, **how)
    assert "its first dimension counts no samples" in str(last_refusal())


@pytest.mark.parametrize("time", [1, 2, 4, 5])
def test_samples_that_were_never_bound_are_counted_where_they_lie(torch_device, time):
    """One or two steps of four samples: the first two samples are not all of them."""
    graph, x = MLCGraph(), placeholder(time, 4, 2)
    layer, reference = lstm(batch_first=False)
    y = graph.node(layer, source=x)
    training = MLCTrainingGraph(graphObjects=[graph], lossLayer=loss(), optimizer=None)
    t, device = placeholder(time, 4, 2), on(torch_device)
    assert training.addInputs({"x": x}, lossLabels={"t": t}) and training.compile(options=[], device=device)
    numbers = values(time, 4, 2)
    bound, tensors = {"x": data(numbers), "t": data(numbers)}, {"x": x, "t": t}
    assert training.bindAndWriteData(bound, forInputs=tensors, to=device, batchSize=2, synchronous=True)
    for samples in (0, 4, 3):
        assert not training.executeForward(batchSize=samples)
        said = f"2 of the {samples or 4} samples of the input 'x' were bound; bind the others too, or give batchSize=2"
        assert last_refusal().reason == said
    assert training.executeForward(batchSize=2), last_refusal()
    want = reference(torch.from_numpy(numbers))[0].detach()
    np.testing.assert_allclose(y.numpy()[:, :2], want[:, :2], rtol=1e-4, atol=1e-5)
    assert training.bindAndWriteData(bound, forInputs=tensors, to=device, synchronous=True)
    assert training.executeForward(batchSize=0), last_refusal()
    np.testing.assert_allclose(y.numpy(), want, rtol=1e-4, atol=1e-5)


def _sum(graph: MLCGraph, x: MLCTensor, z: MLCTensor) -> MLCTensor:
    return graph.node(MLCArithmeticLayer(operation=MLCArithmeticOperation.add), sources=[x, z])


IN_FRONT = {
    "tanh": lambda g, x, z: g.node(MLCActivationLayer.tanh, source=x),
    "two layers": lambda g, x, z: g.node(MLCActivationLayer.relu, source=g.node(MLCActivationLayer.tanh, source=x)),
    "sum": _sum,
    "softmax": lambda g, x, z: g.node(MLCSoftmaxLayer(operation=MLCSoftmaxOperation.softmax, dimension=2), source=x),
    "sum of tanh": lambda g, x, z: _sum(g, g.node(MLCActivationLayer.tanh, source=x), z),
    "turned": lambda g, x, z: g.node(MLCTransposeLayer(dimensions=[1, 0, 2]), source=x),
}
BY_HAND = {
    "tanh": lambda x, z: x.tanh(),
    "two layers": lambda x, z: x.tanh().relu(),
    "sum": lambda x, z: x + z,
    "softmax": lambda x, z: x.softmax(2),
    "sum of tanh": lambda x, z: x.tanh() + z,
    "turned": lambda x, z: x.transpose(0, 1),
}


@pytest.mark.parametrize("front", IN_FRONT)
@pytest.mark.parametrize(("time", "batch"), [(5, 3), (2, 4), (3, 3)])
def test_layers_in_front_of_an_lstm_that_takes_time_first_leave_samples_where_they_are(front, time, batch):
    """Steps were taken for samples: of five steps of three samples, three ran, and the caller was told all is well."""
    layer, reference = lstm(batch_first=False)
    shape = (batch, time, 2) if front == "turned" else (time, batch, 2)
    graph, x, z = MLCGraph(), placeholder(*shape), placeholder(*shape)
    result = graph.node(layer, source=IN_FRONT[front](graph, x, z))
    numbers = {"x": values(*shape, seed=1), "z": values(*shape, seed=2)}
    inputs = {"x": x, "z": z} if "sum" in front else {"x": x}
    given = {name: data(numbers[name]) for name in inputs}
    inference = MLCInferenceGraph(graphObjects=[graph])
    assert inference.addInputs(inputs) and inference.addOutputs({"y": result})
    assert inference.compile(options=[], device=cpu())
    source = BY_HAND[front](*map(torch.from_numpy, numbers.values()))
    for count in (batch, 0, 1, batch - 1):
        ran = count or batch
        out, want = np.full((time, batch, 2), 7, np.float32), np.full((time, batch, 2), 7, np.float32)
        want[:, :ran] = reference(source[:, :ran])[0].detach().numpy()
        assert inference.execute(inputsData=given, outputsData={"y": data(out)}, batchSize=count), last_refusal()
        np.testing.assert_allclose(out, want, rtol=1e-4, atol=1e-6)
    assert not inference.execute(inputsData=given, batchSize=batch + 1)
    t = placeholder(time, batch, 2)
    training = MLCTrainingGraph(graphObjects=[graph], lossLayer=loss(reduction=SUM), optimizer=None)
    assert training.addInputs(inputs, lossLabels={"t": t}) and training.compile(options=[], device=cpu())
    wanted = values(time, batch, 2, seed=3)
    for count in (batch, batch - 1):
        found: list[float] = []
        assert training.execute(
            inputsData=given,
            lossLabelsData={"t": data(wanted)},
            lossLabelWeightsData=None,
            batchSize=count,
            completionHandler=lambda result, error, seconds, found=found: found.append(float(result)),
        ), last_refusal()
        want_loss = ((reference(source[:, :count])[0].detach().numpy() - wanted[:, :count]) ** 2).sum()
        assert found == [pytest.approx(want_loss, rel=1e-4)]


CANNOT_BE_CUT = {
    "reshape": ((5, 3, 1, 2), lambda g, x: g.node(MLCReshapeLayer(shape=[5, 3, 2]), source=x), lambda x: x.squeeze(2)),
    "a module": ((5, 3, 2), lambda g, x: g.node(TorchLayer(torch.nn.Tanh()), source=x), lambda x: x.tanh()),
}


@pytest.mark.parametrize("front", CANNOT_BE_CUT)
def test_where_nobody_can_say_what_lies_in_front_of_an_lstm_the_whole_batch_runs_and_a_part_is_refused(front):
    shape, make, by_hand = CANNOT_BE_CUT[front]
    layer, reference = lstm(batch_first=False)
    graph, x, numbers = MLCGraph(), placeholder(*shape), values(*shape, seed=1)
    result = graph.node(layer, source=make(graph, x))
    inference = MLCInferenceGraph(graphObjects=[graph])
    assert inference.addInputs({"x": x}) and inference.addOutputs({"y": result})
    assert inference.compile(options=[], device=cpu())
    want = reference(by_hand(torch.from_numpy(numbers)))[0].detach().numpy()
    for count in (0, 3):
        out = np.full((5, 3, 2), 7, np.float32)
        assert inference.execute(inputsData={"x": data(numbers)}, outputsData={"y": data(out)}, batchSize=count)
        np.testing.assert_allclose(out, want, rtol=1e-4, atol=1e-6)
    for count in (1, 2, 5):
        assert not inference.execute(inputsData={"x": data(numbers)}, batchSize=count)


@pytest.mark.parametrize("first", ["tanh", "lstm"])
def test_a_reader_that_knows_where_samples_lie_is_believed_whoever_comes_first(first):
    layer, reference = lstm(batch_first=False)
    graph, x, numbers = MLCGraph(), placeholder(5, 3, 2), values(5, 3, 2, seed=1)
    made = {}
    for kind in ("tanh", "lstm") if first == "tanh" else ("lstm", "tanh"):
        made[kind] = graph.node(MLCActivationLayer.tanh if kind == "tanh" else layer, source=x)
    inference = MLCInferenceGraph(graphObjects=[graph])
    assert inference.addInputs({"x": x}) and inference.addOutputs(made) and inference.compile(options=[], device=cpu())
    given = torch.from_numpy(numbers[:, :2])
    for name, want in (("lstm", reference(given)[0].detach()), ("tanh", given.tanh())):
        out = np.full((5, 3, 2), 7, np.float32)
        assert inference.execute(inputsData={"x": data(numbers)}, outputsData={name: data(out)}, batchSize=2)
        np.testing.assert_allclose(out[:, :2], want, rtol=1e-4, atol=1e-6)
        assert (out[:, 2:] == 7).all()


def test_two_lstms_that_differ_about_one_input_take_it_whole():
    (steps, reference), (rows, by_rows) = lstm(batch_first=False), lstm(batch_first=True)
    graph, x, numbers = MLCGraph(), placeholder(5, 4, 2), values(5, 4, 2, seed=1)
    made = {"rows": graph.node(rows, source=x)}
    made["steps"] = graph.node(steps, source=graph.node(MLCActivationLayer.tanh, source=x))
    inference = MLCInferenceGraph(graphObjects=[graph])
    assert inference.addInputs({"x": x}) and inference.addOutputs(made) and inference.compile(options=[], device=cpu())
    given, out = torch.from_numpy(numbers), {name: np.zeros((5, 4, 2), np.float32) for name in made}
    buffers = {name: data(array) for name, array in out.items()}
    assert inference.execute(inputsData={"x": data(numbers)}, outputsData=buffers, batchSize=0), last_refusal()
    np.testing.assert_allclose(out["rows"], by_rows(given)[0].detach(), rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(out["steps"], reference(given.tanh())[0].detach(), rtol=1e-4, atol=1e-6)
    for count in (2, 3):
        assert not inference.execute(inputsData={"x": data(numbers)}, batchSize=count)


def _beside(g, steps, rows, x, z):
    return _sum(g, g.node(steps, source=x), z)


ROWS_OF_STEPS = {
    "behind": (_beside, lambda by_steps, by_rows, x, z: by_steps(x)[0] + z),
    "behind, through a layer": (
        lambda g, steps, rows, x, z: _beside(g, steps, rows, x, g.node(MLCActivationLayer.tanh, source=z)),
        lambda by_steps, by_rows, x, z: by_steps(x)[0] + z.tanh(),
    ),
    "in front": (
        lambda g, steps, rows, x, z: g.node(steps, source=_sum(g, x, z)),
        lambda by_steps, by_rows, x, z: by_steps(x + z)[0],
    ),
    "none, turned for rows": (
        lambda g, steps, rows, x, z: g.transpose(
            dimensions=[1, 0, 2], source=g.node(rows, source=g.transpose(dimensions=[1, 0, 2], source=x))
        ),
        lambda by_steps, by_rows, x, z: by_rows(x.transpose(0, 1))[0].transpose(0, 1),
    ),
}


@pytest.mark.parametrize("first", ["x", "z"])
@pytest.mark.parametrize("where", ROWS_OF_STEPS)
@pytest.mark.parametrize(("time", "batch"), [(5, 3), (3, 5), (4, 4)])
def test_rows_for_each_step_beside_an_lstm_are_no_samples(where, first, time, batch):
    """Positions of steps were cut like samples, or taken for the batch; a transposed input kept its first dimension."""
    make, by_hand = ROWS_OF_STEPS[where]
    (steps, by_steps), (rows, by_rows) = lstm(batch_first=False), lstm(batch_first=True)
    graph, x, z = MLCGraph(), placeholder(time, batch, 2), placeholder(time, 1, 2)
    numbers = {"x": values(time, batch, 2, seed=1), "z": values(time, 1, 2, seed=2)}
    result = make(graph, steps, rows, x, z)
    inputs = {name: {"x": x, "z": z}[name] for name in ("xz" if first == "x" else "zx")}
    inputs = {"x": x} if where.startswith("none") else inputs
    given = {name: data(numbers[name]) for name in inputs}
    inference = MLCInferenceGraph(graphObjects=[graph])
    assert inference.addInputs(inputs) and inference.addOutputs({"y": result})
    assert inference.compile(options=[], device=cpu())
    want = by_hand(by_steps, by_rows, *map(torch.from_numpy, numbers.values())).detach().numpy()
    for count in (batch, 0, 2):
        ran, out = count or batch, np.full((time, batch, 2), 7, np.float32)
        assert inference.execute(inputsData=given, outputsData={"y": data(out)}, batchSize=count), last_refusal()
        np.testing.assert_allclose(out[:, :ran], want[:, :ran], rtol=1e-4, atol=1e-6)
        assert (out[:, ran:] == 7).all()
    t, wanted, losses = placeholder(time, batch, 2), values(time, batch, 2, seed=3), []
    training = MLCTrainingGraph(graphObjects=[graph], lossLayer=loss(reduction=SUM), optimizer=None)
    assert training.addInputs(inputs, lossLabels={"t": t}) and training.compile(options=[], device=cpu())
    for count in (batch, 2):
        assert training.execute(
            inputsData=given,
            lossLabelsData={"t": data(wanted)},
            lossLabelWeightsData=None,
            batchSize=count,
            completionHandler=lambda result, error, seconds: losses.append(float(result)),
        ), last_refusal()
        assert losses[-1] == pytest.approx(((want - wanted)[:, :count] ** 2).sum(), rel=1e-4)


def test_a_reshape_of_fewer_samples_gives_whole_rows_or_is_refused():
    numbers = values(4, 3, 2, seed=1)
    for shape, is_cut in (([12, 2], True), ([24], True), ([4, 6], False), ([4, 3, 2, 1], False), ([2, 2, 3, 2], False)):
        (layer, reference), graph, x = lstm(batch_first=False), MLCGraph(), placeholder(4, 3, 2)
        summed = MLCReductionLayer(reductionType=MLCReductionType.sum, dimensions=list(range(len(shape))))
        result = graph.node(summed, source=graph.reshape(shape=shape, source=graph.node(layer, source=x)))
        inference = MLCInferenceGraph(graphObjects=[graph])
        assert inference.addInputs({"x": x}) and inference.compile(options=[], device=cpu())
        for count in (3, 2):
            assert inference.execute(inputsData={"x": data(numbers)}, batchSize=count) is (is_cut or count == 3), shape
            if is_cut or count == 3:
                want = reference(torch.from_numpy(numbers[:, :count]))[0].sum().item()
                assert float(result) == pytest.approx(want, rel=1e-4)


def test_a_short_batch_by_step_counts_samples_where_labels_lie():
    """Of as many steps as samples, labels that count steps first were taken for as many samples."""
    layer, reference = lstm(batch_first=False)
    graph, x, t = MLCGraph(), placeholder(5, 5, 2), placeholder(5, 5, 2)
    graph.node(layer, source=graph.transpose(dimensions=[1, 0, 2], source=x))
    training = MLCTrainingGraph(graphObjects=[graph], lossLayer=loss(), optimizer=None)
    assert training.addInputs({"x": x}, lossLabels={"t": t}) and training.compile(options=[], device=cpu())
    numbers, wanted = values(5, 5, 2, seed=1), values(5, 5, 2, seed=2)
    want = reference(torch.from_numpy(numbers[:3]).transpose(0, 1))[0].detach().numpy() - wanted[:, :3]
    assert training.evaluate([(numbers[:3], wanted)]) == pytest.approx(float((want**2).mean()), rel=1e-4)


@pytest.mark.parametrize("rows", [6, -1])
def test_samples_that_become_several_sequences_are_counted_before_that(rows):
    """[samples, parts, steps, features] as one sequence for each part: how many those are is not how many samples there are."""
    (layer, reference), graph, x = lstm(batch_first=True), MLCGraph(), placeholder(3, 2, 5, 2)
    made = graph.node(layer, source=graph.reshape(shape=[rows, 5, 2], source=x))
    result = graph.reshape(shape=[3, 2, 10], source=made)
    inference, numbers = MLCInferenceGraph(graphObjects=[graph]), values(3, 2, 5, 2, seed=1)
    assert inference.addInputs({"x": x}) and inference.addOutputs({"y": result})
    assert inference.compile(options=[], device=cpu())
    for count in (0, 3, 2, 1):
        ran, out = count or 3, np.full((3, 2, 10), 7, np.float32)
        assert inference.execute(inputsData={"x": data(numbers)}, outputsData={"y": data(out)}, batchSize=count)
        want = reference(torch.from_numpy(numbers[:ran]).flatten(0, 1))[0].detach().reshape(ran, 2, 10)
        np.testing.assert_allclose(out[:ran], want, rtol=1e-4, atol=1e-6)
    assert not inference.execute(inputsData={"x": data(numbers)}, batchSize=6)
    t, wanted, losses = placeholder(3, 2, 10), values(3, 2, 10, seed=2), []
    training = MLCTrainingGraph(graphObjects=[graph], lossLayer=loss(), optimizer=None)
    assert training.addInputs({"x": x}, lossLabels={"t": t}) and training.compile(options=[], device=cpu())
    for count in (0, 3):
        assert training.execute(
            inputsData={"x": data(numbers)},
            lossLabelsData={"t": data(wanted)},
            lossLabelWeightsData=None,
            batchSize=count,
            completionHandler=lambda result, error, seconds: losses.append(float(result)),
        ), last_refusal()
    want = reference(torch.from_numpy(numbers).flatten(0, 1))[0].detach().numpy().reshape(3, 2, 10)
    assert losses == [pytest.approx(float(((want - wanted) ** 2).mean()), rel=1e-4)] * 2


def test_an_lstm_over_a_constant_counts_no_samples():
    (layer, reference), graph, x = lstm(batch_first=True), MLCGraph(), placeholder(3, 4)
    numbers, constant = values(3, 4, seed=1), torch.from_numpy(values(1, 5, 2, seed=2))
    total = MLCReductionLayer(reductionType=MLCReductionType.sum, dimension=1)
    made = graph.node(layer, source=MLCTensor.from_torch(constant))
    result = _sum(graph, x, graph.node(total, source=graph.reshape(shape=[1, 10], source=made)))
    inference, added = MLCInferenceGraph(graphObjects=[graph]), reference(constant)[0].sum().item()
    assert inference.addInputs({"x": x}) and inference.addOutputs({"y": result})
    assert inference.compile(options=[], device=cpu())
    for count in (0, 3, 2, 1):
        ran, out = count or 3, np.full((3, 4), 7, np.float32)
        assert inference.execute(inputsData={"x": data(numbers)}, outputsData={"y": data(out)}, batchSize=count)
        np.testing.assert_allclose(out[:ran], numbers[:ran] + added, rtol=1e-4, atol=1e-6)
