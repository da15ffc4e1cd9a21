"""Files that are damaged or hostile: refused, and training goes on as a twin's that never saw one."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from mlc_torch.interop.checkpoint_file import read_file, write_file
from mlc_torch.refusals import MLCRefusal
from tests.disturbance.subjects import NETWORKS, Pair, Subject, perceptron

networks = pytest.mark.parametrize("network", NETWORKS)


def flipped(contents: bytes, chance: random.Random) -> bytes:
    changed = bytearray(contents)
    changed[chance.randrange(len(changed))] ^= 1 << chance.randrange(8)
    return bytes(changed)


BYTES: dict[str, Callable[[bytes], bytes]] = {
    "empty": lambda b: b"",
    "cut in the header": lambda b: b[:100],
    "cut in the numbers": lambda b: b[:-1],
    "longer": lambda b: b + b"\0",
    "zeros": lambda b: bytes(len(b)),
    "the end twice": lambda b: b[:-64] + b[-64:] * 2,
    "a header of 2^63 bytes": lambda b: (2**63).to_bytes(8, "little") + b[8:],
    "a header longer than the file": lambda b: (len(b)).to_bytes(8, "little") + b[8:],
    "no JSON": lambda b: b[:8] + b"x" + b[9:],
    "deep JSON": lambda b: (200_000).to_bytes(8, "little") + b"[" * 200_000,
    "another program's": lambda b: b.replace(b"mlc_torch", b"else_what"),
    "another digest": lambda b: b.replace(b'"sha256":"', b'"sha256":"0'),
    "half a character": lambda b: b.replace(b'\\"class\\"', b"\\ud800xxx", 1),
}


def tensors(change: Callable[[dict[str, torch.Tensor]], Any]) -> Callable[..., Any]:
    return lambda held, about: change(held)


def settings(**changes: Any) -> Callable[..., Any]:
    return lambda held, about: about["optimizer"].update(changes)


def first(held: dict[str, torch.Tensor]) -> str:
    return next(name for name in sorted(held) if "/" not in name)


CONTENTS: dict[str, Callable[[dict[str, torch.Tensor], dict[str, Any]], Any]] = {
    "a tensor less": tensors(lambda held: held.pop(first(held))),
    "a tensor more": tensors(lambda held: held.update(other=torch.zeros(2))),
    "another shape": tensors(lambda held: held.update({first(held): torch.zeros(2)})),
    "another type": tensors(lambda held: held.update({first(held): held[first(held)].double()})),
    "a state less": tensors(lambda held: held.pop(next(n for n in held if n.startswith("optimizer/")))),
    "no stream": tensors(lambda held: held.pop("generator/platform/cpu")),
    "no state of a stream": tensors(lambda held: held.update({"generator/platform/cpu": torch.zeros(3)})),
    "NaN for a learning rate": settings(learningRate=float("nan")),
    "infinity for a learning rate": settings(learningRate=float("inf")),
    "text for a learning rate": settings(learningRate="0.1"),
    "another optimizer": settings(**{"class": "MLCSGDOptimizer"}),
    "a number for a switch": settings(appliesGradientClipping=1),
    "no optimizer": lambda held, about: about.update(optimizer=None),
    "a seed that is none": lambda held, about: about.update(seed="five"),
}


def refuses(pair: Pair, path: Path) -> None:
    before, moved = pair.subject.learned(), pair.subject.moved()
    with pytest.raises(MLCRefusal):
        pair.subject.load(path)
    assert pair.subject.learned() == before
    assert all(torch.equal(a, b) for a, b in zip(pair.subject.moved(), moved, strict=True))
    pair.others_can_call()
    pair.together()


@pytest.mark.parametrize("change", BYTES.values(), ids=BYTES.keys())
def test_bytes(change, tmp_path):
    pair, path = Pair(perceptron), tmp_path / "a"
    pair.subject.save(path)
    good = path.read_bytes()
    path.write_bytes(change(good))
    assert path.read_bytes() != good
    refuses(pair, path)
    pair.together(Subject.phases)


@networks
@pytest.mark.parametrize("change", CONTENTS.values(), ids=CONTENTS.keys())
def test_contents(change, network, tmp_path):
    """The digest is right, and what it is of is not."""
    pair, path = Pair(NETWORKS[network]), tmp_path / "a"
    pair.subject.save(path)
    held, about = read_file(path)
    about = json.loads(json.dumps(about))
    about.pop("format")
    change(held, about)
    write_file(path, held, about)
    refuses(pair, path)


@pytest.mark.parametrize("count", [20, pytest.param(500, marks=pytest.mark.slow)])
def test_single_bits(count, tmp_path):
    pair, path, chance = Pair(perceptron), tmp_path / "a", random.Random(7)
    pair.subject.save(path)
    good = path.read_bytes()
    for _ in range(count):
        path.write_bytes(flipped(good, chance))
        refuses(pair, path)
    path.write_bytes(good)
    for one in pair.both():
        one.load(path)
    pair.agree()
    pair.together()
