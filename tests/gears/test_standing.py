"""Joined parameters and packed LSTM weights: kept between passes, and never older than the program's own memory."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

from mlc_torch import (
    MLCGraph,
    MLCInferenceGraph,
    MLCLSTMDescriptor,
    MLCLSTMLayer,
    MLCTensor,
    MLCTensorData,
)
from mlc_torch.engine import same_bytes, standing
from mlc_torch.engine.planned import Planned
from mlc_torch.engine.standing import Joined, PackedLSTM
from mlc_torch.interop import TorchLayer
from mlc_torch.layers.lstm_rule import Way, forced
from mlc_torch.torch_private import available
from tests.gears.test_gelu import pretend
from tests.graph.programs import array, cpu, data, placeholder, values

SAMPLES, STEPS, INPUTS = 3, 5, 4


class Program:
    """An LSTM whose weights lie in the program's arrays, beside the same by ``nn.LSTM`` in 64 bits."""

    def __init__(self, hidden: int, layers: int, both: bool, biased: bool) -> None:
        self.torch = nn.LSTM(INPUTS, hidden, layers, bias=biased, bidirectional=both, batch_first=True).double()
        sides, draw = ("", "_reverse")[: 1 + both], np.random.default_rng(3)
        self.arrays: dict[str, list[np.ndarray]] = {}
        self._places: dict[str, list[str]] = {}
        for kind in ("weight_ih", "weight_hh", "bias_ih")[: 2 + biased]:
            places = [f"{kind}_l{layer}{side}" for side in sides for layer in range(layers)]
            shapes = [getattr(self.torch, place).chunk(4)[0].shape for place in places for _ in range(4)]
            self.arrays[kind] = [draw.standard_normal(shape, np.float32) * 0.3 for shape in shapes]
            self._places[kind] = places
        descriptor = MLCLSTMDescriptor(
            inputSize=INPUTS, hiddenSize=hidden, layerCount=layers, usesBiases=biased, isBidirectional=both,
            returnsSequences=True, batchFirst=True, dropout=0.0,
        )  # fmt: skip
        tensors = {kind: [self._tensor(a) for a in arrays] for kind, arrays in self.arrays.items()}
        self.layer = MLCLSTMLayer(
            descriptor=descriptor,
            inputWeights=tensors["weight_ih"],
            hiddenWeights=tensors["weight_hh"],
            biases=tensors.get("bias_ih"),
        )
        graph, source = MLCGraph(), placeholder(SAMPLES, STEPS, INPUTS)
        self.result = graph.node(with_=self.layer, source=source)
        self.graph = MLCInferenceGraph(graphObjects=[graph])
        assert self.graph.addInputs({"x": source})
        assert self.graph.compile(options=[], device=cpu())

    @staticmethod
    def _tensor(a: np.ndarray) -> MLCTensor:
        return MLCTensor(shape=list(a.shape), data=MLCTensorData(bytesNoCopy=a, length=a.nbytes), dataType=1)

    def agrees(self, samples: int = SAMPLES) -> None:
        x = values(SAMPLES, STEPS, INPUTS)
        assert self.graph.execute(inputsData={"x": data(x)}, batchSize=samples, options=[])
        with torch.no_grad():
            for kind, places in self._places.items():
                for number, place in enumerate(places):
                    gates = np.concatenate(self.arrays[kind][4 * number : 4 * number + 4])
                    getattr(self.torch, place).copy_(torch.from_numpy(gates))
                    if kind == "bias_ih":
                        getattr(self.torch, place.replace("_ih", "_hh")).zero_()
            expected = self.torch(torch.from_numpy(x).double())[0].numpy()
        np.testing.assert_allclose(array(self.result)[:samples], expected[:samples], rtol=1e-5, atol=2e-6)

    def gears(self):
        return [g for s in self.graph._facts().sessions for g in s.gears() if isinstance(g, Planned)]

    def kept(self, gear=None) -> list[str]:
        """What stands ready in the generated function."""
        (gear,) = self.gears() if gear is None else [gear]
        inside = [cell.cell_contents for cell in gear._forward.__closure__]
        return [type(v).__name__ for v in inside if isinstance(v, standing.MadeOnce)]


@pytest.fixture(params=["ARM", "x86", "x86, not packed", "x86, two threads", "x86, eight threads"])
def processor(request, monkeypatch):
    """The rules of each; torch without the function that packs weights; every weight as if it were a large one."""
    pretend(monkeypatch, request.param != "ARM")
    if request.param in ("ARM", "x86, not packed"):
        monkeypatch.setitem(available, "packed_lstm", False)
    threads = {"x86, two threads": 2, "x86, eight threads": 8}.get(request.param)
    if threads is not None:
        monkeypatch.setattr(torch, "get_num_threads", lambda: threads)
        monkeypatch.setattr(same_bytes, "cores", lambda: 16)
        monkeypatch.setattr(same_bytes, "_MUCH_BYTES", 1)
        monkeypatch.setattr(same_bytes, "_MUCH_FOR_TWO", 1)
    with forced(Way.own if request.param == "ARM" else Way.library):
        yield request.param


@pytest.mark.parametrize(
    ("hidden", "layers", "both", "biased"),
    [(8, 1, False, True), (8, 2, True, True), (5, 2, False, False), (192, 1, True, True)],
)
def test_whatever_a_program_writes_into_its_weights_is_seen_by_the_next_pass(processor, hidden, layers, both, biased):
    program = Program(hidden, layers, both, biased)
    program.agrees()
    program.agrees()
    for arrays in program.arrays.values():
        for gate in (0, len(arrays) - 1):
            arrays[gate].reshape(-1)[-1] += 0.5  # a single number, of the last ones that are looked at
            program.agrees()
    for arrays in program.arrays.values():
        for a in arrays:
            a[:] = -a
    program.agrees()


def test_what_stands_ready(monkeypatch):
    pretend(monkeypatch, True)
    with forced(Way.library):
        assert sorted(Program(8, 2, False, True).kept()) == ["Joined", "Joined", "PackedLSTM", "PackedLSTM"]
        assert Program(8, 1, True, False).kept() == ["PackedLSTM", "PackedLSTM"]
    pretend(monkeypatch, False)
    with forced(Way.own):
        assert Program(8, 1, False, True).kept() == ["Joined"] * 3


def test_what_stands_ready_counts_as_workspace(monkeypatch):
    pretend(monkeypatch, True)
    with forced(Way.library):
        program = Program(8, 1, False, True)
        program.agrees()
    weights = 4 * 4 * 8 * (INPUTS + 8)
    assert program.graph.memory()["workspace"] >= weights  # joined; packed they may lie in the same memory


def test_packing_happens_once_and_again_after_it_was_interrupted(monkeypatch):
    wi, wh = ([torch.randn(6, n) for _ in range(4)] for n in (3, 6))
    layer = PackedLSTM(wi, wh, [2, 1, 3], False)
    given = torch.randn(2, 1, 3), torch.randn(24), torch.zeros(24), torch.zeros(1, 6), torch.zeros(1, 6)
    pack, calls = standing.packed_for_library_lstm, []

    def counted(*weights):
        calls.append(1)
        if len(calls) == 2:
            raise KeyboardInterrupt
        return pack(*weights)

    def expected():
        states = given[3][None], given[4][None]
        weights = [torch.cat(wi), torch.cat(wh), given[1], given[2]]
        return torch.lstm(given[0], states, weights, True, 1, 0.0, False, False, False)[0]

    monkeypatch.setattr(standing, "packed_for_library_lstm", counted)
    with torch.no_grad():
        for _ in range(3):
            torch.testing.assert_close(layer(*given)[0], expected())
        assert len(calls) == 1
        wh[2][5, 5] += 1
        with pytest.raises(KeyboardInterrupt):
            layer(*given)
        for _ in range(2):
            torch.testing.assert_close(layer(*given)[0], expected())
        assert len(calls) == 3


class Joining(nn.Module):
    """Multiplies by two parameters that it joins."""

    def __init__(self, a: torch.Tensor, b: torch.Tensor) -> None:
        super().__init__()
        self.a, self.b = (nn.Parameter(t, requires_grad=False) for t in (a, b))

    def forward(self, x):
        return x @ torch.cat([self.a, self.b]).t()


def inference_of(module, *shape):
    """A function that runs a module by itself as a graph."""
    graph, source = MLCGraph(), placeholder(*shape)
    result = graph.node(with_=TorchLayer(module), source=source)
    inference = MLCInferenceGraph(graphObjects=[graph])
    assert inference.addInputs({"x": source})
    assert inference.compile(options=[], device=cpu())

    def run(x):
        assert inference.execute(inputsData={"x": data(x)}, batchSize=shape[0], options=[])
        return result.torch

    return run


@pytest.mark.parametrize("dtype", [torch.int32, torch.float16])
def test_parts_of_several_types_are_joined_by_torch(monkeypatch, dtype):
    pretend(monkeypatch, False)
    module, x = Joining(torch.ones(1, 2, dtype=dtype), torch.ones(1, 2)), values(3, 2)
    np.testing.assert_array_equal(inference_of(module, 3, 2)(x), module(torch.from_numpy(x)))


def test_memory_that_moves_under_a_parameter_is_followed(monkeypatch):
    """As by ``share_memory_``, which a parameter that is sent to another process gets, too."""
    pretend(monkeypatch, False)
    module, x = Joining(torch.ones(1, 2), torch.ones(1, 2)), values(3, 2)
    run = inference_of(module, 3, 2)
    run(x)
    module.share_memory()
    module.a.mul_(5)
    np.testing.assert_array_equal(run(x), module(torch.from_numpy(x)))


def test_an_lstm_follows_memory_that_moves(monkeypatch):
    pretend(monkeypatch, True)
    with forced(Way.library):
        program = Program(8, 1, False, True)
        program.agrees()
        tensors = program.layer.hiddenWeights
        for tensor in tensors:
            tensor.torch.share_memory_()
        for tensor, kept in zip(tensors, program.arrays["weight_hh"], strict=True):
            kept *= 2
            tensor.torch.mul_(2)
        program.agrees()


def test_batch_sizes_that_come_along_keep_nothing(monkeypatch):
    pretend(monkeypatch, True)
    with forced(Way.library):
        program = Program(8, 1, False, True)
        for size in (1, 1, 2, 2):
            program.agrees(size)
        (declared, *others) = program.gears()
    assert program.kept(declared) and len(others) >= 2
    assert not any(program.kept(gear) for gear in others)


class Beside(nn.Module):
    """Gives its joined parameters out, as they are or looked at in another shape, or written into."""

    def __init__(self, how: str) -> None:
        super().__init__()
        self.a, self.b, self.how = nn.Parameter(torch.ones(2, 3)), nn.Parameter(torch.ones(2, 3)), how

    def forward(self, x):
        whole = torch.cat([self.a, self.b])
        if self.how == "inside":
            return x @ whole.t()
        if self.how == "written":
            whole += 1
        if self.how == "unsafely":
            return torch.unsafe_chunk(whole, 2)[0]
        return whole.view(3, 4) if self.how == "view" else whole


@pytest.mark.parametrize("how", ["whole", "view", "unsafely", "written", "inside"])
def test_what_a_program_is_given_is_its_own(monkeypatch, how):
    module, graph, source = Beside(how), MLCGraph(), placeholder(5, 3)
    pretend(monkeypatch, False)
    result = graph.node(with_=TorchLayer(module), source=source)
    inference = MLCInferenceGraph(graphObjects=[graph])
    assert inference.addInputs({"x": source})
    assert inference.compile(options=[], device=cpu())
    x, seen = values(5, 3), []

    def run():
        how_called = {"batchSize": 5, "options": [], "completionHandler": lambda made, *_: seen.append(made.torch)}
        assert inference.execute(inputsData={"x": data(x)}, **how_called)
        return array(result)

    def expected():
        with torch.no_grad():
            return module(torch.from_numpy(x)).numpy()

    np.testing.assert_allclose(run(), expected(), rtol=1e-6)
    with torch.no_grad():
        module.a[0, 0] = 7
    np.testing.assert_allclose(run(), expected(), rtol=1e-6)
    assert seen[0].flatten()[0] != seen[1].flatten()[0], "the first result was written over"


def test_large_parts_are_left_to_torch_and_so_are_those_with_gaps():
    large = [torch.randn(300, 300), torch.randn(20, 300)]
    gaps = [torch.randn(4, 6)[:, ::2], torch.randn(2, 3)]
    empty = [torch.randn(0, 3), torch.randn(2, 3)]
    half = [torch.randn(3, 5).bfloat16(), torch.randn(1, 5).bfloat16()]
    for parts in (large, gaps, empty, half):
        joined = Joined(*parts)
        for _ in range(2):
            assert torch.equal(joined(), torch.cat(parts))
            for part in parts:
                part.mul_(2)
