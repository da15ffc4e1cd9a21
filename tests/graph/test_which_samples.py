"""Which dimension of which input counts samples: what an LSTM that takes time first says of it, what a reshape does to it, and
graphs in which they say nothing. Short batches beside torch, sample by sample."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import numpy as np
import pytest
import torch
from torch.nn.functional import conv2d

from mlc_torch import (
    MLCActivationLayer,
    MLCArithmeticLayer,
    MLCArithmeticOperation,
    MLCConvolutionLayer,
    MLCDataType,
    MLCGatherLayer,
    MLCGraph,
    MLCGraphCompilationOptions,
    MLCInferenceGraph,
    MLCLSTMResultMode,
    MLCMatMulDescriptor,
    MLCMatMulLayer,
    MLCReductionLayer,
    MLCReductionType,
    MLCTensor,
    MLCTrainingGraph,
    last_refusal,
)
from tests.graph.programs import conv, cpu, data, loss, lstm, placeholder, values

SAMPLES, PARTS, STEPS = 4, 3, 5


@dataclass
class Case:
    """A graph over inputs, of which ``x`` counts samples, its result, and the same by torch of the first samples of ``x``."""

    graph: MLCGraph
    inputs: dict[str, MLCTensor]
    result: MLCTensor
    twin: Callable[..., torch.Tensor]
    cut: Mapping[str, int] = field(default_factory=lambda: {"x": 0})
    """Those of which the twin is given a part, and along which dimension."""

    def __post_init__(self) -> None:
        self.numbers = {
            name: np.array([4, 1, 0, 3][: t.descriptor.shape[0]], np.int32)
            if t.descriptor.dataType is MLCDataType.int32
            else values(*t.descriptor.shape, seed=seed)
            for seed, (name, t) in enumerate(self.inputs.items())
        }

    def wanted(self, count: int) -> np.ndarray:
        given = {name: torch.from_numpy(v) for name, v in self.numbers.items()}
        given |= {name: given[name].narrow(axis, 0, count) for name, axis in self.cut.items()}
        with torch.no_grad():
            return self.twin(**given).numpy()

    def inference(self, order: int = 1) -> MLCInferenceGraph:
        made = MLCInferenceGraph(graphObjects=[self.graph])
        assert made.addInputs(dict([*self.inputs.items()][::order])) and made.addOutputs({"y": self.result})
        assert made.compile(options=[], device=cpu())
        return made

    def runs(self, inference: MLCInferenceGraph, count: int) -> bool:
        """Whether it runs, and then with the numbers of the twin."""
        out = np.full(self.result.descriptor.shape, 7, np.float32)
        given = {name: data(v) for name, v in self.numbers.items()}
        if not inference.execute(inputsData=given, outputsData={"y": data(out)}, batchSize=count):
            return False
        want = self.wanted(count or SAMPLES)
        np.testing.assert_allclose(out[tuple(map(slice, want.shape))], want, rtol=1e-4, atol=1e-5)
        return True


def total(g: MLCGraph, source: MLCTensor, dimension: int) -> MLCTensor:
    return g.node(MLCReductionLayer(reductionType=MLCReductionType.sum, dimension=dimension), source=source)


def added(g: MLCGraph, *sources: MLCTensor) -> MLCTensor:
    return g.node(MLCArithmeticLayer(operation=MLCArithmeticOperation.add), sources=list(sources))


def rows_are_steps() -> Case:
    """A row for each word of one sentence, which the LSTM reads as a batch of one."""
    (layer, reference), g, x = lstm(batch_first=False), MLCGraph(), placeholder(SAMPLES, 2)
    made = g.node(layer, source=g.reshape(shape=[SAMPLES, 1, 2], source=x))
    return Case(g, {"x": x}, g.reshape(shape=[SAMPLES, 2], source=made), lambda x: reference(x[:, None])[0][:, 0])


def reduced_in_front() -> Case:
    (layer, reference), g, x = lstm(batch_first=False), MLCGraph(), placeholder(SAMPLES, 6)
    made = g.node(layer, source=g.reshape(shape=[3, 1, 2], source=total(g, x, 0)))
    return Case(g, {"x": x}, made, lambda x: reference(x.sum(0).reshape(3, 1, 2))[0])


def columns_of_pictures() -> Case:
    """Convolutions, whose columns an LSTM that takes time first reads from left to right."""
    (layer, reference), g, x = lstm(batch_first=False), MLCGraph(), placeholder(SAMPLES, 2, 1, STEPS)
    weights = values(1, 4, 1, 1, seed=3)
    first = MLCConvolutionLayer(weights=MLCTensor.from_numpy(weights.copy()), biases=None, descriptor=conv(2, 2, 1))
    turned = g.transpose(dimensions=[3, 0, 1, 2], source=g.node(first, source=x))
    made = g.node(layer, source=g.reshape(shape=[STEPS, -1, 2], source=turned))
    kernel = torch.from_numpy(weights).reshape(2, 2, 1, 1)
    return Case(g, {"x": x}, made, lambda x: reference(conv2d(x, kernel).permute(3, 0, 1, 2).reshape(STEPS, -1, 2))[0])


def one_context() -> Case:
    (layer, reference), g, x, c = lstm(batch_first=True), MLCGraph(), placeholder(SAMPLES, 2), placeholder(1, STEPS, 2)
    row = g.reshape(shape=[1, 2], source=total(g, g.node(layer, source=c), 1))
    return Case(g, {"x": x, "c": c}, added(g, x, row), lambda x, c: x + reference(c)[0].sum(1))


def one_context_time_first() -> Case:
    (layer, reference), g, x, c = lstm(batch_first=False), MLCGraph(), placeholder(SAMPLES, 2), placeholder(STEPS, 2)
    made = g.node(layer, source=g.reshape(shape=[STEPS, 1, 2], source=c))
    row = g.reshape(shape=[1, 2], source=total(g, made, 0))
    return Case(g, {"x": x, "c": c}, added(g, x, row), lambda x, c: x + reference(c[:, None])[0].sum(0))


def candidates() -> Case:
    """How well each of three sequences goes with each sample."""
    (layer, reference), g = lstm(batch_first=True), MLCGraph()
    x, c = placeholder(SAMPLES, 2), placeholder(3, STEPS, 2)
    h = g.reshape(shape=[3, 2], source=total(g, g.node(layer, source=c), 1))
    product = MLCMatMulLayer(descriptor=MLCMatMulDescriptor(alpha=1, transposesX=False, transposesY=True))
    return Case(g, {"x": x, "c": c}, g.node(product, sources=[x, h]), lambda x, c: x @ reference(c)[0].sum(1).T)


def several_sentences() -> Case:
    """Two sequences for each sample, fed as twice as many."""
    (layer, reference), g, wide = lstm(batch_first=True), MLCGraph(), 2 * STEPS * 2
    x, c = placeholder(SAMPLES, wide), placeholder(2 * SAMPLES, STEPS, 2)
    made = g.reshape(shape=[SAMPLES, wide], source=g.node(layer, source=c))
    return Case(
        g, {"x": x, "c": c}, added(g, x, made), lambda x, c: x + reference(c)[0].reshape(SAMPLES, wide)[: len(x)]
    )


def an_lstm_that_nothing_reads() -> Case:
    g, x, c = MLCGraph(), placeholder(SAMPLES, 2), placeholder(3, STEPS, 2)
    g.node(lstm(batch_first=True)[0], source=c)
    return Case(g, {"x": x, "c": c}, g.node(MLCActivationLayer.tanh, source=x), lambda x, c: x.tanh())


def steps_by_index(count: int) -> Case:
    """Indices of steps, as many as there are samples or not, beside an LSTM that reads all steps."""
    ((one, first), (two, second)), g = (lstm(batch_first=False), lstm(batch_first=False)), MLCGraph()
    x, i = placeholder(STEPS, SAMPLES, 2), placeholder(count, type_=MLCDataType.int32)
    some = g.node(MLCGatherLayer(dimension=0), sources=[x, i])
    y = added(g, total(g, g.node(one, source=x), 0), total(g, g.node(two, source=some), 0))

    def twin(x: torch.Tensor, i: torch.Tensor) -> torch.Tensor:
        return first(x)[0].sum(0, keepdim=True) + second(x[i.long()])[0].sum(0, keepdim=True)

    return Case(g, {"x": x, "i": i}, y, twin, cut={"x": 1})


def turned_and_reshaped(*shape: int) -> Case:
    """Samples second, which is where the -1 stands."""
    g, x = MLCGraph(), placeholder(SAMPLES, PARTS, 2)
    y = g.reshape(shape=[*shape], source=g.transpose(dimensions=[1, 0, 2], source=x))
    return Case(g, {"x": x}, y, lambda x: x.transpose(0, 1).reshape(shape))


def turned_and_joined() -> Case:
    """All samples of a part in one row, which is summed."""
    g, x = MLCGraph(), placeholder(SAMPLES, PARTS, 2)
    y = total(g, g.reshape(shape=[PARTS, -1], source=g.transpose(dimensions=[1, 0, 2], source=x)), 1)
    return Case(g, {"x": x}, y, lambda x: x.transpose(0, 1).reshape(PARTS, -1).sum(1, keepdim=True))


def final_states() -> Case:
    (layer, reference), g, x = lstm(True, 2, MLCLSTMResultMode.outputAndStates), MLCGraph(), placeholder(SAMPLES, 3, 2)
    g.node(layer, source=x)
    y = g.reshape(shape=[2, -1, 2], source=g.resultTensors(for_=layer)[1])
    return Case(g, {"x": x}, y, lambda x: reference(x)[1][0])


def an_initial_state() -> Case:
    (layer, reference), g, x, z = lstm(True), MLCGraph(), placeholder(SAMPLES, 3, 2), placeholder(SAMPLES, 2)
    begun = g.reshape(shape=[1, 1, -1, 2], source=g.node(MLCActivationLayer.tanh, source=z))
    nothing = MLCTensor.from_numpy(np.zeros((1, 1, SAMPLES, 2), np.float32))
    y = g.node(layer, sources=[x, begun, nothing])
    return Case(
        g,
        {"x": x, "z": z},
        y,
        lambda x, z: reference(x, (z.tanh()[None], torch.zeros(1, len(x), 2)))[0],
        cut={"x": 0, "z": 0},
    )


RUN = {
    "rows are steps": rows_are_steps,
    "reduced in front": reduced_in_front,
    "columns of pictures": columns_of_pictures,
    "one context": one_context,
    "one context, time first": one_context_time_first,
    "candidates": candidates,
    "several sentences": several_sentences,
    "an LSTM that nothing reads": an_lstm_that_nothing_reads,
    "two steps by index": lambda: steps_by_index(2),
    "as many steps by index": lambda: steps_by_index(SAMPLES),
    "turned, [3, -1, 1, 2]": lambda: turned_and_reshaped(PARTS, -1, 1, 2),
    "turned, [1, 3, -1, 2]": lambda: turned_and_reshaped(1, PARTS, -1, 2),
    "turned and joined": turned_and_joined,
    "final states": final_states,
    "an initial state": an_initial_state,
}


@pytest.mark.parametrize("order", [1, -1], ids=["in order", "the other way round"])
@pytest.mark.parametrize("make", RUN.values(), ids=RUN)
def test_a_short_batch_gives_what_its_samples_give(make, order):
    if make is an_lstm_that_nothing_reads:
        order = 1  # of two inputs that have nothing to do with each other, the first one counts samples
    case = make()
    inference = case.inference(order)
    for count in (0, SAMPLES, 3, 2, 1):
        assert case.runs(inference, count), last_refusal()


def put_second(*shape: int) -> Case:
    """Samples second, where the shape has a number for them: the -1 would give way instead."""
    g, x = MLCGraph(), placeholder(SAMPLES, 2)
    return Case(g, {"x": x}, g.reshape(shape=[*shape], source=x), lambda x: x.reshape(shape))


def last_outputs() -> Case:
    """[1, samples, features], whose samples the shape counts, too."""
    (layer, reference), g, x = lstm(batch_first=True), MLCGraph(), placeholder(SAMPLES, STEPS, 2)
    one = total(g, g.transpose(dimensions=[1, 0, 2], source=g.node(layer, source=x)), 0)
    return Case(g, {"x": x}, g.reshape(shape=[SAMPLES, -1], source=one), lambda x: reference(x)[0].sum(1))


@pytest.mark.parametrize(
    "make", [lambda: put_second(1, SAMPLES, -1), lambda: put_second(1, SAMPLES, 1, -1), last_outputs]
)
def test_a_reshape_that_counts_the_samples_takes_all_of_them(make):
    case = make()
    inference = case.inference()
    assert case.runs(inference, 0) and case.runs(inference, SAMPLES)
    for count in (3, 2, 1):
        assert not case.runs(inference, count)
        assert "cannot be told" in last_refusal().reason


@pytest.mark.parametrize("make", [rows_are_steps, candidates])
def test_the_loss_is_that_of_the_samples(make):
    case = make()
    shape = case.result.descriptor.shape
    t, wanted, losses = placeholder(*shape), values(*shape, seed=9), []
    training = MLCTrainingGraph(graphObjects=[case.graph], lossLayer=loss(), optimizer=None)
    assert training.addInputs(case.inputs, lossLabels={"t": t}) and training.compile(options=[], device=cpu())
    for count in (0, SAMPLES, 3, 1):
        ran = training.execute(
            inputsData={name: data(v) for name, v in case.numbers.items()},
            lossLabelsData={"t": data(wanted)},
            lossLabelWeightsData=None,
            batchSize=count,
            completionHandler=lambda result, error, seconds: losses.append(result and float(result)),
        )
        rows = count or SAMPLES
        if make is rows_are_steps and rows < SAMPLES:  # its rows are mixed: whose labels are left out, nobody can say
            assert not ran and "of the label" in last_refusal().reason
            continue
        assert ran and losses[-1] == pytest.approx(float(((case.wanted(rows) - wanted[:rows]) ** 2).mean()), rel=1e-4)


@pytest.mark.parametrize(("time", "batch"), [(5, 4), (3, 3)])
@pytest.mark.parametrize("order", [1, -1], ids=["as they run", "the other way round"])
def test_an_lstm_of_a_linked_graph_says_where_samples_lie(time, batch, order):
    """Three graphs in a row: the layer in front is two graphs away from the LSTM that takes time first."""
    (layer, reference), (one, two, three) = lstm(batch_first=False), (MLCGraph() for _ in range(3))
    x = placeholder(time, batch, 2)
    squashed = two.node(MLCActivationLayer.tanh, source=one.node(MLCActivationLayer.sigmoid, source=x))
    y = three.node(layer, source=squashed)
    graphs = [MLCInferenceGraph(graphObjects=[g]) for g in (one, two, three)]
    for graph, inputs, outputs in zip(graphs, ({"x": x}, {}, {}), ({}, {}, {"y": y}), strict=True):
        assert graph.addInputs(inputs) and graph.addOutputs(outputs)
        assert graph.compile(options=[MLCGraphCompilationOptions.linkGraphs], device=cpu())
    assert graphs[0].link(with_=graphs[1:][::order])
    for count in (0, batch, 2, 1):
        rows, out = count or batch, np.full((time, batch, 2), 7, np.float32)
        numbers = values(time, batch, 2, seed=count)
        assert graphs[0].execute(inputsData={"x": data(numbers)}, batchSize=count), last_refusal()
        assert graphs[1].execute(inputsData={}, batchSize=count), last_refusal()
        assert graphs[2].execute(inputsData={}, outputsData={"y": data(out)}, batchSize=count), last_refusal()
        want = reference(torch.from_numpy(numbers[:, :rows]).sigmoid().tanh())[0].detach()
        np.testing.assert_allclose(out[:, :rows], want, rtol=1e-4, atol=1e-6)
