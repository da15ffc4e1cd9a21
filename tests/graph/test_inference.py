"""Inference graphs: forward only, in inference mode, with the weights as they are."""

from __future__ import annotations

import numpy as np
import pytest

from mlc_torch import (
    MLCActivationLayer,
    MLCArithmeticLayer,
    MLCArithmeticOperation,
    MLCBatchNormalizationLayer,
    MLCDropoutLayer,
    MLCExecutionOptions,
    MLCGraph,
    MLCInferenceGraph,
    MLCSoftmaxLayer,
    MLCSoftmaxOperation,
    MLCSplitLayer,
    MLCTensorData,
    MLCTrainingGraph,
    last_refusal,
)
from mlc_torch.running.completion import wait_for_handlers
from tests.graph.programs import array, cpu, data, on, placeholder, regression, sgd, tensor, values


def predicted(layer, x):
    outputs = array(layer.biases).size
    weights = layer.weights.numpy().reshape(outputs, -1)
    return x @ weights.T + layer.biases.numpy().ravel()


def inference_over(program) -> MLCInferenceGraph:
    made = MLCInferenceGraph(graphObjects=[program.graph])
    assert made.addInputs(program.inputs) and made.compile(options=[], device=program.device)
    return made


def result_of(graph, inputs, batchSize=0, options=MLCExecutionOptions.synchronous):
    answers = []
    assert graph.execute(
        inputsData=inputs, batchSize=batchSize, options=options, completionHandler=lambda *g: answers.append(g)
    )
    ((result, error, seconds),) = answers
    assert error is None and seconds == 0.0
    return result


def test_the_handler_gets_the_last_node(torch_device):
    program = regression(widths=(6, 5, 3), device=on(torch_device))
    result = result_of(inference_over(program), program.inputs_data())
    first, second = program.layers
    want = predicted(second, np.maximum(predicted(first, program.given["x"]), 0))
    np.testing.assert_allclose(array(result), want, rtol=1e-5)
    np.testing.assert_allclose(array(program.result), want, rtol=1e-5)
    assert result.label == program.result.label and result.tensorID == program.result.tensorID


@pytest.mark.parametrize("rows", [4, 512], ids=["little", "two million bytes"])
def test_data_has_been_read_when_the_call_returns(torch_device, rows):
    """However much it is, and though a device may still be at work: the program may write the next batch there."""
    x, graph, buffer = placeholder(rows, 1024), MLCGraph(), np.empty((rows, 1024), np.float32)
    y = graph.node(MLCActivationLayer.relu, source=x)
    inference = MLCInferenceGraph(graphObjects=[graph])
    assert inference.addInputs({"x": x}) and inference.addOutputs({"y": y})
    assert inference.compile(options=[], device=on(torch_device))
    outputs, wanted, given = [], [], data(buffer)
    for seed in range(4):
        buffer[...] = values(rows, 1024, seed=seed)
        wanted.append(np.maximum(buffer, 0))
        outputs.append(np.empty_like(buffer))
        assert inference.execute(inputsData={"x": given}, outputsData={"y": data(outputs[-1])}, batchSize=rows)
        buffer[...] = np.nan
    assert inference.execute(inputsData={"x": given}, batchSize=rows, options=MLCExecutionOptions.synchronous)
    wait_for_handlers()
    for got, want in zip(outputs, wanted, strict=True):
        np.testing.assert_array_equal(got, want)


def test_a_refused_call_leaves_what_the_one_before_was_given():
    """Results that are asked for late are those of the last pass, whatever the program has written since."""
    a, b, graph = placeholder(2, 3), placeholder(2, 3), MLCGraph()
    layers = [MLCActivationLayer.relu, MLCArithmeticLayer(operation=MLCArithmeticOperation.add)]
    graph.node(layers[1], sources=[graph.node(layers[0], source=a), b])
    inference = MLCInferenceGraph(graphObjects=[graph])
    assert inference.addInputs({"a": a, "b": b}) and inference.compile(options=[], device=cpu())
    first, second = values(2, 3), values(2, 3, seed=1)
    wanted = np.maximum(first, 0)
    assert inference.execute(inputsData={"a": data(first), "b": data(second)}, batchSize=0)
    first[...] = np.nan
    assert not inference.execute(inputsData={"a": data(first), "c": data(second)}, batchSize=0)
    (late,) = inference.resultTensors(for_=layers[0])
    np.testing.assert_array_equal(late.numpy(), wanted)


def test_inference_sees_the_weights_that_training_changes(torch_device):
    program = regression(device=on(torch_device))
    assert program.compile()
    inference = inference_over(program)
    for _ in range(3):
        before = array(result_of(inference, program.inputs_data()))
        np.testing.assert_allclose(before, predicted(program.layers[0], program.given["x"]), rtol=1e-4, atol=1e-5)
        program.step()
        after = array(result_of(inference, program.inputs_data()))
        assert np.abs(after - before).max() > 1e-3
        np.testing.assert_allclose(after, predicted(program.layers[0], program.given["x"]), rtol=1e-4, atol=1e-5)


def test_training_over_a_graph_that_inference_compiled_first(torch_device):
    program = regression(device=on(torch_device))
    inference = inference_over(program)
    before = array(result_of(inference, program.inputs_data()))
    assert program.compile() and program.step() > program.step()
    assert not np.array_equal(array(result_of(inference, program.inputs_data())), before)


def test_a_node_on_the_inference_graph_alone():
    program = regression()
    assert program.compile()
    program.step()
    inference = MLCInferenceGraph(graphObjects=[program.graph])
    softmax = inference.node(MLCSoftmaxLayer(operation=MLCSoftmaxOperation.softmax), source=program.result)
    assert inference.addInputs(program.inputs) and inference.compile(options=[], device=cpu())
    assert result_of(inference, program.inputs_data()) is softmax
    exps = np.exp(predicted(program.layers[0], program.given["x"]))
    np.testing.assert_allclose(array(softmax), exps / exps.sum(1, keepdims=True), rtol=1e-5)
    assert len(program.graph.layers) == 1 and len(program.training.layers) == 2
    assert program.step() > 0 and program.step() > 0


def test_inference_mode_drops_nothing_and_uses_stored_statistics():
    graph, x = MLCGraph(), placeholder(4, 2, 1, 1)
    dropped = graph.node(MLCDropoutLayer(rate=0.9, seed=3), source=x)
    mean, variance = (
        tensor(np.array([1, 2], np.float32), [1, 2, 1, 1]),
        tensor(np.array([4, 9], np.float32), [1, 2, 1, 1]),
    )
    norm = MLCBatchNormalizationLayer(
        featureChannelCount=2, mean=mean, variance=variance, beta=None, gamma=None, varianceEpsilon=1e-9
    )
    normal = graph.node(norm, source=x)
    inference = MLCInferenceGraph(graphObjects=[graph])
    a = values(4, 2, 1, 1)
    assert inference.addInputs({"x": x}) and inference.compile(options=[], device=cpu())
    assert inference.execute(inputsData={"x": data(a)}, batchSize=0)
    np.testing.assert_array_equal(array(dropped), a)
    want = (a - np.array([1, 2]).reshape(1, 2, 1, 1)) / np.array([2, 3]).reshape(1, 2, 1, 1)
    np.testing.assert_allclose(array(normal), want, rtol=1e-5, atol=1e-6)
    assert array(mean).ravel().tolist() == [1, 2] and array(variance).ravel().tolist() == [4, 9]


def test_results_stay_when_the_caller_uses_the_memory_again():
    """A reshaped, split or untouched input must not go on looking into the buffer that it came from."""
    graph, x = MLCGraph(), placeholder(4, 6)
    shaped = graph.reshape(shape=[4, 3, 2], source=x)
    left, right = graph.split(source=x, splitCount=2, dimension=1)
    same = graph.node(MLCDropoutLayer(rate=0.5, seed=1), source=x)
    turned = graph.transpose(dimensions=[1, 0], source=x)
    inference = MLCInferenceGraph(graphObjects=[graph])
    a = values(4, 6)
    want = a.copy()
    assert inference.addInputs({"x": x}) and inference.compile(options=[], device=cpu())
    assert inference.execute(inputsData={"x": data(a)}, batchSize=0)
    a[:] = 0
    for got, expected in (
        (shaped, want.reshape(4, 3, 2)),
        (left, want[:, :3]),
        (right, want[:, 3:]),
        (same, want),
        (turned, want.T),
    ):
        np.testing.assert_array_equal(array(got), expected)


def test_data_is_read_when_the_graph_executes():
    program = regression()
    inference = inference_over(program)
    buffer = np.zeros((4, 6), np.float32)
    held = MLCTensorData(immutableBytesNoCopy=buffer, length=buffer.nbytes)
    buffer[:] = program.given["x"]
    got = array(result_of(inference, {"x": held}))
    np.testing.assert_allclose(got, predicted(program.layers[0], program.given["x"]), rtol=1e-5)
    buffer *= 2
    np.testing.assert_allclose(
        array(result_of(inference, {"x": held})), predicted(program.layers[0], buffer), rtol=1e-5
    )


def test_only_results_that_somebody_holds_are_kept():
    program = regression(widths=(6, 5, 3))
    hidden, x = program.layers[0], program.given["x"]
    assert program.compile() and program.execute()
    (inner,) = program.graph.resultTensors(for_=hidden)
    assert inner.data is None  # the update has changed the weights that it was computed with
    target = np.zeros(inner.descriptor.shape, np.float32)
    assert not inner.copyDataFromDeviceMemory(toBytes=target, length=target.nbytes, synchronizeWithDevice=False)
    wanted = predicted(hidden, x)
    assert program.execute()
    np.testing.assert_allclose(array(inner), wanted, rtol=1e-5, atol=1e-6)


# Results asked of the graph that only records the layers


def parts_of(graph, layer):
    """What the program reads of a layer's results, without holding on to them."""
    return [None if t.data is None else t.numpy().copy() for t in graph.resultTensors(for_=layer)]


@pytest.mark.parametrize("when", ["before", "compiled", "run"])
def test_what_the_recording_graph_is_asked_for_every_graph_over_it_keeps(when):
    graph, x, layer = MLCGraph(), placeholder(2, 3), MLCSplitLayer(splitCount=3, dimension=1)
    graph.node(layer, source=x)

    def ask(now):
        if when == now:
            assert len(graph.resultTensors(for_=layer)) == 3

    ask("before")
    inference = MLCInferenceGraph(graphObjects=[graph])
    assert inference.addInputs({"x": x}) and inference.compile(options=[], device=cpu())
    ask("compiled")
    read = []
    for number in range(4):
        given = values(2, 3, seed=number)
        assert inference.execute(
            inputsData={"x": data(given)}, batchSize=0, completionHandler=lambda *_: read.append(parts_of(graph, layer))
        )
        for parts in (read.pop(), parts_of(graph, layer)):
            np.testing.assert_array_equal(parts, np.split(given, 3, 1))


def test_where_two_graphs_have_run_neither_shows_what_the_other_computed():
    """What is asked of the graph below both comes with the next run of either; each tells of its own last run when asked."""
    graph, x, layer = MLCGraph(), placeholder(2, 3), MLCSplitLayer(splitCount=3, dimension=1)
    graph.node(layer, source=x)
    two = [MLCInferenceGraph(graphObjects=[graph]) for _ in range(2)]
    given = [values(2, 3, seed=number) for number in range(2)]
    for inference, one in zip(two, given, strict=True):
        assert inference.addInputs({"x": x}) and inference.compile(options=[], device=cpu())
        assert inference.execute(inputsData={"x": data(one)}, batchSize=0)
    assert parts_of(graph, layer)[1:] == [None, None]
    np.testing.assert_array_equal(parts_of(two[0], layer)[1:], np.split(given[0], 3, 1)[1:])
    later = MLCInferenceGraph(graphObjects=[graph])
    assert later.addInputs({"x": x}) and later.compile(options=[], device=cpu())
    for inference in (*two, later):
        for one in given:
            assert inference.execute(inputsData={"x": data(one)}, batchSize=0)
            np.testing.assert_array_equal(parts_of(graph, layer), np.split(one, 3, 1))


def test_the_answers_of_the_setup_calls():
    """evidence.md H.2: known, unknown and empty names are all taken."""
    program = regression()
    inference = MLCInferenceGraph(graphObjects=[program.graph])
    stranger = placeholder(2, 2)
    assert inference.addInputs({}) and inference.addOutputs({})
    assert inference.addInputs({"x": program.inputs["x"], "unknown": stranger})
    assert inference.addOutputs({"y": program.result, "unknown": stranger})
    assert inference.addInputs({}, lossLabels=None, lossLabelWeights=None)
    assert inference.link(with_=[]) and not inference.link(with_=[inference])
    layers = inference.layers
    assert inference.link(with_=[MLCInferenceGraph(graphObjects=[MLCGraph()])]) and inference.layers == layers


def test_loss_label_data_needs_declared_labels():
    program = regression()
    inference = inference_over(program)
    fed = {"inputsData": program.inputs_data(), "lossLabelsData": program.labels_data(), "lossLabelWeightsData": None}
    assert not inference.execute(**fed, batchSize=0)
    assert "declared no loss labels" in str(last_refusal())
    assert inference.execute(**{**fed, "lossLabelsData": {}}, batchSize=0)
    assert inference.addInputs({}, lossLabels=program.labels, lossLabelWeights=None)
    assert inference.execute(**fed, batchSize=0)


@pytest.mark.parametrize("batch", [1, 3])
def test_a_graph_trained_with_one_batch_infers_with_a_smaller(batch):
    program = regression()
    assert program.compile()
    program.step()
    inference = inference_over(program)
    x = program.given["x"][:batch].copy()
    for _ in range(3):
        got = array(result_of(inference, {"x": data(x)}, batchSize=batch))[:batch]
        np.testing.assert_allclose(got, predicted(program.layers[0], x), rtol=1e-5)


def test_a_graph_without_inputs_computes_from_constants():
    graph = MLCGraph()
    constant = tensor(values(2, 3))
    y = graph.node(MLCActivationLayer.relu, source=constant)
    inference = MLCInferenceGraph(graphObjects=[graph])
    assert inference.compile(options=[], device=cpu()) and inference.execute(inputsData={}, batchSize=0)
    np.testing.assert_array_equal(array(y), np.maximum(values(2, 3), 0))


def test_a_training_graph_may_be_a_graph_object():
    program = regression()
    assert program.compile()
    program.step()
    over = MLCInferenceGraph(graphObjects=[program.training])
    assert over.addInputs(program.inputs) and over.compile(options=[], device=cpu())
    np.testing.assert_allclose(
        array(result_of(over, program.inputs_data())), predicted(program.layers[0], program.given["x"]), rtol=1e-5
    )
    assert isinstance(program.training, MLCTrainingGraph) and program.step() > 0


def test_two_inference_graphs_over_one_graph():
    program = regression(optimizer=sgd())
    a, b = inference_over(program), inference_over(program)
    first, second = values(4, 6, seed=1), values(4, 6, seed=2)
    np.testing.assert_allclose(array(result_of(a, {"x": data(first)})), predicted(program.layers[0], first), rtol=1e-5)
    np.testing.assert_allclose(
        array(result_of(b, {"x": data(second)})), predicted(program.layers[0], second), rtol=1e-5
    )


def test_a_small_inference_has_filled_its_buffers_when_it_returns(torch_device):
    """Without ``synchronous`` too: a GPU is done with it before another thread could begin to wait."""
    program = regression(device=on(torch_device))
    inference = MLCInferenceGraph(graphObjects=[program.graph])
    assert inference.addInputs(program.inputs) and inference.addOutputs({"y": program.result})
    assert inference.compile(options=[], device=program.device)
    (layer,) = program.layers
    for _ in range(3):
        out, given = np.full((4, 3), np.nan, np.float32), program.inputs_data()
        assert inference.execute(inputsData=given, outputsData={"y": data(out)}, batchSize=4, options=[])
        (source,) = (np.frombuffer(d.bytes, np.float32).reshape(4, -1) for d in given.values())
        np.testing.assert_allclose(out, predicted(layer, source), rtol=1e-5, atol=1e-5)
