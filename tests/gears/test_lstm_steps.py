"""An LSTM over few steps, of which no gradient is wanted, multiplies gate by gate: the numbers of ``nn.LSTM`` in 64 bits."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from mlc_torch import (
    MLCActivationLayer,
    MLCGraph,
    MLCInferenceGraph,
    MLCLSTMDescriptor,
    MLCLSTMLayer,
    MLCLSTMResultMode,
    MLCTensor,
    MLCTensorData,
)
from mlc_torch.engine import lstm_steps
from mlc_torch.engine.lstm_steps import Step, by_columns, by_rows, step_by_step
from mlc_torch.engine.planned import Planned
from mlc_torch.engine.rules import said
from mlc_torch.engine.standing import MadeOnce
from mlc_torch.layers.lstm_rule import Way, forced
from tests.gears.test_gelu import pretend
from tests.graph.programs import array, cpu, data, placeholder, values

KINDS = ("weight_ih", "weight_hh", "bias_ih")


class Program:
    """Steps of an LSTM, its results and the ReLU of its outputs, beside the same by ``nn.LSTM`` in 64 bits."""

    def __init__(
        self, steps: int, samples: int, inputs: int, hidden: int, layers: int, both: bool, biased: bool, begun: bool
    ) -> None:
        self.torch = nn.LSTM(inputs, hidden, layers, bias=biased, bidirectional=both, batch_first=True).double()
        sides = ("", "_reverse")[: 1 + both]
        self.places = {k: [f"{k}_l{n}{side}" for side in sides for n in range(layers)] for k in KINDS[: 2 + biased]}
        self.arrays = {
            kind: [gate.float().numpy().copy() for place in places for gate in self.of(place).chunk(4)]
            for kind, places in self.places.items()
        }
        descriptor = MLCLSTMDescriptor(
            inputSize=inputs, hiddenSize=hidden, layerCount=layers, usesBiases=biased, isBidirectional=both,
            returnsSequences=True, batchFirst=True, dropout=0.0, resultMode=MLCLSTMResultMode.outputAndStates,
        )  # fmt: skip
        tensors = {kind: [_tensor(a) for a in arrays] for kind, arrays in self.arrays.items()}
        layer = MLCLSTMLayer(
            descriptor=descriptor,
            inputWeights=tensors["weight_ih"],
            hiddenWeights=tensors["weight_hh"],
            biases=tensors.get("bias_ih"),
        )
        graph, x = MLCGraph(), placeholder(samples, steps, inputs)
        self.given = {"x": values(samples, steps, inputs)}
        sources = {"x": x}
        if begun:
            shape = layers, 1 + both, samples, hidden
            for seed, name in enumerate("hc"):
                sources[name], self.given[name] = placeholder(*shape), values(*shape, seed=seed)
        graph.node(with_=layer, sources=list(sources.values()))
        self.results: list[MLCTensor] = list(graph.resultTensors(for_=layer))
        self.results.append(graph.node(MLCActivationLayer.relu, source=self.results[0]))
        self.graph = MLCInferenceGraph(graphObjects=[graph])
        assert self.graph.addInputs(sources)
        assert self.graph.addOutputs({f"{number}": result for number, result in enumerate(self.results)})
        assert self.graph.compile(options=[], device=cpu())

    def of(self, place: str) -> torch.Tensor:
        return getattr(self.torch, place).detach()

    def agrees(self, samples: int) -> None:
        given = {name: data(a) for name, a in self.given.items()}
        assert self.graph.execute(inputsData=given, batchSize=samples, options=[])
        with torch.no_grad():
            for kind, places in self.places.items():
                for number, place in enumerate(places):
                    self.of(place).copy_(torch.from_numpy(np.concatenate(self.arrays[kind][4 * number :][:4])))
                    if kind == "bias_ih":
                        self.of(place.replace("_ih", "_hh")).zero_()
            states = [torch.from_numpy(self.given[n]).double().flatten(0, 1) for n in "hc" if n in self.given]
            y, (h, c) = self.torch(torch.from_numpy(self.given["x"]).double(), tuple(states) or None)
        for result, expected in zip(self.results, (y, h, c, y.relu()), strict=True):
            found, samples_at = array(result).reshape(expected.shape), int(expected is h or expected is c)
            many = np.arange(samples)
            np.testing.assert_allclose(
                found.take(many, samples_at), expected.numpy().take(many, samples_at), rtol=1e-5, atol=2e-6
            )

    def kept(self) -> set[str]:
        """What stands ready in the generated functions."""
        gears = [g for s in self.graph._facts().sessions for g in s.gears() if isinstance(g, Planned)]
        inside = [cell.cell_contents for gear in gears for cell in gear._forward.__closure__]
        return {type(v).__name__ for v in inside if isinstance(v, MadeOnce)}


def _tensor(a: np.ndarray) -> MLCTensor:
    return MLCTensor(shape=list(a.shape), data=MLCTensorData(bytesNoCopy=a, length=a.nbytes), dataType=1)


@pytest.fixture(params=[1, 2, 8])
def taken(request: Any, monkeypatch: pytest.MonkeyPatch) -> list[tuple[Any, int]]:
    """The rules of an x86 with so many threads; gets what took every layer by itself, and its samples."""
    pretend(monkeypatch, True)
    monkeypatch.setattr(torch, "get_num_threads", lambda: request.param)
    taken: list[tuple[Any, int]] = []
    way_of = lstm_steps.way_of

    class Counted:
        is_view = False

        def __init__(self, way: Any) -> None:
            self.way = way

        def __call__(self, x: torch.Tensor, *more: Any) -> Any:
            taken.append((self.way, x.shape[1]))
            return self.way(x, *more)

    def counted(*asked: int) -> Any:
        way = way_of(*asked)
        return way and Counted(way)

    monkeypatch.setattr(lstm_steps, "way_of", counted)
    return taken


@pytest.mark.parametrize(
    ("hidden", "layers", "both", "biased", "begun"),
    [(8, 1, False, True, True), (5, 2, True, True, False), (6, 2, False, False, True), (7, 1, True, False, False)],
)
def test_the_numbers_are_those_of_torch(taken, hidden, layers, both, biased, begun):
    with forced(Way.library):
        program = Program(1, 2, 3, hidden, layers, both, biased, begun)
        program.agrees(2)
        program.agrees(2)
        assert set(taken) == {(by_rows, 2)} and program.kept() <= {"Joined"}
        for arrays in program.arrays.values():
            arrays[-1].reshape(-1)[-1] += 0.5
            program.agrees(2)
        del taken[:]
        program.agrees(1)
        program.agrees(1)
        assert set(taken) == {(by_rows, 1)}


@pytest.mark.parametrize(("samples", "begun", "both"), [(9, True, False), (16, False, True), (40, True, True)])
def test_the_numbers_by_columns_are_those_of_torch(taken, samples, begun, both):
    with forced(Way.library):
        program = Program(1, samples, 3, 512, 1, both, True, begun)
        program.agrees(samples)
        program.arrays["weight_hh"][1][-1, -1] += 0.5
        program.agrees(samples)
    by_itself = torch.get_num_threads() < 8 or samples <= 16
    assert set(taken) == ({(by_columns, samples)} if by_itself else set())


@pytest.mark.parametrize(
    ("steps", "samples", "layers", "both", "biased", "begun"),
    [
        (2, 2, 1, False, True, True),
        (2, 1, 2, True, True, False),
        (3, 2, 1, True, False, True),
        (2, 4, 2, False, False, False),
    ],
)
def test_the_numbers_step_by_step_are_those_of_torch(taken, steps, samples, layers, both, biased, begun):
    with forced(Way.library):
        program = Program(steps, samples, 384, 384, layers, both, biased, begun)
        program.agrees(samples)
        assert set(taken) == {(step_by_step, samples)} and program.kept() <= {"Joined"}
        for arrays in program.arrays.values():
            arrays[-1].reshape(-1)[-1] += 0.5
            program.agrees(samples)
        program.agrees(1)


MUCH, VERY_MUCH = 2**19, 2**22


@pytest.mark.parametrize(
    ("samples", "weights", "threads", "way"),
    [
        (1, 100, 1, by_rows),
        (256, MUCH, 1, by_rows),
        (257, MUCH, 1, None),
        (8, MUCH - 1, 2, by_rows),
        (9, MUCH, 2, None),
        (1, 100, 16, by_rows),
        (2, 100, 16, None),
        (8, MUCH, 16, by_rows),
        (8, VERY_MUCH, 1, by_rows),
        (9, VERY_MUCH, 1, by_columns),
        (48, VERY_MUCH, 2, by_columns),
        (49, VERY_MUCH, 1, by_rows),
        (49, VERY_MUCH, 2, None),
        (128, VERY_MUCH, 2, by_rows),
        (48, VERY_MUCH, 4, by_columns),
        (49, VERY_MUCH, 4, None),
        (32, VERY_MUCH, 8, by_columns),
        (33, VERY_MUCH, 8, None),
        (16, VERY_MUCH, 16, by_columns),
        (17, VERY_MUCH, 16, None),
    ],
)
def test_what_takes_a_step_is_a_matter_of_samples_weights_and_threads(samples, weights, threads, way):
    assert said(lstm_steps.STEPS, Step(samples, weights, threads)) is way


@pytest.mark.parametrize(
    ("steps", "samples", "inputs", "hidden", "threads", "is_taken"),
    [
        (4, 4, 128, 512, 2, True),
        (5, 4, 128, 512, 2, False),
        (6, 4, 512, 512, 2, True),
        (7, 4, 512, 512, 2, False),
        (6, 2, 128, 512, 2, True),
        (2, 8, 128, 512, 1, True),
        (3, 8, 128, 512, 1, False),
        (2, 9, 128, 512, 1, False),
        (4, 4, 128, 512, 4, True),
        (5, 4, 128, 512, 4, False),
        (2, 8, 128, 512, 4, True),
        (4, 2, 128, 512, 8, True),
        (5, 2, 128, 512, 8, False),
        (3, 4, 128, 512, 8, False),
        (2, 4, 128, 512, 8, True),
        (2, 8, 512, 512, 8, True),
        (3, 8, 512, 512, 8, False),
        (2, 1, 128, 512, 16, False),
        (2, 1, 256, 256, 1, False),
        (12, 2, 256, 1024, 2, True),
        (6, 4, 256, 1024, 8, True),
        (6, 4, 256, 1024, 1, False),
        (4, 8, 256, 1024, 2, True),
        (6, 8, 256, 1024, 2, False),
    ],
)
def test_what_takes_several_steps_is_a_matter_of_how_often_weights_are_read(
    monkeypatch, steps, samples, inputs, hidden, threads, is_taken
):
    monkeypatch.setattr(torch, "get_num_threads", lambda: threads)
    assert lstm_steps.way_of(steps, samples, inputs, hidden) is (step_by_step if is_taken else None)


@pytest.mark.parametrize(("samples", "hidden", "threads"), [(20, 8, (1,)), (20, 192, (1,)), (257, 192, ())])
def test_many_samples_and_little_to_compare_are_the_library_s(taken, samples, hidden, threads):
    with forced(Way.library):
        program = Program(1, samples, 3, hidden, 1, False, True, True)
        program.agrees(samples)
    assert bool(taken) is (torch.get_num_threads() in threads)
