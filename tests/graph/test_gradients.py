"""Gradients of tensors inside the graph: reading them, adding one's own, stopping them, hooking into them."""

from __future__ import annotations

import gc

import numpy as np
import pytest
import torch

from mlc_torch import (
    MLCActivationLayer,
    MLCArithmeticLayer,
    MLCArithmeticOperation,
    MLCBatchNormalizationLayer,
    MLCDataType,
    MLCDropoutLayer,
    MLCEmbeddingDescriptor,
    MLCEmbeddingLayer,
    MLCExecutionOptions,
    MLCGraph,
    MLCGraphCompilationOptions,
    MLCSGDOptimizer,
    MLCTensorData,
    MLCTensorParameter,
    MLCTrainingGraph,
    MLCTrainingWarning,
    last_refusal,
)
from tests.graph.programs import (
    Program,
    array,
    close,
    cpu,
    data,
    dense,
    hyper,
    loss,
    on,
    placeholder,
    predictions,
    regression,
    sgd,
    slopes,
    tensor,
    values,
)

ALL = MLCGraphCompilationOptions.computeAllGradients


# Inputs


def test_gradient_of_an_input(torch_device):
    program = regression(widths=(6, 5, 3), device=on(torch_device))
    x = program.inputs["x"]
    assert program.training.gradientTensor(forInput=x) is None
    assert program.compile() and program.phases()
    assert program.training.gradientTensor(forInput=x) is None
    assert "computeAllGradients" in str(last_refusal())
    assert program.compile(ALL) and program.training.gradientTensor(forInput=x) is None
    assert "no gradient yet" in str(last_refusal())
    want = slopes(program)
    assert program.phases()
    got = program.training.gradientTensor(forInput=x)
    close(array(got), want["x"])
    assert got.descriptor.shape == [4, 6] and got is not program.training.gradientTensorForInput_(x)
    assert program.training.gradientTensor(forInput=program.result) is None
    assert "is no input" in str(last_refusal())
    assert program.execute() and program.training.gradientTensor(forInput=x) is not None


def test_all_gradients_of_two_inputs():
    graph, a, b, t = MLCGraph(), placeholder(2, 3), placeholder(2, 3), placeholder(2, 3)
    product = graph.node(MLCArithmeticLayer(operation=MLCArithmeticOperation.multiply), sources=[a, b])
    training = MLCTrainingGraph(graphObjects=[graph], lossLayer=loss(), optimizer=None)
    assert training.addInputs({"a": a, "b": b}, lossLabels={"t": t})
    given = {"a": values(2, 3), "b": values(2, 3, seed=1), "t": values(2, 3, seed=2)}
    program = Program(training, graph, {"a": a, "b": b}, {"t": t}, given, [], product)
    assert program.compile(ALL) and program.phases()
    slope = 2 * (given["a"] * given["b"] - given["t"]) / 6
    close(array(training.gradientTensor(forInput=a)), slope * given["b"])
    close(array(training.gradientTensor(forInput=b)), slope * given["a"])


def test_an_input_of_indices_has_no_gradient_to_read():
    graph, x, t = MLCGraph(), placeholder(3, type_=MLCDataType.int32), placeholder(3, 2)
    table = tensor(values(5, 2))
    layer = MLCEmbeddingLayer(descriptor=MLCEmbeddingDescriptor(embeddingCount=5, embeddingDimension=2), weights=table)
    y = graph.node(layer, source=x)
    training = MLCTrainingGraph(graphObjects=[graph], lossLayer=loss(), optimizer=sgd())
    assert training.addInputs({"x": x}, lossLabels={"t": t})
    given = {"x": np.array([1, 4, 1], np.int32), "t": values(3, 2)}
    program = Program(training, graph, {"x": x}, {"t": t}, given, [layer], y)
    assert program.compile(ALL) and program.phases() and program.gradient_of(table, layer) is not None
    answer = training.gradientTensor(forInput=x)
    assert answer is None or answer.data is None or not np.frombuffer(answer.data, np.int32).any()
    with pytest.raises(ValueError, match="holds no data: whole numbers have no gradient"):
        training.sourceGradientTensors(for_=layer)[0].numpy()


# Sources and results of layers


def test_asked_for_after_the_gradient_phase(torch_device):
    program = regression(widths=(6, 5, 3), device=on(torch_device))
    first, second = program.layers
    want = slopes(program)
    assert program.compile() and program.phases()
    (h,) = program.training.resultGradientTensors(for_=first)
    (a,) = program.training.sourceGradientTensors(for_=second)
    (y,) = program.training.resultGradientTensorsForLayer_(second)
    (x,) = program.training.sourceGradientTensorsForLayer_(first)
    for got, name in ((h, "h"), (a, "a"), (y, "y"), (x, "x")):
        close(array(got), want[name])
    assert program.update()


def test_asked_for_before_the_gradient_phase():
    """The tensor that was handed out gets the gradient of the next phase, and keeps it."""
    program = regression(widths=(6, 5, 3))
    first, second = program.layers
    want = slopes(program)
    assert program.compile()
    (before,) = program.training.resultGradientTensors(for_=first)
    assert before.data is None and program.bind() and program.forward()
    (between,) = program.training.sourceGradientTensors(for_=second)
    assert between.data is None and program.gradient()
    close(array(before), want["h"])
    close(array(between), want["a"])
    close(array(program.training.sourceGradientTensors(for_=second)[0]), want["a"])
    then = array(before)
    assert program.update() and program.phases()
    np.testing.assert_array_equal(array(before), then)
    close(array(program.training.resultGradientTensors(for_=first)[0]), slopes(program)["h"])


def test_asked_for_once_each_execute_keeps_them_too():
    program = regression(widths=(6, 5, 3))
    first, _ = program.layers
    assert program.compile()
    (held,) = program.training.resultGradientTensors(for_=first)
    want = slopes(program)
    assert program.execute()
    close(array(held), want["h"])
    want = slopes(program)
    assert program.execute()
    close(array(program.training.resultGradientTensors(for_=first)[0]), want["h"])


def test_asked_for_after_an_execute_they_wait_for_the_next():
    program = regression(widths=(6, 5, 3))
    assert program.compile() and program.execute()
    (held,) = program.training.resultGradientTensors(for_=program.layers[0])
    assert held.data is None
    with pytest.raises(
        ValueError, match="no data: the next executeGradient fills it, after executeForward, and so does"
    ):
        held.numpy()
    want = slopes(program)
    assert program.execute()
    close(array(held), want["h"])


def test_a_layer_of_another_graph_has_none():
    program = regression()
    assert program.compile() and program.phases()
    stranger = dense(6, 3)
    assert program.training.sourceGradientTensors(for_=stranger) == []
    assert program.training.resultGradientTensors(for_=stranger) == []


def test_tensors_that_nobody_asks_about_are_not_kept():
    program = regression(widths=(6, 5, 3))
    assert program.compile() and program.phases()
    assert program.training._runs.last.plan.wanted == () and program.training._runs.last.wanted in ([], ())


@pytest.mark.parametrize("asked", ["before", "after"])
def test_with_dropout_and_batch_norm_in_the_graph(asked):
    """Asked for late, the forward pass is run again: with the same mask, and without moving the statistics twice."""
    graph, x, t = MLCGraph(), placeholder(8, 4, 1, 1), placeholder(8, 4, 1, 1)
    zeros, ones = (tensor(np.full(4, v, np.float32), [1, 4, 1, 1]) for v in (0, 1))
    mean, variance = (tensor(np.full(4, v, np.float32), [1, 4, 1, 1]) for v in (0, 1))
    norm = MLCBatchNormalizationLayer(
        featureChannelCount=4, mean=mean, variance=variance, beta=zeros, gamma=ones, varianceEpsilon=1e-3, momentum=0.5
    )
    drop = MLCDropoutLayer(rate=0.5, seed=0)
    normal = graph.node(norm, source=x)
    dropped = graph.node(drop, source=normal)
    training = MLCTrainingGraph(graphObjects=[graph], lossLayer=loss(), optimizer=sgd())
    assert training.addInputs({"x": x}, lossLabels={"t": t})
    given = {"x": values(8, 4, 1, 1), "t": values(8, 4, 1, 1, seed=1)}
    program = Program(training, graph, {"x": x}, {"t": t}, given, [norm, drop], dropped)
    assert program.compile()
    if asked == "before":
        training.sourceGradientTensors(for_=drop)
    assert program.phases()
    (at_norm,) = training.sourceGradientTensors(for_=drop)
    (at_drop,) = training.resultGradientTensors(for_=drop)
    mask = np.divide(array(dropped), array(normal))
    assert set(np.round(mask.ravel(), 3)) == {0.0, 2.0}
    slope = 2 * (array(dropped) - given["t"]) / 32
    close(array(at_drop), slope)
    close(array(at_norm), slope * mask)
    np.testing.assert_allclose(array(mean), 0.5 * given["x"].mean((0, 2, 3), keepdims=True), rtol=1e-4, atol=1e-6)
    gradient = program.gradient_of(ones, norm)
    close(gradient, (slope * mask * array(normal)).sum((0, 2, 3), keepdims=True))
    assert program.update()


# Gradients from outside


def test_a_user_gradient_is_added_to_the_graph_s_own(torch_device):
    program = regression(widths=(6, 5, 3), device=on(torch_device))
    first, second = program.layers
    (h,) = program.training.resultTensors(for_=first)
    own = program.training.allocateUserGradient(for_=h)
    assert own.descriptor.shape == [4, 5] and program.training.allocateUserGradientForTensor_(h) is own
    assert program.compile() and program.bind() and program.forward()
    assert not program.gradient() and "holds no data" in str(last_refusal())
    extra = values(4, 5, seed=30)
    want = slopes(program)
    bound = {"outside": data(extra)}
    assert program.training.bindAndWriteData(bound, forInputs={"outside": own}, to=program.device, synchronous=True)
    assert program.gradient()
    close(program.gradient_of(first.weights, first).reshape(5, 6), want["w1"] + extra.T @ program.given["x"])
    close(program.gradient_of(second.weights, second).reshape(3, 5), want["w2"])


def test_a_user_gradient_after_compile_through_its_own_bind_and_in_one_call():
    program = regression(widths=(6, 5, 3))
    first, _ = program.layers
    (h,) = program.training.resultTensors(for_=first)
    assert program.compile() and program.execute()
    own = program.training.allocateUserGradient(for_=h)
    extra = values(4, 5, seed=30)
    assert own.bindAndWriteData(MLCTensorData(bytesNoCopy=extra, length=extra.nbytes), to=cpu())
    want = slopes(program)["w1"] + extra.T @ program.given["x"]
    before = array(first.weights)
    assert program.execute()
    close((before - array(first.weights)).reshape(5, 6) / 0.1, want)


@pytest.mark.parametrize("batch", [2, 4])
def test_a_user_gradient_and_a_short_batch(batch):
    program = regression(widths=(6, 5, 3))
    first, _ = program.layers
    (h,) = program.training.resultTensors(for_=first)
    own = program.training.allocateUserGradient(for_=h)
    extra = values(4, 5, seed=30)
    assert program.compile()
    assert program.training.bindAndWriteData({"g": data(extra)}, forInputs={"g": own}, to=cpu(), synchronous=True)
    cut = regression(widths=(6, 5, 3), batch=batch)
    cut.given = {n: a[:batch].copy() for n, a in program.given.items()}
    for _ in range(3):
        program.bind()
        assert program.training.executeForward(batchSize=batch) and program.training.executeGradient(batchSize=batch)
        want = slopes(cut)["w1"] + extra[:batch].T @ cut.given["x"]
        close(program.gradient_of(first.weights, first).reshape(5, 6), want)


def test_a_user_gradient_without_a_loss():
    """A computation done elsewhere: forward here, the gradient of its result from outside, back again."""
    graph, x = MLCGraph(), placeholder(4, 6)
    layer = dense(6, 3)
    y = graph.node(layer, source=x)
    training = MLCTrainingGraph(graphObjects=[graph], lossLayer=None, optimizer=sgd())
    own = training.allocateUserGradient(for_=y)
    assert training.addInputs({"x": x}, lossLabels=None)
    program = Program(training, graph, {"x": x}, {}, {"x": values(4, 6)}, [layer], y)
    assert program.compile(ALL)
    for _ in range(2):
        assert program.bind() and program.forward()
        slope = np.cos(array(y))  # of Σ sin(y)
        assert training.bindAndWriteData({"g": data(slope)}, forInputs={"g": own}, to=cpu(), synchronous=True)
        weights = array(layer.weights).reshape(3, 6)
        assert program.gradient()
        close(program.gradient_of(layer.weights, layer).reshape(3, 6), slope.T @ program.given["x"])
        close(array(training.gradientTensor(forInput=x)), slope @ weights)
        assert program.update()
        close(array(layer.weights).reshape(3, 6), weights - 0.1 * slope.T @ program.given["x"])


@pytest.mark.parametrize("is_lossless", [False, True])
def test_a_user_gradient_that_the_forward_pass_did_not_know_is_refused(is_lossless):
    program = regression()
    (layer,), given = program.layers, program.given
    if is_lossless:
        training = MLCTrainingGraph(graphObjects=[program.graph], lossLayer=None, optimizer=sgd())
        assert training.addInputs(program.inputs, lossLabels=None)
        program = Program(training, program.graph, program.inputs, {}, {"x": given["x"]}, [layer], program.result)
    assert program.compile() and program.bind() and program.forward()
    own, extra = program.training.allocateUserGradient(for_=program.result), values(4, 3, seed=30)
    bound = {"g": data(extra)}
    assert program.training.bindAndWriteData(bound, forInputs={"g": own}, to=cpu(), synchronous=True)
    for _ in range(2):
        assert not program.gradient()
        assert "allocated after the forward pass" in str(last_refusal()) and "executeForward again" in str(
            last_refusal()
        )
    slope = extra if is_lossless else extra + 2 * (predictions(program) - given["t"]) / 12
    assert program.forward() and program.gradient(), last_refusal()
    close(program.gradient_of(layer.weights, layer).reshape(3, 6), slope.T @ given["x"])


def test_only_results_take_a_user_gradient():
    program = regression()
    for held in (program.inputs["x"], program.layers[0].weights, placeholder(2, 2)):
        assert program.training.allocateUserGradient(for_=held) is None
        assert "is not the result of a node" in str(last_refusal())


# Stopping


def test_stop_gradient_leaves_upstream_parameters_alone(torch_device):
    program = regression(widths=(6, 5, 3), device=on(torch_device))
    first, second = program.layers
    (h,) = program.training.resultTensors(for_=first)
    assert program.training.stopGradient(for_=[h]) and program.compile(ALL)
    before = array(first.weights), array(second.weights)
    want = slopes(program)
    assert program.phases()
    assert program.training.gradientData(forParameter=first.weights, layer=first) is None
    assert "stopped" in str(last_refusal())
    close(program.gradient_of(second.weights, second).reshape(3, 5), want["w2"])
    assert not array(program.training.gradientTensor(forInput=program.inputs["x"])).any()
    assert program.update() and program.execute()
    program.training.synchronizeUpdates()
    np.testing.assert_array_equal(array(first.weights), before[0])
    assert not np.array_equal(array(second.weights), before[1])


def test_stop_gradient_waits_for_the_next_compile():
    program = regression(widths=(6, 5, 3))
    first, _ = program.layers
    (h,) = program.training.resultTensors(for_=first)
    assert program.compile() and program.training.stopGradientForTensors_([h]) and program.phases()
    assert program.gradient_of(first.weights, first) is not None
    assert program.compile() and program.phases() and program.gradient_of(first.weights, first) is None


def test_stop_gradient_takes_known_and_unknown_tensors():
    program = regression()
    assert program.training.stopGradient(for_=[]) and program.training.stopGradient(for_=[placeholder(2, 2)])
    with pytest.warns(MLCTrainingWarning, match="stopGradient names .* no layer of the graph reads or computes"):
        assert program.compile()
    assert program.phases() and program.gradient_of(program.layers[0].weights, program.layers[0]).any()


def test_a_gradient_stopped_on_one_way_flows_on_the_other():
    graph, x, t = MLCGraph(), placeholder(4, 3), placeholder(4, 3)
    layer = dense(3, 3)
    h = graph.node(layer, source=x)
    squared = graph.node(MLCActivationLayer.tanh, source=h)
    total = graph.node(MLCArithmeticLayer(operation=MLCArithmeticOperation.add), sources=[h, squared])
    training = MLCTrainingGraph(graphObjects=[graph], lossLayer=loss(), optimizer=sgd())
    assert training.addInputs({"x": x}, lossLabels={"t": t}) and training.stopGradient(for_=[squared])
    given = {"x": values(4, 3), "t": values(4, 3, seed=1)}
    program = Program(training, graph, {"x": x}, {"t": t}, given, [layer], total)
    assert program.compile() and program.phases()
    slope = 2 * (array(total) - given["t"]) / 12
    close(program.gradient_of(layer.weights, layer).reshape(3, 3), slope.T @ given["x"])


# Trained tensors and shared ones


def test_trained_inputs(torch_device):
    program = regression(device=on(torch_device))
    layer, x = program.layers[0], program.inputs["x"]
    start = values(4, 6, seed=5)
    held = tensor(start)
    graph = MLCGraph()
    free = dense(6, 3)
    y = graph.node(free, source=held)
    training = MLCTrainingGraph(graphObjects=[graph], lossLayer=loss(), optimizer=sgd())
    parameter = MLCTensorParameter(tensor=held)
    assert training.setTrainingTensorParameters([parameter]) and training.addInputs({}, lossLabels=program.labels)
    made = Program(training, graph, {}, program.labels, {"t": program.given["t"]}, [free], y, program.device)
    assert made.compile()
    weights, bias = array(free.weights).reshape(3, 6), array(free.biases).ravel()
    slope = 2 * (start @ weights.T + bias - made.given["t"]) / 12
    assert made.execute()
    training.synchronizeUpdates()
    close(array(held), start - 0.1 * slope @ weights)
    then, also = array(held), array(free.weights)
    parameter.isUpdatable = False
    assert made.execute()
    training.synchronizeUpdates()
    np.testing.assert_array_equal(array(held), then)
    assert not np.array_equal(array(free.weights), also) and layer is not None and x is not None


def test_what_a_layer_computes_cannot_be_trained():
    program = regression()
    assert program.training.setTrainingTensorParameters([MLCTensorParameter(tensor=program.result)])
    assert not program.compile()
    assert "computes; only a tensor that holds data of its own can be trained" in str(last_refusal())
    assert program.training.setTrainingTensorParameters([]) and program.compile() and program.execute()


def test_a_declared_input_may_be_trained():
    program = regression()
    x = program.inputs["x"]
    assert x.bindAndWriteData(data(program.given["x"]), to=cpu())
    assert program.training.setTrainingTensorParameters_([MLCTensorParameter(tensor=x)]) and program.compile()
    layer, start = program.layers[0], program.given["x"].copy()
    weights, bias = array(layer.weights).reshape(3, 6), array(layer.biases).ravel()
    slope = 2 * (start @ weights.T + bias - program.given["t"]) / 12
    fed = {"inputsData": {}, "lossLabelsData": program.labels_data(), "lossLabelWeightsData": None}
    assert program.training.execute(**fed, batchSize=0)
    close(array(x), start - 0.1 * slope @ weights)


@pytest.mark.parametrize("options", [[], [MLCGraphCompilationOptions.disableLayerFusion]], ids=["planned", "plain"])
@pytest.mark.parametrize("calls", ["execute", "phases"])
@pytest.mark.parametrize("what", ["x", "t"], ids=["input", "label"])
def test_rows_of_a_trained_input_that_are_not_run_have_no_gradient(what, calls, options, torch_device):
    """Each size twice: the second time by a gear of its own. Momentum moves rows that have none, too."""
    momentum = MLCSGDOptimizer(descriptor=hyper(0.1), momentumScale=0.9, usesNesterovMomentum=False)
    program = regression(momentum, device=on(torch_device))
    layer, trained = program.layers[0], (program.inputs | program.labels)[what]
    assert program.training.setTrainingTensorParameters([MLCTensorParameter(tensor=trained)]) and program.compile(
        options
    )
    assert program.bind()
    x, t, w, b = (
        torch.tensor(a, dtype=torch.float64)
        for a in (
            program.given["x"],
            program.given["t"],
            array(layer.weights).reshape(3, 6),
            array(layer.biases).ravel(),
        )
    )
    own = [w, b, x if what == "x" else t]
    rule = torch.optim.SGD([p.requires_grad_() for p in own], lr=0.1, momentum=0.9)
    fed = {"inputsData": {}, "lossLabelsData": {}, "lossLabelWeightsData": None}
    for batch in (4, 2, 2, 1, 3, 2, 4):
        rule.zero_grad()
        ((x[:batch] @ w.T + b - t[:batch]) ** 2).mean().backward()
        rule.step()
        if calls == "execute":
            assert program.training.execute(**fed, batchSize=batch)
        else:
            assert program.training.executeForward(batchSize=batch) and program.training.executeGradient(
                batchSize=batch
            )
            close(program.training.gradientTensor(forInput=trained).numpy(), own[2].grad.numpy())
            assert program.update()
        program.training.synchronizeUpdates()
        close(array(trained), own[2].detach().numpy())
        close(array(layer.weights).reshape(3, 6), w.detach().numpy())


@pytest.mark.parametrize("batch", [0, 2])
@pytest.mark.parametrize("what", ["x", "t"], ids=["input", "label"])
def test_a_tensor_that_is_trained_takes_no_other_data(what, batch):
    program = regression()
    trained = (program.inputs | program.labels)[what]
    parameter = MLCTensorParameter(tensor=trained)
    assert program.training.setTrainingTensorParameters([parameter]) and program.compile() and program.bind()
    before, weights = array(trained), array(program.layers[0].weights)
    assert not program.execute(batchSize=batch)
    dictionary = "inputsData" if what == "x" else "lossLabelsData"
    assert last_refusal().reason.startswith(
        f"{dictionary} names {what!r}, which setTrainingTensorParameters named too: it is"
    )
    np.testing.assert_array_equal(array(trained), before)
    np.testing.assert_array_equal(array(program.layers[0].weights), weights)
    other = values(*before.shape, seed=60)
    program.given[what] = other
    expected = (predictions(program) - program.given["t"]) ** 2
    told = []
    assert program.execute(
        options=8, completionHandler=lambda *given: told.append(float(given[0]))
    )  # nothing is moved by it
    close(told[0], expected.mean())
    parameter.isUpdatable = False  # nor here: the gradient is that at the data
    held = array(trained)
    assert program.execute()
    np.testing.assert_array_equal(array(trained), held)
    parameter.isUpdatable = True
    assert not program.execute() and "it is trained" in str(last_refusal())
    assert program.execute(options=1)  # skipWritingInputDataToDevice reads what is bound
    assert not np.array_equal(array(trained), held)


def test_whole_numbers_are_not_trained():
    program = regression()
    whole = placeholder(4, 6, type_=MLCDataType.int32)
    assert program.training.setTrainingTensorParameters([MLCTensorParameter(tensor=program.inputs["x"])])
    assert not program.training.setTrainingTensorParameters([MLCTensorParameter(tensor=whole)])
    assert last_refusal().reason.endswith("holds int32; only floating-point numbers can be trained")
    assert program.compile() and program.bind() and program.execute(options=1)  # what was named before is trained
    assert not np.array_equal(array(program.inputs["x"]), values(4, 6, seed=5))


def test_the_gradient_of_a_trained_tensor_is_a_tensor_too(torch_device):
    program = regression(device=on(torch_device))
    start = values(4, 6, seed=5)
    held, graph, free = tensor(start), MLCGraph(), dense(6, 3)
    graph.node(free, source=held)
    training = MLCTrainingGraph(graphObjects=[graph], lossLayer=loss(), optimizer=sgd())
    assert training.setTrainingTensorParameters([MLCTensorParameter(tensor=held)])
    assert training.addInputs({}, lossLabels=program.labels)
    made = Program(training, graph, {}, program.labels, {"t": program.given["t"]}, [free], None, program.device)
    assert made.compile()
    assert training.gradientTensor(forInput=held) is None and "executeGradient first" in str(last_refusal())
    for _ in range(2):
        weights, bias = free.weights.numpy().reshape(3, 6), free.biases.numpy().ravel()
        slope = 2 * (held.numpy() @ weights.T + bias - made.given["t"]) / 12 @ weights
        assert made.phases()
        close(training.gradientTensor(forInput=held).numpy(), slope)
        assert made.update()
    assert training.gradientTensor(forInput=free.weights) is None
    assert "is no input of this graph, nor one that is trained" in str(last_refusal())


@pytest.mark.parametrize("when", ["before any gradient", "after one"])
def test_an_output_that_is_a_gradient_is_filled_by_every_gradient_phase(when, torch_device):
    program = regression(device=on(torch_device))
    layer = program.layers[0]
    if when == "after one":
        assert program.compile() and program.phases()
    made = program.training.resultGradientTensors(for_=layer)[0]
    assert program.training.addOutputs({"g": made}) and program.compile()
    out = np.zeros((4, 3), np.float32)
    for _ in range(3):
        program.given["t"] += 1
        assert program.bind() and program.forward()
        assert program.gradient(outputsData={"g": data(out)}, options=[MLCExecutionOptions.synchronous])
        want = 2 * (predictions(program) - program.given["t"]) / 12
        close(out, want)
        close(made.numpy(), want)
        assert program.update()


def test_a_buffer_for_a_gradient_is_refused_where_none_is_computed():
    """It would show an older pass, or stay as it is."""
    program = regression()
    made = program.training.resultGradientTensors(for_=program.layers[0])[0]
    assert program.training.addOutputs({"g": made}) and program.compile() and program.bind()
    out = np.full((4, 3), 7, np.float32)
    infer = [MLCExecutionOptions.forwardForInference, MLCExecutionOptions.synchronous]
    for _ in range(2):
        for options in ([], infer):
            assert not program.forward(outputsData={"g": data(out)}, options=options)
            assert "the output 'g' is a gradient" in str(last_refusal())
        assert not program.execute(outputsData={"g": data(out)}, options=infer)
        assert "the output 'g' is a gradient" in str(last_refusal()) and (out == 7).all()
        want = 2 * (predictions(program) - program.given["t"]) / 12
        assert program.execute(outputsData={"g": data(out)}), last_refusal()
        close(out, want)
        out[:] = 7


def test_one_tensor_in_many_places_adds_its_gradients(torch_device):
    """One weight in two layers, one layer in two nodes: all four uses add up."""
    graph, x, t = MLCGraph(), placeholder(4, 3), placeholder(4, 3)
    first = dense(3, 3, bias=False)
    second = type(first)(weights=first.weights, biases=None, descriptor=first.descriptor)
    y = x
    for layer in (first, first, second, second):
        y = graph.node(layer, source=graph.node(MLCActivationLayer.tanh, source=y))
    training = MLCTrainingGraph(graphObjects=[graph], lossLayer=loss(), optimizer=sgd())
    assert training.addInputs({"x": x}, lossLabels={"t": t})
    given = {"x": values(4, 3), "t": values(4, 3, seed=1)}
    program = Program(training, graph, {"x": x}, {"t": t}, given, [first, second], y, on(torch_device))
    weights = torch.tensor(array(first.weights).reshape(3, 3), dtype=torch.float64, requires_grad=True)
    h = torch.tensor(given["x"], dtype=torch.float64)
    for _ in range(4):
        h = torch.tanh(h) @ weights.T
    ((h - torch.tensor(given["t"])) ** 2).mean().backward()
    before = array(first.weights)
    assert program.compile() and program.phases()
    close(program.gradient_of(first.weights, first).reshape(3, 3), weights.grad.numpy())
    np.testing.assert_array_equal(program.gradient_of(first.weights, first), program.gradient_of(first.weights, second))
    assert program.update()
    training.synchronizeUpdates()
    close((before - array(first.weights)).reshape(3, 3) / 0.1, weights.grad.numpy())


def test_gradient_tensors_that_were_let_go_are_not_filled():
    program = regression(widths=(6, 5, 3))
    assert program.compile()
    for _ in range(50):
        program.training.resultGradientTensors(for_=program.layers[0])
    gc.collect()
    program.training.resultGradientTensors(for_=program.layers[0])
    assert len(program.training._steering.pending) <= 2 and program.execute()
