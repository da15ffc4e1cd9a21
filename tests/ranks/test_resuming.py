"""Processes that stop or are killed are missed in time, and training goes on from the last checkpoint bit for bit."""

from __future__ import annotations

import json
import sys

import numpy as np

import mlc_torch as mlc
from mlc_torch.interop import describe_checkpoint, load_checkpoint

from .launching import PROGRAMS, launch

LIMIT = 10.0


def test_stopped_killed_and_started_again(tmp_path, monkeypatch):
    found = launch(tmp_path, "resumed.py", seconds=300, restarts=2, MLC_TORCH_RANKS_TIMEOUT=str(LIMIT))
    notes = {f.stem: json.loads(f.read_text("utf-8")) for f in tmp_path.glob("*.note")}
    assert found.code == 0, found.output[-4000:]
    assert {n: v for n, v in notes.items() if n.startswith("began")} == {
        "began-0-0": 0, "began-0-1": 0, "began-1-0": 0, "began-1-1": 0, "began-2-0": 10, "began-2-1": 10,
    }  # fmt: skip
    stopped, killed = notes["lost-0-0"], notes["lost-1-0"]
    assert stopped["step"] == 3 and "imed out" in stopped["why"], "told when the limit was over"
    assert stopped["seconds"] > LIMIT - 0.5
    assert killed["step"] == 12 and "imed out" not in killed["why"], "told at once: the connection is gone"
    for lost in (stopped, killed):
        assert "rank 0 of 2, in execute of graph 1: another process is gone or too late" in lost["why"]
        assert lost["again"] == lost["why"], "and from then on without waiting"
    for rank in range(2):
        assert notes[f"ended-2-{rank}"] == {"same": True, "others": 1}, "bit for bit, on both ranks"
    _goes_on_with_one_process(tmp_path, monkeypatch)


def _goes_on_with_one_process(folder, monkeypatch):
    """From the checkpoint of two ranks one process comes to the same weights, up to rounding."""
    monkeypatch.syspath_prepend(PROGRAMS)
    import nets

    seed = mlc.MLCPlatform.getRNGseed()
    try:
        net = nets.Net(7)
        net.classes(4)
        net.dense(net.dropout(net.tanh(net.dense(net.input(6), 6, 16))), 16, 4)
        net.compile(mlc.MLCDevice.cpu(), nets.loss(), nets.adam(clip=True))
        batches = net.batches(4)
        load_checkpoint(net.training, folder / "half.safetensors")
        assert describe_checkpoint(folder / "half.safetensors")["optimizer"]["timeStep"] == 11
        for n in range(10, 20):
            assert net.step(batches[n % 4])[0]
        with np.load(folder / "weights.npz") as kept:
            for mine, theirs in zip(net.numbers_now(), kept.values(), strict=True):
                np.testing.assert_allclose(mine, theirs, rtol=1e-4, atol=1e-6)
    finally:
        mlc.device.randomness.reseed(seed)
        sys.modules.pop("nets", None)
