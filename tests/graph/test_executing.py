"""Executing: every form of the call and every option."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from mlc_torch import (
    MLCArithmeticLayer,
    MLCArithmeticOperation,
    MLCBatchNormalizationLayer,
    MLCDropoutLayer,
    MLCExecutionOptions,
    MLCGraph,
    MLCInferenceGraph,
    MLCReductionType,
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
    predictions,
    regression,
    sgd,
    squared_error,
    tensor,
    values,
)

Run = MLCExecutionOptions
SYNCHRONOUS = [Run.synchronous]


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
        varianceEpsilon=1e-9,
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
    assert training.bindAndWriteData({"x": data(a)}, forInputs={"x": x}, to=device, synchronous=True)
    assert training.executeForward(**how)
    np.testing.assert_allclose(answers[2], want, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(array(y), want, rtol=1e-5, atol=1e-6)
    assert not training.executeGradient(batchSize=0) and "executeForward first" in str(last_refusal())
    training.synchronizeUpdates()
    assert array(mean).ravel().tolist() == [0.5, 0.5] and array(norm.gamma).ravel().tolist() == [1, 1]


def test_forward_for_inference_counts_labels_that_are_bound(torch_device):
    """In a phase, and with skipWritingInputDataToDevice, where ignored data decides nothing. An ``execute`` that reads what it is
    given, and is given no labels, predicts."""
    program = regression(device=on(torch_device))
    assert program.compile()
    training, given, answers = program.training, program.given, []
    infer, skip = Run.forwardForInference | Run.synchronous, Run.skipWritingInputDataToDevice
    more = {"lossLabelWeightsData": None, "batchSize": 0, "completionHandler": lambda *g: answers.append(array(g[0]))}

    def answered(labels, options, want):
        assert training.execute(inputsData=program.inputs_data(), lossLabelsData=labels, options=options, **more)
        np.testing.assert_allclose(answers.pop(), want, rtol=1e-4, atol=1e-5)

    assert training.bindAndWriteData(
        {"x": data(given["x"])}, forInputs=program.inputs, to=program.device, synchronous=True
    )
    answered(None, infer, predictions(program))
    answered(program.labels_data(), infer | skip, predictions(program))
    assert program.bind()
    loss_ = [squared_error(program)]
    for labels in (None, {"t": data(given["t"] + 5)}):
        answered(labels, infer | skip, loss_)
    answered(None, infer, predictions(program))
    assert program.forward(options=infer, completionHandler=more["completionHandler"])
    np.testing.assert_allclose(answers.pop(), loss_, rtol=1e-4)


def test_a_buffer_behind_the_loss_is_refused_where_there_are_no_labels():
    """It would show the loss of an older pass, or stay as it is."""
    program = regression()
    training = MLCTrainingGraph(graphObjects=[program.graph], lossLayer=None, optimizer=sgd())
    (t,) = program.labels.values()
    y, error = program.result, program.graph.node(loss(), sources=[program.result], lossLabels=[t])
    program.training = training
    assert training.addInputs(program.inputs, lossLabels=program.labels)
    assert training.addOutputs({"loss": error, "y": y, "t": t}) and program.compile()
    outs = {"loss": np.full(1, 7, np.float32), "y": np.zeros((4, 3), np.float32), "t": np.full((4, 3), 7, np.float32)}
    fed = {
        "inputsData": program.inputs_data(),
        "lossLabelWeightsData": None,
        "batchSize": 0,
        "options": Run.forwardForInference,
    }
    for _ in range(2):
        for name in ("loss", "t"):
            assert not training.execute(**fed, lossLabelsData=None, outputsData={name: data(outs[name])})
            assert f"the output {name!r} belongs to the loss" in str(last_refusal()) and (outs[name] == 7).all()
        assert training.execute(**fed, lossLabelsData=None, outputsData={"y": data(outs["y"])})
        np.testing.assert_allclose(outs["y"], predictions(program), rtol=1e-4, atol=1e-5)
        assert program.execute()
    want = squared_error(program)
    assert training.execute(
        **fed, lossLabelsData=program.labels_data(), outputsData={n: data(out) for n, out in outs.items()}
    )
    np.testing.assert_allclose(outs["loss"], [want], rtol=1e-4)
    np.testing.assert_array_equal(outs["t"], program.given["t"])


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


def test_a_tensor_that_was_bound_itself_lies_in_the_buffer():
    """On the CPU: what is written there later, the next pass reads."""
    program = regression()
    assert program.compile()
    answers = []
    for name, held in (program.inputs | program.labels).items():
        assert held.bindAndWriteData(data(program.given[name]), to=cpu())
    for number in range(2):
        program.given["x"][:] = values(4, 6, seed=90 + number)
        assert program.forward(completionHandler=lambda *g: answers.append(array(g[0])))
        np.testing.assert_allclose(answers[number], [squared_error(program)], rtol=1e-5)


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
    # Without acc_events torch 2.11 warns, once in a process, that it keeps the events of one cycle only.
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], acc_events=True) as profile:
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
    """evidence.md G: unknown names and empty dictionaries are taken; short data is not."""
    program = regression()
    bind = program.training.bindAndWriteData
    x = program.inputs["x"]
    with pytest.warns(UserWarning, match="no tensor for the data named 'X', closest: x, which is not bound"):
        assert bind({"X": data(values(3))}, forInputs=program.inputs, to=cpu(), synchronous=True)
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


def test_a_graph_without_a_loss_has_nothing_to_differentiate():
    graph, x = MLCGraph(), placeholder(2, 3)
    graph.node(dense(3, 2), source=x)
    training = MLCTrainingGraph(graphObjects=[graph], lossLayer=None, optimizer=None)
    training.addInputs({"x": x}, lossLabels=None)
    assert training.compile(options=[], device=cpu())
    assert training.bindAndWriteData({"x": data(values(2, 3))}, forInputs={"x": x}, to=cpu(), synchronous=True)
    assert training.executeForward(batchSize=0) and not training.executeGradient(batchSize=0)
    assert "nothing to differentiate" in str(last_refusal())
