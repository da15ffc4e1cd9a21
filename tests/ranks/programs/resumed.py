"""Trains with checkpoints. In the first attempt a process stops, in the second one is killed; the third comes to the end."""

from __future__ import annotations

import json
import os
import signal
import time
from pathlib import Path
from typing import Any

import nets
import numpy as np
from checking import RANK, WORLD

import mlc_torch as mlc
from mlc_torch import ranks
from mlc_torch.interop import load_checkpoint, save_checkpoint

FOLDER = Path(os.environ["CHECKS"])
ATTEMPT = int(os.environ["TORCHELASTIC_RESTART_COUNT"])


def await_all() -> None:
    """Until all have loaded what they need: the limit on waiting is short, and a busy machine loads at its own pace."""
    here = [FOLDER / f"here-{ATTEMPT}-{rank}" for rank in range(WORLD)]
    here[RANK].touch()
    while not all(file.exists() for file in here):
        time.sleep(0.02)


await_all()
MANY = mlc.unwrap(mlc.MLCDevice(type=mlc.MLCDeviceType.cpu, selectsMultipleComputeDevices=True))
TOTAL, EVERY = 20, 5
DIES_AT = {0: 3, 1: 12}


def made() -> Any:
    mlc.MLCPlatform.setRNGSeedTo(5)
    net = nets.Net(7)
    net.classes(4)
    net.dense(net.dropout(net.tanh(net.dense(net.input(6), 6, 16))), 16, 4)
    return net.compile(MANY, nets.loss(), nets.adam(clip=True))


def note(name: str, what: Any) -> None:
    (FOLDER / f"{name}-{ATTEMPT}-{RANK}.note").write_text(json.dumps(what), "utf-8")


def train(net: Any, first: int, saves: bool) -> None:
    others = ranks.joined().told(os.getpid())
    for n in range(first, TOTAL):
        if saves and RANK == 1 and n == DIES_AT.get(ATTEMPT):
            os.kill(os.getpid(), signal.SIGKILL if ATTEMPT else signal.SIGSTOP)
        started = time.monotonic()
        try:
            assert net.step(net.given[n % 4])[0]
        except mlc.RanksLost as lost:
            seconds = time.monotonic() - started
            try:
                again = str(net.step(net.given[n % 4]))
            except mlc.RanksLost as lost_again:
                again = str(lost_again)
            note("lost", {"seconds": seconds, "step": n, "why": str(lost), "again": again})
            if ATTEMPT == 0:
                os.kill(others[1], signal.SIGKILL)  # torchrun would wait long for a process that is stopped
            os._exit(3)
        if saves and (n + 1) % EVERY == 0:
            save_checkpoint(net.training, FOLDER / "checkpoint.safetensors")
            if n + 1 == 2 * EVERY and RANK == 0:
                save_checkpoint(net.training, FOLDER / "half.safetensors")


signal.signal(signal.SIGTERM, signal.SIG_IGN)  # torchrun would end the others before they have noted what they saw
net = made()
net.given = net.batches(4)
first = 0
if (FOLDER / "checkpoint.safetensors").exists():
    load_checkpoint(net.training, FOLDER / "checkpoint.safetensors")
    first = net.training.optimizer.timeStep - 1
note("began", first)
train(net, first, saves=True)
again = made()
again.given = net.given
train(again, 0, saves=False)
resumed, undisturbed = ([a.tobytes().hex() for a in n.numbers_now()] for n in (net, again))
note("ended", {"same": resumed == undisturbed, "others": len(set(map(tuple, ranks.joined().told(resumed))))})
if RANK == 0:
    np.savez(FOLDER / "weights.npz", *net.numbers_now())
