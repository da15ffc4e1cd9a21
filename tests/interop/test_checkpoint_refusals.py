"""Checkpoints that do not fit, or are none: refused with every reason, and nothing changes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

import mlc_torch as mlc
from mlc_torch.device import randomness
from mlc_torch.interop import checkpoint_file, load_checkpoint, save_checkpoint
from mlc_torch.interop.checkpoint_file import read_file, write_file
from mlc_torch.refusals import MLCRefusal
from tests.interop.programs import HIDDEN, Classifier, same


class Watched:
    """A graph in the middle of training, and everything about it that loading could change."""

    def __init__(self, optimizer: str = "Adam") -> None:
        self.program = Classifier(optimizer, seed=30).compiled()
        self.program.train(0, 2)
        self.before = self.everything()

    def everything(self) -> list[Any]:
        program, state = self.program, self.program.state()
        states = {
            f"{name}.{n}": d._state.numpy().copy()
            for name, layer in (("dense1", program.dense1), ("dense2", program.dense2))
            for n, d in enumerate(layer.weights.optimizerDeviceData)
        }
        rule = program.rule
        step = getattr(rule, "timeStep", None)
        return [
            {n: v.tobytes() for n, v in (state | states).items()},
            (rule.learningRate, rule.appliesGradientClipping, step),
            randomness.seed,
            randomness.stream(torch.device("cpu")).get_state().tolist(),
        ]

    def refuses(self, path: Path) -> str:
        """The reason; everything is as it was."""
        with pytest.raises(MLCRefusal) as why:
            load_checkpoint(self.program.training, path)
        assert self.everything() == self.before
        return str(why.value)


@pytest.fixture
def written(tmp_path) -> Path:
    program = Classifier().compiled()
    program.train(0, 2)
    save_checkpoint(program.training, tmp_path / "good.safetensors")
    return tmp_path / "good.safetensors"


def rewritten(path: Path, change) -> Path:
    """The same checkpoint after ``change(tensors, about)``, with a digest that is right."""
    tensors, about = read_file(path)
    tensors = {n: t.clone() for n, t in tensors.items()}
    about.pop("format")
    change(tensors, about)
    target = path.with_name("changed.safetensors")
    write_file(target, tensors, about)
    return target


def test_every_difference_is_listed(written):
    def change(tensors, about):
        del tensors["dense1.biases"], tensors["BatchNorm.running_var"]
        tensors["dense3.weights"] = torch.zeros(2)
        tensors["dense1.weights"] = torch.zeros(1, 7, 1, 1)
        tensors["dense2.biases"] = tensors["dense2.biases"].half()

    why = Watched().refuses(rewritten(written, change))
    assert "missing: dense1.biases, BatchNorm.running_var" in why
    assert "unexpected: dense3.weights" in why
    assert "dense1.weights is [1, 7, 1, 1] float32 in the file and [1, 30, 1, 1] float32 in the graph" in why
    assert "dense2.biases is [1, 3, 1, 1] float16 in the file and [1, 3, 1, 1] float32 in the graph" in why


def test_optimizer_state_that_differs_is_listed(written):
    def change(tensors, about):
        del tensors["optimizer/dense1.weights/velocity"]
        tensors["optimizer/dense9.weights/momentum"] = torch.zeros(1)
        tensors["optimizer/dense2.weights/momentum"] = torch.zeros(1)

    why = Watched().refuses(rewritten(written, change))
    assert "missing: optimizer/dense1.weights/velocity" in why
    assert "unexpected: optimizer/dense9.weights/momentum" in why
    assert "optimizer/dense2.weights/momentum is [1] float32 in the file" in why


def test_another_network(tmp_path):
    small = Classifier(hidden=HIDDEN - 1)
    save_checkpoint(small.training, tmp_path / "a")
    why = Watched().refuses(tmp_path / "a")
    assert "dense1.weights is [1, 25, 1, 1] float32 in the file and [1, 30, 1, 1] float32 in the graph" in why


def test_another_optimizer(written):
    assert "written with MLCAdamOptimizer, the graph has MLCSGDOptimizer" in Watched("momentum").refuses(written)


def test_a_graph_without_an_optimizer(written):
    program = Classifier()
    program.training._optimizer = None
    with pytest.raises(MLCRefusal, match="unexpected: optimizer/"):
        load_checkpoint(program.training, written)


def test_a_checkpoint_without_an_optimizer(tmp_path):
    save_checkpoint(Classifier().graph, tmp_path / "a")
    assert "resume=False" in Watched().refuses(tmp_path / "a")


def settings(**changes):
    return lambda tensors, about: about["optimizer"].update(changes)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (settings(learningRate="fast"), "learning rate 'fast'"),
        (settings(learningRate=True), "learning rate True"),
        (settings(learningRate=None), "learning rate None"),
        (settings(learningRate=10**400), "learning rate 1000"),
        (settings(appliesGradientClipping=1), "clipping switch 1"),
        (settings(timeStep=-1), "time step -1"),
        (settings(timeStep=2**70), "time step"),
        (settings(timeStep=1.5), "time step 1.5"),
        (settings(**{"class": ["MLCAdamOptimizer"]}), "was written with"),
        (lambda tensors, about: about.update(optimizer=[1, 2]), "holds no optimizer"),
        (lambda tensors, about: about.update(seed="five"), "seed is 'five'"),
        (lambda tensors, about: about.update(seed=10**400), "seed is 1000"),
        (lambda tensors, about: about.update(seed=True), "seed is True"),
        (
            lambda t, a: t.update({"generator/platform/cpu": torch.zeros(7, dtype=torch.uint8)}),
            "no state of a generator",
        ),
        (lambda t, a: t.update({"generator/platform/cpu": torch.zeros(5056)}), "no state of a generator"),
        (
            lambda t, a: t.update({"generator/platform/cpu": torch.full((5056,), 255, dtype=torch.uint8)}),
            "no state of a generator",
        ),
        (lambda t, a: t.pop("generator/Dropout_1.noise/cpu"), "missing: generator/Dropout_1.noise"),
        (lambda t, a: t.update({"generator/other/cpu": torch.zeros(1)}), "unexpected: generator/other"),
    ],
)
def test_hostile_settings(written, change, says):
    assert says in Watched().refuses(rewritten(written, change))


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda t, a: t.update({"optimizer/torch/99/step": torch.zeros(())}), "unexpected: torch/99/step"),
        (lambda t, a: t.update({"optimizer/other": torch.zeros(())}), "unexpected: other"),
        (lambda t, a: t.update({"optimizer/torch/0/exp_avg": torch.zeros(3)}), "torch/0/exp_avg is [3] in the file"),
        (lambda t, a: a["optimizer"].update(torch=None), "was written with None"),
        (lambda t, a: a["optimizer"]["torch"].update(rates=[1]), "learning rates [1]"),
        (lambda t, a: a["optimizer"]["torch"].update(numbers={"77": {}}), "unexpected: torch/77"),
        (lambda t, a: a["optimizer"]["torch"].update({"class": "SGD"}), "was written with SGD"),
    ],
)
def test_hostile_state_of_a_torch_optimizer(tmp_path, change, says):
    program = Classifier("torch AdamW").compiled()
    program.train(0, 2)
    save_checkpoint(program.training, tmp_path / "a")
    watched = Watched("torch AdamW")
    old = json.dumps(watched.program.rule.saved_state()[1])
    assert says in watched.refuses(rewritten(tmp_path / "a", change))
    assert json.dumps(watched.program.rule.saved_state()[1]) == old


def test_foreign_files(tmp_path, written):
    watched = Watched()
    for number, contents in enumerate(
        (b"", b"\0" * 7, b"hello", b"PK\x03\x04" + b"\0" * 100, written.read_bytes()[:-1])
    ):
        path = tmp_path / f"foreign{number}"
        path.write_bytes(contents)
        assert "is no checkpoint that can be loaded" in watched.refuses(path)
    save_file({"dense1.weights": torch.zeros(2)}, tmp_path / "other.safetensors")
    assert "mlc_torch did not write it" in watched.refuses(tmp_path / "other.safetensors")
    torch.save({"a": torch.zeros(2)}, tmp_path / "pickled")
    assert "is no checkpoint" in watched.refuses(tmp_path / "pickled")


@pytest.mark.parametrize("about", ["[1, 2]", "nothing", "{}", '{"format": 2}', "[" * 100_000, "1" * 5000])
def test_descriptions_that_are_none(tmp_path, written, about, monkeypatch):
    monkeypatch.setattr(
        checkpoint_file.json, "dumps", lambda value, **_: about if isinstance(value, dict) else repr(value)
    )
    write_file(tmp_path / "bad", load_file(written), {})
    why = Watched().refuses(tmp_path / "bad")
    monkeypatch.undo()
    assert "is no checkpoint that can be loaded" in why


def test_a_good_file_still_loads(written):
    watched = Watched()
    load_checkpoint(watched.program.training, written)
    fresh = Classifier().compiled()
    load_checkpoint(fresh.training, written)
    assert same(fresh.state(), watched.program.state())
    assert mlc.MLCPlatform.getRNGseed() == 5
