"""Compiling: every option, constants, order of the calls, again and again, an optimizer afterwards, devices."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from mlc_torch import (
    MLCActivationLayer,
    MLCAdamOptimizer,
    MLCArithmeticLayer,
    MLCArithmeticOperation,
    MLCDevice,
    MLCDeviceType,
    MLCExecutionOptions,
    MLCGraph,
    MLCGraphCompilationOptions,
    MLCInferenceGraph,
    MLCOptimizer,
    MLCTensor,
    MLCTensorParameter,
    MLCTrainingGraph,
    last_refusal,
)
from tests.graph.programs import array, cpu, data, dense, hyper, loss, on, placeholder, regression, sgd, tensor, values

Options = MLCGraphCompilationOptions


def trained(options, device, steps: int = 3) -> list[np.ndarray]:
    program = regression(widths=(6, 5, 3), device=device)
    assert program.compile(options)
    for _ in range(steps):
        program.step()
    program.training.synchronizeUpdates()
    return [array(p) for layer in program.layers for p in (layer.weights, layer.biases)]


@pytest.mark.parametrize(
    "options",
    [
        [],
        0,
        Options.debugLayers,
        [Options.disableLayerFusion],
        [Options.debugLayers, Options.disableLayerFusion],
        Options.linkGraphs,
        [Options.computeAllGradients],
        [Options.debugLayers, Options.disableLayerFusion, Options.linkGraphs, Options.computeAllGradients],
    ],
    ids=str,
)
def test_every_option_trains_the_same_weights(options, torch_device):
    plain = trained([Options.disableLayerFusion], cpu())
    for got, want in zip(trained(options, on(torch_device)), plain, strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-6)


def test_options_may_be_left_out_and_come_as_numbers():
    program = regression()
    assert program.training.compile(device=cpu())
    assert program.training.compileWithOptions_device_(1 | 2, cpu()) and program.step() > 0


def test_debug_layers_brings_back_what_the_layers_with_debugging_compute():
    program = regression(widths=(6, 5, 3))
    hidden = program.layers[0]
    hidden.isDebuggingEnabled = True
    assert program.compile(Options.debugLayers)
    program.step()
    (result,) = program.training.resultTensors(for_=hidden)
    weights, biases = array(hidden.weights).reshape(5, 6), array(hidden.biases).ravel()
    assert result.data is not None and array(result).shape == (4, 5)
    again = regression(widths=(6, 5, 3))
    want = again.given["x"] @ array(again.layers[0].weights).reshape(5, 6).T + array(again.layers[0].biases).ravel()
    np.testing.assert_allclose(array(result), want, rtol=1e-5)
    (gradient,) = program.training.resultGradientTensors(for_=hidden)
    assert array(gradient).shape == (4, 5) and np.abs(array(gradient)).max() > 0
    assert not np.array_equal(weights, array(again.layers[0].weights).reshape(5, 6)) and biases.shape == (5,)


def test_without_debug_layers_an_unheld_result_is_not_brought_back():
    program = regression(widths=(6, 5, 3))
    program.layers[0].isDebuggingEnabled = True
    assert program.compile()
    program.step()
    assert program.training.resultTensors(for_=program.layers[0])[0].data is None


# Order of the calls


def test_compile_before_add_inputs():
    program = regression()
    late = MLCTrainingGraph(graphObjects=[program.graph], lossLayer=loss(), optimizer=sgd())
    assert late.compile(options=[], device=cpu())
    fed = {"inputsData": program.inputs_data(), "lossLabelsData": program.labels_data(), "lossLabelWeightsData": None}
    assert not late.execute(**fed, batchSize=0) and "addInputs" in str(last_refusal())
    assert late.addInputs(program.inputs, lossLabels=program.labels) and late.execute(**fed, batchSize=0)
    inference = MLCInferenceGraph(graphObjects=[program.graph])
    assert inference.compile(options=[], device=cpu())
    assert not inference.execute(inputsData=program.inputs_data(), batchSize=0)
    assert "no data for" in str(last_refusal()) and "addInputs" in str(last_refusal())
    other = placeholder(4, 6)
    other.label = "other"
    assert inference.addInputs({"x": other})
    assert not inference.execute(inputsData=program.inputs_data(), batchSize=0)
    assert last_refusal().reason.endswith("; the input 'x' is declared with other, which nothing reads")
    assert inference.addInputs(program.inputs) and inference.execute(inputsData=program.inputs_data(), batchSize=0)


def test_executing_an_uncompiled_graph_is_refused():
    program = regression()
    assert not program.execute() and "not compiled" in str(last_refusal())
    assert program.bind() and not program.forward() and "not compiled" in str(last_refusal())
    inference = MLCInferenceGraph(graphObjects=[program.graph])
    assert inference.addInputs(program.inputs)
    assert not inference.execute(inputsData=program.inputs_data(), batchSize=0)
    assert "not compiled" in str(last_refusal())


def test_compiling_twice_goes_on_where_the_first_left_off():
    once, twice = regression(MLCAdamOptimizer(descriptor=hyper())), regression(MLCAdamOptimizer(descriptor=hyper()))
    assert once.compile() and twice.compile() and twice.compile(Options.disableLayerFusion)
    for _ in range(3):
        assert once.step() == pytest.approx(twice.step(), rel=1e-6)
    assert twice.compile()
    for _ in range(3):
        assert once.step() == pytest.approx(twice.step(), rel=1e-6)


def test_nodes_and_inputs_added_between_two_compiles():
    graph, x = MLCGraph(), placeholder(2, 3)
    y = graph.node(MLCActivationLayer.relu, source=x)
    inference = MLCInferenceGraph(graphObjects=[graph])
    assert inference.addInputs({"x": x}) and inference.compile(options=[], device=cpu())
    assert inference.execute(inputsData={"x": data(values(2, 3))}, batchSize=0)
    other = placeholder(2, 3)
    total = inference.node(MLCArithmeticLayer(operation=MLCArithmeticOperation.add), sources=[y, other])
    assert inference.addInputs({"other": other}) and inference.compile(options=[], device=cpu())
    assert inference.execute(inputsData={"x": data(values(2, 3)), "other": data(values(2, 3, seed=1))}, batchSize=0)
    np.testing.assert_allclose(array(total), np.maximum(values(2, 3), 0) + values(2, 3, seed=1), rtol=1e-6)


def test_an_empty_graph_does_not_compile():
    assert not MLCInferenceGraph(graphObjects=[MLCGraph()]).compile(options=[], device=cpu())
    assert "no layers" in str(last_refusal())
    training = MLCTrainingGraph(graphObjects=[MLCGraph()], lossLayer=loss(), optimizer=sgd())
    assert not training.compile(options=[], device=cpu()) and "no layers" in str(last_refusal())
    assert not MLCInferenceGraph(graphObjects=[]).compile(options=[], device=cpu())


def test_what_is_refused_at_compile_names_the_layer():
    graph, x = MLCGraph(), placeholder(2, 3)
    assert graph.reshape(shape=[7], source=x).descriptor.shape == [7]
    inference = MLCInferenceGraph(graphObjects=[graph])
    assert inference.addInputs({"x": x}) and not inference.compile(options=[], device=cpu())
    assert "'Reshape'" in str(last_refusal()) and "[2, 3]" in str(last_refusal())
    graph = MLCGraph()
    assert len(graph.split(source=x, splitSectionLengths=[1, 1], dimension=1)) == 2
    inference = MLCInferenceGraph(graphObjects=[graph])
    assert inference.addInputs({"x": x}) and not inference.compile(options=[], device=cpu())


def test_labels_that_came_after_the_loss_was_asked_for_are_still_checked():
    program = regression()
    training = MLCTrainingGraph(graphObjects=[program.graph], lossLayer=loss(), optimizer=sgd())
    assert training.resultTensors(for_=training.layers[-1])
    assert training.addInputs(program.inputs, lossLabels={"t": placeholder(4, 5)})
    assert not training.compile(options=[], device=cpu()) and "[4, 5]" in str(last_refusal())


def test_a_refused_compile_leaves_the_last_one_in_place():
    program = regression()
    assert program.compile() and program.step() > 0
    program.graph.reshape(shape=[7], source=program.result)
    program.training.stopGradient(for_=[program.result])
    assert not program.compile()
    before = array(program.layers[0].weights)
    assert program.step() > 0 and not np.array_equal(array(program.layers[0].weights), before)


# Constants


def test_constants_given_at_compile(torch_device):
    device = on(torch_device)
    graph, x, shift = MLCGraph(), placeholder(2, 3), placeholder(2, 3)
    total = graph.node(MLCArithmeticLayer(operation=MLCArithmeticOperation.add), sources=[x, shift])
    inference = MLCInferenceGraph(graphObjects=[graph])
    given = values(2, 3, seed=1)
    constants = {"inputTensors": {"shift": shift}, "inputTensorsData": {"shift": data(given)}}
    assert inference.addInputs({"x": x}) and inference.compile(options=[], device=device, **constants)
    assert inference.execute(inputsData={"x": data(values(2, 3))}, batchSize=0, options=MLCExecutionOptions.synchronous)
    np.testing.assert_allclose(array(total), values(2, 3) + given, rtol=1e-6)
    assert inference.compileWithOptions_device_inputTensors_inputTensorsData_(
        [], device, {"shift": shift}, {"shift": data(given * 2)}
    )
    assert inference.execute(inputsData={"x": data(values(2, 3))}, batchSize=0, options=MLCExecutionOptions.synchronous)
    np.testing.assert_allclose(array(total), values(2, 3) + given * 2, rtol=1e-6)


@pytest.mark.parametrize("constants", [(None, None), ({}, {}), ({}, None), (None, {})], ids=str)
def test_constants_may_be_missing(constants):
    program = regression()
    given = {"inputTensors": constants[0], "inputTensorsData": constants[1]}
    assert program.compile(**given) and program.step() > 0
    inference = MLCInferenceGraph(graphObjects=[program.graph])
    assert inference.compile(options=[], device=cpu(), **given)


def test_constants_in_a_training_graph_are_not_trained():
    graph, x, t = MLCGraph(), placeholder(2, 3), placeholder(2, 3)
    constant = tensor(values(2, 3, seed=4))
    h = graph.node(MLCArithmeticLayer(operation=MLCArithmeticOperation.multiply), sources=[x, constant])
    layer = dense(3, 3)
    graph.node(layer, source=h)
    training = MLCTrainingGraph(graphObjects=[graph], lossLayer=loss(), optimizer=sgd())
    assert training.addInputs({"x": x}, lossLabels={"t": t}) and training.compile(options=[], device=cpu())
    fed = {"inputsData": {"x": data(values(2, 3))}, "lossLabelsData": {"t": data(values(2, 3))}}
    assert training.execute(**fed, lossLabelWeightsData=None, batchSize=0)
    np.testing.assert_array_equal(array(constant), values(2, 3, seed=4))


def test_constant_data_that_is_too_short_is_refused():
    graph, x, shift = MLCGraph(), placeholder(2, 3), placeholder(2, 3)
    graph.node(MLCArithmeticLayer(operation=MLCArithmeticOperation.add), sources=[x, shift])
    inference = MLCInferenceGraph(graphObjects=[graph])
    short = {"inputTensors": {"shift": shift}, "inputTensorsData": {"shift": data(values(3))}}
    assert inference.addInputs({"x": x}) and not inference.compile(options=[], device=cpu(), **short)
    assert "data for 'shift' holds 12 bytes" in str(last_refusal()) and "needs 24" in str(last_refusal())


def test_a_source_with_data_that_is_no_input_is_a_constant():
    graph, x = MLCGraph(), placeholder(2, 3)
    shift = values(2, 3, seed=2)
    held = MLCTensor(shape=[2, 3], data=data(shift), dataType=1)
    total = graph.node(MLCArithmeticLayer(operation=MLCArithmeticOperation.add), sources=[x, held])
    inference = MLCInferenceGraph(graphObjects=[graph])
    assert inference.addInputs({"x": x}) and inference.compile(options=[], device=cpu())
    assert inference.execute(inputsData={"x": data(values(2, 3))}, batchSize=0)
    np.testing.assert_allclose(array(total), values(2, 3) + shift, rtol=1e-6)


# The optimizer


def test_compile_optimizer_gives_a_graph_an_optimizer():
    program = regression()
    bare = MLCTrainingGraph(graphObjects=[program.graph], lossLayer=loss(), optimizer=None)
    adam = MLCAdamOptimizer(descriptor=hyper(0.01))
    assert bare.optimizer is None and not bare.compileOptimizer(adam) and "compile the graph" in str(last_refusal())
    assert bare.addInputs(program.inputs, lossLabels=program.labels) and bare.compile(options=[], device=cpu())
    fed = {"inputsData": program.inputs_data(), "lossLabelsData": program.labels_data(), "lossLabelWeightsData": None}
    before = array(program.layers[0].weights)
    assert bare.execute(**fed, batchSize=0)
    np.testing.assert_array_equal(array(program.layers[0].weights), before)
    assert bare.compileOptimizer_(adam) and bare.optimizer is adam and bare.execute(**fed, batchSize=0)
    assert np.abs(array(program.layers[0].weights) - before) == pytest.approx(0.01, rel=1e-3) and adam.timeStep == 2


def test_another_optimizer_starts_without_the_state_of_the_first():
    program = regression(MLCAdamOptimizer(descriptor=hyper(0.01)))
    free = tensor(values(4, 3, seed=8))
    program.graph.node(MLCArithmeticLayer(operation=MLCArithmeticOperation.add), sources=[program.result, free])
    program.training.setTrainingTensorParameters([MLCTensorParameter(tensor=free)])
    assert program.compile()
    for _ in range(3):
        program.step()
    assert program.training.compileOptimizer(MLCAdamOptimizer(descriptor=hyper(0.01)))
    before = [array(p) for p in (program.layers[0].weights, free)]
    program.step()
    for tensor_, was in zip((program.layers[0].weights, free), before, strict=True):
        # Adam's very first step is the learning rate itself, whatever the gradient.
        np.testing.assert_allclose(np.abs(array(tensor_) - was), 0.01, rtol=1e-2)


def test_an_optimizer_without_a_rule_is_refused():
    program = regression()
    base = MLCOptimizer._bare()
    assert MLCTrainingGraph(graphObjects=[program.graph], lossLayer=loss(), optimizer=base) is None
    assert "no update rule" in str(last_refusal())
    assert program.compile() and not program.training.compileOptimizer(base) and program.step() > 0


# Devices


def test_compile_tells_graphs_layers_and_tensors_their_device(torch_device):
    device = on(torch_device)
    program = regression(device=device)
    layer = program.layers[0]
    assert program.training.device is None and layer.weights.device is None
    assert program.compile() and program.training.device is device and program.graph.device is device
    assert layer.deviceType == device.type and layer.weights.device.torch_device.type == torch_device.type


def test_any_is_the_best_device_present():
    program = regression(device=MLCDevice(type=MLCDeviceType.any))
    assert program.compile() and program.step() > 0
    best = "cuda" if torch.cuda.is_available() else "mps" if torch.backends.mps.is_available() else "cpu"
    assert program.training.device.torch_device.type == best


def test_another_device_moves_the_weights_and_the_old_graph_says_so(torch_device):
    program = regression(device=on(torch_device))
    assert program.compile()
    program.step()
    inference = MLCInferenceGraph(graphObjects=[program.graph])
    assert inference.addInputs(program.inputs) and inference.compile(options=[], device=cpu())
    assert inference.execute(inputsData=program.inputs_data(), batchSize=0)
    if torch_device.type == "cpu":
        assert program.step() > 0
        return
    assert not program.execute()
    assert "now lives on cpu" in str(last_refusal()) and "compile it again" in str(last_refusal())
    assert program.compile() and program.step() > 0


@pytest.mark.parametrize("count", [1, 7, 8, 9, 1100])
def test_a_graph_over_many_graphs(count):
    given = result = placeholder(2, 3)
    graphs = []
    for _ in range(count):
        graphs.append(MLCGraph())
        result = graphs[-1].node(
            MLCArithmeticLayer(operation=MLCArithmeticOperation.add),
            sources=[result, tensor(np.ones((2, 3), np.float32))],
        )
    inference = MLCInferenceGraph(graphObjects=graphs)
    assert inference.addInputs({"x": given}) and inference.compile(options=[], device=cpu())
    assert inference.execute(
        inputsData={"x": data(np.zeros((2, 3), np.float32))}, batchSize=0, options=MLCExecutionOptions.synchronous
    )
    np.testing.assert_array_equal(array(result), np.full((2, 3), count))
