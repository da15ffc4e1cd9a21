"""A checkpoint that version 4a2312b wrote, kept as test data, still loads and training goes on from it.

``python -c "from tests.interop.test_checkpoint_kept import make; make()"``, run under that version, made the two files.
"""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

import mlc_torch as mlc
from mlc_torch.device import randomness
from mlc_torch.interop import describe_checkpoint, load_checkpoint, save_checkpoint
from tests.interop.programs import data, dense, device, empty, holding, normalization, numbers, settings, squared_error

KEPT = Path(__file__).parent / "data" / "written_by_4a2312b.safetensors"


class Program:
    """A layer with the label ``self``, statistics, dropout of both kinds, two trained tensors, Adam with AMSGrad."""

    def __init__(self, seed: int) -> None:
        x, self.target = empty(4, 2), empty(4, 3)
        self.first, self.second = dense(2, 3, "self", seed), dense(3, 3, "layer two", seed + 10)
        self.offset, self.other = (holding(numbers(1, 3, seed=seed + n)) for n in (20, 30))
        self.offset.label = "off/set é"
        graph, add = mlc.MLCGraph(), mlc.MLCArithmeticOperation.add
        y = graph.node(self.first, source=x)
        y = graph.node(normalization(3), source=y)
        y = graph.node(mlc.MLCDropoutLayer(rate=0.2, seed=0), source=y)
        y = graph.node(mlc.MLCDropoutLayer(rate=0.2, seed=7), source=y)
        y = graph.node(mlc.MLCArithmeticLayer(operation=add), sources=[y, self.offset])
        y = graph.node(mlc.MLCArithmeticLayer(operation=add), sources=[y, self.other])
        graph.node(self.second, source=y)
        self.rule = mlc.MLCAdamOptimizer(
            descriptor=settings(0.01), beta1=0.8, beta2=0.99, epsilon=1e-7, usesAMSGrad=True, timeStep=1
        )
        self.training = mlc.MLCTrainingGraph(graphObjects=[graph], lossLayer=squared_error(), optimizer=self.rule)
        assert self.training.addInputs({"x": x}, lossLabels={"y": self.target})
        trained = [mlc.MLCTensorParameter(tensor=t) for t in (self.offset, self.other)]
        assert self.training.setTrainingTensorParameters(trained)
        assert self.training.compile(options=[], device=device())

    def train(self, first: int, last: int) -> list[float]:
        losses: list[float] = []
        for step in range(first, last):
            assert self.training.execute(
                inputsData={"x": data(numbers(4, 2, seed=100 + step))},
                lossLabelsData={"y": data(numbers(4, 3, seed=200 + step))},
                lossLabelWeightsData=None,
                batchSize=4,
                completionHandler=lambda result, error, seconds: losses.append(float(result.numpy()[0])),
            )
        return losses


DRAWN_THEN = [0, 1, 1, 1, 1, 0, 0, 0, 0, 1, 1, 1, 0, 1, 1, 1]


def _drawn() -> list[int]:
    return torch.empty(16, dtype=torch.int32).bernoulli_(0.5, generator=torch.Generator().manual_seed(5)).tolist()


def make() -> None:
    randomness.reseed(5)
    program = Program(0)
    program.train(0, 3)
    save_checkpoint(program.training, KEPT)
    KEPT.with_suffix(".json").write_text(json.dumps({"losses": program.train(3, 6)}) + "\n")


def test_it_loads_and_goes_on_with_the_losses_of_that_version():
    randomness.reseed(99)
    program = Program(50)
    program.train(9, 11)
    load_checkpoint(program.training, KEPT)
    held = load_file(KEPT)
    assert program.rule.timeStep == 4 and mlc.MLCPlatform.getRNGseed() == 5
    for name, tensor in {
        "self.weights": program.first.weights,
        "layer_two.biases": program.second.biases,
        "trained/off/set é": program.offset,
        "trained/1": program.other,
    }.items():
        assert np.array_equal(tensor.numpy(), held[name].numpy())
    state = program.offset.optimizerDeviceData[2]._state
    assert torch.equal(state, held["optimizer/trained/off/set é/maximum"])
    losses = program.train(3, 6)
    if _drawn() == DRAWN_THEN:  # torch 2.6 draws other masks for dropout on x86
        assert losses == pytest.approx(json.loads(KEPT.with_suffix(".json").read_text())["losses"], rel=1e-5)


def test_what_is_written_now_bears_the_same_names(tmp_path):
    """Files of this version load in that one, too."""
    program = Program(1)
    program.train(0, 1)
    save_checkpoint(program.training, tmp_path / "a")
    assert {n: (t.shape, t.dtype) for n, t in load_file(tmp_path / "a").items()} == {
        n: (t.shape, t.dtype) for n, t in load_file(KEPT).items()
    }
    now, then = describe_checkpoint(tmp_path / "a"), describe_checkpoint(KEPT)
    assert now["format"] == then["format"] == 1
    assert [node["name"] for node in now["graph"]["nodes"]] == [node["name"] for node in then["graph"]["nodes"]]
