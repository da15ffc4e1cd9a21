"""Losses in graphs: shapes of labels, label weights, several losses, loss nodes, and none at all."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from mlc_torch import (
    MLCActivationLayer,
    MLCDataType,
    MLCGraph,
    MLCInferenceGraph,
    MLCLossDescriptor,
    MLCLossLayer,
    MLCLossType,
    MLCReductionType,
    MLCTrainingGraph,
    MLCTrainingWarning,
    last_refusal,
)
from mlc_torch.interop import TorchLayer
from tests.graph.programs import (
    Program,
    array,
    cpu,
    data,
    dense,
    loss,
    on,
    placeholder,
    regression,
    sgd,
    tensor,
    values,
)

Kind, Reduction = MLCLossType, MLCReductionType


def classifier(label_shape, device=None, reduction=Reduction.mean, kind=Kind.softmaxCrossEntropy) -> Program:
    graph, x, t = MLCGraph(), placeholder(6, 4, 1, 1), placeholder(*label_shape)
    layer = dense(4, 3)
    y = graph.node(layer, source=x)
    training = MLCTrainingGraph(graphObjects=[graph], lossLayer=loss(kind, reduction), optimizer=sgd())
    assert training.addInputs({"x": x}, lossLabels={"t": t})
    classes = np.eye(3, dtype=np.float32)[[0, 2, 1, 1, 0, 2]]
    given = {"x": values(6, 4, 1, 1), "t": classes.reshape(label_shape)}
    return Program(training, graph, {"x": x}, {"t": t}, given, [layer], y, device or cpu())


def logits(program: Program) -> np.ndarray:
    layer = program.layers[0]
    return program.given["x"].reshape(6, 4) @ array(layer.weights).reshape(3, 4).T + array(layer.biases).ravel()


def cross_entropies(program: Program) -> np.ndarray:
    z = logits(program).astype(float)
    logs = z - np.log(np.exp(z).sum(1, keepdims=True))
    return -(program.given["t"].reshape(6, 3) * logs).sum(1)


def result(program: Program, **more) -> np.ndarray:
    answers = []
    assert program.execute(options=2, completionHandler=lambda *g: answers.append(array(g[0])), **more)
    return answers[0]


# Labels


@pytest.mark.parametrize("shape", [(6, 3), (6, 3, 1, 1), (6, 1, 1, 3), (18,)], ids=str)
def test_labels_may_be_squeezed(shape, torch_device):
    """evidence.md E.4: [N, C] for predictions of [N, C, 1, 1]; element counts are compared, not shapes."""
    program, full = classifier(shape, on(torch_device)), classifier((6, 3, 1, 1), on(torch_device))
    assert program.compile() and full.compile()
    for _ in range(3):
        np.testing.assert_allclose(result(program), [cross_entropies(full).mean()], rtol=1e-5)
        result(full)
        full.training.synchronizeUpdates()
    program.training.synchronizeUpdates()
    np.testing.assert_allclose(array(program.layers[0].weights), array(full.layers[0].weights), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("shape", [(6, 4), (3, 6), (9, 2)], ids=str)
def test_labels_of_another_shape_are_refused_at_compile(shape):
    """Also with as many elements: a label would be compared with another sample's prediction."""
    program = classifier((6, 3))
    training = MLCTrainingGraph(graphObjects=[program.graph], lossLayer=loss(), optimizer=sgd())
    assert training.addInputs(program.inputs, lossLabels={"t": placeholder(*shape)})
    assert not training.compile(options=[], device=cpu())
    assert "[6, 3, 1, 1]" in str(last_refusal()) and str(list(shape)) in str(last_refusal())
    assert program.compile() and program.step() > 0


def test_a_loss_without_labels_says_so():
    program = classifier((6, 3))
    training = MLCTrainingGraph(graphObjects=[program.graph], lossLayer=loss(), optimizer=sgd())
    assert training.addInputs(program.inputs, lossLabels=None) and training.compile(options=[], device=cpu())
    fed = {"inputsData": program.inputs_data(), "lossLabelsData": None, "lossLabelWeightsData": None}
    assert not training.execute(**fed, batchSize=0) and "has no labels" in str(last_refusal())
    assert training.execute(**fed, batchSize=0, options=8)  # forwardForInference needs none


def test_a_loss_whose_labels_another_loss_reads_is_told_which():
    """The graph has a loss of its own over the only labels; the training graph brings a second one."""
    program = classifier((6, 3))
    (t,) = program.labels.values()
    inner, outer = loss(), loss()
    inner.label, outer.label = "inner", "outer"
    assert program.graph.node(inner, sources=[program.result], lossLabels=[t])
    training = MLCTrainingGraph(graphObjects=[program.graph], lossLayer=outer, optimizer=sgd())
    assert training.addInputs(program.inputs, lossLabels={"t": t}) and training.compile(options=[], device=cpu())
    assert not training.execute(
        inputsData=program.inputs_data(), lossLabelsData=program.labels_data(), lossLabelWeightsData=None, batchSize=0
    )
    assert (
        "loss layer 'outer' has no labels of its own ('t' is read by the loss layer 'inner'); declare another"
        in str(last_refusal())
    )


@pytest.mark.parametrize("reduction", [Reduction.none, Reduction.sum, Reduction.mean])
def test_reductions_of_a_class_loss_and_their_gradients(reduction):
    program = classifier((6, 3), reduction=reduction)
    assert program.compile()
    each = cross_entropies(program)
    z = logits(program).astype(float)
    softmax = np.exp(z) / np.exp(z).sum(1, keepdims=True)
    slope = (softmax - program.given["t"]).T @ program.given["x"].reshape(6, 4)
    assert program.phases()
    layer = program.layers[0]
    want = slope / 6 if reduction is Reduction.mean else slope
    np.testing.assert_allclose(program.gradient_of(layer.weights, layer).reshape(3, 4), want, rtol=1e-4, atol=1e-6)
    wanted = {"none": each, "sum": [each.sum()], "mean": [each.mean()]}[reduction.name]
    np.testing.assert_allclose(result(program), wanted, rtol=1e-5)


# Weights


def weighted(weights_shape, names=("t",), reduction=Reduction.sum) -> Program:
    program = classifier((6, 3, 1, 1), reduction=reduction)
    training = MLCTrainingGraph(
        graphObjects=[program.graph], lossLayer=loss(Kind.softmaxCrossEntropy, reduction), optimizer=sgd()
    )
    w = placeholder(*weights_shape)
    assert training.addInputs(program.inputs, lossLabels=program.labels, lossLabelWeights=dict.fromkeys(names, w))
    program.training = training
    return program


@pytest.mark.parametrize("shape", [(6, 3, 1, 1), (6, 3), (6,), (6, 1, 1, 1)], ids=str)
@pytest.mark.parametrize("name", ["t", "other"])
def test_label_weights_are_declared_and_given(shape, name):
    program = weighted(shape, (name,))
    per_sample = np.arange(1, 7, dtype=np.float32)
    given = np.repeat(per_sample, int(np.prod(shape)) // 6).reshape(shape)
    assert program.compile()
    want, answers = (cross_entropies(program) * per_sample).sum(), []
    fed = {"inputsData": program.inputs_data(), "lossLabelsData": program.labels_data(), "batchSize": 0}
    assert program.training.execute(
        **fed, lossLabelWeightsData={name: data(given)}, completionHandler=lambda *g: answers.append(array(g[0]))
    )
    np.testing.assert_allclose(answers[0], [want], rtol=1e-5)
    assert not program.training.execute(**fed, lossLabelWeightsData=None)
    assert f"label weight '{name}'" in str(last_refusal())


def test_label_weights_are_bound_with_the_inputs():
    program = weighted((6, 3, 1, 1))
    w = np.full((6, 3, 1, 1), 2, np.float32)
    held = placeholder(6, 3, 1, 1)
    assert program.training.addInputs({}, lossLabels={}, lossLabelWeights={"t": held})
    assert program.compile() and program.bind()
    assert program.training.bindAndWriteData({"w": data(w)}, forInputs={"w": held}, to=cpu(), synchronous=True)
    want, answers = 2 * cross_entropies(program).sum(), []
    assert program.forward(completionHandler=lambda *g: answers.append(array(g[0]))) and program.gradient()
    np.testing.assert_allclose(answers[0], [want], rtol=1e-5)


def test_the_weights_of_the_loss_layer_itself():
    program = classifier((6, 3, 1, 1))
    each = np.arange(1, 7, dtype=np.float32).reshape(6, 1, 1, 1) * np.ones((6, 3, 1, 1), np.float32)
    descriptor = MLCLossDescriptor(type=Kind.softmaxCrossEntropy, reductionType=Reduction.sum)
    scored = MLCLossLayer(descriptor=descriptor, weights=tensor(each))
    training = MLCTrainingGraph(graphObjects=[program.graph], lossLayer=scored, optimizer=sgd())
    assert training.addInputs(program.inputs, lossLabels=program.labels)
    program.training = training
    assert program.compile()
    want = (cross_entropies(program) * np.arange(1, 7)).sum()
    np.testing.assert_allclose(result(program), [want], rtol=1e-5)
    np.testing.assert_array_equal(array(scored.weights), each)


# Several losses


def two_heads(own=None, first=None, second=None):
    graph, x, t, u = MLCGraph(), placeholder(4, 3), placeholder(4, 2), placeholder(4, 5)
    trunk, left, right = dense(3, 4), dense(4, 2, seed=3), dense(4, 5, seed=6)
    h = graph.node(trunk, source=x)
    y, z = graph.node(left, source=h), graph.node(right, source=h)
    results = []
    if first is not None:
        results.append(graph.node(first, sources=[y], lossLabels=[t]))
    if second is not None:
        results.append(graph.node(second, sources=[z], lossLabels=[u]))
    training = MLCTrainingGraph(graphObjects=[graph], lossLayer=own, optimizer=sgd())
    assert training.addInputs({"x": x}, lossLabels={"t": t, "u": u})
    given = {"x": values(4, 3), "t": values(4, 2, seed=1), "u": values(4, 5, seed=2)}
    program = Program(training, graph, {"x": x}, {"t": t, "u": u}, given, [trunk, left, right], z)
    return program, results, (y, z)


def test_several_loss_nodes_add_and_the_handler_gets_the_last():
    program, (first, second), _ = two_heads(first=loss(), second=loss(reduction=Reduction.sum))
    trunk, left, right = program.layers
    x, t, u = (program.given[n].astype(float) for n in "xtu")
    h = x @ array(trunk.weights).reshape(4, 3).T + array(trunk.biases).ravel()
    e = h @ array(left.weights).reshape(2, 4).T + array(left.biases).ravel() - t
    f = h @ array(right.weights).reshape(5, 4).T + array(right.biases).ravel() - u
    dh = 2 * e / 8 @ array(left.weights).reshape(2, 4) + 2 * f @ array(right.weights).reshape(5, 4)
    assert program.compile() and program.phases()
    np.testing.assert_allclose(array(first), [(e**2).mean()], rtol=1e-5)
    np.testing.assert_allclose(array(second), [(f**2).sum()], rtol=1e-5)
    np.testing.assert_allclose(program.gradient_of(trunk.weights, trunk).reshape(4, 3), dh.T @ x, rtol=1e-4, atol=1e-5)
    answers = []
    assert program.execute(completionHandler=lambda *g: answers.append(g[0])) and answers[0] is second


def test_the_own_loss_takes_the_labels_that_no_other_loss_reads():
    program, (first,), (y, z) = two_heads(own=loss(), first=loss())
    assert program.compile()
    answers = []
    assert program.execute(completionHandler=lambda *g: answers.append(g[0]))
    own = program.training.layers[-1]
    assert program.training.resultTensors(for_=own)[0] is answers[0] and answers[0] is not first
    assert [t.label for t in program.training.sourceTensors(for_=own)] == [z.label]
    np.testing.assert_allclose(array(answers[0]), [((array(z) - program.given["u"]) ** 2).mean()], rtol=1e-5)
    np.testing.assert_allclose(array(first), [((array(y) - program.given["t"]) ** 2).mean()], rtol=1e-5)


def test_the_own_loss_finds_the_labels_that_fit():
    program, _, (_, z) = two_heads(own=loss())
    with pytest.warns(MLCTrainingWarning, match="no node of the graph reads the label 't'"):
        assert program.compile()
    answers = []
    assert program.execute(completionHandler=lambda *g: answers.append(array(g[0])))
    np.testing.assert_allclose(answers[0], [((array(z) - program.given["u"]) ** 2).mean()], rtol=1e-5)


def test_a_loss_node_with_weights_as_second_label():
    graph, x, t, w = MLCGraph(), placeholder(4, 3), placeholder(4, 2), placeholder(4, 2)
    layer = dense(3, 2)
    y = graph.node(layer, source=x)
    scored = graph.node(loss(reduction=Reduction.sum), sources=[y], lossLabels=[t, w])
    training = MLCTrainingGraph(graphObjects=[graph], lossLayer=None, optimizer=sgd())
    assert training.addInputs({"x": x}, lossLabels={"t": t}, lossLabelWeights={"w": w})
    assert training.compile(options=[], device=cpu())
    a, b, c = values(4, 3), values(4, 2, seed=1), np.abs(values(4, 2, seed=2))
    fed = {"inputsData": {"x": data(a)}, "lossLabelsData": {"t": data(b)}, "lossLabelWeightsData": {"w": data(c)}}
    error = a @ array(layer.weights).reshape(2, 3).T + array(layer.biases).ravel() - b
    assert training.execute(**fed, batchSize=0)
    np.testing.assert_allclose(array(scored), [(c * error**2).sum()], rtol=1e-5)


def test_a_loss_node_s_labels_may_be_constants():
    graph, x = MLCGraph(), placeholder(4, 3)
    constant = tensor(values(4, 3, seed=1))
    layer = dense(3, 3)
    graph.node(loss(), sources=[graph.node(layer, source=x)], lossLabels=[constant])
    training = MLCTrainingGraph(graphObjects=[graph], lossLayer=None, optimizer=sgd())
    assert training.addInputs({"x": x}, lossLabels=None) and training.compile(options=[], device=cpu())
    before = array(layer.weights)
    fed = {"inputsData": {"x": data(values(4, 3))}, "lossLabelsData": None, "lossLabelWeightsData": None}
    assert training.execute(**fed, batchSize=0) and not np.array_equal(array(layer.weights), before)


def test_a_layer_that_is_no_loss_as_the_loss_layer():
    """The measurements used a ReLU: its result is what is minimised."""
    graph, x = MLCGraph(), placeholder(4, 3)
    layer = dense(3, 3)
    y = graph.node(layer, source=x)
    training = MLCTrainingGraph(graphObjects=[graph], lossLayer=MLCActivationLayer.relu, optimizer=sgd())
    assert training.addInputs({"x": x}, lossLabels=None) and training.compile(options=[], device=cpu())
    fed = {"inputsData": {"x": data(values(4, 3))}, "lossLabelsData": None, "lossLabelWeightsData": None}
    answers, before = [], array(layer.weights)
    assert training.execute(**fed, batchSize=0, completionHandler=lambda *g: answers.append(array(g[0])))
    np.testing.assert_array_equal(answers[0], np.maximum(array(y), 0))
    slope = (array(y) > 0).astype(float).T @ values(4, 3)
    np.testing.assert_allclose(
        array(layer.weights).reshape(3, 3), before.reshape(3, 3) - 0.1 * slope, rtol=1e-4, atol=1e-6
    )


class Halved(torch.nn.Module):
    def forward(self, x):
        return x.half()


def test_a_result_that_was_asked_for_before_the_predictions_became_another_type():
    """Of the same shape: the loss of the new ones is another tensor."""
    graph, x, t = MLCGraph(), placeholder(4, 6), placeholder(4, 3, type_=MLCDataType.float16)
    layer, own = dense(6, 3), loss()
    y = graph.node(layer, source=x)
    training = MLCTrainingGraph(graphObjects=[graph], lossLayer=own, optimizer=sgd())
    (early,) = training.resultTensors(for_=own)
    assert early.descriptor.dataType is MLCDataType.float32
    graph.node(TorchLayer(Halved()), source=y)
    assert training.addInputs({"x": x}, lossLabels={"t": t})
    (late,) = training.resultTensors(for_=own)
    assert training.addOutputs({"loss": late}) and training.compile(options=[], device=cpu())
    given, labels, out = values(4, 6), values(4, 3, seed=1).astype(np.float16), np.zeros(1, np.float16)
    predicted = given @ array(layer.weights).reshape(3, 6).T + array(layer.biases).ravel()
    assert training.execute(
        inputsData={"x": data(given)},
        lossLabelsData={"t": data(labels)},
        lossLabelWeightsData=None,
        outputsData={"loss": data(out)},
        batchSize=4,
    )
    np.testing.assert_allclose(out, ((predicted - labels) ** 2).mean(), rtol=5e-3)


def test_losses_stay_out_of_inference_over_the_same_graph():
    program, (first, second), (_, z) = two_heads(first=loss(), second=loss())
    inference = MLCInferenceGraph(graphObjects=[program.graph])
    answers = []
    assert inference.addInputs(program.inputs) and inference.compile(options=[], device=cpu())
    fed = {"inputsData": program.inputs_data(), "batchSize": 0}
    assert inference.execute(**fed, completionHandler=lambda *g: answers.append(g[0]))
    assert answers[0] is z and first.data is None and second.data is None


def test_no_loss_with_an_optimizer_moves_nothing():
    program = regression()
    bare = MLCTrainingGraph(graphObjects=[program.graph], lossLayer=None, optimizer=sgd())
    assert bare.addInputs(program.inputs, lossLabels=None) and bare.compile(options=[], device=cpu())
    before, answers = array(program.layers[0].weights), []
    fed = {"inputsData": program.inputs_data(), "lossLabelsData": None, "lossLabelWeightsData": None}
    with pytest.warns(UserWarning, match="no parameter can be updated"):
        assert bare.execute(**fed, batchSize=0, completionHandler=lambda *g: answers.append(g[0]))
    np.testing.assert_array_equal(array(program.layers[0].weights), before)
    assert answers[0] is program.result


@pytest.mark.parametrize("how", ["as labels", "as a source"])
def test_the_graph_s_own_loss_reads_labels_that_no_other_loss_reads(how):
    graph, x, inner, own = MLCGraph(), placeholder(2, 3), placeholder(2, 4), placeholder(2, 4)
    a = graph.node(dense(3, 4), source=x)
    if how == "as labels":
        graph.node(loss(), sources=[a], lossLabels=[inner])
    else:
        graph.node(loss(), sources=[a, inner])
    b = graph.node(dense(4, 4, seed=3), source=a)
    training = MLCTrainingGraph(graphObjects=[graph], lossLayer=loss(), optimizer=sgd(0.0))
    assert training.addInputs({"x": x}, lossLabels={"inner": inner, "own": own}) and training.addOutputs({"b": b})
    given = {"x": values(2, 3), "inner": np.full((2, 4), 100, np.float32), "own": np.zeros((2, 4), np.float32)}
    program = Program(training, graph, {"x": x}, {"inner": inner, "own": own}, given)
    assert program.compile()
    found = program.step()
    assert found == pytest.approx(float((b.numpy() ** 2).mean()), rel=1e-4)
