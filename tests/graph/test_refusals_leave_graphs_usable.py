"""Every refusal of evidence.md H, and after it the graph trains on as if nothing had happened."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from mlc_torch import (
    MLCActivationLayer,
    MLCDataType,
    MLCGraph,
    MLCGraphCompilationOptions,
    MLCInferenceGraph,
    MLCOptimizer,
    MLCRefusal,
    MLCTensorData,
    MLCTrainingGraph,
    last_refusal,
    strict,
)
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
    values,
)

Refused = Callable[[Program], object]
REFUSALS: dict[str, tuple[Refused, str]] = {}


def refusal(says: str):
    """A call that is refused, and words of the reason."""

    def add(function: Refused) -> Refused:
        REFUSALS[function.__name__.replace("_", " ")] = (function, says)
        return function

    return add


def execute(program: Program, inputs=None, labels=None, weights=None, batch=4, **more):
    return program.training.execute(
        inputsData=program.inputs_data() if inputs is None else inputs,
        lossLabelsData=program.labels_data() if labels is None else labels,
        lossLabelWeightsData=weights,
        batchSize=batch,
        **more,
    )


@refusal("no data for the input 'x'")
def an_input_without_data(program):
    return execute(program, inputs={})


@refusal("no data for the label 't'")
def a_label_without_data(program):
    return execute(program, labels={})


@refusal("95 bytes")
def input_data_that_is_too_short(program):
    return execute(program, inputs={"x": data(program.given["x"], 95)})


@refusal("'t'")
def label_data_that_is_too_short(program):
    return execute(program, labels={"t": data(program.given["t"], 4)})


@refusal("batchSize")
def a_batch_that_is_too_large(program):
    return execute(program, batch=5)


@refusal("batchSize")
def a_negative_batch(program):
    return execute(program, batch=-3)


@refusal("addOutputs declared")
def an_output_that_was_not_declared(program):
    return execute(program, outputsData={"nobody": data(np.zeros(12, np.float32))})


@refusal("needs 48")
def an_output_buffer_that_is_too_short(program):
    return execute(program, outputsData={"y": data(np.zeros(3, np.float32))})


@refusal("read-only")
def an_output_buffer_that_is_read_only(program):
    return execute(program, outputsData={"y": MLCTensorData(immutableBytesNoCopy=bytes(48), length=48)})


@refusal("no data for the input 'x'")
def skipping_what_was_never_written(program):
    return execute(program, options=1)


@refusal("no data for the input 'x'")
def a_forward_pass_over_nothing(program):
    return program.forward()


@refusal("call executeForward first")
def a_gradient_before_the_forward_pass(program):
    return program.gradient()


@refusal("executeGradient first")
def an_update_before_the_gradient(program):
    return program.update()


@refusal("holds no data")
def a_user_gradient_without_data(program):
    assert program.training.allocateUserGradient(for_=program.result) is not None
    answer = program.execute()
    program.training._steering.from_user.clear()  # there is no public way to take the wish back
    program.training._runs.sessions.clear()
    return answer


@refusal("not the result of a node")
def a_user_gradient_for_an_input(program):
    return program.training.allocateUserGradient(for_=program.inputs["x"])


@refusal("no gradient yet")
def gradient_data_before_a_gradient(program):
    return program.training.gradientData(forParameter=program.layers[0].weights, layer=program.layers[0])


@refusal("computeAllGradients")
def the_gradient_of_an_input_that_was_not_asked_for(program):
    return program.training.gradientTensor(forInput=program.inputs["x"])


@refusal("takes 1 source")
def a_node_with_too_many_sources(program):
    return program.graph.node(MLCActivationLayer.relu, sources=[program.result, program.result])


@refusal("belongs to another graph")
def a_layer_of_another_graph(program):
    other = MLCGraph()
    layer = dense(6, 3)
    assert other.node(layer, source=program.inputs["x"]) is not None
    return program.graph.node(layer, source=program.inputs["x"])


@refusal("needs 96")
def binding_data_that_is_too_short(program):
    short = {"x": data(values(2))}
    return program.training.bindAndWriteData(short, forInputs=program.inputs, to=cpu(), synchronous=True)


@refusal("batchSize")
def binding_a_batch_that_is_too_large(program):
    bound = program.inputs_data()
    return program.training.bindAndWriteData(bound, forInputs=program.inputs, to=cpu(), batchSize=9, synchronous=True)


@refusal("needs 72")
def optimizer_data_that_is_too_short(program):
    short = [data(values(2)), data(values(2))]
    return program.training.bindOptimizerData(short, deviceData=None, with_=program.layers[0].weights)


@refusal("no update rule")
def an_optimizer_without_a_rule(program):
    return program.training.compileOptimizer(MLCOptimizer._bare())


@refusal("linkGraphs")
def linking_without_the_option(program):
    return program.training.link(with_=[program.training])


@refusal("[7]")
def compiling_a_node_that_does_not_fit(program):
    assert program.graph.reshape(shape=[7], source=program.result) is not None
    return program.compile()


@refusal("no layers")
def compiling_a_graph_without_layers(program):
    return MLCInferenceGraph(graphObjects=[MLCGraph()]).compile(options=[], device=program.device)


@refusal("declared no loss labels")
def labels_for_an_inference_graph_that_declared_none(program):
    inference = MLCInferenceGraph(graphObjects=[program.graph])
    assert inference.addInputs(program.inputs) and inference.compile(options=[], device=program.device)
    fed = {"inputsData": program.inputs_data(), "lossLabelsData": program.labels_data(), "lossLabelWeightsData": None}
    return inference.execute(**fed, batchSize=0)


@refusal("not compiled")
def executing_an_uncompiled_graph_over_the_same_layers(program):
    other = MLCTrainingGraph(graphObjects=[program.graph], lossLayer=loss(), optimizer=sgd())
    other.addInputs(program.inputs, lossLabels=program.labels)
    fed = {"inputsData": program.inputs_data(), "lossLabelsData": program.labels_data(), "lossLabelWeightsData": None}
    return other.execute(**fed, batchSize=0)


@refusal("the tensor holds")
def reading_more_than_a_tensor_holds(program):
    target = np.zeros(99, np.float32)
    weights = program.layers[0].weights
    return weights.copyDataFromDeviceMemory(toBytes=target, length=target.nbytes, synchronizeWithDevice=False)


def fresh(device) -> Program:
    program = regression(device=device)
    assert program.training.addOutputs({"y": program.result}) and program.compile()
    return program


@pytest.mark.parametrize("name", REFUSALS)
def test_a_refusal_leaves_the_graph_usable(name, torch_device):
    call, says = REFUSALS[name]
    program, plain = fresh(on(torch_device)), fresh(on(torch_device))
    assert call(program) in (None, False)
    assert says in str(last_refusal()), str(last_refusal())
    for _ in range(2):
        assert program.step() == pytest.approx(plain.step(), rel=1e-5)
    assert program.phases() and program.update() and plain.phases() and plain.update()
    for _ in range(2):
        assert program.step() == pytest.approx(plain.step(), rel=1e-5)


@pytest.mark.parametrize("name", REFUSALS)
def test_a_refusal_between_steps_in_strict_mode(name):
    call, says = REFUSALS[name]
    program, plain = fresh(cpu()), fresh(cpu())
    assert program.step() == plain.step()
    if name == "a gradient before the forward pass":
        says = "computed already"
    if name == "gradient data before a gradient":
        says = "execute keeps no gradients"
    if name == "an update before the gradient":
        assert program.bind() and program.forward()
    with strict(), pytest.raises(MLCRefusal) as raised:
        call(program)
    assert says in str(raised.value)
    program.training._steering.from_user.clear()
    program.training._runs.sessions.clear()
    assert program.step() == plain.step() and program.step() == plain.step()


def test_a_refused_gradient_keeps_the_forward_pass():
    program, plain = fresh(cpu()), fresh(cpu())
    own = program.training.allocateUserGradient(for_=program.result)
    assert program.bind() and program.forward() and not program.gradient()
    zeros = np.zeros((4, 3), np.float32)
    assert own.bindAndWriteData(data(zeros), to=cpu()) and program.gradient() and program.update()
    plain.step()
    np.testing.assert_allclose(array(program.layers[0].weights), array(plain.layers[0].weights), rtol=1e-6)


@pytest.mark.parametrize("options", [[], [MLCGraphCompilationOptions.disableLayerFusion]], ids=["fast", "plain"])
def test_what_torch_cannot_compute_is_refused_and_forgotten(options):
    """An index that the graph computes comes to light only when it runs."""
    program = fresh(cpu())
    graph, x, indices = MLCGraph(), placeholder(4, 3), placeholder(2, 1, type_=MLCDataType.int32)
    graph.gather(withDimension=0, source=x, indices=graph.reshape(shape=[2], source=indices))
    inference = MLCInferenceGraph(graphObjects=[graph])
    assert inference.addInputs({"x": x, "i": indices}) and inference.compile(options=options, device=cpu())
    given = {"x": data(values(4, 3)), "i": data(np.array([1, 9], np.int32))}
    assert not inference.execute(inputsData=given, batchSize=0)
    assert "index" in str(last_refusal()).lower()
    given["i"] = data(np.array([1, 3], np.int32))
    assert inference.execute(inputsData=given, batchSize=0) and program.step() > 0
