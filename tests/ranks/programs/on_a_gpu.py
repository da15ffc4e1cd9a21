"""A GPU that one process has for itself, over nccl: recorded with what it sends, bit for bit the ordinary run."""

from __future__ import annotations

import statistics
import sys
import time
from typing import Any

import nets
import numpy as np
import torch
from checking import WORLD, check, run_all
from comparing import ALONE, MANY

import mlc_torch as mlc
from mlc_torch import ranks


def numbers_after(make: Any, device: Any, short: int) -> tuple[list[np.ndarray], list[np.ndarray], str]:
    """Losses of some steps, every third without its last samples, then weights and statistics, and the gear."""
    mlc.MLCPlatform.setRNGSeedTo(5)
    net = make(device)
    mlc.MLCPlatform.setRNGSeedTo(9)
    batches = net.batches(4)
    losses = [net.step(batches[n % 4], (0, 0, net.batch - short)[n % 3])[1] for n in range(8)]
    return losses, net.numbers_now() + net.statistics_now(), net.training.summary().gear


@check
def one_process_over_nccl():
    assert WORLD == 1 and ranks.joined().backend == "nccl" and MANY.torch_device.type == "cuda"


WHOLE = "trained tensors"  # one of them has a row for each sample: a short batch is refused

NETWORKS = {
    "perceptron": lambda d: nets.perceptron(d, clip=True),
    "sum, Adam": lambda d: nets.perceptron(d, reduction=nets.SUM, optimizer=nets.adam),
    "RMSprop": lambda d: nets.perceptron(d, optimizer=nets.rmsprop),
    "batch norm": lambda d: nets.convolutional(d, norm=nets.batch_norm, optimizer=nets.sgd),
    "dropout": nets.dropping,
    "several losses": nets.several_losses,
    WHOLE: nets.trained_tensors,
}


def add_check(name: str) -> None:
    def run() -> None:
        torch.use_deterministic_algorithms(True, warn_only=True)
        (l1, one, ordinary), (l2, many, shared) = (
            numbers_after(NETWORKS[name], d, name != WHOLE) for d in (ALONE, MANY)
        )
        assert ordinary == shared == "captured", (ordinary, shared)
        for a, b in zip((*l1, *one), (*l2, *many), strict=True):
            assert a.tobytes() == b.tobytes()

    run.__name__ = name
    check(run)


for network in NETWORKS:
    add_check(network)


@check
def phases_and_outputs():
    results = []
    for device in (ALONE, MANY):
        net = nets.perceptron(device, batch=6)
        batches = net.batches(2)
        losses = [net.phases(batches[n % 2]) for n in range(4)]
        results.append([*losses, *net.numbers_now()])
    for a, b in zip(*results, strict=True):
        np.testing.assert_array_equal(a, b)


def deep(device: Any) -> Any:
    """Large enough for the device to be what takes time."""
    net = nets.Net(128)
    net.classes(10)
    x = net.input(3, 32, 32)
    for inputs in (3, 64, 64, 64, 64, 64):
        x = net.relu(net.convolution(x, inputs, 64))
    x = net.add(mlc.MLCReductionLayer(reductionType=mlc.MLCReductionType.mean, dimensions=[2, 3]), x)
    net.dense(net.reshape(x, 128, 64), 64, 10)
    return net.compile(device, nets.loss(), nets.sgd(rate=0.01))


@check
def it_takes_no_longer():
    programs = [deep(device) for device in (ALONE, MANY)]
    batches = programs[0].batches(2)
    given = [[net.data(batch) for batch in batches] for net in programs]
    times: list[list[float]] = [[], []]
    for turn in range(24):
        for number, net in enumerate(programs):
            torch.cuda.synchronize()
            started = time.perf_counter()
            for n in range(20):
                assert net.training.execute(**given[number][n % 2], batchSize=128, options=[])
            torch.cuda.synchronize()
            if turn >= 4:
                times[number].append(time.perf_counter() - started)
    ratio = statistics.median(b / a for a, b in zip(*times, strict=True))
    sys.stdout.write(f"a step of {min(times[0]) / 20 * 1e3:.3f} ms takes {ratio:.3f} of that with nccl\n")
    assert ratio <= 1.03, ratio


run_all()
