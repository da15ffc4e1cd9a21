"""Executing: every form of the call, every option, batch sizes, lengths of data, output buffers."""

from __future__ import annotations

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
    MLCExecutionOptions,
    MLCGraph,
    MLCInferenceGraph,
    MLCLSTMDescriptor,
    MLCLSTMLayer,
    MLCReductionType,
    MLCTensorData,
    MLCTrainingGraph,
    last_refusal,
)
from tests.graph.programs import (
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

Run = MLCExecutionOptions
SYNCHRONOUS = [Run.synchronous]


def predictions(program, rows=slice(None)):
    """What the first layer computes now."""
    layer = program.layers[0]
    return program.given["x"][rows] @ layer.weights.numpy().reshape(3, 6).T + layer.biases.numpy().ravel()


def squared_error(program, rows=slice(None)):
    return ((predictions(program, rows) - program.given["t"][rows]) ** 2).mean()


# Every form


def test_every_form_of_training_execute(torch_device):
    program = regression(device=on(torch_device))
    x, t = program.inputs_data(), program.labels_data()
    out = np.zeros((4, 3), np.float32)
    assert program.training.addOutputs({"y": program.result}) and program.compile()
    seen = []

    def handler(result, error, seconds):
        seen.append((float(array(result)[0]), error, seconds))

    wanted = []
    calls = [
        lambda: program.training.execute(inputsData=x, lossLabelsData=t, lossLabelWeightsData=None, batchSize=4),
        lambda: program.training.execute(
            inputsData=x,
            lossLabelsData=t,
            lossLabelWeightsData={},
            batchSize=4,
            options=SYNCHRONOUS,
            completionHandler=handler,
        ),
        lambda: program.training.execute(
            inputsData=x,
            lossLabelsData=t,
            lossLabelWeightsData=None,
            outputsData={"y": data(out)},
            batchSize=4,
            options=SYNCHRONOUS,
            completionHandler=handler,
        ),
        lambda: (
            program.training.executeWithInputsData_lossLabelsData_lossLabelWeightsData_batchSize_options_completionHandler_(
                x, t, None, 4, 2, handler
            )
        ),
        lambda: (
            program.training.executeWithInputsData_lossLabelsData_lossLabelWeightsData_outputsData_batchSize_options_completionHandler_(
                x, t, None, {"y": data(out)}, 4, 2, handler
            )
        ),
    ]
    for call in calls:
        program.training.synchronizeUpdates()
        before = predictions(program)
        wanted.append(squared_error(program))
        assert call()
    np.testing.assert_allclose(out, before, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose([value for value, _, _ in seen], wanted[1:], rtol=1e-4)
    assert all(error is None and seconds == 0.0 for _, error, seconds in seen)
    assert sorted(wanted, reverse=True) == wanted


def test_every_form_of_inference_execute(torch_device):
    program = regression(device=on(torch_device))
    x, t = program.inputs_data(), program.labels_data()
    inference = MLCInferenceGraph(graphObjects=[program.graph])
    assert inference.addInputs(program.inputs, lossLabels=program.labels, lossLabelWeights=None)
    assert inference.addOutputs({"y": program.result}) and inference.compile(options=[], device=program.device)
    out = np.zeros((4, 3), np.float32)
    results = []

    def handler(result, error, seconds):
        results.append(array(result))

    y, labels = {"y": data(out)}, {"lossLabelsData": t, "lossLabelWeightsData": None}
    how = {"batchSize": 4, "options": SYNCHRONOUS, "completionHandler": handler}
    assert inference.execute(inputsData=x, **how)
    assert inference.execute(inputsData=x, outputsData=y, **how)
    np.testing.assert_array_equal(out, results[-1])
    out[:] = 0
    assert inference.execute(inputsData=x, **labels, **how)
    assert not out.any()
    assert inference.execute(inputsData=x, **labels, outputsData=y, **how)
    np.testing.assert_array_equal(out, results[-1])
    assert inference.executeWithInputsData_batchSize_options_completionHandler_(x, 4, 2, handler)
    assert inference.executeWithInputsData_outputsData_batchSize_options_completionHandler_(x, y, 4, 2, handler)
    assert inference.executeWithInputsData_lossLabelsData_lossLabelWeightsData_batchSize_options_completionHandler_(
        x, t, None, 4, 2, handler
    )
    assert inference.executeWithInputsData_lossLabelsData_lossLabelWeightsData_outputsData_batchSize_options_completionHandler_(
        x, t, None, y, 4, 2, handler
    )
    assert len(results) == 8
    for result in results:
        np.testing.assert_allclose(result, predictions(program), rtol=1e-5)


def test_every_form_of_the_phases(torch_device):
    program = regression(device=on(torch_device))
    assert program.training.addOutputs({"y": program.result}) and program.compile() and program.bind()
    out, seen = np.zeros((4, 3), np.float32), []
    y, training = {"y": data(out)}, program.training

    def handler(result, error, seconds):
        seen.append((result, error, seconds))

    assert training.executeForward(batchSize=4) and training.executeGradient(batchSize=4)
    assert training.executeOptimizerUpdate()
    how = {"options": SYNCHRONOUS, "completionHandler": handler}
    assert training.executeForward(batchSize=4, **how) and training.executeGradient(batchSize=4, **how)
    assert training.executeOptimizerUpdate(**how)
    training.synchronizeUpdates()
    want = predictions(program)
    assert training.executeForward(batchSize=4, outputsData=y, **how)
    np.testing.assert_allclose(out, want, rtol=1e-4, atol=1e-5)
    out[:] = 0
    assert training.executeGradient(batchSize=4, outputsData=y, **how)
    np.testing.assert_allclose(out, want, rtol=1e-4, atol=1e-5)
    assert training.executeForwardWithBatchSize_options_completionHandler_(4, 2, handler)
    assert training.executeGradientWithBatchSize_options_completionHandler_(4, 2, handler)
    assert training.executeForwardWithBatchSize_options_outputsData_completionHandler_(4, 2, y, handler)
    assert training.executeGradientWithBatchSize_options_outputsData_completionHandler_(4, 2, y, handler)
    assert training.executeOptimizerUpdateWithOptions_completionHandler_(2, handler)
    results = [result is not None for result, _, _ in seen]
    assert results == [True, False, False, True, False, True, False, True, False, False]
    assert all(error is None for _, error, _ in seen)


# Batch sizes


@pytest.mark.parametrize("batch", [0, 4])
def test_the_whole_batch(batch):
    program = regression()
    assert program.compile()
    want, answers = squared_error(program), []
    assert program.execute(batchSize=batch, completionHandler=lambda *g: answers.append(g[0]))
    np.testing.assert_allclose(array(answers[0]), [want], rtol=1e-5)


@pytest.mark.parametrize("options", [[], SYNCHRONOUS], ids=["none", "synchronous"])
def test_a_short_batch_computes_with_its_first_samples_alone(options, torch_device):
    """Losses, statistics and gradients; the rest of a result keeps its bytes. Short again: the gear for it is used."""
    full, cut = regression(device=on(torch_device)), regression(batch=2, device=on(torch_device))
    cut.given = {name: a[:2].copy() for name, a in full.given.items()}
    assert full.compile() and cut.compile()
    for number in range(4):
        mine, theirs = [], []
        given = {"inputsData": cut.inputs_data(), "lossLabelsData": cut.labels_data(), "lossLabelWeightsData": None}
        how = {"batchSize": 2, "options": SYNCHRONOUS}
        assert full.training.execute(**given, **how, completionHandler=lambda *g, m=mine: m.append(array(g[0])))
        assert cut.training.execute(**given, **how, completionHandler=lambda *g, t=theirs: t.append(array(g[0])))
        np.testing.assert_allclose(mine[0], theirs[0], rtol=1e-5, err_msg=str(number))
    full.training.synchronizeUpdates()
    cut.training.synchronizeUpdates()
    np.testing.assert_allclose(array(full.layers[0].weights), array(cut.layers[0].weights), rtol=1e-5, atol=1e-6)
    assert full.execute(options=SYNCHRONOUS)
    whole = array(full.result)
    assert full.execute(batchSize=2, options=SYNCHRONOUS)
    np.testing.assert_array_equal(array(full.result)[2:], whole[2:])
    assert not np.array_equal(array(full.result)[:2], whole[:2])


def test_a_short_batch_in_separate_phases():
    full, cut = regression(), regression(batch=2)
    cut.given = {name: a[:2].copy() for name, a in full.given.items()}
    assert full.compile() and cut.compile() and cut.phases()
    bound = {name: data(a) for name, a in cut.given.items()}
    tensors = full.inputs | full.labels
    for _ in range(3):
        assert full.training.bindAndWriteData(bound, forInputs=tensors, to=cpu(), batchSize=2, synchronous=True)
        assert full.training.executeForward(batchSize=2) and full.training.executeGradient(batchSize=2)
        layer = full.layers[0]
        np.testing.assert_allclose(
            full.gradient_of(layer.weights, layer), cut.gradient_of(cut.layers[0].weights, cut.layers[0]), rtol=1e-5
        )


def test_binding_in_the_selector_s_spelling():
    program = regression()
    assert program.compile()
    bound = {name: data(a) for name, a in program.given.items()}
    tensors = program.inputs | program.labels
    assert program.training.bindAndWriteData_forInputs_toDevice_synchronous_(bound, tensors, cpu(), True)
    assert program.training.bindAndWriteData_forInputs_toDevice_batchSize_synchronous_(bound, tensors, cpu(), 4, False)
    assert program.forward() and program.gradient()


@pytest.mark.parametrize("batch", [5, -1, 2**40])
def test_batch_sizes_that_are_none_are_refused(batch):
    program = regression()
    assert program.compile() and program.bind()
    inference = MLCInferenceGraph(graphObjects=[program.graph])
    assert inference.addInputs(program.inputs) and inference.compile(options=[], device=cpu())
    tensors = program.inputs | program.labels
    bound = {name: data(a) for name, a in program.given.items()}
    for call in (
        lambda: program.execute(batchSize=batch),
        lambda: program.training.executeForward(batchSize=batch),
        lambda: program.training.executeGradient(batchSize=batch),
        lambda: inference.execute(inputsData=program.inputs_data(), batchSize=batch),
        lambda: program.training.bindAndWriteData(
            bound, forInputs=tensors, to=cpu(), batchSize=batch, synchronous=True
        ),
        lambda: program.graph.bindAndWriteData(bound, forInputs=tensors, to=cpu(), batchSize=batch, synchronous=True),
    ):
        assert not call()
        assert "batchSize" in str(last_refusal()) and str(batch) in str(last_refusal())
    assert program.step() > 0


def test_initial_states_are_no_batch():
    """An LSTM's states count layers first; naming them before the sequence must not make the batch 1."""
    graph, hidden = MLCGraph(), 3
    states = [placeholder(1, 1, 4, hidden), placeholder(1, 1, 4, hidden)]
    x = placeholder(4, 5, 2)
    weights = (
        [tensor(values(hidden, 2, seed=i)) for i in range(4)],
        [tensor(values(hidden, hidden, seed=i)) for i in range(4)],
    )
    layer = MLCLSTMLayer(
        descriptor=MLCLSTMDescriptor(inputSize=2, hiddenSize=hidden, layerCount=1),
        inputWeights=weights[0],
        hiddenWeights=weights[1],
        biases=[tensor(values(hidden, seed=i)) for i in range(4)],
    )
    y = graph.node(layer, sources=[x, *states])
    inference = MLCInferenceGraph(graphObjects=[graph])
    tensors = {"h": states[0], "c": states[1], "x": x}
    assert inference.addInputs(tensors) and inference.compile(options=[], device=cpu())
    given = {"h": values(1, 1, 4, hidden), "c": values(1, 1, 4, hidden, seed=1), "x": values(4, 5, 2)}
    assert inference.execute(inputsData={n: data(a) for n, a in given.items()}, batchSize=4)
    whole = array(y)
    for _ in range(3):
        assert inference.execute(inputsData={n: data(a) for n, a in given.items()}, batchSize=2)
        np.testing.assert_allclose(array(y)[:2], whole[:2], rtol=1e-5, atol=1e-6)
    bound = {n: data(a) for n, a in given.items()}
    assert inference.bindAndWriteData(bound, forInputs=tensors, to=cpu(), batchSize=4, synchronous=True)
    assert inference.execute(inputsData={}, batchSize=4, options=Run.skipWritingInputDataToDevice)
    np.testing.assert_array_equal(array(y), whole)


def test_layers_that_cannot_take_a_short_batch_refuse_it():
    graph, x = MLCGraph(), placeholder(4, 3)
    graph.node(MLCArithmeticLayer(operation=MLCArithmeticOperation.add), sources=[x, tensor(values(4, 3))])
    inference = MLCInferenceGraph(graphObjects=[graph])
    assert inference.addInputs({"x": x}) and inference.compile(options=[], device=cpu())
    for _ in range(3):
        assert not inference.execute(inputsData={"x": data(values(4, 3))}, batchSize=2)
        assert "torch cannot compute this" in str(last_refusal())
    assert inference.execute(inputsData={"x": data(values(4, 3))}, batchSize=4)


# Lengths of data


def test_data_may_be_longer_and_not_shorter_than_its_tensor():
    program = regression()
    assert program.compile()
    long = np.concatenate([program.given["x"].ravel(), np.full(50, np.nan, np.float32)])
    want, answers = squared_error(program), []
    t = program.labels_data()
    assert program.training.execute(
        inputsData={"x": data(long)},
        lossLabelsData=t,
        lossLabelWeightsData=None,
        batchSize=4,
        completionHandler=lambda *g: answers.append(array(g[0])),
    )
    np.testing.assert_allclose(answers[0], [want], rtol=1e-5)
    short = data(program.given["x"], length=4 * 6 * 4 - 1)
    fed = {"lossLabelsData": t, "lossLabelWeightsData": None}
    assert not program.training.execute(inputsData={"x": short}, **fed, batchSize=4)
    said = str(last_refusal())
    assert "'x'" in said and "95" in said and "96" in said
    assert not program.training.execute(
        inputsData=program.inputs_data(), lossLabelsData={"t": data(values(2))}, lossLabelWeightsData=None, batchSize=4
    )
    assert "'t'" in str(last_refusal())
    assert program.training.execute(inputsData={"x": data(program.given["x"], 48)}, **fed, batchSize=2)


def test_a_declared_tensor_that_no_node_reads_needs_no_data():
    program = regression()
    unread = placeholder(4, 9)
    assert program.training.addInputs({"unread": unread}, lossLabels={"too": unread}) and program.compile()
    assert program.step() > 0 and program.phases()
    inference = MLCInferenceGraph(graphObjects=[program.graph])
    assert inference.addInputs(program.inputs | {"unread": unread}) and inference.compile(options=[], device=cpu())
    assert inference.execute(inputsData=program.inputs_data(), batchSize=4)


def test_missing_data_is_refused_and_names_what_is_missing():
    program = regression()
    assert program.compile()
    fed = {"lossLabelsData": program.labels_data(), "lossLabelWeightsData": None, "batchSize": 4}
    assert not program.training.execute(inputsData={"image": data(program.given["x"])}, **fed)
    assert "no data for the input 'x'" in str(last_refusal()) and "'image'" in str(last_refusal())
    assert not program.training.execute(inputsData=program.inputs_data(), **{**fed, "lossLabelsData": None})
    assert "label 't'" in str(last_refusal())
    assert not program.forward() and "no data for the input 'x'" in str(last_refusal())
    assert program.step() > 0


@pytest.mark.parametrize(
    "buffer",
    [
        bytes,
        bytearray,
        memoryview,
        lambda b: np.frombuffer(b, np.float32),
        lambda b: torch.frombuffer(bytearray(b), dtype=torch.float32),
    ],
    ids=["bytes", "bytearray", "memoryview", "array", "torch"],
)
def test_any_buffer_feeds_a_graph(buffer):
    program = regression()
    inference = MLCInferenceGraph(graphObjects=[program.graph])
    assert inference.addInputs(program.inputs) and inference.compile(options=[], device=cpu())
    held = MLCTensorData(immutableBytesNoCopy=buffer(program.given["x"].tobytes()), length=96)
    assert inference.execute(inputsData={"x": held}, batchSize=4)
    np.testing.assert_allclose(array(program.result), predictions(program), rtol=1e-5)


# Output buffers


def test_output_buffers_are_the_caller_s_own_and_may_be_longer(torch_device):
    program = regression(device=on(torch_device))
    assert program.training.addOutputs({"y": program.result}) and program.compile()
    out = np.full(20, 7, np.float32)
    want = predictions(program)
    assert program.execute(options=SYNCHRONOUS, outputsData={"y": data(out)})
    np.testing.assert_allclose(out[:12].reshape(4, 3), want, rtol=1e-5)
    assert (out[12:] == 7).all()
    np.testing.assert_array_equal(array(program.result).ravel(), out[:12])


def test_a_short_batch_writes_its_own_samples_into_an_output_buffer():
    program = regression()
    assert program.training.addOutputs({"y": program.result}) and program.compile()
    for _ in range(3):
        out, want = np.full((4, 3), 7, np.float32), predictions(program, slice(0, 2))
        assert program.execute(batchSize=2, outputsData={"y": data(out, 2 * 3 * 4)})
        np.testing.assert_allclose(out[:2], want, rtol=1e-5)
        assert (out[2:] == 7).all()


def test_output_buffers_that_do_not_serve_are_refused_before_anything_runs():
    program = regression()
    assert program.training.addOutputs({"y": program.result}) and program.compile()
    before = array(program.layers[0].weights)
    out = np.zeros((4, 3), np.float32)
    assert not program.execute(outputsData={"z": data(out)}) and "'z'" in str(last_refusal())
    assert not program.execute(outputsData={"y": data(out, 47)}) and "47" in str(last_refusal())
    frozen = MLCTensorData(immutableBytesNoCopy=bytes(48), length=48)
    assert not program.execute(outputsData={"y": frozen}) and "read-only" in str(last_refusal())
    np.testing.assert_array_equal(array(program.layers[0].weights), before)
    assert program.execute(outputsData=None) and program.execute(outputsData={})


def test_several_outputs_and_intermediate_ones():
    graph, x = MLCGraph(), placeholder(2, 3)
    h = graph.node(MLCActivationLayer.relu, source=x)
    y = graph.node(MLCActivationLayer.tanh, source=h)
    inference = MLCInferenceGraph(graphObjects=[graph])
    assert inference.addInputs({"x": x}) and inference.addOutputs({"h": h, "y": y})
    del h, y
    assert inference.compile(options=[], device=cpu())
    hidden, out, a = np.zeros((2, 3), np.float32), np.zeros((2, 3), np.float32), values(2, 3)
    assert inference.execute(inputsData={"x": data(a)}, outputsData={"h": data(hidden), "y": data(out)}, batchSize=0)
    np.testing.assert_array_equal(hidden, np.maximum(a, 0))
    np.testing.assert_allclose(out, np.tanh(np.maximum(a, 0)), rtol=1e-5)


def test_output_buffers_of_another_type():
    graph, x = MLCGraph(), placeholder(2, 3, type_=MLCDataType.int32)
    y = graph.reshape(shape=[3, 2], source=x)
    inference = MLCInferenceGraph(graphObjects=[graph])
    assert inference.addInputs({"x": x}) and inference.addOutputs({"y": y})
    assert inference.compile(options=[], device=cpu())
    out, a = np.zeros((3, 2), np.int32), np.arange(6, dtype=np.int32)
    assert inference.execute(inputsData={"x": data(a)}, outputsData={"y": data(out)}, batchSize=0)
    np.testing.assert_array_equal(out.ravel(), a)


# Options


def test_forward_for_inference_computes_and_changes_nothing(torch_device):
    graph, x, t = MLCGraph(), placeholder(4, 2, 1, 1), placeholder(4, 2, 1, 1)
    mean, variance = (tensor(np.full(2, v, np.float32), [1, 2, 1, 1]) for v in (0.5, 4.0))
    norm = MLCBatchNormalizationLayer(
        featureChannelCount=2,
        mean=mean,
        variance=variance,
        beta=tensor(np.zeros(2, np.float32), [1, 2, 1, 1]),
        gamma=tensor(np.ones(2, np.float32), [1, 2, 1, 1]),
        varianceEpsilon=0.0,
    )
    y = graph.node(MLCDropoutLayer(rate=0.5, seed=1), source=graph.node(norm, source=x))
    training = MLCTrainingGraph(graphObjects=[graph], lossLayer=loss(), optimizer=sgd())
    device, a, b = on(torch_device), values(4, 2, 1, 1), values(4, 2, 1, 1, seed=1)
    assert training.addInputs({"x": x}, lossLabels={"t": t}) and training.compile(options=[], device=device)
    want = (a - 0.5) / 2
    answers = []
    how = {"batchSize": 0, "options": [Run.forwardForInference, Run.synchronous]}
    how["completionHandler"] = lambda *g: answers.append(array(g[0]))
    fed = {"inputsData": {"x": data(a)}, "lossLabelWeightsData": None}
    assert training.execute(**fed, lossLabelsData=None, **how)
    assert training.execute(**fed, lossLabelsData={"t": data(b)}, **how)
    np.testing.assert_allclose(answers[0], want, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(answers[1], [((want - b) ** 2).mean()], rtol=1e-5)
    bound = {"x": data(a), "t": data(b)}
    assert training.bindAndWriteData(bound, forInputs={"x": x}, to=device, synchronous=True)
    assert training.executeForward(**how)
    np.testing.assert_allclose(answers[2], want, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(array(y), want, rtol=1e-5, atol=1e-6)
    assert not training.executeGradient(batchSize=0) and "executeForward first" in str(last_refusal())
    training.synchronizeUpdates()
    assert array(mean).ravel().tolist() == [0.5, 0.5] and array(norm.gamma).ravel().tolist() == [1, 1]


def test_a_training_step_after_an_inference_pass_is_a_training_step():
    mixed, plain = regression(), regression()
    assert mixed.compile() and plain.compile()
    for _ in range(3):
        assert mixed.execute(options=Run.forwardForInference)
        assert mixed.step() == plain.step()


def test_skip_writing_uses_what_is_bound_and_ignores_what_is_given(torch_device):
    program = regression(device=on(torch_device))
    assert program.compile()
    skip = [Run.skipWritingInputDataToDevice, Run.synchronous]
    assert not program.execute(options=skip) and "no data for the input 'x'" in str(last_refusal())
    assert program.bind()
    want, answers = squared_error(program), []
    other = {"x": data(values(4, 6, seed=99))}
    assert program.training.execute(
        inputsData=other,
        lossLabelsData={},
        lossLabelWeightsData=None,
        batchSize=4,
        options=skip,
        completionHandler=lambda *g: answers.append(array(g[0])),
    )
    np.testing.assert_allclose(answers[0], [want], rtol=1e-5)


def test_bound_data_has_been_read_when_bind_returns():
    program = regression()
    assert program.compile() and program.bind()
    want, answers = squared_error(program), []
    program.given["x"][:] = 0
    assert program.forward(completionHandler=lambda *g: answers.append(array(g[0])))
    np.testing.assert_allclose(answers[0], [want], rtol=1e-5)


def test_profiling_measures_and_without_it_the_time_is_zero(torch_device):
    program = regression(device=on(torch_device))
    assert program.compile() and program.bind()
    times = []

    def handler(result, error, seconds):
        times.append(seconds)

    both = [Run.profiling, Run.synchronous]
    assert program.execute(completionHandler=handler, options=both)
    assert program.forward(completionHandler=handler, options=both)
    assert program.gradient(completionHandler=handler, options=both)
    assert program.update(completionHandler=handler, options=both)
    assert program.execute(completionHandler=handler, options=SYNCHRONOUS)
    assert all(0 < seconds < 60 for seconds in times[:4]) and times[4] == 0.0


def test_per_layer_profiling_names_the_layers():
    program = regression(widths=(6, 5, 3))
    program.layers[0].label = "the first"
    assert program.compile()
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
        assert program.execute(options=Run.perLayerProfiling)
    names = {event.key for event in profile.key_averages()}
    assert {"mlc::the first", "mlc::FullyConnected", "mlc::Loss"} <= names
    plain = regression(widths=(6, 5, 3))
    assert plain.compile()
    plain.step()
    assert plain.step() == pytest.approx(program.step(), rel=1e-6)


def test_per_layer_profiling_keeps_the_mode():
    """Profiled in training, then in inference: dropout is off in the second."""
    graph, x, t = MLCGraph(), placeholder(4, 6), placeholder(4, 6)
    y = graph.node(MLCDropoutLayer(rate=0.9, seed=3), source=graph.node(dense(6, 6), source=x))
    training = MLCTrainingGraph(graphObjects=[graph], lossLayer=loss(), optimizer=sgd(0.0))
    assert training.addInputs({"x": x}, lossLabels={"t": t}) and training.compile(options=[], device=cpu())
    fed = {"inputsData": {"x": data(values(4, 6))}, "lossLabelsData": {"t": data(values(4, 6))}}
    fed |= {"lossLabelWeightsData": None, "batchSize": 0}
    assert training.execute(**fed, options=Run.perLayerProfiling)
    assert (array(y) == 0).sum() > 4
    assert training.execute(**fed, options=[Run.perLayerProfiling, Run.forwardForInference])
    assert (array(y) != 0).all()


# No loss, no optimizer


def test_a_training_graph_without_loss_and_optimizer_gives_its_last_node():
    graph, x, y = MLCGraph(), placeholder(6, 1), placeholder(6, 1)
    total = graph.node(MLCArithmeticLayer(operation=MLCArithmeticOperation.add), sources=[x, y])
    training = MLCTrainingGraph(graphObjects=[graph], lossLayer=None, optimizer=None)
    assert training.addInputs({"x": x, "y": y}, lossLabels=None) and training.compile(options=[], device=cpu())
    answers, a, b = [], np.arange(6, dtype=np.float32), np.arange(6, 12, dtype=np.float32)
    assert training.execute(
        inputsData={"x": data(a), "y": data(b)},
        lossLabelsData=None,
        lossLabelWeightsData=None,
        batchSize=0,
        completionHandler=lambda *g: answers.append(g),
    )
    assert answers[0][0] is total and array(total).ravel().tolist() == (a + b).tolist()
    assert training.bindAndWriteData({"x": data(a)}, forInputs={"x": x}, to=cpu(), synchronous=True)
    assert not training.executeForward(batchSize=0)
    assert training.bindAndWriteData({"y": data(b)}, forInputs={"y": y}, to=cpu(), synchronous=True)
    assert training.executeForward(batchSize=0) and not training.executeGradient(batchSize=0)
    assert "no loss and no user gradient" in str(last_refusal()) or "executeForward" in str(last_refusal())


def test_bind_answers_as_measured():
    """behaviour.md G: unknown names and empty dictionaries are taken; short data is not."""
    program = regression()
    bind = program.training.bindAndWriteData
    x = program.inputs["x"]
    assert bind({"unknown": data(values(3))}, forInputs=program.inputs, to=cpu(), synchronous=True)
    assert bind({}, forInputs={}, to=cpu(), synchronous=True)
    assert not bind({"x": data(values(3))}, forInputs={"x": x}, to=cpu(), synchronous=True)
    assert program.training.device is None
    with pytest.raises(TypeError, match="forInputs"):
        bind({"x": data(values(4, 6))}, forInputs=None, to=cpu(), synchronous=True)


@pytest.mark.parametrize("reduction", [MLCReductionType.none, MLCReductionType.sum, MLCReductionType.mean])
def test_the_handler_of_a_training_graph_gets_the_loss(reduction):
    program = regression(reduction=reduction)
    assert program.compile()
    errors, answers = (predictions(program) - program.given["t"]) ** 2, []
    assert program.execute(completionHandler=lambda *g: answers.append(array(g[0])))
    want = {"none": errors, "sum": [errors.sum()], "mean": [errors.mean()]}[reduction.name]
    np.testing.assert_allclose(answers[0], want, rtol=1e-5)
