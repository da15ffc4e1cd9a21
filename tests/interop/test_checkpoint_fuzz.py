"""Damaged and hostile files: whatever is in them, the loader refuses and the graph stays as it was."""

from __future__ import annotations

import copy
import json
import random
import struct
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from mlc_torch.interop import load_checkpoint, save_checkpoint
from mlc_torch.interop.checkpoint_file import read_file, write_file
from mlc_torch.refusals import MLCRefusal
from tests.interop.programs import Classifier
from tests.interop.test_checkpoint_refusals import Watched

RANDOM = random.Random(17)


@pytest.fixture(scope="module")
def good(tmp_path_factory) -> bytes:
    program = Classifier().compiled()
    program.train(0, 2)
    path = tmp_path_factory.mktemp("good") / "a"
    save_checkpoint(program.training, path)
    return path.read_bytes()


def split(contents: bytes) -> tuple[dict, bytes]:
    (length,) = struct.unpack("<Q", contents[:8])
    return json.loads(contents[8 : 8 + length]), contents[8 + length :]


def joined(header: object, body: bytes, length: int | None = None) -> bytes:
    text = (header if isinstance(header, str) else json.dumps(header)).encode()
    return struct.pack("<Q", len(text) if length is None else length) + text + body


def flipped(contents: bytes) -> Iterator[bytes]:
    """One bit, or a few, anywhere; half of them in the header, where they change the meaning of the rest."""
    (length,) = struct.unpack("<Q", contents[:8])
    for number in range(220):
        changed = bytearray(contents)
        for _ in range(1 + number % 3):
            at = RANDOM.randrange(8 + length if number % 2 else len(changed))
            changed[at] ^= 1 << RANDOM.randrange(8)
        yield bytes(changed)


def cut(contents: bytes) -> Iterator[bytes]:
    """The beginning, the end, or the middle is missing, or something is behind."""
    for _ in range(120):
        at, other = sorted(RANDOM.randrange(len(contents)) for _ in range(2))
        yield RANDOM.choice([contents[:at], contents[at:], contents[:at] + contents[other:], contents + contents[:at]])


def noise(contents: bytes) -> Iterator[bytes]:
    for _ in range(60):
        yield RANDOM.randbytes(RANDOM.randrange(300))
    for _ in range(60):
        changed = bytearray(contents)
        at = RANDOM.randrange(len(changed))
        changed[at : at + 40] = RANDOM.randbytes(40)
        yield bytes(changed)


def hostile(contents: bytes) -> Iterator[bytes]:
    """Well-formed headers that lie."""
    header, body = split(contents)
    names = [n for n in header if n != "__metadata__"]
    for length in (0, 1, len(contents), len(contents) * 2, 2**31, 2**40, 2**63 - 1, 2**63, 2**64 - 1):
        yield joined(header, body, length)
    lies = [
        {"data_offsets": [0, 2**63]},
        {"data_offsets": [0, 2**64]},
        {"data_offsets": [-4, 0]},
        {"data_offsets": [8, 4]},
        {"data_offsets": [0, len(body) + 4]},
        {"data_offsets": [0, len(body)]},
        {"data_offsets": []},
        {"data_offsets": "all"},
        {"shape": [2**62, 2**62]},
        {"shape": [-1]},
        {"shape": [0]},
        {"shape": []},
        {"shape": [1.5]},
        {"shape": [1] * 1000},
        {"dtype": "F64"},
        {"dtype": "I8"},
        {"dtype": "BOOL"},
        {"dtype": "F4"},
        {"dtype": "object"},
        {"dtype": None},
    ]
    for lie in lies:
        for name in RANDOM.sample(names, 3):
            yield joined(header | {name: header[name] | lie}, body)
    first, second = names[:2]
    overlapping = header | {first: header[second]}
    yield joined(overlapping, body)
    yield joined({n: v for n, v in header.items() if n != first}, body)
    yield joined({n: v for n, v in header.items() if n != "__metadata__"}, body)
    yield joined(header | {"__metadata__": {"mlc_torch": "{}"}}, body)
    yield joined(header | {"__metadata__": {"mlc_torch": 3}}, body)
    yield joined(header | {"__metadata__": []}, body)
    yield joined(header | {"__metadata__": header["__metadata__"] | {"sha256": "0" * 64}}, body)
    text = json.dumps(header)
    again = json.dumps(header[first])
    yield joined(text[:-1] + f", {json.dumps(first)}: {again}" + "}", body)
    yield joined(text[:-1] + f", {json.dumps(first)}: {json.dumps(header[second])}" + "}", body)
    yield joined("[" * 50_000 + "]" * 50_000, body)
    yield joined('{"a":' * 20_000 + "1" + "}" * 20_000, body)
    yield joined(header | {"../../escape": header[first]}, body)
    yield joined({"": header[first]} | header, body)
    yield joined([header], body)
    yield joined("null", body)


def consistent(contents: bytes) -> Iterator[bytes]:
    """Files whose digest is right and whose contents are not: tensors renamed, recast, reshaped, lost; numbers replaced."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "a"
        path.write_bytes(contents)
        tensors, about = read_file(path)
        tensors = {n: t.clone() for n, t in tensors.items()}
        about.pop("format")
        for number in range(80):
            changed, said = dict(tensors), copy.deepcopy(about)
            name = RANDOM.choice(sorted(changed))
            tensor = changed.pop(name)
            match number % 5:
                case 0:
                    changed[f"{name}{RANDOM.choice(['', '/', '.', 'x'])}{number}"] = tensor
                case 1:
                    changed[name] = tensor.to(RANDOM.choice([torch.float64, torch.int16, torch.bool, torch.bfloat16]))
                case 2:
                    changed[name] = tensor.reshape(-1)[: RANDOM.randrange(tensor.numel())].clone()
                case 3:
                    pass
                case 4:
                    changed[name] = tensor
                    place = said if number % 2 else said["optimizer"]
                    key = RANDOM.choice(["optimizer"] if number % 2 else ["class", "learningRate", "timeStep"])
                    place[key] = RANDOM.choice(["x", -1, [], {}, True, 10**400])
            write_file(path, changed, said)
            yield path.read_bytes()


KINDS = (flipped, cut, noise, hostile, consistent)


@pytest.mark.parametrize("kind", KINDS)
def test_nothing_comes_of_a_damaged_file(kind, good, tmp_path):
    watched, path, tried = Watched(), tmp_path / "damaged", 0
    for contents in kind(good):
        path.write_bytes(contents)
        tried += 1
        why = refusal(watched, path)
        if why is not None:
            assert str(path) in why
            assert watched.everything() == watched.before
            continue
        # Spaces in the header and the like: the file says the same as before, and is loaded whole.
        assert split(contents) == split(good)
        watched = Watched()
    assert tried >= 80


def refusal(watched: Watched, path: Path) -> str | None:
    try:
        load_checkpoint(watched.program.training, path)
    except MLCRefusal as why:
        return str(why)
    return None


def test_there_are_enough(good):
    assert sum(1 for kind in KINDS for _ in kind(good)) >= 500
