"""The three phases one by one: what each leaves behind, and which orders are refused with the missing step named."""

from __future__ import annotations

import numpy as np
import pytest

from mlc_torch import (
    MLCExecutionOptions,
    MLCGraph,
    MLCInferenceGraph,
    MLCTensor,
    MLCTensorData,
    MLCTrainingGraph,
    last_refusal,
)
from tests.graph.programs import array, cpu, data, inferring, loss, on, predictions, regression, sgd, values

Run = MLCExecutionOptions


def test_the_phases_by_hand(torch_device):
    program = regression(device=on(torch_device))
    layer = program.layers[0]
    w, b = array(layer.weights).reshape(3, 6).astype(float), array(layer.biases).ravel().astype(float)
    x, t = program.given["x"].astype(float), program.given["t"].astype(float)
    answers = []
    assert program.compile() and program.bind()
    assert program.forward(options=Run.synchronous, completionHandler=lambda *g: answers.append(array(g[0])))
    error = x @ w.T + b - t
    np.testing.assert_allclose(answers[0], [(error**2).mean()], rtol=1e-5)
    assert program.gradient()
    slope = 2 * error / error.size
    np.testing.assert_allclose(
        program.gradient_of(layer.weights, layer).reshape(3, 6), slope.T @ x, rtol=1e-4, atol=1e-6
    )
    np.testing.assert_allclose(program.gradient_of(layer.biases, layer).ravel(), slope.sum(0), rtol=1e-4, atol=1e-6)
    program.training.synchronizeUpdates()
    np.testing.assert_array_equal(array(layer.weights).reshape(3, 6), w.astype(np.float32))
    assert program.update()
    program.training.synchronizeUpdates()
    np.testing.assert_allclose(array(layer.weights).reshape(3, 6), w - 0.1 * slope.T @ x, rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(array(layer.biases).ravel(), b - 0.1 * slope.sum(0), rtol=1e-4, atol=1e-6)


def test_three_calls_are_one_call(torch_device):
    once, split = (
        regression(widths=(6, 5, 3), device=on(torch_device)),
        regression(widths=(6, 5, 3), device=on(torch_device)),
    )
    assert once.compile() and split.compile()
    for _ in range(4):
        once.step()
        assert split.phases() and split.update()
    once.training.synchronizeUpdates()
    split.training.synchronizeUpdates()
    for a, b in zip(once.layers, split.layers, strict=True):
        np.testing.assert_allclose(array(a.weights), array(b.weights), rtol=1e-6, atol=1e-7)


def test_orders_that_make_no_sense_name_the_missing_step():
    program = regression()
    assert program.compile()
    assert not program.gradient() and "call executeForward first" in str(last_refusal())
    assert not program.update() and "call executeForward and executeGradient first" in str(last_refusal())
    assert program.bind() and program.forward()
    assert not program.update() and "executeGradient" in str(last_refusal())
    assert program.gradient()
    assert not program.gradient() and "computed already; call executeForward again" in str(last_refusal())
    assert program.update() and not program.gradient()
    assert program.forward() and program.gradient() and program.update()


INFERENCES = {
    "evaluate": lambda p: p.training.evaluate([(p.given["x"], p.given["t"])]),
    "execute": lambda p: p.execute(options=8),
    "execute without labels": lambda p: p.training.execute(
        inputsData=p.inputs_data(), lossLabelsData=None, lossLabelWeightsData=None, batchSize=0, options=8
    ),
    "executeForward": lambda p: p.forward(options=8),
}


@pytest.mark.parametrize("how", INFERENCES)
@pytest.mark.parametrize("times", [1, 2])
def test_a_phase_is_told_that_an_inference_took_its_pass(how, times):
    program = regression()
    assert program.compile() and program.bind()

    def infer():
        for _ in range(times):
            assert INFERENCES[how](program)

    infer()
    assert not program.gradient() and "no forward pass to differentiate" in str(last_refusal())
    assert not program.update() and "no gradient to apply" in str(last_refusal())
    assert program.forward()
    infer()
    assert not program.gradient()
    reason = last_refusal().reason
    assert reason.startswith("the forward pass is gone: an inference through this training graph (evaluate, or forward")
    assert "with an inference graph over the same layers" in reason and reason.endswith("call executeForward again")
    assert not program.update() and "no gradient to apply" in str(last_refusal())  # there never was one
    assert program.phases()
    infer()
    assert not program.update()
    reason = last_refusal().reason
    assert reason.startswith("the gradient is gone: an inference through this training graph")
    assert not program.gradient() and "no forward pass to differentiate" in str(last_refusal())
    assert program.compile()
    infer()
    assert not program.update() and "no gradient to apply" in str(last_refusal())
    assert program.phases() and program.update()


def test_an_inference_graph_over_the_same_layers_leaves_a_step_alone():
    program, plain = regression(), regression()
    assert program.compile() and plain.compile() and plain.phases() and plain.update()
    inference = inferring(program.graph, program.inputs["x"])
    given = {"inputsData": {"x": data(values(4, 6, seed=50))}, "batchSize": 0}
    assert program.bind() and program.forward() and inference.execute(**given)
    assert program.gradient() and inference.execute(**given) and program.update()
    np.testing.assert_array_equal(array(program.layers[0].weights), array(plain.layers[0].weights))


def test_buffers_of_the_gradient_phase_get_what_its_own_pass_computed(torch_device):
    """A batchSize of 0 is that of the pass; another graph over the same layers may have run since."""
    program = regression(device=on(torch_device))
    assert (
        program.training.addOutputs({"y": program.result})
        and program.compile()
        and program.bind()
        and program.forward()
    )
    inference = MLCInferenceGraph(graphObjects=[program.graph])
    assert inference.addInputs(program.inputs) and inference.compile(options=[], device=program.device)
    program.given["x"] += 1
    want, other = predictions(program), data(np.zeros((4, 6), np.float32))
    assert program.bind()
    for count in (2, 3, 4):
        for wanted in (0, count):
            for is_short in (False, True):
                out = np.full((count if is_short else 4, 3), 7, np.float32)
                assert program.training.executeForward(batchSize=count)
                assert inference.execute(inputsData={"x": other}, batchSize=0)
                how = {"batchSize": wanted, "options": [Run.synchronous]}
                assert program.training.executeGradient(outputsData={"y": data(out)}, **how), last_refusal()
                np.testing.assert_allclose(out[:count], want[:count], rtol=1e-4, atol=1e-5)
                assert (out[count:] == 7).all()


def test_an_update_after_a_new_forward_pass_waits_for_its_gradient():
    program = regression()
    assert program.compile() and program.phases() and program.forward()
    assert not program.update() and "executeGradient" in str(last_refusal())


def test_a_second_update_applies_the_same_gradient_again(torch_device):
    program = regression(device=on(torch_device))
    layer = program.layers[0]
    assert program.compile() and program.phases()
    gradient = program.gradient_of(layer.weights, layer)
    before = array(layer.weights)
    for times in (1, 2, 3):
        assert program.update()
        program.training.synchronizeUpdates()
        np.testing.assert_allclose(array(layer.weights), before - 0.1 * times * gradient, rtol=1e-5, atol=1e-6)
        np.testing.assert_array_equal(program.gradient_of(layer.weights, layer), gradient)


def test_several_forward_passes_and_the_last_counts():
    program = regression()
    layer = program.layers[0]
    assert program.compile() and program.bind() and program.forward()
    program.given["x"] = values(4, 6, seed=50)
    assert program.bind() and program.forward() and program.gradient()
    again = regression()
    again.given["x"] = program.given["x"]
    assert again.compile() and again.phases()
    np.testing.assert_array_equal(
        program.gradient_of(layer.weights, layer), again.gradient_of(again.layers[0].weights, again.layers[0])
    )


def test_data_bound_between_forward_and_gradient_is_for_the_next_pass():
    program, plain = regression(), regression()
    assert program.compile() and plain.compile() and plain.phases()
    assert program.bind() and program.forward()
    program.given = {"x": values(4, 6, seed=50), "t": values(4, 3, seed=51)}
    assert program.bind() and program.gradient()
    layer = program.layers[0]
    np.testing.assert_array_equal(
        program.gradient_of(layer.weights, layer), plain.gradient_of(plain.layers[0].weights, plain.layers[0])
    )


def test_inputs_that_hold_data_are_read_when_the_call_returns():
    """A tensor made with data and declared as an input: the caller may write there once executeForward is back."""
    program = regression()
    x, t = values(4, 6, seed=5), values(4, 3, seed=6)
    for name, held in (("x", x), ("t", t)):
        tensors = program.inputs | program.labels
        assert tensors[name].bindAndWriteData(data(held), to=cpu())
    assert program.compile() and program.forward()
    x[:], t[:] = 1e6, 1e6
    assert program.gradient()
    plain = regression()
    assert plain.compile() and plain.phases()
    np.testing.assert_array_equal(
        program.gradient_of(program.layers[0].weights, program.layers[0]),
        plain.gradient_of(plain.layers[0].weights, plain.layers[0]),
    )


def test_without_an_optimizer_there_is_no_update():
    program = regression()
    bare = MLCTrainingGraph(graphObjects=[program.graph], lossLayer=loss(), optimizer=None)
    assert bare.addInputs(program.inputs, lossLabels=program.labels) and bare.compile(options=[], device=cpu())
    program.training = bare
    assert program.phases() and not program.update() and "compileOptimizer" in str(last_refusal())
    assert bare.compileOptimizer(sgd()) and program.phases() and program.update()


def test_compiling_forgets_what_the_phases_left():
    program = regression()
    assert program.compile() and program.phases() and program.compile()
    assert not program.gradient() and not program.update()
    assert program.training.gradientData(forParameter=program.layers[0].weights, layer=program.layers[0]) is None
    assert program.phases() and program.update()


def test_a_tensor_asked_for_between_the_phases_does_not_lose_the_forward_pass():
    program = regression(widths=(6, 5, 3))
    assert program.compile() and program.bind() and program.forward()
    held = program.training.resultTensors(for_=program.layers[0])
    assert held[0].data is not None and program.gradient() and program.update()
    before = bytes(held[0].data)
    assert program.forward() and bytes(held[0].data) != before


@pytest.mark.parametrize("member", ["execute", "forward", "gradient", "update"])
def test_phases_and_calls_mix(member):
    program, plain = regression(), regression()
    assert program.compile() and plain.compile() and program.bind() and plain.bind()
    script = {
        "execute": ["execute", "forward", "gradient", "update", "execute"],
        "forward": ["forward", "execute", "forward", "gradient", "update"],
        "gradient": ["forward", "gradient", "execute", "forward", "gradient", "update"],
        "update": ["forward", "gradient", "update", "execute", "execute"],
    }[member]
    for step in script:
        assert getattr(program, step)()
    updates = script.count("execute") + script.count("update")
    for _ in range(updates):
        plain.step()
    np.testing.assert_allclose(array(program.layers[0].weights), array(plain.layers[0].weights), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("wrapper", ["bytesNoCopy", "immutableBytesNoCopy"])
def test_trained_weights_arrive_in_the_caller_s_memory(wrapper, torch_device):
    """Also where the memory was wrapped as immutable, as the real framework does."""
    held = values(1, 18, 1, 1)
    start = held.copy()
    weights = MLCTensor(shape=[1, 18, 1, 1], data=MLCTensorData(**{wrapper: held}, length=72), dataType=1)
    program = with_weights(weights, torch_device)
    assert program.compile()
    program.step()
    program.training.synchronizeUpdates()
    assert not np.array_equal(held, start)
    np.testing.assert_array_equal(array(weights), held)


def test_memory_that_python_marks_read_only_is_not_written(torch_device):
    held = values(1, 18, 1, 1).tobytes()
    copy = bytes(bytearray(held))
    weights = MLCTensor(shape=[1, 18, 1, 1], data=MLCTensorData(immutableBytesNoCopy=held, length=72), dataType=1)
    program = with_weights(weights, torch_device)
    assert program.compile()
    program.step()
    program.training.synchronizeUpdates()
    assert held == copy and not np.array_equal(array(weights).ravel(), np.frombuffer(held, np.float32))


def with_weights(weights, device):
    program = regression(device=on(device))
    graph = MLCGraph()
    layer = type(program.layers[0])(weights=weights, biases=None, descriptor=program.layers[0].descriptor)
    program.result = graph.node(layer, source=program.inputs["x"])
    program.training = MLCTrainingGraph(graphObjects=[graph], lossLayer=loss(), optimizer=sgd())
    assert program.training.addInputs(program.inputs, lossLabels=program.labels)
    return program
