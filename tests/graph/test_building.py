"""Building: every way to add a node, on plain graphs and directly on the graphs that run, and what a graph says of itself."""

from __future__ import annotations

import copy
import gc
import pickle

import numpy as np
import pytest

from mlc_torch import (
    MLCActivationLayer,
    MLCArithmeticLayer,
    MLCArithmeticOperation,
    MLCConcatenationLayer,
    MLCDataType,
    MLCGatherLayer,
    MLCGraph,
    MLCInferenceGraph,
    MLCReductionType,
    MLCReshapeLayer,
    MLCScatterLayer,
    MLCSelectionLayer,
    MLCSplitLayer,
    MLCTrainingGraph,
    MLCTransposeLayer,
    last_refusal,
)
from tests.graph.programs import array, cpu, data, dense, loss, placeholder, regression, sgd, values

KINDS = {
    "graph": MLCGraph,
    "inference graph": lambda: MLCInferenceGraph(graphObjects=[MLCGraph()]),
    "training graph": lambda: MLCTrainingGraph(graphObjects=[MLCGraph()], lossLayer=None, optimizer=None),
}


@pytest.fixture(params=KINDS, ids=list(KINDS))
def graph(request) -> MLCGraph:
    return KINDS[request.param]()


def run(graph: MLCGraph, **given) -> None:
    """Compile and run the nodes of ``graph``; ``given`` maps a name to (tensor, array)."""
    inputs = {name: t for name, (t, _) in given.items()}
    inputs_data = {name: data(a) for name, (_, a) in given.items()}
    if isinstance(graph, MLCTrainingGraph):
        assert graph.addInputs(inputs, lossLabels=None) and graph.compile(options=[], device=cpu())
        assert graph.execute(inputsData=inputs_data, lossLabelsData=None, lossLabelWeightsData=None, batchSize=0)
        return
    runs = graph if isinstance(graph, MLCInferenceGraph) else MLCInferenceGraph(graphObjects=[graph])
    assert runs.addInputs(inputs) and runs.compile(options=[], device=cpu())
    assert runs.execute(inputsData=inputs_data, batchSize=0)


def add() -> MLCArithmeticLayer:
    return MLCArithmeticLayer(operation=MLCArithmeticOperation.add)


# Nodes


def test_every_form_of_node_in_both_spellings(graph):
    x, y = placeholder(2, 3), placeholder(2, 3)
    one = graph.node(MLCActivationLayer.relu, source=x)
    two = graph.node(with_=add(), sources=[one, y])
    fixed = graph.node(dense(3, 3), sources=[two], disableUpdate=True)
    scored = graph.node(loss(reduction=MLCReductionType.none), sources=[fixed], lossLabels=[y])
    assert [t.descriptor.shape for t in (one, two, fixed, scored)] == [[2, 3]] * 4
    one_ = graph.nodeWithLayer_source_(MLCActivationLayer.relu, x)
    two_ = graph.nodeWithLayer_sources_(add(), [one_, y])
    fixed_ = graph.nodeWithLayer_sources_disableUpdate_(dense(3, 3), [two_], True)
    scored_ = graph.nodeWithLayer_sources_lossLabels_(loss(reduction=MLCReductionType.none), [fixed_], [y])
    assert len(graph.layers) == 8 and [layer.layerID for layer in graph.layers] == list(range(1, 9))
    a, b = values(2, 3), values(2, 3, seed=1)
    run(graph, x=(x, a), y=(y, b)) if not isinstance(graph, MLCInferenceGraph) else None
    if not isinstance(graph, MLCInferenceGraph):
        np.testing.assert_array_equal(array(two), np.maximum(a, 0) + b)
        np.testing.assert_array_equal(array(two_), array(two))
        np.testing.assert_array_equal(array(fixed_), array(fixed))
    assert scored_.descriptor.shape == [2, 3]


def test_a_loss_node_of_an_inference_graph_runs_when_its_labels_are_declared():
    graph, x, t = MLCGraph(), placeholder(2, 3), placeholder(2, 3)
    y = graph.node(MLCActivationLayer.relu, source=x)
    scored = graph.node(loss(reduction=MLCReductionType.sum), sources=[y], lossLabels=[t])
    a, b = values(2, 3), values(2, 3, seed=1)
    plain = MLCInferenceGraph(graphObjects=[graph])
    answers = []
    assert plain.addInputs({"x": x}) and plain.compile(options=[], device=cpu())
    assert plain.execute(inputsData={"x": data(a)}, batchSize=0, completionHandler=lambda *g: answers.append(g[0]))
    assert answers[0] is y and scored.data is None
    labelled = MLCInferenceGraph(graphObjects=[graph])
    assert labelled.addInputs({"x": x}, lossLabels={"t": t}, lossLabelWeights=None)
    assert labelled.compile(options=[], device=cpu())
    assert labelled.execute(
        inputsData={"x": data(a)}, lossLabelsData={"t": data(b)}, lossLabelWeightsData=None, batchSize=0
    )
    np.testing.assert_allclose(array(scored), [((np.maximum(a, 0) - b) ** 2).sum()], rtol=1e-6)


def test_results_are_new_tensors_with_ids_and_labels():
    graph, x = MLCGraph(), placeholder(2, 3)
    y = graph.node(MLCActivationLayer.relu, source=x)
    assert y.tensorID == x.tensorID + 1 and y.label == f"data{y.tensorID}"
    assert y.descriptor.dataType is MLCDataType.float32 and y.data is None and y.device is None


def test_a_node_is_refused_with_who_and_why(graph):
    x = placeholder(2, 3)
    assert graph.node(MLCActivationLayer.relu, sources=[x, x]) is None
    said = str(last_refusal())
    assert "node(with:sources:)" in said and "'Activation'" in said and "takes 1 source" in said and "[2, 3]" in said
    assert graph.node(MLCActivationLayer.relu, sources=[]) is None
    assert "no sources" in str(last_refusal())
    assert graph.layers == []


def test_one_layer_in_several_nodes_stands_once_and_shares_its_weights():
    graph, x = MLCGraph(), placeholder(2, 3)
    layer = dense(3, 3)
    first = graph.node(layer, source=x)
    second = graph.node(layer, source=first)
    assert graph.layers == [layer] and layer.layerID == 1
    assert graph.sourceTensors(for_=layer) == [x, first] and graph.resultTensors(for_=layer) == [first, second]


# Nodes without a layer of one's own


def test_split_by_count_and_by_lengths(graph):
    x, a = placeholder(2, 5), values(2, 5)
    chunks = graph.split(source=x, splitCount=3, dimension=1)
    parts = graph.split(source=x, splitSectionLengths=[1, 4], dimension=1)
    objc = graph.splitWithSource_splitCount_dimension_(x, 2, 0)
    objc += graph.splitWithSource_splitSectionLengths_dimension_(x, [3, 2], 1)
    run(graph, x=(x, a))
    expected = [a[:, :2], a[:, 2:4], a[:, 4:], a[:, :1], a[:, 1:], a[:1], a[1:], a[:, :3], a[:, 3:]]
    for got, want in zip([*chunks, *parts, *objc], expected, strict=True):
        np.testing.assert_array_equal(array(got), want)
    assert graph.split(source=x, splitCount=0, dimension=1) is None
    assert isinstance(graph.layers[0], MLCSplitLayer)


def test_concatenate_reshape_transpose(graph):
    x, a = placeholder(2, 6), values(2, 6)
    joined = [graph.concatenate(sources=[x, x], dimension=1), graph.concatenateWithSources_dimension_([x, x], 0)]
    shaped = [graph.reshape(shape=[2, 3, 2], source=x), graph.reshapeWithShape_source_([2, -1], x)]
    turned = [graph.transpose(dimensions=[1, 0], source=x), graph.transposeWithDimensions_source_([0, 1], x)]
    assert [type(layer) for layer in graph.layers] == [
        *[MLCConcatenationLayer] * 2,
        *[MLCReshapeLayer] * 2,
        *[MLCTransposeLayer] * 2,
    ]
    run(graph, x=(x, a))
    expected = [np.concatenate([a, a], 1), np.concatenate([a, a], 0), a.reshape(2, 3, 2), a, a.T, a]
    for got, want in zip([*joined, *shaped, *turned], expected, strict=True):
        np.testing.assert_array_equal(array(got), want)
    assert graph.concatenate(sources=[x, x], dimension=7) is None and "dimension 7" in str(last_refusal())
    assert graph.transpose(dimensions=[0], source=x) is None
    assert graph.reshape(shape=[-1, -1], source=x) is None


def test_select_gather_scatter(graph):
    x, y, a, b = placeholder(3, 4), placeholder(3, 4), values(3, 4), values(3, 4, seed=1)
    condition = placeholder(3, 4, type_=MLCDataType.boolean)
    indices = placeholder(2, type_=MLCDataType.int32)
    rows = placeholder(2, 4)
    chosen = [
        graph.select(sources=[x, y], condition=condition),
        graph.selectWithSources_condition_([x, y], condition),
    ]
    taken = [
        graph.gather(withDimension=0, source=x, indices=indices),
        graph.gatherWithDimension_source_indices_(0, x, indices),
    ]
    how = {"source": rows, "indices": indices, "copyFrom": x}
    written = graph.scatter(withDimension=0, reductionType=MLCReductionType.none, **how)
    added = graph.scatterWithDimension_source_indices_copyFrom_reductionType_(0, rows, indices, x, MLCReductionType.sum)
    assert {type(layer) for layer in graph.layers} == {MLCSelectionLayer, MLCGatherLayer, MLCScatterLayer}
    mask, index, updates = b > 0, np.array([2, 0], np.int32), values(2, 4, seed=3)
    given = {"x": (x, a), "y": (y, b), "condition": (condition, mask), "indices": (indices, index)}
    run(graph, **given, rows=(rows, updates))
    for got in chosen:
        np.testing.assert_array_equal(array(got), np.where(mask, a, b))
    for got in taken:
        np.testing.assert_array_equal(array(got), a[index])
    want = a.copy()
    want[index] = updates
    np.testing.assert_array_equal(array(written), want)
    want = a.copy()
    want[index] += updates
    np.testing.assert_allclose(array(added), want, rtol=1e-6)
    assert graph.scatter(withDimension=0, reductionType=MLCReductionType.mean, **how) is None


# Asking a graph


def test_layers_sources_and_results():
    graph, x = MLCGraph(), placeholder(2, 3)
    first, second = dense(3, 4), MLCActivationLayer.relu
    h = graph.node(first, source=x)
    y = graph.node(second, source=h)
    assert graph.layers == [first, second]
    assert graph.sourceTensors(for_=first)[0] is x and graph.resultTensors(for_=first)[0] is h
    assert graph.sourceTensorsForLayer_(second)[0] is h and graph.resultTensorsForLayer_(second)[0] is y
    stranger = MLCActivationLayer.tanh
    for ask in (graph.sourceTensors, graph.resultTensors):
        assert (
            ask(for_=stranger) == [] and last_refusal().reason == f"the layer {stranger.label!r} is not in this graph"
        )
    training = MLCTrainingGraph(graphObjects=[graph], lossLayer=None, optimizer=None)
    for ask in (training.sourceGradientTensors, training.resultGradientTensors):
        assert (
            ask(for_=stranger) == [] and last_refusal().reason == f"the layer {stranger.label!r} is not in this graph"
        )
    assert graph.device is None


def test_the_layers_of_a_training_graph_end_with_its_loss():
    program = regression()
    layers = program.training.layers
    assert layers[:-1] == program.graph.layers == list(program.layers)
    scored = program.training.resultTensors(for_=layers[-1])
    assert layers[-1].layerID == 2 and scored[0].descriptor.shape == [1]
    assert program.training.sourceTensors(for_=layers[-1])[0] is program.result
    assert program.compile() and program.step() > 0
    assert program.training.resultTensors(for_=layers[-1])[0] is scored[0] and scored[0].data is not None


def test_a_layer_belongs_to_one_graph():
    layer, graph, x = dense(3, 3), MLCGraph(), placeholder(2, 3)
    assert graph.node(layer, source=x) is not None
    assert MLCGraph().node(layer, source=x) is None
    assert "belongs to another graph" in str(last_refusal())
    scored = loss()
    kept = MLCTrainingGraph(graphObjects=[graph], lossLayer=scored, optimizer=sgd())
    assert MLCTrainingGraph(graphObjects=[graph], lossLayer=scored, optimizer=sgd()) is None
    assert kept is not None and "belongs to another graph" in str(last_refusal())


def test_a_layer_is_free_again_when_its_graph_is_gone():
    layer, graph, x = dense(3, 3), MLCGraph(), placeholder(2, 3)
    assert graph.node(layer, source=x) is not None
    del graph
    gc.collect()
    assert MLCGraph().node(layer, source=x) is not None


def test_graphs_are_not_copied_or_pickled(graph):
    with pytest.raises(TypeError, match="a layer belongs to one graph"):
        copy.copy(graph)
    with pytest.raises(TypeError, match="a layer belongs to one graph"):
        copy.deepcopy(graph)
    with pytest.raises(TypeError, match="checkpoint"):
        pickle.dumps(graph)
    assert "nodes" in repr(graph)


# Several graph objects


def two_graphs():
    lower, upper, x = MLCGraph(), MLCGraph(), placeholder(2, 3)
    first, second = dense(3, 4), dense(4, 2, seed=7)
    h = lower.node(first, source=x)
    y = upper.node(second, source=h)
    return lower, upper, x, h, y, first, second


@pytest.mark.parametrize("swapped", [False, True], ids=["in order", "in the other order"])
def test_several_graph_objects_are_one_network_in_any_order(swapped):
    lower, upper, x, _, y, first, second = two_graphs()
    objects = [upper, lower] if swapped else [lower, upper]
    inference = MLCInferenceGraph(graphObjects=objects)
    a = values(2, 3)
    assert inference.addInputs({"x": x}) and inference.compile(options=[], device=cpu())
    assert inference.layers == [first, second]
    answers = []
    assert inference.execute(inputsData={"x": data(a)}, batchSize=0, completionHandler=lambda *g: answers.append(g[0]))
    assert answers[0] is y
    h = a @ array(first.weights).reshape(4, 3).T + array(first.biases).ravel()
    np.testing.assert_allclose(
        array(y), h @ array(second.weights).reshape(2, 4).T + array(second.biases).ravel(), rtol=1e-5
    )


def test_a_graph_object_given_twice_counts_once():
    program = regression()
    twice = MLCInferenceGraph(graphObjects=[program.graph, program.graph])
    assert len(twice.layers) == 1 and twice.addInputs(program.inputs) and twice.compile(options=[], device=cpu())
    assert twice.deviceMemorySize == 4 * 3 * 4


def test_nodes_on_a_training_graph_alone_train_with_the_rest():
    graph, x, t = MLCGraph(), placeholder(2, 3), placeholder(2, 2)
    first, second = dense(3, 4), dense(4, 2, seed=7)
    h = graph.node(first, source=x)
    training = MLCTrainingGraph(graphObjects=[graph], lossLayer=loss(), optimizer=sgd())
    y = training.node(second, source=h)
    assert training.layers[:2] == [first, second] and graph.layers == [first]
    assert training.addInputs({"x": x}, lossLabels={"t": t}) and training.compile(options=[], device=cpu())
    before = [array(p) for p in (first.weights, first.biases, second.weights, second.biases)]
    fed = {"inputsData": {"x": data(values(2, 3))}, "lossLabelsData": {"t": data(values(2, 2))}}
    assert training.execute(**fed, lossLabelWeightsData=None, batchSize=0)
    after = [array(p) for p in (first.weights, first.biases, second.weights, second.biases)]
    assert all(not np.array_equal(a, b) for a, b in zip(before, after, strict=True)) and y.data is not None


def test_a_node_added_after_compile_waits_for_the_next_compile():
    program = regression()
    assert program.compile()
    first = program.step()
    again = regression()
    assert again.compile() and again.step() == first
    late = again.graph.node(MLCActivationLayer.relu, source=again.result)
    again.training.resultTensors(for_=again.layers[0])  # a handle makes the graph look at its tensors anew
    expected, got = program.step(), again.step()
    assert got == expected and late.data is None
    assert again.compile() and again.step() != program.step() and late.data is not None


# The DOT text


def dot_of_a_stopped_graph() -> str:
    program = regression(widths=(6, 5, 3))
    program.inputs["x"].label = 'the "input" \\ of\nall'
    program.layers[0].label = "first layer"
    program.training.stopGradient(for_=program.training.resultTensors(for_=program.layers[0]))
    return program.training.summarizedDOTDescription


def test_dot_of_an_empty_graph_is_the_framework_s():
    assert MLCGraph().summarizedDOTDescription == "digraph MLCGraph {\n node [style=filled];\n}"
    assert len(MLCGraph().summarizedDOTDescription) == 42


def test_dot_draws_nodes_with_labels_and_shapes_and_dashes_where_the_gradient_stops():
    lines = [line.strip() for line in dot_of_a_stopped_graph().splitlines()]
    assert lines[:2] == ["digraph MLCGraph {", "node [style=filled];"] and lines[-1] == "}"
    assert 'n1 [label="1: first layer\\n4x5" shape=box];' in lines
    assert [line for line in lines if "dashed" in line] == ['n1 -> n2 [label="4x5" style=dashed];']
    assert sum("->" in line for line in lines) == 5 and sum("shape=ellipse" in line for line in lines) == 2


def test_dot_is_read_by_a_parser_from_pypi():
    pydot = pytest.importorskip("pydot")
    (read,) = pydot.graph_from_dot_data(dot_of_a_stopped_graph())
    drawn = {node.get_name(): node for node in read.get_nodes() if node.get_name() != "node"}
    assert read.get_name() == "MLCGraph" and len(drawn) == 6
    assert drawn["n1"].get_label().strip('"') == "1: first layer\\n4x5"
    assert 'the \\"input\\" \\\\ of\\\\nall' in {node.get_label().strip('"') for node in drawn.values()}
    edges = {(e.get_source(), e.get_destination()): e for e in read.get_edges()}
    assert len(edges) == 5 and edges["n1", "n2"].get_style() == "dashed" and edges["n2", "n3"].get_style() is None
    assert edges["n2", "n3"].get_label().strip('"') == "4x5"


def test_the_text_of_a_training_graph_does_not_fail_where_its_loss_does_not_fit():
    graph, x, t = MLCGraph(), placeholder(4, 6), placeholder(4, 5)
    graph.node(dense(6, 3), source=x)
    training = MLCTrainingGraph(graphObjects=[graph], lossLayer=loss(), optimizer=sgd())
    training.addInputs({"x": x}, lossLabels={"t": t})
    assert "digraph" in training.summarizedDOTDescription and "1 nodes" in repr(training)
    assert training.resultTensors(for_=training.layers[-1]) == []
    assert not training.compile(options=[], device=cpu()) and "[4, 5]" in str(last_refusal())
