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
from tests.interop.programs import HIDDEN, Classifier, MakeOptimizer, by_torch, same


class Watched:
    """A graph in the middle of training, and everything about it that loading could change."""

    def __init__(self, optimizer: str | MakeOptimizer = "Adam") -> None:
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


def backwards(parameters):
    return parameters[::-1]


def swapped(parameters):
    """The two of normalization, which have one shape, in each other's place."""
    alike = [n for n, p in enumerate(parameters) if p.shape == parameters[1].shape][-2:]
    parameters[alike[0]], parameters[alike[1]] = parameters[alike[1]], parameters[alike[0]]
    return parameters


def halves(parameters):
    return [{"params": parameters[:2]}, {"params": parameters[2:]}]


Adam, SGD, RMSprop, AdamW = torch.optim.Adam, torch.optim.SGD, torch.optim.RMSprop, torch.optim.AdamW


@pytest.mark.parametrize("fresh", [True, False], ids=["fresh", "trained"])
@pytest.mark.parametrize(
    ("saved", "loaded", "says"),
    [
        (by_torch(Adam), by_torch(Adam, backwards), "has dense1.weights in place 1, here it has dense2.biases"),
        (by_torch(Adam), by_torch(Adam, swapped), "BatchNorm.gamma in place"),
        (by_torch(Adam), by_torch(Adam, lambda p: p[:-1]), "has 6 parameters, here it has 5"),
        (
            by_torch(Adam, halves),
            by_torch(Adam, lambda p: halves(p)[::-1]),
            "group 2 of its optimizer has 4 parameters",
        ),
        (by_torch(Adam), by_torch(Adam, amsgrad=True), "has amsgrad = False, here it is True"),
        (by_torch(AdamW, maximize=True), by_torch(AdamW), "has maximize = True, here it is False"),
        (by_torch(RMSprop), by_torch(RMSprop, momentum=0.9), "has momentum = False, here it is True"),
        (by_torch(RMSprop, centered=True), by_torch(RMSprop), "has centered = True, here it is False"),
        (by_torch(SGD, momentum=0.9), by_torch(SGD), "has momentum = True, here it is False"),
        (
            by_torch(SGD, momentum=0.9),
            by_torch(SGD, momentum=0.9, nesterov=True),
            "has nesterov = False, here it is True",
        ),
    ],
    ids=["backwards", "swapped", "fewer", "groups", "amsgrad", "maximize", "momentum", "centered", "none", "nesterov"],
)
def test_a_torch_optimizer_made_otherwise(tmp_path, saved, loaded, says, fresh):
    """Its state would come to other parameters, or be missing in the next step."""
    source = Classifier(saved).compiled()
    source.train(0, 2)
    save_checkpoint(source.training, tmp_path / "a")
    if not fresh:
        assert says in Watched(loaded).refuses(tmp_path / "a")
        return
    target = Classifier(loaded, seed=3).compiled()
    before, settings = target.state(), json.dumps(target.rule.saved_state())
    with pytest.raises(MLCRefusal) as why:
        load_checkpoint(target.training, tmp_path / "a")
    assert says in str(why.value)
    assert same(target.state(), before) and json.dumps(target.rule.saved_state()) == settings
    target.train(2, 3)


def entries(**changes):
    return lambda tensors, about: about["optimizer"]["torch"]["groups"][0]["entries"].update(changes)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda t, a: a["optimizer"]["torch"].pop("groups"), ""),
        (lambda t, a: a["optimizer"]["torch"].update(groups=[]), "groups [] (list), the optimizer has 1"),
        (lambda t, a: a["optimizer"]["torch"].update(groups=[3]), "groups [3] (list)"),
        (lambda t, a: a["optimizer"]["torch"].update(groups=[{"parameters": 3}]), "groups [{'parameters': 3}]"),
        (lambda t, a: a["optimizer"]["torch"]["groups"][0].update(settings=[]), "of its optimizer's groups"),
        (lambda t, a: t.update({"optimizer/torch/0/exp_avg": torch.zeros(3)}), "torch/0/exp_avg is [3] in the file"),
        (lambda t, a: a["optimizer"]["torch"]["groups"][0].pop("entries"), ""),
        (entries(betas=[0.5]), "has betas = [0.5], here it is (0.9, 0.999)"),
        (entries(betas=0.5), "has betas = 0.5, here it is (0.9, 0.999)"),
        (entries(betas=["a", "b"]), "has betas = ['a', 'b'], expected a number"),
        (entries(eps=[1e-8]), "has eps = [1e-08], here it is 1e-08"),
        (entries(eps="small"), "has eps = 'small', here it is 1e-08"),
        (entries(eps=10**400), "has eps = 1000"),
        (entries(eps={}), "has eps = {}, expected a number"),
        (entries(params=[0]), "has params = [0], expected"),
        (lambda t, a: a["optimizer"]["torch"]["groups"][0].update(entries=3), "of group 1 of its optimizer 3 (int)"),
    ],
)
def test_hostile_groups_of_a_torch_optimizer(tmp_path, change, says):
    """Into one that has no state yet. Files of versions that said nothing of the groups, or of their numbers, are read."""
    source = Classifier("torch AdamW").compiled()
    source.train(0, 2)
    save_checkpoint(source.training, tmp_path / "a")
    path, target = rewritten(tmp_path / "a", change), Classifier("torch AdamW", seed=3).compiled()
    if not says:
        losses = source.train(2, 4)
        load_checkpoint(target.training, path)  # the random stream, too, which both draw from
        assert target.train(2, 4) == losses
        return
    with pytest.raises(MLCRefusal) as why:
        load_checkpoint(target.training, path)
    assert says in str(why.value)


def test_numbers_are_the_file_s_and_ways_of_computing_may_be_others(tmp_path):
    """A file of a version that wrote no numbers leaves those that there are."""
    source = Classifier(by_torch(Adam, foreach=False, eps=1e-7)).compiled()
    source.train(0, 2)
    save_checkpoint(source.training, tmp_path / "a")
    old = rewritten(tmp_path / "a", lambda t, a: a["optimizer"]["torch"]["groups"][0].pop("entries"))
    for path, betas, decay, eps in ((tmp_path / "a", (0.9, 0.999), 0, 1e-7), (old, (0.5, 0.9), 0.1, 1e-8)):
        target = Classifier(by_torch(Adam, foreach=True, betas=(0.5, 0.9), weight_decay=0.1)).compiled()
        load_checkpoint(target.training, path)
        (group,) = target.rule.optimizer.param_groups
        assert (group["betas"], group["weight_decay"], group["eps"], group["foreach"]) == (betas, decay, eps, True)
        target.train(2, 3)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("note", {1, 2}),
        ("note", (1, 2)),
        ("note", [torch.ones(1)]),
        ("note", {"m": 3, 4: 5}),
        ("note", {4: 5}),
        ("note", 1j),
        (7, 3),
        (7, torch.ones(1)),
    ],
    ids=str,
)
def test_state_that_json_cannot_hold(tmp_path, key, value):
    class Odd(torch.optim.SGD):
        def step(self, closure=None):
            super().step()
            for group in self.param_groups:
                for p in group["params"]:
                    self.state[p][key] = value

    program = Classifier(by_torch(Odd)).compiled()
    program.train(0, 1)
    with pytest.raises(MLCRefusal, match="Odd keeps .*; of an optimizer's state a checkpoint holds"):
        save_checkpoint(program.training, tmp_path / "a")
    assert not list(tmp_path.iterdir())


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
