"""An update of another graph over the same weights: what a pass of this one can still be asked for, and what it cannot."""

from __future__ import annotations

import gc
import threading
import weakref

import numpy as np
import pytest
import torch

from mlc_torch import (
    MLCArithmeticLayer,
    MLCArithmeticOperation,
    MLCFullyConnectedLayer,
    MLCGraph,
    MLCTensorParameter,
    MLCTrainingGraph,
    last_refusal,
)
from mlc_torch.interop import TorchOptimizer
from tests.graph.programs import (
    Program,
    array,
    close,
    compiled,
    data,
    dense,
    inferring,
    loss,
    on,
    placeholder,
    regression,
    sgd,
    slopes,
    tensor,
    values,
)

GONE = "the forward pass is gone: another graph's update has changed weights that it read; call executeForward again"


def over(program: Program, place: str, optimizer=None) -> Program:
    """Another training graph over all layers of ``program``, or one of its own over the weights of its first layer."""
    graph, layers, inputs, result = program.graph, program.layers, program.inputs, program.result
    if place == "the same weights":
        first = program.layers[0]
        layer = MLCFullyConnectedLayer(weights=first.weights, biases=first.biases, descriptor=first.descriptor)
        graph, layers, inputs = MLCGraph(), [layer], {"x": placeholder(4, 6)}
        result = graph.node(layer, source=inputs["x"])
    labels = {"t": placeholder(*result.descriptor.shape)}
    training = MLCTrainingGraph(
        graphObjects=[graph], lossLayer=loss(), optimizer=sgd(0.5) if optimizer is None else optimizer(graph)
    )
    assert training.addInputs(inputs, lossLabels=labels)
    given = {"x": values(4, 6, seed=21), "t": values(*result.descriptor.shape, seed=22)}
    made = Program(training, graph, inputs, labels, given, layers, result, program.device)
    assert made.compile()
    return made


PLACES = pytest.mark.parametrize("place", ["the same layers", "the same weights"])
UPDATES = {
    "execute": lambda p: p.execute(),
    "a short batch": lambda p: p.execute(batchSize=2),
    "phases": lambda p: p.phases() and p.update(),
    "step": lambda p: p.training.step(p.given["x"], p.given["t"]) >= 0,
}
HOW = pytest.mark.parametrize("how", UPDATES)


@PLACES
@HOW
def test_no_gradient_from_old_values_and_new_weights(place, how, torch_device):
    program = compiled(device=on(torch_device))
    other, layer = over(program, place), program.layers[0]
    for _ in range(2):
        assert program.bind() and program.forward() and UPDATES[how](other)
        assert not program.gradient() and last_refusal().reason == GONE
        assert not program.update() and "no gradient to apply" in str(last_refusal())
        assert not program.gradient() and last_refusal().reason == GONE
        assert program.phases()
        close(program.gradient_of(layer.weights, layer).reshape(5, 6), slopes(program)["w1"])
        assert program.update()
    assert program.bind() and program.forward() and UPDATES[how](other)
    before, by_hand = layer.weights.numpy().copy(), slopes(program)["w1"]
    assert program.execute()  # all phases in one call begin anew
    close(layer.weights.numpy().reshape(5, 6), before.reshape(5, 6) - 0.1 * by_hand)


@PLACES
def test_a_torch_optimizer_s_step_counts_too(place):
    program = compiled()
    other = over(program, place, lambda g: TorchOptimizer(torch.optim.SGD(g.to_module().parameters(), lr=0.5)))
    assert program.bind() and program.forward() and other.execute()
    assert not program.gradient() and last_refusal().reason == GONE
    assert program.phases()
    close(program.gradient_of(program.layers[0].weights, program.layers[0]).reshape(5, 6), slopes(program)["w1"])


@PLACES
@HOW
def test_gradients_that_are_there_stay_right(place, how, torch_device):
    """They are those of the weights that the pass read, and the update that follows takes them as they are."""
    program = compiled(device=on(torch_device))
    other, layer = over(program, place), program.layers[0]
    by_hand = slopes(program)["w1"]
    assert program.phases() and UPDATES[how](other)
    close(program.gradient_of(layer.weights, layer).reshape(5, 6), by_hand)
    between = layer.weights.numpy().reshape(5, 6).copy()
    assert program.update()
    close(layer.weights.numpy().reshape(5, 6), between - 0.1 * by_hand)


@pytest.mark.filterwarnings("ignore:no parameter can be updated")
@pytest.mark.parametrize("why", ["other weights", "weights that it does not update", "a pass without an update"])
def test_an_update_that_changes_nothing_of_ours_leaves_a_pass_alone(why):
    program = compiled()
    other = over(program, "the same weights") if why != "other weights" else compiled()
    if why == "weights that it does not update":
        for parameter in (other.layers[0].weightsParameter, other.layers[0].biasesParameter):
            parameter.isUpdatable = False
    assert program.bind() and program.forward()
    assert other.phases() if why == "a pass without an update" else other.execute()
    late = program.training.resultTensors(for_=program.layers[0])[0]
    first = program.layers[0]
    close(late.numpy(), program.given["x"] @ first.weights.numpy().reshape(5, 6).T + first.biases.numpy().ravel())
    assert program.gradient()
    close(program.gradient_of(first.weights, first).reshape(5, 6), slopes(program)["w1"])


def test_a_pass_of_a_session_that_was_replaced_hears_of_it_too():
    program = compiled()
    other = over(program, "the same weights")
    assert program.bind() and program.forward()
    assert program.training.sourceGradientTensors(for_=program.layers[1])  # the next run has a new plan
    assert other.execute() and not program.gradient() and last_refusal().reason == GONE


def test_a_graph_that_was_compiled_after_the_first_updates_is_told():
    program = compiled()
    other = over(program, "the same weights")
    assert other.execute() and other.execute()
    third = over(program, "the same layers")
    assert third.bind() and third.forward() and other.execute()
    assert not third.gradient() and last_refusal().reason == GONE


def test_a_tensor_that_another_graph_trains_counts_as_a_weight():
    held = tensor(values(4, 3, seed=3))
    made = []
    for trains in (True, False):
        graph, layer, inputs, labels = MLCGraph(), dense(3, 2), {"x": placeholder(4, 3)}, {"t": placeholder(4, 2)}
        both = graph.node(MLCArithmeticLayer(operation=MLCArithmeticOperation.add), sources=[inputs["x"], held])
        graph.node(layer, source=both)
        training = MLCTrainingGraph(graphObjects=[graph], lossLayer=loss(), optimizer=sgd())
        assert training.addInputs(inputs, lossLabels=labels)
        assert training.setTrainingTensorParameters([MLCTensorParameter(tensor=held)] if trains else [])
        given = {"x": values(4, 3, seed=4), "t": values(4, 2, seed=5)}
        made.append(Program(training, graph, inputs, labels, given, [layer]))
        assert made[-1].compile()
    trainer, reader = made
    assert reader.bind() and reader.forward() and trainer.execute()
    assert not reader.gradient() and last_refusal().reason == GONE
    assert trainer.bind() and trainer.forward() and reader.execute() and trainer.gradient()  # which updates its own


# What is asked for late


@PLACES
@HOW
@pytest.mark.parametrize("times", [1, 3], ids=["once", "usual"])
def test_a_result_that_is_asked_for_late_is_of_the_run_or_empty(place, how, times):
    program = compiled()
    other, inference = over(program, place), inferring(program.graph, program.inputs["x"])
    first, given = program.layers[0], {"inputsData": {"x": data(program.given["x"])}, "batchSize": 0}
    for _ in range(times):
        assert inference.execute(**given)
    assert UPDATES[how](other)
    late = inference.resultTensors(for_=first)[0]
    assert late.data is None
    assert inference.execute(**given)
    close(late.numpy(), program.given["x"] @ first.weights.numpy().reshape(5, 6).T + first.biases.numpy().ravel())


def test_a_run_after_the_update_can_be_asked_again():
    program = compiled()
    other, inference = over(program, "the same weights"), inferring(program.graph, program.inputs["x"])
    first, given = program.layers[0], {"inputsData": {"x": data(program.given["x"])}, "batchSize": 0}
    for _ in range(3):
        assert inference.execute(**given) and other.execute()
    assert inference.execute(**given)
    late = inference.resultTensors(for_=first)[0]
    close(late.numpy(), program.given["x"] @ first.weights.numpy().reshape(5, 6).T + first.biases.numpy().ravel())


@PLACES
def test_a_training_pass_is_not_run_again_with_other_weights(place):
    program = compiled()
    other, first = over(program, place), program.layers[0]
    assert program.bind() and program.forward() and other.execute()
    late = program.training.resultTensors(for_=first)[0]
    assert late.data is None
    assert not program.gradient() and last_refusal().reason == GONE
    by_hand = program.given["x"] @ first.weights.numpy().reshape(5, 6).T + first.biases.numpy().ravel()
    assert program.phases()
    close(late.numpy(), by_hand)


@PLACES
@HOW
def test_a_gradient_that_is_asked_for_late_waits_for_the_next(place, how):
    program = compiled()
    other, first = over(program, place), program.layers[0]
    assert program.phases() and UPDATES[how](other)
    late = program.training.resultGradientTensors(for_=first)[0]
    assert late.data is None
    assert program.phases()
    close(late.numpy(), slopes(program)["h"])


# Who is told


def test_nobody_is_kept_alive_to_be_told():
    program = compiled()
    other = over(program, "the same weights")
    assert program.execute() and other.execute() and program.execute()
    gone = weakref.ref(other.training._runs.last)
    del other
    gc.collect()
    assert gone() is None
    by_hand, before = slopes(program)["w1"], array(program.layers[0].weights).reshape(5, 6)
    assert program.execute()
    close(array(program.layers[0].weights).reshape(5, 6), before - 0.1 * by_hand)


def test_an_update_in_the_middle_of_another_step_takes_nothing_from_it():
    """By hand: a hook on the result's gradient updates the biases, on which none of the step's gradients depends any more."""
    program = regression()
    layer = program.layers[0]
    other = over(program, "the same weights")
    other.layers[0].weightsParameter.isUpdatable = False
    assert program.compile()
    w, b = array(layer.weights).reshape(3, 6), array(layer.biases).ravel()
    slope, moved = (2 * (p.given["x"] @ w.T + b - p.given["t"]) / 12 for p in (program, other))
    done = []
    program.training.register_gradient_hook(program.result, lambda gradient: done.append(other.execute()))
    assert program.execute() and done == [True]
    close(array(layer.weights).reshape(3, 6), w - 0.1 * slope.T @ program.given["x"])
    close(array(layer.biases).ravel(), b - 0.5 * moved.sum(0) - 0.1 * slope.sum(0))


def test_threads_that_update_the_same_weights_finish_all_their_steps():
    program = compiled()
    programs = [program, *(over(program, "the same weights") for _ in range(2))]
    inference = inferring(program.graph, program.inputs["x"])
    given = {"inputsData": {"x": data(program.given["x"])}, "batchSize": 0}
    answers: list[bool] = []

    def steps(of: Program) -> None:
        answers.extend(of.execute() and of.training._runs.last.phase.name == "updated" for _ in range(30))

    def infer() -> None:
        answers.extend(inference.execute(**given) for _ in range(60))

    threads = [threading.Thread(target=steps, args=(p,)) for p in programs] + [threading.Thread(target=infer)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(answers) == 150 and all(answers)
    assert np.isfinite(array(program.layers[0].weights)).all()
