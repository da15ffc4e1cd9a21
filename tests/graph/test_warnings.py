"""Warnings about what silently does not train: each once for a compiled graph, testable, silenceable, at the caller's line."""

from __future__ import annotations

import warnings
from dataclasses import dataclass, field
from functools import partial

import numpy as np
import pytest
import torch

from mlc_torch import (
    MLCActivationLayer,
    MLCArithmeticLayer,
    MLCArithmeticOperation,
    MLCDataType,
    MLCGraph,
    MLCGraphCompilationOptions,
    MLCInferenceGraph,
    MLCLossType,
    MLCMatMulDescriptor,
    MLCMatMulLayer,
    MLCOptimizerDescriptor,
    MLCReductionLayer,
    MLCReductionType,
    MLCRegularizationType,
    MLCSoftmaxLayer,
    MLCSoftmaxOperation,
    MLCTensorParameter,
    MLCTrainingGraph,
    MLCTrainingWarning,
    last_refusal,
)
from mlc_torch.engine.mode import Phase
from mlc_torch.interop import TorchLayer
from mlc_torch.running.training_warnings import warn_of_loss, warn_unread
from tests.graph.programs import Program, array, cpu, data, dense, hyper, loss, placeholder, regression, sgd, values

Kind = MLCLossType
ONE_HOT = np.eye(3, dtype=np.float32)[[0, 1, 2, 1]]


def classifier(kind, between=None, label_type=MLCDataType.float32) -> Program:
    graph, x, t = MLCGraph(), placeholder(4, 6), placeholder(4, 3, type_=label_type)
    layer = dense(6, 3)
    y = graph.node(layer, source=x)
    if between is not None:
        y = graph.node(between, source=y)
    training = MLCTrainingGraph(graphObjects=[graph], lossLayer=loss(kind), optimizer=sgd(0.01))
    training.addInputs({"x": x}, lossLabels={"t": t})
    labels = ONE_HOT if label_type is MLCDataType.float32 else ONE_HOT.astype(np.int64)
    return Program(training, graph, {"x": x}, {"t": t}, {"x": values(4, 6), "t": labels}, [layer], y)


def softmax(operation=MLCSoftmaxOperation.softmax) -> MLCSoftmaxLayer:
    return MLCSoftmaxLayer(operation=operation)


def integer_labels() -> Program:
    return classifier(Kind.softmaxCrossEntropy, label_type=MLCDataType.int64)


def one_tensor_twice() -> Program:
    """A mistake in a program that takes noise out of images: the label is the input."""
    graph, x = MLCGraph(), placeholder(4, 6)
    layer = dense(6, 6)
    y = graph.node(layer, source=x)
    training = MLCTrainingGraph(graphObjects=[graph], lossLayer=loss(), optimizer=sgd(0.01))
    training.addInputs({"x": x}, lossLabels={"t": x})
    return Program(training, graph, {"x": x}, {"t": x}, {"x": values(4, 6), "t": values(4, 6, seed=1)}, [layer], y)


def result_as_the_label() -> Program:
    """A slip: the result was declared in the label's place."""
    graph, x, layer = MLCGraph(), placeholder(4, 6), dense(6, 3)
    y = graph.node(layer, source=x)
    training = MLCTrainingGraph(graphObjects=[graph], lossLayer=loss(), optimizer=sgd(0.01))
    training.addInputs({"x": x}, lossLabels={"t": y})
    return Program(training, graph, {"x": x}, {"t": y}, {"x": values(4, 6), "t": values(4, 3)}, [layer], y)


def result_as_an_input() -> Program:
    program = regression(widths=(6, 5, 3))
    inner = program.training.resultTensors(for_=program.layers[0])[0]
    assert program.training.addInputs({"inner": inner}, lossLabels=None)
    program.inputs["inner"], program.given["inner"] = inner, values(4, 5)
    return program


def weights_as_a_source() -> Program:
    program = classifier(Kind.meanSquaredError)
    weights = program.graph.reshape(shape=[6, 3], source=program.layers[0].weights)
    product = MLCMatMulLayer(descriptor=MLCMatMulDescriptor(alpha=1, transposesX=False, transposesY=False))
    again = program.graph.node(product, sources=[program.inputs["x"], weights])
    program.graph.node(MLCArithmeticLayer(operation=MLCArithmeticOperation.add), sources=[program.result, again])
    return program


def softmax_twice() -> Program:
    return classifier(Kind.softmaxCrossEntropy, softmax())


def no_probabilities() -> Program:
    return classifier(Kind.categoricalCrossEntropy)


def no_probabilities_for_the_log_loss() -> Program:
    return classifier(Kind.log)


def log_softmax_as_probabilities() -> Program:
    return classifier(Kind.categoricalCrossEntropy, softmax(MLCSoftmaxOperation.logSoftmax))


def nothing_updatable() -> Program:
    program = regression()
    program.layers[0].weightsParameter.isUpdatable = False
    program.layers[0].biasesParameter.isUpdatable = False
    return program


def updates_disabled() -> Program:
    graph, x, t = MLCGraph(), placeholder(4, 6), placeholder(4, 3)
    y = graph.node(dense(6, 3), sources=[x], disableUpdate=True)
    training = MLCTrainingGraph(graphObjects=[graph], lossLayer=loss(), optimizer=sgd())
    training.addInputs({"x": x}, lossLabels={"t": t})
    return Program(training, graph, {"x": x}, {"t": t}, {"x": values(4, 6), "t": values(4, 3)}, [], y)


def no_parameters() -> Program:
    graph, x, t = MLCGraph(), placeholder(4, 6), placeholder(4, 6)
    y = graph.node(MLCActivationLayer.relu, source=x)
    training = MLCTrainingGraph(graphObjects=[graph], lossLayer=loss(), optimizer=sgd())
    training.addInputs({"x": x}, lossLabels={"t": t})
    return Program(training, graph, {"x": x}, {"t": t}, {"x": values(4, 6), "t": values(4, 6)}, [], y)


def gradient_stopped() -> Program:
    program = regression()
    program.training.stopGradient(for_=[program.result])
    return program


class Stopping(torch.nn.Module):
    """Of what it does with the gradient only torch knows."""

    def __init__(self, work) -> None:
        super().__init__()
        self.work = work

    def forward(self, x):
        return self.work(x)


def detached() -> Program:
    return classifier(Kind.meanSquaredError, TorchLayer(Stopping(torch.Tensor.detach)))


def computed_without_gradient() -> Program:
    return classifier(Kind.meanSquaredError, TorchLayer(Stopping(torch.no_grad()(torch.tanh))))


def behind_argmax() -> Program:
    program = classifier(Kind.meanSquaredError, MLCReductionLayer(reductionType=MLCReductionType.argMax, dimension=1))
    training = MLCTrainingGraph(graphObjects=[program.graph], lossLayer=loss(), optimizer=sgd())
    program.given["t"] = values(4, 1)
    labels = {"t": placeholder(4, 1)}
    training.addInputs(program.inputs, lossLabels=labels)
    return Program(training, program.graph, program.inputs, labels, program.given, program.layers, program.result)


def output_of_nobody() -> Program:
    program = regression()
    program.training.addOutputs({"missing": placeholder(4, 3)})
    return program


def input_that_nobody_reads() -> Program:
    program = regression()
    spare = placeholder(4, 2)
    program.training.addInputs({"spare": spare}, lossLabels=None)
    return program


def label_that_nobody_reads() -> Program:
    program = regression()
    program.training.addInputs({}, lossLabels={"more": placeholder(4, 3)})
    return program


def loss_that_is_nan() -> Program:
    program = regression()
    program.given["x"][0, 0] = np.nan
    return program


CAUSES = {
    loss_that_is_nan: "the loss is NaN",
    one_tensor_twice: "the input 'x' and the label 't' are one tensor",
    result_as_the_label: "of this graph; what is given for it is ignored",
    result_as_an_input: "of this graph; what is given for it is ignored",
    weights_as_a_source: "the gradient of the second does not count",
    input_that_nobody_reads: "no node of the graph reads the input 'spare'",
    label_that_nobody_reads: "no node of the graph reads the label 'more'",
    integer_labels: "has integer labels",
    softmax_twice: "applies softmax itself",
    no_probabilities: "takes probabilities",
    no_probabilities_for_the_log_loss: "takes probabilities",
    log_softmax_as_probabilities: "takes probabilities",
    nothing_updatable: "no parameter can be updated",
    updates_disabled: "no parameter can be updated",
    no_parameters: "no parameter can be updated",
    gradient_stopped: "no parameter can be updated",
    detached: "no parameter can be updated",
    computed_without_gradient: "no parameter can be updated",
    behind_argmax: "no parameter can be updated",
    output_of_nobody: "no node of the graph produces the output 'missing'",
}


def seen_in(work) -> list[warnings.WarningMessage]:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        work()
    return [w for w in caught if issubclass(w.category, MLCTrainingWarning)]


@pytest.mark.parametrize(("make", "text"), CAUSES.items(), ids=[c.__name__ for c in CAUSES])
def test_each_cause_warns_once_for_a_compiled_graph(make, text):
    program = make()

    def work():
        assert program.compile()
        for _ in range(3):
            assert program.execute()
        assert program.phases() and program.update()
        program.training.resultTensors(for_=program.training.layers[0])  # the graph looks at its tensors anew
        assert program.execute()

    caught = seen_in(work)
    assert len(caught) == 1 and text in str(caught[0].message)
    assert len(seen_in(work)) == 1  # compiled again: warned again


@pytest.mark.parametrize("make", CAUSES, ids=[c.__name__ for c in CAUSES])
def test_a_warning_points_at_the_program_s_own_line(make):
    program = make()
    caught = seen_in(lambda: (program.training.compile(device=cpu()), program.execute()))
    assert caught[0].filename.endswith(("test_warnings.py", "programs.py"))


def test_a_warning_can_be_tested_and_silenced():
    program = softmax_twice()
    with pytest.warns(MLCTrainingWarning, match="double softmax"):
        assert program.compile()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.simplefilter("ignore", MLCTrainingWarning)
        assert program.compile() and program.execute()


@pytest.mark.parametrize("make", CAUSES, ids=[c.__name__ for c in CAUSES])
def test_a_warning_turned_into_an_error_leaves_the_graph_usable(make):
    program = make()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(MLCTrainingWarning):
            _ = program.compile() and program.execute()
        assert program.execute() and program.execute()


def test_a_label_weight_that_the_graph_computes_is_named():
    """The loss by hand, with the result itself for the weights, whatever is given for them."""
    program = regression()
    assert program.training.addInputs({}, lossLabels=None, lossLabelWeights={"w": program.result})
    (seen,) = seen_in(program.compile)
    layer, x, t = program.layers[0], program.given["x"], program.given["t"]
    assert str(seen.message) == (
        f"the label weight 'w' ({program.result.label}) is a result of the layer {layer.label!r} of this graph; what is given "
        "for it is ignored"
    )
    y = x @ array(layer.weights).reshape(3, 6).T.astype(float) + array(layer.biases).ravel()
    losses = []
    assert program.training.execute(
        inputsData=program.inputs_data(),
        lossLabelsData=program.labels_data(),
        lossLabelWeightsData={"w": data(np.ones((4, 3), np.float32))},
        batchSize=0,
        completionHandler=lambda *given: losses.append(array(given[0]).ravel()[0]),
    )
    np.testing.assert_allclose(losses, [(y * (y - t) ** 2).mean()], rtol=1e-5)


def test_a_parameter_that_gets_a_gradient_is_enough_to_be_left_in_peace():
    """Where a module stops the gradient before some of them alone, that is the program's own affair."""
    program = regression()
    graph, layer = program.graph, dense(3, 3)
    y = graph.node(layer, source=graph.node(TorchLayer(Stopping(torch.Tensor.detach)), source=program.result))
    training = MLCTrainingGraph(graphObjects=[graph], lossLayer=loss(), optimizer=sgd())
    assert training.addInputs(program.inputs, lossLabels=program.labels)
    one = Program(training, graph, program.inputs, program.labels, program.given, [layer], y)
    assert not seen_in(lambda: (one.compile(), one.execute(), one.phases(), one.update()))


@pytest.mark.parametrize("linked", [False, True])
def test_a_label_that_another_graph_computes_is_not_warned_of(linked):
    """A teacher: its result is the label of another graph, linked with it or not. The loss by hand."""
    above, graph, teacher, layer = MLCGraph(), MLCGraph(), dense(6, 3, seed=5), dense(6, 3)
    program = regression()
    x = program.inputs["x"]
    answer = above.node(teacher, source=x)
    graph.node(layer, source=x)
    options = [MLCGraphCompilationOptions.linkGraphs]
    teaching = MLCTrainingGraph(graphObjects=[above], lossLayer=None, optimizer=None)
    training = MLCTrainingGraph(graphObjects=[graph], lossLayer=loss(), optimizer=sgd(0.01))
    losses = []

    def work():
        assert teaching.addInputs({"x": x}, lossLabels=None) and teaching.addOutputs({"answer": answer})
        assert training.addInputs({"x": x}, lossLabels={"t": answer})
        assert all(g.compile(options=options, device=cpu()) for g in (teaching, training))
        assert not linked or training.link(with_=[teaching])
        for g in (teaching, training):
            assert g.bindAndWriteData(program.inputs_data(), forInputs={"x": x}, to=cpu(), synchronous=True)
        assert teaching.executeForward(batchSize=0)
        assert training.executeForward(
            batchSize=0, completionHandler=lambda *given: losses.append(array(given[0]).ravel()[0])
        )

    assert not seen_in(work)
    results = [
        program.given["x"] @ array(one.weights).reshape(3, 6).T.astype(float) + array(one.biases).ravel()
        for one in (teacher, layer)
    ]
    np.testing.assert_allclose(losses, [((results[1] - results[0]) ** 2).mean()], rtol=1e-5)


def test_one_tensor_under_two_names_is_computed_as_the_warning_says():
    """The loss by hand, with what was given for the input in the place of both."""
    program = one_tensor_twice()
    with pytest.warns(
        MLCTrainingWarning, match="asks for data under both names, and computes with that for the first alone"
    ):
        assert program.compile()
    x, layer = program.given["x"], program.layers[0]
    want = ((x @ layer.weights.numpy().reshape(6, 6).T + layer.biases.numpy().ravel() - x) ** 2).mean()
    assert program.step() == pytest.approx(want, rel=1e-4)
    assert not program.training.execute(
        inputsData={"x": data(x)}, lossLabelsData=None, lossLabelWeightsData=None, batchSize=0
    )
    assert "no data for the label 't'" in str(last_refusal())


def test_it_names_the_loss_and_the_layer():
    program = softmax_twice()
    program.training.layers[-1].label = "my loss"
    program.training.layers[-2].label = "my softmax"
    with pytest.warns(MLCTrainingWarning, match=r"'my loss' \(softmaxCrossEntropy\).*'my softmax'"):
        program.compile()


@pytest.mark.parametrize(
    "make",
    [
        regression,
        lambda: regression(reduction=MLCReductionType.none),
        lambda: classifier(Kind.softmaxCrossEntropy),
        lambda: classifier(Kind.categoricalCrossEntropy, softmax()),
        lambda: classifier(Kind.log, MLCActivationLayer.sigmoid),
        lambda: classifier(Kind.sigmoidCrossEntropy),
        lambda: classifier(Kind.meanSquaredError, label_type=MLCDataType.int64),
    ],
    ids=["squared error", "none", "logits", "probabilities", "sigmoid", "sigmoid loss", "integers to compare with"],
)
def test_sound_programs_are_left_in_peace(make):
    program = make()
    assert not seen_in(lambda: (program.compile(), program.execute(), program.phases(), program.update()))


def test_a_graph_without_an_optimizer_is_not_told_that_it_does_not_learn():
    program = no_parameters()
    bare = MLCTrainingGraph(graphObjects=[program.graph], lossLayer=loss(), optimizer=None)
    program.training = bare
    bare.addInputs(program.inputs, lossLabels=program.labels)
    assert not seen_in(lambda: (program.compile(), program.execute()))


def test_a_graph_that_waits_for_a_gradient_from_outside_is_left_in_peace():
    program = regression()
    bare = MLCTrainingGraph(graphObjects=[program.graph], lossLayer=None, optimizer=sgd())
    bare.addInputs(program.inputs, lossLabels=None)
    program.training, program.labels = bare, {}

    def work():
        assert program.compile() and program.bind() and program.forward()
        own = bare.allocateUserGradient(for_=program.result)
        assert own.bindAndWriteData(data(values(4, 3)), to=cpu()) and program.execute()

    before = array(program.layers[0].weights)
    assert not seen_in(work) and not np.array_equal(array(program.layers[0].weights), before)


def test_the_double_softmax_is_computed_as_it_stands():
    """It is what these programs get (evidence.md E.4), with a warning and without a correction."""
    program = softmax_twice()
    with pytest.warns(MLCTrainingWarning):
        assert program.compile()
    layer = program.layers[0]
    z = program.given["x"] @ array(layer.weights).reshape(3, 6).T + array(layer.biases).ravel()
    p = np.exp(z) / np.exp(z).sum(1, keepdims=True)
    q = np.exp(p) / np.exp(p).sum(1, keepdims=True)
    assert program.step() == pytest.approx(float(-(ONE_HOT * np.log(q)).sum(1).mean()), rel=1e-4)


@pytest.mark.parametrize("rate", [float("nan"), float("inf")])
def test_who_looks_at_the_settings_is_not_warned_again(rate):
    with pytest.warns(MLCTrainingWarning):
        settings = hyper(rate)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert f"learningRate={rate:g}" in repr(settings) and "gradientClipMax" not in repr(settings)


@pytest.mark.parametrize("rate", [float("nan"), float("inf")])
def test_a_learning_rate_that_is_no_number_warns_when_it_is_set(rate):
    optimizer = sgd()
    with pytest.warns(MLCTrainingWarning, match=rf"the learning rate is {rate}") as caught:
        optimizer.learningRate = rate
    assert caught[0].filename == __file__ and str(optimizer.learningRate) == str(rate)
    with pytest.warns(MLCTrainingWarning, match=rf"the learning rate is {rate}"):
        hyper(rate)
    assert not seen_in(lambda: setattr(optimizer, "learningRate", 0.0))


def test_an_output_that_is_a_gradient_needs_no_node():
    program = regression()
    made = program.training.resultGradientTensors(for_=program.layers[0])[0]
    assert program.training.addOutputs({"g": made})
    assert not seen_in(lambda: (program.compile(), program.phases(), program.update()))


NAN, INF = float("nan"), float("inf")


@pytest.mark.parametrize(
    ("loss_values", "warns"),
    [([NAN], True), ([1.0], False), ([INF], False), ([1.0, NAN, 2.0], True), ([INF, -INF], False)],
)
def test_a_loss_that_is_nan_warns_once(loss_values, warns):
    warned: set[str] = set()
    value = torch.tensor(loss_values)
    seen = seen_in(lambda: [warn_of_loss(warned, value) for _ in range(3)])
    assert len(seen) == warns and all("the loss is NaN" in str(w.message) for w in seen)


def test_an_inference_whose_loss_is_nan_says_nothing_of_weights():
    """They are as they were; when a step makes them NaN, that is told then."""
    program = regression()
    assert program.compile()
    x, t = np.full_like(program.given["x"], NAN), program.given["t"]
    (inferred,) = seen_in(lambda: [program.training.evaluate([(x, t)]) for _ in range(2)])
    assert str(inferred.message).startswith("the loss of this inference is NaN; look for")
    assert np.isfinite(array(program.layers[0].weights)).all()
    (trained,) = seen_in(lambda: [program.training.step(x, t) for _ in range(2)])
    assert str(trained.message).startswith("the loss is NaN, and so is every parameter")
    assert np.isnan(array(program.layers[0].weights)).all()
    assert not seen_in(lambda: program.training.evaluate([(x, t)]))


def test_a_result_that_comes_late_is_told_of_by_the_pass_that_made_it():
    """On a GPU another pass may have begun by then."""
    program = regression()
    assert program.compile() and program.execute()
    look = program.training._look_at_result
    (inferred,) = seen_in(lambda: look(torch.tensor(NAN), Phase.idle))
    assert "the loss of this inference is NaN" in str(inferred.message)
    (trained,) = seen_in(lambda: look(torch.tensor(NAN), Phase.updated))
    assert "and so is every parameter" in str(trained.message)


def test_code_that_a_decorator_has_written_is_no_line_of_the_program():
    no_number = {"learningRate": NAN, "gradientRescale": 1, "regularizationScale": 0}
    make = partial(MLCOptimizerDescriptor, **no_number, regularizationType=MLCRegularizationType.none)

    @dataclass
    class Settings:
        descriptor: MLCOptimizerDescriptor = field(default_factory=make)

    with pytest.warns(MLCTrainingWarning, match="learning rate is nan") as caught:
        Settings()
    assert caught[0].filename == __file__


def test_inputs_that_nothing_reads_are_named():
    program = regression()
    spare, nodes = placeholder(4, 2)._cell, program.training._all_nodes()
    declared = [
        ("input", {"x": program.inputs["x"]._cell, "spare": spare}),
        ("label", {"t": program.labels["t"]._cell}),
    ]
    warned: set[str] = set()
    seen = seen_in(lambda: [warn_unread(warned, nodes, declared) for _ in range(2)])
    assert [str(w.message) for w in seen] == [
        f"no node of the graph reads the input 'spare' ({spare.label}); what is given for it is ignored"
    ]


def test_a_label_forges_no_lines_of_a_warning():
    program = regression()
    spare = placeholder(4, 2)._cell
    spare.label = "a\nERROR: forged\u202e"
    declared = [("input", {"x\ny": spare})]
    (seen,) = seen_in(lambda: warn_unread(set(), program.training._all_nodes(), declared))
    assert str(seen.message).isprintable() and "a\\nERROR: forged\\u202e" in str(seen.message)


def test_an_inference_warns_of_an_output_that_it_does_not_compute():
    program = regression()
    inference = MLCInferenceGraph(graphObjects=[program.graph])
    assert inference.addInputs(program.inputs) and inference.addOutputs({"missing": placeholder(4, 6)})
    out = np.full((4, 6), 5, np.float32)

    def work():
        assert inference.compile(options=[], device=cpu())
        for _ in range(3):
            assert inference.execute(
                inputsData={"x": data(program.given["x"])}, outputsData={"missing": data(out)}, batchSize=4
            )

    caught = seen_in(work)
    assert len(caught) == 1 and "no node of the graph produces the output 'missing'" in str(caught[0].message)
    assert (out == 5).all()


def test_tensors_that_the_graph_has_nothing_to_do_with():
    program, stranger = regression(), placeholder(2, 3)
    stranger.label = "elsewhere"
    assert program.training.stopGradient(for_=[stranger, program.result])
    assert program.training.setTrainingTensorParameters([MLCTensorParameter(tensor=stranger)])
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        assert program.compile()
    said = [str(w.message) for w in caught if "elsewhere" in str(w.message)]
    for who, text in zip(("stopGradient", "setTrainingTensorParameters"), said, strict=True):
        assert (
            text
            == f"{who} names the tensor 'elsewhere', which no layer of the graph reads or computes: it changes nothing"
        )
