"""``deviceMemorySize`` as evidence.md H.7 gives it."""

from __future__ import annotations

from mlc_torch import MLCActivationLayer, MLCAdamOptimizer, MLCGraph, MLCInferenceGraph, MLCTrainingGraph
from tests.graph.programs import cpu, data, hyper, on, placeholder, regression, values


def relu_over(*shape: int) -> tuple[MLCGraph, object]:
    graph, x = MLCGraph(), placeholder(*shape)
    graph.node(MLCActivationLayer.relu, source=x)
    return graph, x


def test_an_inference_graph_counts_the_results_of_its_nodes(torch_device):
    """Measured: one node of six floats gives 24, one of a single float 4, whatever is bound."""
    for shape, size in (((2, 3), 24), ((1,), 4)):
        graph, x = relu_over(*shape)
        inference = MLCInferenceGraph(graphObjects=[graph])
        assert inference.deviceMemorySize == 0 and inference.addInputs({"x": x}) and inference.deviceMemorySize == 0
        assert inference.compile(options=[], device=on(torch_device)) and inference.deviceMemorySize == size
        assert inference.execute(inputsData={"x": data(values(*shape))}, batchSize=0, options=2)
        assert inference.deviceMemorySize == size


def test_a_training_graph_counts_them_twice():
    """Forward and gradient, measured over one node."""
    graph, x = relu_over(2, 3)
    training = MLCTrainingGraph(graphObjects=[graph], lossLayer=None, optimizer=None)
    assert training.deviceMemorySize == 0 and training.addInputs({"x": x}, lossLabels=None)
    assert training.compile(options=[], device=cpu()) and training.deviceMemorySize == 48


def test_several_nodes_add_up():
    program = regression(widths=(6, 5, 3))
    inference = MLCInferenceGraph(graphObjects=[program.graph])
    assert inference.compile(options=[], device=cpu())
    assert inference.deviceMemorySize == 4 * (4 * 5 + 4 * 5 + 4 * 3)


def test_it_grows_as_gradients_and_state_are_first_used(torch_device):
    program = regression(MLCAdamOptimizer(descriptor=hyper()), device=on(torch_device))
    assert program.compile()
    results, parameters = 2 * 4 * 3 * 4, (6 * 3 + 3) * 4
    assert program.training.deviceMemorySize == results
    assert program.bind() and program.forward() and program.training.deviceMemorySize == results
    assert program.gradient() and program.training.deviceMemorySize == results + parameters
    assert program.update() and program.training.deviceMemorySize == results + parameters + 2 * parameters
