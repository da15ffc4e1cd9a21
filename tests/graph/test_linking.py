"""Linked graphs: values go forward and gradients back across graphs, and around a computation done elsewhere."""

from __future__ import annotations

import warnings
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import torch
from torch.nn import functional as F

from mlc_torch import (
    MLCActivationLayer,
    MLCArithmeticLayer,
    MLCArithmeticOperation,
    MLCExecutionOptions,
    MLCGraph,
    MLCGraphCompilationOptions,
    MLCInferenceGraph,
    MLCReshapeLayer,
    MLCTensor,
    MLCTrainingGraph,
    MLCTrainingWarning,
    MLCTransposeLayer,
    last_refusal,
)
from tests.graph.programs import array, cpu, data, dense, loss, on, placeholder, regression, sgd, values

LINK = MLCGraphCompilationOptions.linkGraphs


class Split:
    """The network of ``regression(widths=(6, 5, 3))`` as two training graphs, the ReLU in the second."""

    def __init__(self, device, link: bool = True, options=LINK) -> None:
        self.device = device
        whole = regression(widths=(6, 5, 3))
        self.given, lower, upper = whole.given, MLCGraph(), MLCGraph()
        self.graphs, self.x, self.t = (lower, upper), placeholder(4, 6), placeholder(4, 3)
        self.first, self.second = dense(6, 5, seed=0), dense(5, 3, seed=10)
        self.h = lower.node(self.first, source=self.x)
        self.y = upper.node(self.second, source=upper.node(MLCActivationLayer.relu, source=self.h))
        self.lower = MLCTrainingGraph(graphObjects=[lower], lossLayer=None, optimizer=sgd())
        self.upper = MLCTrainingGraph(graphObjects=[upper], lossLayer=loss(), optimizer=sgd())
        assert self.lower.addInputs({"x": self.x}, lossLabels=None)
        assert self.upper.addInputs({}, lossLabels={"t": self.t})
        for graph in (self.lower, self.upper):
            assert graph.compile(options=options, device=device)
        if link:
            assert self.lower.link(with_=[self.upper])

    def shapes(self):
        return (self.first, (5, 6)), (self.second, (3, 5))

    def bind(self) -> None:
        bound = {"x": data(self.given["x"]), "t": data(self.given["t"])}
        tensors = {"x": self.x, "t": self.t}
        for graph in (self.lower, self.upper):
            assert graph.bindAndWriteData(bound, forInputs=tensors, to=self.device, synchronous=True)


def test_two_linked_graphs_train_as_one(torch_device):
    split, whole = Split(on(torch_device)), regression(widths=(6, 5, 3), device=on(torch_device))
    assert whole.compile()
    for _ in range(4):
        split.bind()
        assert split.lower.executeForward(batchSize=0) and split.upper.executeForward(batchSize=0)
        assert split.upper.executeGradient(batchSize=0) and split.lower.executeGradient(batchSize=0)
        assert split.lower.executeOptimizerUpdate() and split.upper.executeOptimizerUpdate()
        whole.step()
    split.lower.synchronizeUpdates()
    split.upper.synchronizeUpdates()
    whole.training.synchronizeUpdates()
    for mine, theirs in zip((split.first, split.second), whole.layers, strict=True):
        np.testing.assert_allclose(array(mine.weights), array(theirs.weights), rtol=1e-5, atol=1e-6)
        np.testing.assert_allclose(array(mine.biases), array(theirs.biases), rtol=1e-5, atol=1e-6)


def test_the_gradients_of_the_lower_graph_come_from_the_upper():
    split, whole = Split(cpu()), regression(widths=(6, 5, 3))
    assert whole.compile() and whole.phases()
    split.bind()
    assert split.lower.executeForward(batchSize=0) and split.upper.executeForward(batchSize=0)
    assert split.upper.executeGradient(batchSize=0) and split.lower.executeGradient(batchSize=0)
    got = split.lower.gradientData(forParameter=split.first.weights, layer=split.first)
    want = whole.training.gradientData(forParameter=whole.layers[0].weights, layer=whole.layers[0])
    np.testing.assert_allclose(np.frombuffer(got, np.float32), np.frombuffer(want, np.float32), rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize("by", ["lower", "upper"])
def test_a_gradient_stops_at_the_link_whichever_graph_stops_it(by, torch_device):
    """As in one graph: what lies below stays, what lies above learns."""
    split, whole = Split(on(torch_device), link=False), regression(widths=(6, 5, 3), device=on(torch_device))
    assert whole.training.stopGradient(for_=whole.training.resultTensors(for_=whole.layers[0])) and whole.compile()
    graph = getattr(split, by)
    assert graph.stopGradient(for_=[split.h]) and graph.compile(options=LINK, device=split.device)
    assert split.lower.link(with_=[split.upper])
    before = array(split.first.weights)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", MLCTrainingWarning)  # the lower one has nothing to learn, and says so
        for _ in range(3):
            split.bind()
            assert split.lower.executeForward(batchSize=0) and split.upper.executeForward(batchSize=0)
            assert split.upper.executeGradient(batchSize=0) and split.lower.executeGradient(batchSize=0)
            assert split.lower.executeOptimizerUpdate() and split.upper.executeOptimizerUpdate()
            whole.step()
    for training in (split.lower, split.upper, whole.training):
        training.synchronizeUpdates()
    np.testing.assert_array_equal(array(split.first.weights), before)
    for mine, theirs in zip((split.first, split.second), whole.layers, strict=True):
        np.testing.assert_allclose(array(mine.weights), array(theirs.weights), rtol=1e-5, atol=1e-6)


def test_where_a_gradient_stops_only_the_programs_own_goes_on():
    """Neither a loss of the graph that computes the tensor comes through nor that of a linked one."""
    split, t = Split(cpu(), link=False), placeholder(4, 5)
    lower, labels, given = (
        MLCTrainingGraph(graphObjects=[split.graphs[0]], lossLayer=loss(), optimizer=sgd()),
        values(4, 5, seed=9),
        values(4, 5, seed=11),
    )
    assert lower.addInputs({"x": split.x}, lossLabels={"t": t}) and lower.stopGradient(for_=[split.h])
    gradient = lower.allocateUserGradient(for_=split.h)
    assert lower.compile(options=LINK, device=cpu()) and lower.link(with_=[split.upper])
    split.lower = lower
    split.bind()
    assert lower.bindAndWriteData({"t": data(labels)}, forInputs={"t": t}, to=cpu(), synchronous=True)
    assert gradient.bindAndWriteData(data(given), to=cpu())
    assert lower.executeForward(batchSize=0) and split.upper.executeForward(batchSize=0)
    assert split.upper.executeGradient(batchSize=0) and lower.executeGradient(batchSize=0)
    found = np.frombuffer(lower.gradientData(forParameter=split.first.weights, layer=split.first), np.float32)
    np.testing.assert_allclose(found.reshape(5, 6), given.T @ split.given["x"], rtol=1e-4, atol=1e-5)


def test_orders_that_cannot_be_are_refused_with_the_step_named():
    split = Split(cpu())
    split.bind()
    assert not split.upper.executeForward(batchSize=0)
    assert "executeForward of the graph that computes it first" in str(last_refusal())
    assert split.lower.executeForward(batchSize=0) and not split.lower.executeGradient(batchSize=0)
    assert "executeGradient of the linked graph" in str(last_refusal())
    assert split.upper.executeForward(batchSize=0) and not split.lower.executeGradient(batchSize=0)
    assert split.upper.executeGradient(batchSize=0) and split.lower.executeGradient(batchSize=0)


def test_a_gradient_of_an_earlier_pass_is_not_taken_for_this_one_s():
    split = Split(cpu())
    split.bind()
    assert split.lower.executeForward(batchSize=0) and split.upper.executeForward(batchSize=0)
    assert split.upper.executeGradient(batchSize=0) and split.lower.executeGradient(batchSize=0)
    assert split.lower.executeForward(batchSize=0) and not split.lower.executeGradient(batchSize=0)
    assert "executeGradient of the linked graph" in str(last_refusal())
    assert not split.lower.execute(
        inputsData={"x": data(split.given["x"])}, lossLabelsData=None, lossLabelWeightsData=None, batchSize=0
    )
    assert "one by one" in str(last_refusal())
    assert split.upper.executeForward(batchSize=0) and split.upper.executeGradient(batchSize=0)
    assert split.lower.executeGradient(batchSize=0)


def test_short_batches_cross_the_link(torch_device):
    split, whole = Split(on(torch_device)), regression(widths=(6, 5, 3), device=on(torch_device))
    assert whole.compile()
    for batch in (2, 4, 3, 2):
        split.bind()
        assert split.lower.executeForward(batchSize=batch) and split.upper.executeForward(batchSize=batch)
        assert split.upper.executeGradient(batchSize=batch) and split.lower.executeGradient(batchSize=batch)
        assert split.lower.executeOptimizerUpdate() and split.upper.executeOptimizerUpdate()
        assert whole.execute(batchSize=batch)
    split.lower.synchronizeUpdates()
    split.upper.synchronizeUpdates()
    whole.training.synchronizeUpdates()
    for mine, theirs in zip((split.first, split.second), whole.layers, strict=True):
        np.testing.assert_allclose(array(mine.weights), array(theirs.weights), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("options", [[LINK], [LINK, MLCGraphCompilationOptions.disableLayerFusion]], ids=["", "plain"])
@pytest.mark.parametrize(("below", "above"), [(4, 1), (4, 2), (3, 2), (3, 3)])
def test_samples_that_the_reader_did_not_run_have_no_gradient(torch_device, below, above, options):
    split = Split(on(torch_device), options=options)
    x, t = (split.given[name][:above].astype(float) for name in "xt")
    for _ in range(2):
        (w1, b1), (w2, b2) = ((array(n.weights).reshape(s), array(n.biases).ravel()) for n, s in split.shapes())
        h = x @ w1.T + b1
        dy = 2 * (np.maximum(h, 0) @ w2.T + b2 - t) / t.size
        split.bind()
        assert split.lower.executeForward(batchSize=below) and split.upper.executeForward(batchSize=above)
        assert split.upper.executeGradient(batchSize=above)
        assert split.lower.executeGradient(batchSize=below), last_refusal()
        got = split.lower.gradientData(forParameter=split.first.weights, layer=split.first)
        want = (dy @ w2 * (h > 0)).T @ x
        np.testing.assert_allclose(np.frombuffer(got, np.float32).reshape(5, 6), want, rtol=1e-4, atol=1e-6)
        assert split.lower.executeOptimizerUpdate() and split.upper.executeOptimizerUpdate()
        split.lower.synchronizeUpdates()
        split.upper.synchronizeUpdates()


@pytest.mark.parametrize("wanted", [3, 4, 0])
def test_a_reader_wants_no_more_samples_than_there_are_of_this_pass(torch_device, wanted):
    split = Split(on(torch_device))
    split.bind()
    assert split.lower.executeForward(batchSize=4) and split.lower.executeForward(batchSize=2)
    assert not split.upper.executeForward(batchSize=wanted)
    assert f"{wanted or 4} samples are to run" in str(last_refusal()) and "ran 2 last" in str(last_refusal())
    assert not split.upper.execute(
        inputsData={}, lossLabelsData={"t": data(split.given["t"])}, lossLabelWeightsData=None, batchSize=wanted
    )
    assert "ran 2 last" in str(last_refusal())
    assert split.upper.executeForward(batchSize=2)
    h, how = values(4, 5, seed=9), {"to": split.device, "synchronous": True}
    assert split.lower.bindAndWriteData(
        {"h": data(h)}, forInputs={"h": split.h}, **how
    )  # the program's own: no older pass
    assert split.upper.executeForward(batchSize=wanted, options=[MLCExecutionOptions.synchronous]), last_refusal()
    w, b = array(split.second.weights).reshape(3, 5), array(split.second.biases).ravel()
    count = wanted or 4
    np.testing.assert_allclose(array(split.y)[:count], (np.maximum(h, 0) @ w.T + b)[:count], rtol=1e-4, atol=1e-5)


def test_an_inference_reads_no_more_samples_than_there_are_of_this_pass(torch_device):
    lower, upper, x = MLCGraph(), MLCGraph(), placeholder(4, 6)
    y = upper.node(MLCActivationLayer.relu, source=lower.node(MLCActivationLayer.tanh, source=x))
    one, two = (MLCInferenceGraph(graphObjects=[graph]) for graph in (lower, upper))
    assert one.addInputs({"x": x}) and two.addInputs({})
    assert all(graph.compile(options=[LINK], device=on(torch_device)) for graph in (one, two)) and one.link(with_=[two])
    given, how = values(4, 6), {"options": [MLCExecutionOptions.synchronous]}
    for count in (4, 2, 2, 2):  # the last ones are like those before them
        assert one.execute(inputsData={"x": data(given[:count])}, batchSize=count, **how)
        for more in range(count + 1, 5):
            assert not two.execute(inputsData={}, batchSize=more, **how)
            assert f"{more} samples are to run" in str(last_refusal()) and f"ran {count} last" in str(last_refusal())
        assert two.execute(inputsData={}, batchSize=count, **how), last_refusal()
        np.testing.assert_allclose(array(y)[:count], np.maximum(np.tanh(given[:count]), 0), rtol=1e-5, atol=1e-6)


def test_training_graphs_link_only_with_the_option():
    split = Split(cpu(), link=False, options=[])
    assert not split.lower.link(with_=[split.upper]) and "linkGraphs" in str(last_refusal())
    assert split.lower.compile(options=LINK, device=cpu())
    assert not split.lower.linkWithGraphs_([split.upper])
    assert split.upper.compile(options=LINK, device=cpu()) and split.lower.linkWithGraphs_([split.upper])
    fresh = MLCTrainingGraph(graphObjects=[MLCGraph()], lossLayer=None, optimizer=None)
    assert not split.lower.link(with_=[fresh])


class Heads:
    """A layer, and two heads that read its result; each of the three is a graph of its own. Nothing is linked yet."""

    def __init__(self, device=None) -> None:
        self.device = device = device or cpu()
        graph, x = MLCGraph(), placeholder(4, 6)
        self.layer = dense(6, 5, seed=0)
        self.given, self.labels = values(4, 6), [values(4, 3, seed=7), values(4, 2, seed=8)]
        self.h = graph.node(self.layer, source=x)
        self.low = MLCTrainingGraph(graphObjects=[graph], lossLayer=None, optimizer=sgd())
        assert self.low.addInputs({"x": x}, lossLabels=None) and self.low.compile(options=LINK, device=device)
        self.bind(self.low, x, self.given)
        self.layers = [dense(5, 3, seed=3), dense(5, 2, seed=5)]
        self.heads = [self.head(*pair) for pair in zip(self.layers, self.labels, strict=True)]

    def head(self, layer, label) -> MLCTrainingGraph:
        graph, t = MLCGraph(), placeholder(*label.shape)
        graph.node(layer, source=self.h)
        head = MLCTrainingGraph(graphObjects=[graph], lossLayer=loss(), optimizer=sgd())
        assert head.addInputs({}, lossLabels={"t": t}) and head.compile(options=LINK, device=self.device)
        self.bind(head, t, label)
        return head

    def bind(self, graph: MLCTrainingGraph, tensor: MLCTensor, given: np.ndarray) -> None:
        assert graph.bindAndWriteData({"a": data(given)}, forInputs={"a": tensor}, to=self.device, synchronous=True)

    def trained(self, *heads: MLCTrainingGraph) -> bool:
        """A pass through these heads, and back; whether the lower graph had its gradient."""
        assert self.low.executeForward(batchSize=0) and all(head.executeForward(batchSize=0) for head in heads)
        assert all(head.executeGradient(batchSize=0) for head in heads)
        return self.low.executeGradient(batchSize=0)

    def holds(self, *which: int) -> None:
        """The lower graph's gradient is the sum of what comes from these heads, by hand."""
        w, b = array(self.layer.weights).reshape(5, 6).astype(float), array(self.layer.biases).ravel().astype(float)
        h, total = self.given @ w.T + b, np.zeros((5, 6))
        for number in which:
            top, label = self.layers[number], self.labels[number]
            v, c = array(top.weights).reshape(-1, 5).astype(float), array(top.biases).ravel().astype(float)
            total += (2 / label.size * (h @ v.T + c - label) @ v).T @ self.given
        got = self.low.gradientData(forParameter=self.layer.weights, layer=self.layer)
        np.testing.assert_allclose(np.frombuffer(got, np.float32).reshape(5, 6), total, rtol=1e-4, atol=1e-5)


def test_a_graph_that_is_listed_twice_counts_once(torch_device):
    net = Heads(on(torch_device))
    first = net.heads[0]
    for graphs in ([first, first, net.low], [first]):
        assert net.low.link(with_=graphs) and net.trained(first)
        net.holds(0)


@pytest.mark.parametrize("by", ["all at once", "one by one", "one by one, by the heads", "through the other head"])
def test_links_add_up(by):
    net = Heads()
    first, second = net.heads
    if by == "all at once":
        assert net.low.link(with_=net.heads)
    elif by == "one by one":
        assert net.low.link(with_=[first]) and net.low.link(with_=[second])
    elif by == "one by one, by the heads":
        assert first.link(with_=[net.low]) and second.link(with_=[net.low])
    else:
        assert second.link(with_=[first]) and net.low.link(with_=[first])
    for _ in range(2):
        assert net.trained(*net.heads)
        net.holds(0, 1)


def test_graphs_that_were_linked_through_another_carry_gradients_too():
    """The last of three graphs reads the results of both others, and each is linked with the next."""
    graphs, x, t = [MLCGraph() for _ in range(3)], placeholder(4, 3), placeholder(4, 3)
    layers = [dense(3, 3, seed=i) for i in (0, 4)]
    h = graphs[0].node(layers[0], source=x)
    y = graphs[1].node(layers[1], source=h)
    graphs[2].node(MLCArithmeticLayer(operation=MLCArithmeticOperation.add), sources=[h, y])
    one, two, three = (
        MLCTrainingGraph(graphObjects=[g], lossLayer=loss() if g is graphs[2] else None, optimizer=None) for g in graphs
    )
    assert one.addInputs({"x": x}, lossLabels=None) and three.addInputs({}, lossLabels={"t": t})
    assert all(g.compile(options=LINK, device=cpu()) for g in (one, two, three))
    assert one.link(with_=[two]) and two.link(with_=[three])
    given, label = values(4, 3), values(4, 3, seed=1)
    for graph, tensor, a in ((one, x, given), (three, t, label)):
        assert graph.bindAndWriteData({"a": data(a)}, forInputs={"a": tensor}, to=cpu(), synchronous=True)
    assert all(g.executeForward(batchSize=0) for g in (one, two, three))
    assert all(g.executeGradient(batchSize=0) for g in (three, two, one))
    (w, b), (v, c) = ((array(k.weights).reshape(3, 3).astype(float), array(k.biases).ravel()) for k in layers)
    lower = given @ w.T + b
    slope = 2 / 12 * (lower + lower @ v.T + c - label)
    got = np.frombuffer(one.gradientData(forParameter=layers[0].weights, layer=layers[0]), np.float32)
    np.testing.assert_allclose(got.reshape(3, 3), (slope + slope @ v).T @ given, rtol=1e-4, atol=1e-5)


def test_a_link_with_nobody_leaves_the_links_that_are_there():
    net = Heads()
    first, second = net.heads
    assert net.low.link(with_=[first]) and net.low.link(with_=[]) and not net.low.link(with_=[net.low])
    assert "nothing but the graph itself" in str(last_refusal())
    assert net.trained(first)
    net.holds(0)
    fresh = MLCTrainingGraph(graphObjects=[MLCGraph()], lossLayer=None, optimizer=None)
    assert not net.low.link(with_=[second, fresh]) and "linkGraphs" in str(last_refusal())
    assert net.trained(*net.heads)
    net.holds(0)


def test_every_reader_that_ran_forward_goes_back_first():
    net = Heads()
    first, second = net.heads
    assert net.low.link(with_=net.heads)
    for _ in range(2):
        assert net.low.executeForward(batchSize=0) and all(head.executeForward(batchSize=0) for head in net.heads)
        assert first.executeGradient(batchSize=0) and not net.low.executeGradient(batchSize=0)
        assert f"no gradient of {net.h.label!r} for this forward pass" in str(last_refusal())
        assert second.executeGradient(batchSize=0) and net.low.executeGradient(batchSize=0)
        net.holds(0, 1)


def test_heads_in_turn():
    net = Heads()
    assert net.low.link(with_=net.heads)
    for turn in (0, 1, 1, 0):
        assert net.trained(net.heads[turn]), last_refusal()
        net.holds(turn)
        assert net.low.executeOptimizerUpdate() and net.heads[turn].executeOptimizerUpdate()


def test_heads_of_different_results_in_turn():
    """The result that nobody went back through has a gradient of zero; while no head has gone back, all are waited for."""
    graph, x, given, label = MLCGraph(), placeholder(4, 6), values(4, 6), values(4, 3, seed=7)
    below, above = [dense(6, 5, seed=n) for n in (0, 1)], [dense(5, 3, seed=n) for n in (3, 4)]
    hidden = [graph.node(layer, source=x) for layer in below]
    low = MLCTrainingGraph(graphObjects=[graph], lossLayer=None, optimizer=sgd())
    assert low.addInputs({"x": x}, lossLabels=None) and low.compile(options=LINK, device=cpu())
    assert low.bindAndWriteData({"x": data(given)}, forInputs={"x": x}, to=cpu(), synchronous=True)
    heads = []
    for layer, h in zip(above, hidden, strict=True):
        upper, t = MLCGraph(), placeholder(4, 3)
        upper.node(layer, source=h)
        head = MLCTrainingGraph(graphObjects=[upper], lossLayer=loss(), optimizer=sgd())
        assert head.addInputs({}, lossLabels={"t": t}) and head.compile(options=LINK, device=cpu())
        assert head.bindAndWriteData({"t": data(label)}, forInputs={"t": t}, to=cpu(), synchronous=True)
        heads.append(head)
    assert low.link(with_=heads)
    for turn in (0, 1, 1):
        assert low.executeForward(batchSize=0) and heads[turn].executeForward(batchSize=0)
        assert not low.executeGradient(batchSize=0) and "no gradient of" in str(last_refusal())
        assert heads[turn].executeGradient(batchSize=0) and low.executeGradient(batchSize=0), last_refusal()
        w, v = (array(layers[turn].weights).reshape(shape) for layers, shape in ((below, (5, 6)), (above, (3, 5))))
        b, c = (array(layers[turn].biases).ravel() for layers in (below, above))
        want = (2 / label.size * ((given @ w.T + b) @ v.T + c - label) @ v).T @ given
        for number, layer in enumerate(below):
            got = np.frombuffer(low.gradientData(forParameter=layer.weights, layer=layer), np.float32).reshape(5, 6)
            np.testing.assert_allclose(got, want if number == turn else 0 * want, rtol=1e-4, atol=1e-6)
        assert low.executeOptimizerUpdate() and heads[turn].executeOptimizerUpdate()


def test_a_reader_that_does_not_differentiate_is_not_waited_for():
    net = Heads()
    first, second = net.heads
    graph = MLCGraph()
    shown = graph.node(MLCActivationLayer.relu, source=net.h)
    looking = MLCTrainingGraph(graphObjects=[graph], lossLayer=None, optimizer=None)
    assert looking.addInputs({}, lossLabels=None) and looking.addOutputs({"shown": shown})
    assert looking.compile(options=LINK, device=cpu()) and net.low.link(with_=[*net.heads, looking])
    assert net.trained(*net.heads)
    assert net.low.executeForward(batchSize=0) and first.executeForward(batchSize=0)
    assert looking.executeForward(batchSize=0)
    assert second.executeForward(batchSize=0, options=[MLCExecutionOptions.forwardForInference])
    assert first.executeGradient(batchSize=0) and net.low.executeGradient(batchSize=0), last_refusal()
    net.holds(0)


@pytest.mark.parametrize("has_loss", [True, False])
def test_a_graph_with_a_loss_goes_back_although_its_only_reader_has_none(has_loss):
    """It was told to wait for a gradient that never comes. One without a loss has nothing to go back with."""
    split, z = Split(cpu(), link=False), MLCGraph()
    z.node(dense(3, 2, seed=4), source=split.y)
    looking = MLCTrainingGraph(graphObjects=[z], lossLayer=None, optimizer=sgd())
    assert looking.addInputs({}, lossLabels=None) and looking.compile(options=LINK, device=cpu())
    middle = split.upper
    if not has_loss:
        middle = MLCTrainingGraph(graphObjects=[split.graphs[1]], lossLayer=None, optimizer=sgd())
        assert middle.addInputs({}, lossLabels=None) and middle.compile(options=LINK, device=cpu())
    assert split.lower.link(with_=[middle, looking])
    split.bind()
    for graph in (split.lower, middle, looking):
        assert graph.executeForward(batchSize=0)
    assert not looking.executeGradient(batchSize=0)
    assert middle.executeGradient(batchSize=0) is has_loss
    assert split.lower.executeGradient(batchSize=0) is has_loss
    if has_loss:
        whole = regression(widths=(6, 5, 3))
        assert whole.compile() and whole.phases()
        got = split.lower.gradientData(forParameter=split.first.weights, layer=split.first)
        want = whole.training.gradientData(forParameter=whole.layers[0].weights, layer=whole.layers[0])
        np.testing.assert_allclose(
            np.frombuffer(got, np.float32), np.frombuffer(want, np.float32), rtol=1e-5, atol=1e-7
        )


def test_a_pass_of_a_reader_that_an_inference_overtook_is_missed():
    net = Heads()
    first, second = net.heads
    assert net.low.link(with_=net.heads)
    assert net.low.executeForward(batchSize=0) and all(head.executeForward(batchSize=0) for head in net.heads)
    assert all(head.executeGradient(batchSize=0) for head in net.heads)
    assert second.executeForward(batchSize=0, options=[MLCExecutionOptions.forwardForInference])
    assert not net.low.executeGradient(batchSize=0) and "for this forward pass" in str(last_refusal())
    assert second.executeForward(batchSize=0) and second.executeGradient(batchSize=0)
    assert net.low.executeGradient(batchSize=0)
    net.holds(0, 1)


def test_threads_that_link_one_graph_lose_no_link():
    for _ in range(5):
        net = Heads()
        more = [net.head(dense(5, 2, seed=n), values(4, 2, seed=n)) for n in range(6)]
        with ThreadPoolExecutor(4) as pool:
            assert all(pool.map(lambda head, low=net.low: low.link(with_=[head]), [*net.heads, *more]))
        assert net.trained(*net.heads)
        net.holds(0, 1)


def test_a_graph_linked_with_none_goes_on():
    program = regression()
    assert (
        program.compile(LINK)
        and program.training.link(with_=[])
        and not program.training.link(with_=[program.training])
    )
    plain = regression()
    assert plain.compile()
    assert program.step() == pytest.approx(plain.step(), rel=1e-6)
    assert program.phases() and program.update()


def test_linked_inference_graphs(torch_device):
    lower, upper, x = MLCGraph(), MLCGraph(), placeholder(4, 6)
    first, second = dense(6, 5), dense(5, 3, seed=2)
    h = lower.node(first, source=x)
    y = upper.node(second, source=h)
    below, above = MLCInferenceGraph(graphObjects=[lower]), MLCInferenceGraph(graphObjects=[upper])
    assert below.addInputs({"x": x}) and below.compile(options=LINK, device=on(torch_device))
    assert above.compile(options=LINK, device=on(torch_device)) and below.link(with_=[above])
    a = values(4, 6)
    assert not above.execute(inputsData={}, batchSize=0)
    for scale in (1, 2):
        assert below.execute(inputsData={"x": data(a * scale)}, batchSize=0, options=2)
        assert above.execute(inputsData={}, batchSize=0, options=2)
        want = a * scale @ array(first.weights).reshape(5, 6).T + array(first.biases).ravel()
        want = want @ array(second.weights).reshape(3, 5).T + array(second.biases).ravel()
        np.testing.assert_allclose(array(y), want, rtol=1e-4, atol=1e-5)


def test_a_result_in_another_layout_crosses_the_link(torch_device):
    lower, upper, x = MLCGraph(), MLCGraph(), placeholder(2, 3, 4)
    turned = lower.node(MLCTransposeLayer(dimensions=[0, 2, 1]), source=x)
    y = upper.node(MLCReshapeLayer(shape=[2, 12]), source=turned)
    graphs = [MLCInferenceGraph(graphObjects=[g]) for g in (lower, upper)]
    assert graphs[0].addInputs({"x": x}) and graphs[0].link(with_=graphs[1:])
    assert all(g.compile(options=[], device=on(torch_device)) for g in graphs)
    for number in range(3):
        given = values(2, 3, 4, seed=number)
        assert graphs[0].execute(inputsData={"x": data(given)}, batchSize=0, options=[MLCExecutionOptions.synchronous])
        assert graphs[1].execute(inputsData={}, batchSize=0, options=[MLCExecutionOptions.synchronous]), last_refusal()
        np.testing.assert_array_equal(array(y), given.transpose(0, 2, 1).reshape(2, 12))


def test_a_gradient_in_another_layout_crosses_the_link(torch_device):
    device, lower, upper = on(torch_device), MLCGraph(), MLCGraph()
    x, t, layer = placeholder(4, 5), placeholder(4, 6), dense(5, 6)
    halves = lower.node(MLCReshapeLayer(shape=[4, 2, 3]), source=lower.node(layer, source=x))
    turned = upper.node(MLCTransposeLayer(dimensions=[0, 2, 1]), source=halves)
    upper.node(MLCReshapeLayer(shape=[4, 6]), source=turned)
    first = MLCTrainingGraph(graphObjects=[lower], lossLayer=None, optimizer=sgd())
    second = MLCTrainingGraph(graphObjects=[upper], lossLayer=loss(), optimizer=None)
    assert first.addInputs({"x": x}, lossLabels=None) and second.addInputs({}, lossLabels={"t": t})
    assert all(g.compile(options=LINK, device=device) for g in (first, second)) and first.link(with_=[second])
    weights, biases = array(layer.weights).reshape(6, 5), array(layer.biases).ravel()
    for number in range(3):
        given, wanted = values(4, 5, seed=number), values(4, 6, seed=number + 9)
        bound, tensors = {"x": data(given), "t": data(wanted)}, {"x": x, "t": t}
        for graph in (first, second):
            assert graph.bindAndWriteData(bound, forInputs=tensors, to=device, synchronous=True)
        assert first.executeForward(batchSize=0) and second.executeForward(batchSize=0)
        assert second.executeGradient(batchSize=0) and first.executeGradient(batchSize=0), last_refusal()
        made = (given @ weights.T + biases).reshape(4, 2, 3).transpose(0, 2, 1).reshape(4, 6)
        upstream = (2 / made.size * (made - wanted)).reshape(4, 3, 2).transpose(0, 2, 1).reshape(4, 6)
        got = first.gradientData(forParameter=layer.weights, layer=layer)
        np.testing.assert_allclose(np.frombuffer(got, np.float32).reshape(6, 5), upstream.T @ given, 1e-4, 1e-6)


def test_three_graphs_in_a_row():
    graphs, x, t = [MLCGraph() for _ in range(3)], placeholder(4, 3), placeholder(4, 3)
    layers = [dense(3, 3, seed=i) for i in (0, 4, 8)]
    y = x
    for graph, layer in zip(graphs, layers, strict=True):
        y = graph.node(layer, source=y)
    trainings = [
        MLCTrainingGraph(graphObjects=[g], lossLayer=loss() if i == 2 else None, optimizer=sgd())
        for i, g in enumerate(graphs)
    ]
    assert trainings[0].addInputs({"x": x}, lossLabels=None)
    assert trainings[1].addInputs({}, lossLabels=None) and trainings[2].addInputs({}, lossLabels={"t": t})
    assert all(g.compile(options=LINK, device=cpu()) for g in trainings)
    assert trainings[0].link(with_=trainings[1:])
    whole = regression(widths=(3, 3))
    whole.given = {"x": values(4, 3), "t": values(4, 3, seed=1)}
    bound, tensors = {n: data(a) for n, a in whole.given.items()}, {"x": x, "t": t}
    for g in trainings:
        assert g.bindAndWriteData(bound, forInputs=tensors, to=cpu(), synchronous=True)
    weights = [array(layer.weights).reshape(3, 3).astype(float) for layer in layers]
    biases = [array(layer.biases).ravel().astype(float) for layer in layers]
    assert all(g.executeForward(batchSize=0) for g in trainings)
    assert all(g.executeGradient(batchSize=0) for g in reversed(trainings))
    h = [whole.given["x"].astype(float)]
    for w, b in zip(weights, biases, strict=True):
        h.append(h[-1] @ w.T + b)
    slope = 2 * (h[3] - whole.given["t"]) / 12
    for i in (2, 1, 0):
        got = np.frombuffer(trainings[i].gradientData(forParameter=layers[i].weights, layer=layers[i]), np.float32)
        np.testing.assert_allclose(got.reshape(3, 3), slope.T @ h[i], rtol=1e-4, atol=1e-5)
        slope = slope @ weights[i]


def test_around_a_computation_done_elsewhere():
    """sin between two graphs, by NumPy: its value is fed forward, its gradient handed back."""
    lower, upper = MLCGraph(), MLCGraph()
    x, s, t = placeholder(4, 6), placeholder(4, 5), placeholder(4, 3)
    first, second = dense(6, 5), dense(5, 3, seed=2)
    h = lower.node(first, source=x)
    upper.node(second, source=s)
    below = MLCTrainingGraph(graphObjects=[lower], lossLayer=None, optimizer=sgd())
    above = MLCTrainingGraph(graphObjects=[upper], lossLayer=loss(), optimizer=sgd())
    outside = below.allocateUserGradient(for_=h)
    assert below.addInputs({"x": x}, lossLabels=None) and above.addInputs({"s": s}, lossLabels={"t": t})
    everything = [LINK, MLCGraphCompilationOptions.computeAllGradients]
    assert below.compile(options=everything, device=cpu()) and above.compile(options=everything, device=cpu())
    a, b, losses = values(4, 6), values(4, 3, seed=1), []
    bind = {"to": cpu(), "synchronous": True}
    for _ in range(30):
        assert below.bindAndWriteData({"x": data(a)}, forInputs={"x": x}, **bind) and below.executeForward(batchSize=0)
        here = array(h)
        bound = {"s": data(np.sin(here)), "t": data(b)}
        assert above.bindAndWriteData(bound, forInputs={"s": s, "t": t}, **bind)
        assert above.executeForward(batchSize=0, completionHandler=lambda *g: losses.append(array(g[0])[0]))
        assert above.executeGradient(batchSize=0)
        back = array(above.gradientTensor(forInput=s)) * np.cos(here)
        assert below.bindAndWriteData({"g": data(back)}, forInputs={"g": outside}, **bind)
        assert below.executeGradient(batchSize=0)
        assert below.executeOptimizerUpdate() and above.executeOptimizerUpdate()
    assert losses[-1] < losses[0] / 3


@pytest.mark.parametrize("with_loss", [False, True])
def test_a_graph_that_is_linked_after_the_forward_pass_is_waited_for(with_loss):
    """The pass has no place for its gradient, which was left out; the next one has, and gives the gradient of both losses."""
    split, t = Split(cpu(), link=False), placeholder(4, 5)
    lower, labels = split.lower, values(4, 5, seed=9)
    if with_loss:
        lower = MLCTrainingGraph(graphObjects=[split.graphs[0]], lossLayer=loss(), optimizer=sgd())
        assert lower.addInputs({"x": split.x}, lossLabels={"t": t}) and lower.compile(options=LINK, device=cpu())
        split.lower = lower
    split.bind()
    assert lower.bindAndWriteData({"t": data(labels)}, forInputs={"t": t}, to=cpu(), synchronous=True)
    assert lower.executeForward(batchSize=0) and lower.link(with_=[split.upper])
    assert split.upper.executeForward(batchSize=0) and split.upper.executeGradient(batchSize=0)
    assert not lower.executeGradient(batchSize=0)
    assert f"a graph that reads {split.h.label!r} was linked after the forward pass" in str(last_refusal())
    assert lower.executeForward(batchSize=0) and split.upper.executeForward(batchSize=0)
    assert split.upper.executeGradient(batchSize=0) and lower.executeGradient(batchSize=0)
    found = np.frombuffer(lower.gradientData(forParameter=split.first.biases, layer=split.first), np.float32)
    (w1, b1), (w2, b2) = (
        (torch.tensor(array(layer.weights)).reshape(shape), torch.tensor(array(layer.biases)).reshape(-1))
        for layer, shape in split.shapes()
    )
    h = F.linear(torch.tensor(split.given["x"]), w1, b1.requires_grad_())
    total = F.mse_loss(F.linear(h.relu(), w2, b2), torch.tensor(split.given["t"]))
    total = total + F.mse_loss(h, torch.tensor(labels)) if with_loss else total
    np.testing.assert_allclose(found, torch.autograd.grad(total, b1)[0], rtol=1e-4, atol=1e-6)
