"""Executing: sizes of batches, lengths of data, and the caller's output buffers."""

from __future__ import annotations

import re

import numpy as np
import pytest
import torch

from mlc_torch import (
    MLCActivationLayer,
    MLCArithmeticLayer,
    MLCArithmeticOperation,
    MLCDataType,
    MLCDevice,
    MLCExecutionOptions,
    MLCGraph,
    MLCInferenceGraph,
    MLCLossLayer,
    MLCLossType,
    MLCLSTMDescriptor,
    MLCLSTMLayer,
    MLCMatMulDescriptor,
    MLCMatMulLayer,
    MLCReductionLayer,
    MLCReductionType,
    MLCTensor,
    MLCTensorData,
    MLCTensorParameter,
    MLCTrainingGraph,
    MLCTrainingWarning,
    MLCTransposeLayer,
    last_refusal,
)
from mlc_torch.refusals import MLCRefusal
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


@pytest.mark.parametrize("looked_at", [False, True])
@pytest.mark.parametrize("inputs", [6, 9000])  # for a GPU 140 KiB wait in pinned memory
def test_samples_that_are_not_bound_anew_stay_as_they_are(torch_device, looked_at, inputs):
    program = regression(widths=(inputs, 3), device=on(torch_device))
    assert program.training.addOutputs({"y": program.result}) and program.compile() and program.phases()
    weights, biases = array(program.layers[0].weights).reshape(3, inputs), array(program.layers[0].biases).ravel()
    x = program.given["x"].copy()
    for count in (2, 1, 3):
        if looked_at:
            np.testing.assert_array_equal(program.inputs["x"].torch.cpu().numpy(), x)
        x[:count] = given = values(count, inputs, seed=count)
        bound = {"x": data(given)}
        assert program.training.bindAndWriteData(
            bound, forInputs=program.inputs, to=program.device, batchSize=count, synchronous=True
        )
        assert program.training.executeForward(batchSize=4, options=SYNCHRONOUS)
        np.testing.assert_allclose(program.result.numpy(), x @ weights.T + biases, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("inputs", [6, 9000])
def test_samples_that_were_never_bound_are_not_run(torch_device, inputs):
    """They were computed as zeros."""
    program = regression(widths=(inputs, 3), device=on(torch_device))
    assert program.training.addOutputs({"y": program.result}) and program.compile()
    weights, biases = array(program.layers[0].weights).reshape(3, inputs), array(program.layers[0].biases).ravel()
    x, t = (program.given[name] for name in "xt")

    def bind(count: int) -> None:
        given = {"x": data(x[:count].copy()), "t": data(t[:count].copy())}
        assert program.training.bindAndWriteData(
            given, forInputs=program.inputs | program.labels, to=program.device, batchSize=count, synchronous=True
        )

    for count, more in ((1, 2), (3, 4), (2, 0)):
        bind(count)
        assert not program.training.executeForward(batchSize=more)
        known, wanted = max(count, 1 if count == 1 else 3), more or 4
        said = f"{known} of the {wanted} samples of the input 'x' were bound; bind the others too, or give batchSize={known}"
        assert last_refusal().reason == said
        assert program.training.executeForward(batchSize=known, options=SYNCHRONOUS), last_refusal()
        np.testing.assert_allclose(program.result.numpy()[:known], x[:known] @ weights.T + biases, rtol=1e-3, atol=1e-4)
        assert program.gradient()
    bind(4)
    assert program.training.executeForward(batchSize=4), last_refusal()
    bind(2)  # the others stay as they are
    assert program.training.executeForward(batchSize=0), last_refusal()


def test_the_gradient_runs_the_batch_of_its_forward_pass():
    program = regression(widths=(6, 5, 3))
    assert program.compile() and program.execute()
    outside = program.training.allocateUserGradient(for_=program.result)
    more = {"g": data(np.full((4, 3), 0.25, np.float32))}
    assert program.training.bindAndWriteData(more, forInputs={"g": outside}, to=cpu(), synchronous=True)
    got = []
    for forward, other in ((2, 4), (2, 3), (4, 2), (0, 2)):
        assert program.bind() and program.training.executeForward(batchSize=forward)
        assert not program.training.executeGradient(batchSize=other)
        assert f"batchSize is {other}, the forward pass ran {forward or 4} samples" in str(last_refusal())
        assert program.training.executeGradient(batchSize=0)
        layer = program.layers[0]
        got.append(bytes(program.training.gradientData(forParameter=layer.weights, layer=layer)))
    assert got[0] == got[1] != got[2] == got[3]


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
    """A product that adds up over all samples."""
    graph, x = MLCGraph(), placeholder(4, 3)
    over_samples = MLCMatMulDescriptor(alpha=1, transposesX=True, transposesY=False)
    graph.node(MLCMatMulLayer(descriptor=over_samples), sources=[x, tensor(values(4, 2))])
    inference = MLCInferenceGraph(graphObjects=[graph])
    assert inference.addInputs({"x": x}) and inference.compile(options=[], device=cpu())
    for _ in range(3):
        assert not inference.execute(inputsData={"x": data(values(4, 3))}, batchSize=2)
        said = "torch cannot compute this, in layer 'MatMul' over sources of shapes [2, 3] and [4, 2]"
        assert said in str(last_refusal())
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


@pytest.mark.parametrize("shape", [(9, 6), (54,), (9, 2, 3)], ids=str)
def test_of_an_array_with_more_rows_the_first_are_taken(shape):
    """docs/graphs.md, "Less to write": as a buffer, an array may be longer than what is read of it."""
    program, answers = regression(), []
    assert program.compile()
    want = squared_error(program)
    long = np.concatenate([program.given["x"], np.full((5, 6), np.nan, np.float32)]).reshape(shape)
    assert program.training.execute(
        inputsData={"x": long},
        lossLabelsData=program.labels_data(),
        lossLabelWeightsData=None,
        batchSize=4,
        completionHandler=lambda *g: answers.append(array(g[0])),
    )
    np.testing.assert_allclose(answers[0], [want], rtol=1e-5)


def test_a_declared_tensor_that_no_node_reads_needs_no_data():
    program = regression()
    unread = placeholder(4, 9)
    assert program.training.addInputs({"unread": unread}, lossLabels={"too": unread})
    with pytest.warns(MLCTrainingWarning, match="no node of the graph reads"):
        assert program.compile()
    assert program.step() > 0 and program.phases()
    inference = MLCInferenceGraph(graphObjects=[program.graph])
    assert inference.addInputs(program.inputs | {"unread": unread})
    with pytest.warns(MLCTrainingWarning, match="no node of the graph reads the input 'unread'"):
        assert inference.compile(options=[], device=cpu())
    assert inference.execute(inputsData=program.inputs_data(), batchSize=4)


def test_missing_data_is_refused_and_names_what_is_missing():
    program = regression()
    assert program.compile()
    fed = {"lossLabelsData": program.labels_data(), "lossLabelWeightsData": None, "batchSize": 4}
    assert not program.training.execute(inputsData={}, **fed)
    assert "no data for the input 'x'; give it in inputsData, or bind it with bindAndWriteData" in str(last_refusal())
    assert not program.training.execute(inputsData=program.inputs_data(), **{**fed, "lossLabelsData": None})
    assert "label 't'" in str(last_refusal())
    assert not program.forward()
    assert "no data for the input 'x'; bind it with bindAndWriteData before" in str(last_refusal())
    assert program.step() > 0


NAMES = {
    "misspelt": ({"xx": "x"}, {"t": "t"}, "inputsData names 'xx'; addInputs declared for it: x"),
    "capital": ({"x": "x"}, {"T": "t"}, "lossLabelsData names 'T'; addInputs declared for it: t; closest: t"),
    "one too many": ({"x": "x", "y": "x"}, {"t": "t"}, "inputsData names 'y'"),
    "in the wrong dictionary": (
        {"x": "x", "t": "t"},
        {},
        "inputsData names 't'.*data for 't' goes into lossLabelsData",
    ),
}


@pytest.mark.parametrize("batch", [4, 2])
@pytest.mark.parametrize("case", NAMES)
def test_unknown_names_are_refused_though_data_is_bound(case, batch):
    """Without a word the numbers of the last bind would be used again."""
    program, (inputs, labels, words) = regression(), NAMES[case]
    assert program.compile() and program.bind()
    before = array(program.layers[0].weights).copy()
    for kind in (data, np.asarray):
        given = {name: kind(values) for name, values in program.given.items()}
        assert not program.training.execute(
            inputsData={name: given[of] for name, of in inputs.items()},
            lossLabelsData={name: given[of] for name, of in labels.items()},
            lossLabelWeightsData=None,
            batchSize=batch,
        )
        assert re.search(words, str(last_refusal()))
    assert np.array_equal(array(program.layers[0].weights), before)
    assert program.training.execute(
        inputsData={"x": given["x"]}, lossLabelsData=None, lossLabelWeightsData=None, batchSize=batch
    )


def test_a_name_too_many_is_refused_beside_data_that_was_given_before():
    program = regression()
    assert program.compile()
    given = {name: data(values) for name, values in program.given.items()}
    others = {"lossLabelsData": {"t": given["t"]}, "lossLabelWeightsData": None, "batchSize": 0}
    assert program.training.execute(inputsData={"x": given["x"]}, **others)
    assert not program.training.execute(inputsData={"x": given["x"], "y": given["x"]}, **others)
    assert "inputsData names 'y'" in str(last_refusal())


def test_a_declared_input_that_nobody_reads_is_no_unknown_name():
    program = regression()
    more = {"spare": placeholder(4, 1)}
    training = MLCTrainingGraph(graphObjects=[program.graph], lossLayer=loss(), optimizer=sgd())
    assert training.addInputs(program.inputs | more, lossLabels=program.labels)
    with pytest.warns(MLCTrainingWarning, match="spare"):
        assert training.compile(options=[], device=cpu())
    assert training.execute(
        inputsData=program.inputs_data() | {"spare": values(4, 1)},
        lossLabelsData=program.labels_data(),
        lossLabelWeightsData=None,
        batchSize=4,
    )


SHAPES = {
    # of the array, of the tensor, whether the one is read as the other
    "its own": ((4, 6), (4, 6), True),
    "ones added": ((4, 6, 1, 1), (4, 6), True),
    "ones left out": ((4, 6), (4, 6, 1, 1), True),
    "a row": ((24,), (4, 6), True),
    "neighbours joined": ((4, 6), (4, 2, 3), True),
    "neighbours split": ((4, 2, 3), (4, 6), True),
    "more samples": ((9, 6), (4, 6), True),
    "transposed": ((6, 4), (4, 6), False),
    "other features": ((4, 7), (4, 6), False),
    "fewer features, more samples": ((8, 3), (4, 6), False),
    "channels last": ((4, 2, 2, 3), (4, 3, 2, 2), False),
    "a matrix for a row": ((4, 6), (4,), False),
}


@pytest.mark.parametrize("make", [lambda s: np.zeros(s, np.float32), torch.zeros], ids=["numpy", "torch"])
@pytest.mark.parametrize("case", SHAPES)
def test_an_array_has_the_tensor_s_shape(case, make):
    given, wanted, fits = SHAPES[case]
    graph, x = MLCGraph(), placeholder(*wanted)
    graph.node(MLCActivationLayer.relu, source=x)
    inference = MLCInferenceGraph(graphObjects=[graph])
    assert inference.addInputs({"x": x}) and inference.compile(options=[], device=cpu())
    memory = make(given)
    bind = {"forInputs": {"x": x}, "to": cpu(), "synchronous": True}
    for answer in (
        inference.execute(inputsData={"x": memory}, batchSize=0),
        inference.bindAndWriteData({"x": memory}, **bind),
        x.bindAndWriteData(memory, to=cpu()),
    ):
        assert answer is fits
        if not fits:
            words = f"is an array of shape {list(given)}, the tensor's shape is {list(wanted)}"
            assert words in str(last_refusal())
    size = memory.nbytes
    assert inference.execute(inputsData={"x": MLCTensorData(bytesNoCopy=memory, length=size)}, batchSize=0)


def test_label_weights_that_nobody_declared_are_refused():
    program = regression()
    assert program.compile() and program.bind()
    given = {"inputsData": {}, "lossLabelsData": None, "batchSize": 0}
    assert not program.training.execute(**given, lossLabelWeightsData={"t": values(4, 1)})
    assert "lossLabelWeightsData names 't'; addInputs declared for it: nothing" in str(last_refusal())


def test_too_little_data_is_told_in_bytes_and_elements():
    program = regression()
    assert program.compile()
    x = program.given["x"]
    given = {"lossLabelsData": program.labels_data(), "lossLabelWeightsData": None, "batchSize": 4}
    for short, says in (
        (
            x[:3],
            "holds 72 bytes (18 elements), shape [4, 6] needs 96 (24 elements); for a smaller batch give batchSize=3",
        ),
        (
            MLCTensorData(bytesNoCopy=np.ones(4, np.float32), length=16),
            "needs 96 (24 elements); its shape is [4], and each of its 4 samples takes [6]",
        ),
        (MLCTensorData(bytesNoCopy=x, length=x.size), "needs 96 (24 elements); the length of data is counted in bytes"),
    ):
        assert not program.training.execute(inputsData={"x": short}, **given)
        assert says in str(last_refusal())


def lstm_with_states() -> tuple[MLCInferenceGraph, dict[str, MLCTensor]]:
    """Two layers over four sequences: states are [layers, directions, batch, hidden], and count layers first."""
    hidden, graph = 3, MLCGraph()
    tensors = {"x": MLCTensor(shape=[4, 1, 3]), "h": MLCTensor(shape=[2, 1, 4, 3]), "c": MLCTensor(shape=[2, 1, 4, 3])}
    weights = [MLCTensor.from_numpy(np.ones((hidden, hidden), np.float32)) for _ in range(16)]
    biases = [MLCTensor.from_numpy(np.ones(hidden, np.float32)) for _ in range(8)]
    layer = MLCLSTMLayer(
        descriptor=MLCLSTMDescriptor(inputSize=3, hiddenSize=hidden, layerCount=2),
        inputWeights=weights[:8],
        hiddenWeights=weights[8:],
        biases=biases,
    )
    graph.node(layer, sources=list(tensors.values()))
    inference = MLCInferenceGraph(graphObjects=[graph])
    inference.addInputs(tensors)
    assert inference.compile(options=[], device=MLCDevice.cpu())
    return inference, tensors


@pytest.mark.parametrize("size", [1, 2, 4])
def test_states_for_fewer_samples_are_told_to_come_whole(size):
    """No batchSize would do: half of the states' bytes is one of two layers, and no number of samples."""
    inference, tensors = lstm_with_states()
    short, x = np.zeros((2, 1, 2, 3), np.float32), np.zeros((4, 1, 3), np.float32)
    given = {
        "x": x,
        "h": MLCTensorData(bytesNoCopy=short, length=short.nbytes),
        "c": np.zeros((2, 1, 4, 3), np.float32),
    }
    assert not inference.execute(inputsData=given, batchSize=size)
    says = (
        "data for 'h' holds 48 bytes (12 elements), shape [2, 1, 4, 3] needs 96 (24 elements); its first dimension counts no "
        "samples, so it is given whole, whatever the size of the batch"
    )
    assert last_refusal().reason == says
    assert not inference.bindAndWriteData(
        given, forInputs=tensors, to=MLCDevice.cpu(), batchSize=size, synchronous=True
    )
    assert last_refusal().reason == says
    few = x[:3]
    assert not inference.bindAndWriteData({"x": few}, forInputs=tensors, to=MLCDevice.cpu(), synchronous=True)
    assert "for a smaller batch give batchSize=3" in last_refusal().reason
    assert inference.execute(inputsData=given | {"h": given["c"]}, batchSize=size)


def test_of_several_arrays_the_one_that_is_not_contiguous_is_named():
    inference, tensors = lstm_with_states()
    turned = np.zeros((3, 1, 4), np.float32).T
    given = {"h": np.zeros((2, 1, 4, 3), np.float32), "x": turned}
    for answer in (
        inference.execute(inputsData=given, batchSize=4),
        inference.bindAndWriteData(given, forInputs=tensors, to=MLCDevice.cpu(), synchronous=True),
    ):
        assert not answer
        assert last_refusal().reason.startswith("entry 'x': the buffer is an array that is not contiguous; pass")
    masked = np.ma.masked_equal(np.zeros((4, 3), np.float32), 1)
    assert not tensors["x"].bindOptimizerData([np.zeros((4, 1, 3), np.float32), masked], deviceData=None)
    assert last_refusal().reason.startswith("entry 1: the buffer is a masked array")


def test_raw_bytes_have_no_shape():
    program = regression()
    assert program.compile()
    assert program.training.execute(
        inputsData={"x": program.given["x"].view(np.uint8)},
        lossLabelsData={"t": torch.from_numpy(program.given["t"]).view(torch.uint8)},
        lossLabelWeightsData=None,
        batchSize=0,
    )


@pytest.mark.parametrize("labels", [np.arange(6) % 3, torch.arange(6) % 3, (np.arange(6) % 3).astype(np.float32)])
@pytest.mark.parametrize("batch", [6, 4])
def test_class_numbers_are_told_to_become_one_hot(labels, batch):
    graph, x, t = MLCGraph(), placeholder(6, 4), placeholder(6, 3)
    graph.node(dense(4, 3), source=x)
    training = MLCTrainingGraph(graphObjects=[graph], lossLayer=loss(MLCLossType.softmaxCrossEntropy), optimizer=sgd())
    assert training.addInputs({"x": x}, lossLabels={"t": t}) and training.compile(options=[], device=cpu())
    fed = {"inputsData": {"x": values(6, 4)}, "lossLabelWeightsData": None, "batchSize": batch}
    assert not training.execute(**fed, lossLabelsData={"t": labels})
    assert "pass np.eye(3, dtype=np.float32)[labels]" in str(last_refusal())
    assert "astype" not in str(last_refusal())
    with pytest.raises(MLCRefusal, match=r"pass np.eye\(3, dtype=np.float32\)\[labels\]"):
        training.step(values(6, 4)[:batch], labels[:batch])
    assert not training.execute(**fed, lossLabelsData={"t": np.eye(3, dtype=np.int64)[np.asarray(labels, int)]})
    assert "astype(np.float32)" in str(last_refusal())
    assert training.execute(**fed, lossLabelsData={"t": np.eye(3, dtype=np.float32)[np.asarray(labels, int)]})


@pytest.mark.filterwarnings("ignore:no parameter can be updated")
@pytest.mark.parametrize(
    ("shape", "given"),
    [
        ((2, 5, 4, 4), (2, 4, 4)),
        ((2, 5, 4, 4), (2, 1, 4, 4)),
        ((4, 5), (4,)),
        ((4, 5), (4, 1)),
        ((2, 4, 5), (2, 4)),
        ((2, 4, 5), (2, 4, 1)),
    ],
)
def test_what_makes_class_numbers_one_hot_is_taken(shape, given):
    """What the refusal says to pass, word for word."""
    graph, x, t = MLCGraph(), placeholder(*shape), placeholder(*shape)
    graph.node(MLCActivationLayer.tanh, source=x)
    training = MLCTrainingGraph(graphObjects=[graph], lossLayer=loss(MLCLossType.softmaxCrossEntropy), optimizer=sgd())
    assert training.addInputs({"x": x}, lossLabels={"t": t}) and training.compile(options=[], device=cpu())
    fed = {"inputsData": {"x": values(*shape)}, "lossLabelWeightsData": None, "batchSize": 0}
    labels = np.arange(np.prod(given)).reshape(given) % 5
    assert not training.execute(**fed, lossLabelsData={"t": labels})
    said = last_refusal().reason
    assert "5 numbers in place of one" in said
    made = eval(said.partition("these are class numbers, pass ")[2], {"np": np, "labels": labels})
    axis = 1 if len(shape) == 4 else len(shape) - 1
    np.testing.assert_array_equal(made.argmax(axis).ravel(), labels.ravel())
    assert training.execute(**fed, lossLabelsData={"t": made})


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


@pytest.mark.parametrize("size", [2, 4])
def test_a_buffer_for_a_result_without_rows_of_samples_is_given_whole(size):
    """As many rows as samples, and none of them is one: with a smaller batch fewer are no use."""
    graph, x = MLCGraph(), placeholder(4, 4)
    y = graph.node(MLCTransposeLayer(dimensions=[1, 0]), source=x)
    inference = MLCInferenceGraph(graphObjects=[graph])
    assert (
        inference.addInputs({"x": x}) and inference.addOutputs({"y": y}) and inference.compile(options=[], device=cpu())
    )
    given, half, whole = values(4, 4), np.full((2, 4), 7, np.float32), np.full((4, 4), 7, np.float32)

    def run(out):
        return inference.execute(
            inputsData={"x": data(given)}, outputsData={"y": data(out)}, batchSize=size, options=SYNCHRONOUS
        )

    assert not run(half) and (half == 7).all()
    assert last_refusal().reason.endswith("counts no samples, so it is given whole, whatever the size of the batch")
    assert run(whole)
    np.testing.assert_array_equal(whole[:, :size], given[:size].T)


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


# Tensors that keep their value


def test_parameters_bound_by_the_graph_are_used(torch_device):
    device, graph, x, layer = on(torch_device), MLCGraph(), placeholder(2, 3), dense(3, 2)
    result = graph.node(layer, source=x)
    inference = MLCInferenceGraph(graphObjects=[graph])
    assert inference.addInputs({"x": x}) and inference.compile(options=[], device=device)
    given, weights = values(2, 3), values(2, 3, seed=8)
    for _ in range(2):
        assert inference.execute(inputsData={"x": data(given)}, batchSize=0, options=SYNCHRONOUS)
    assert inference.bindAndWriteData(
        {"w": data(weights)}, forInputs={"w": layer.weights}, to=device, batchSize=2, synchronous=True
    )
    assert inference.execute(inputsData={"x": data(given)}, batchSize=0, options=SYNCHRONOUS)
    want = given @ weights.T + array(layer.biases).reshape(2)
    np.testing.assert_allclose(array(result), want, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("way", ["tensor", "graph"])
def test_read_only_weights_bound_later_are_trained_in_memory_of_their_own(way, torch_device):
    """Python's ``bytes`` never change."""
    program, device = regression(device=on(torch_device)), on(torch_device)
    assert program.compile() and program.step() >= 0
    weights = program.layers[0].weights
    ones = np.ones(weights.descriptor.shape, np.float32)
    memory = ones.tobytes()
    bound = MLCTensorData(immutableBytesNoCopy=memory, length=len(memory))
    if way == "tensor":
        assert weights.bindAndWriteData(bound, to=device)
    else:
        assert program.training.bindAndWriteData({"w": bound}, forInputs={"w": weights}, to=device, synchronous=True)
    first = program.step()
    assert program.step() < first
    program.training.synchronizeUpdates()
    assert not np.array_equal(array(weights), ones)
    assert memory == ones.tobytes()


@pytest.mark.parametrize("trains", [True, False])
def test_a_graph_without_inputs_runs_as_a_whole(trains):
    """Which samples a part of it would have, nobody says: another number is refused, and was ignored."""
    graph, held, t = MLCGraph(), tensor(values(6, 3, seed=8)), placeholder(6, 3)
    y = graph.node(dense(3, 3), source=held)
    if trains:
        made = MLCTrainingGraph(graphObjects=[graph], lossLayer=loss(), optimizer=sgd())
        assert made.setTrainingTensorParameters([MLCTensorParameter(tensor=held)])
        assert made.addInputs({}, lossLabels={"t": t})
    else:
        made = MLCInferenceGraph(graphObjects=[graph])
        assert made.addInputs({}) and made.addOutputs({"y": y})
    assert made.compile(options=[], device=cpu())

    def run(size):
        given = {"lossLabelsData": {"t": data(values(6, 3))}, "lossLabelWeightsData": None} if trains else {}
        return made.execute(inputsData={}, **given, batchSize=size, options=SYNCHRONOUS)

    for wrong in (4, 99, 1):
        assert not run(wrong)
        assert last_refusal().reason == (
            f"batchSize is {wrong}; no input counts samples, so that all of them are computed: give 0 or 6"
        )
    assert run(0) and run(6)


@pytest.mark.parametrize("by", ["a mean of all", "a reshape", "a sequence by time"])
def test_without_inputs_the_samples_are_those_of_a_constant_wherever_they_lie(by):
    graph, shape, whole, part = MLCGraph(), [8, 4, 2, 1], 8, 2
    if by == "a sequence by time":
        shape, whole = [5, 3, 2], 3
    held = tensor(values(*shape))
    if by == "a mean of all":
        y = graph.node(MLCReductionLayer(reductionType=MLCReductionType.mean, dimension=0), source=held)
    elif by == "a reshape":
        y = graph.reshape(shape=[8, 8], source=graph.reshape(shape=[2, 32], source=held))
    else:
        descriptor = MLCLSTMDescriptor(
            inputSize=2,
            hiddenSize=2,
            layerCount=1,
            usesBiases=False,
            batchFirst=False,
            isBidirectional=False,
            dropout=0,
        )
        weights = [[tensor(values(2, 2, seed=4 * k + i)) for i in range(4)] for k in range(2)]
        y = graph.node(
            MLCLSTMLayer(descriptor=descriptor, inputWeights=weights[0], hiddenWeights=weights[1], biases=None),
            source=held,
        )
    inference = MLCInferenceGraph(graphObjects=[graph])
    assert inference.addInputs({}) and inference.addOutputs({"y": y}) and inference.compile(options=[], device=cpu())
    assert inference.execute(inputsData={}, batchSize=whole, options=SYNCHRONOUS)
    assert not inference.execute(inputsData={}, batchSize=part, options=SYNCHRONOUS)
    assert last_refusal().reason.startswith(f"batchSize is {part}; no input counts samples")


def test_a_trained_tensor_bound_by_the_graph_goes_on_from_there():
    """One step from the bound value: w - rate * gradient, the loss being the mean of (w + 0)."""
    start, again = np.full((1, 4), 3, np.float32), np.full((1, 4), 5, np.float32)
    graph, w = MLCGraph(), tensor(start.copy())
    graph.node(
        MLCArithmeticLayer(operation=MLCArithmeticOperation.add), sources=[w, tensor(np.zeros((1, 4), np.float32))]
    )
    mean = MLCLossLayer.meanAbsoluteError(reductionType=MLCReductionType.mean, weight=1)
    training = MLCTrainingGraph(graphObjects=[graph], lossLayer=mean, optimizer=sgd(0.4))
    y = placeholder(1, 4)
    assert training.addInputs({}, lossLabels={"y": y})
    assert training.setTrainingTensorParameters([MLCTensorParameter(tensor=w)])
    assert training.compile(options=[], device=cpu())
    zeros = data(np.zeros((1, 4), np.float32))
    for value in (start, again):
        if value is again:
            assert training.bindAndWriteData({"w": data(again.copy())}, forInputs={"w": w}, to=cpu(), synchronous=True)
        assert training.execute(
            inputsData={}, lossLabelsData={"y": zeros}, lossLabelWeightsData=None, batchSize=0, options=SYNCHRONOUS
        )
        training.synchronizeUpdates()
        np.testing.assert_allclose(array(w), value - 0.4 / 4, rtol=1e-6)
