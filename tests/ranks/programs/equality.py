"""Two processes compute what one computes: the same networks, the same calls, on a device of each kind."""

from __future__ import annotations

import itertools
import sys
from collections.abc import Callable
from typing import Any
from unittest import mock

import nets
import numpy as np
from checking import RANK, check, run_all
from comparing import ON_GPU, STEPS, assert_alike, assert_close, both, compare, flat
from nets import NONE, SUM, adam, rmsprop, sgd

import mlc_torch as mlc
from mlc_torch.engine import exchange
from mlc_torch.engine.exchange_message import grouped

SETTINGS: dict[str, tuple[Callable[[Any], Any], tuple[int, ...]]] = {
    "perceptron": (lambda d: nets.perceptron(d, clip=True), (0,)),
    "perceptron, sum, weight decay": (lambda d: nets.perceptron(d, reduction=SUM, optimizer=adam, decay=0.01), (0,)),
    "perceptron, no reduction": (lambda d: nets.perceptron(d, reduction=NONE, optimizer=rmsprop), (0,)),
    "perceptron, rescaled gradients": (lambda d: nets.perceptron(d, rescale=0.5), (0,)),
    "uneven and short batches": (lambda d: nets.perceptron(d, batch=9), (0, 5, 9, 4, 1)),
    "short batches without reduction": (lambda d: nets.perceptron(d, batch=5, reduction=NONE), (5, 3, 1)),
    "fewer samples than ranks": (lambda d: nets.convolutional(d, batch=3, optimizer=sgd), (1, 3)),
    "own weights of the loss": (lambda d: nets.perceptron(d, batch=7, own_weights=True), (7, 4)),
    "label weights": (nets.weighted, (7, 3)),
    "convolution": (nets.convolutional, (6, 5)),
    "group norm": (lambda d: nets.convolutional(d, norm=nets.group_norm), (0,)),
    "instance norm": (lambda d: nets.convolutional(d, norm=nets.instance_norm, batch=5), (5, 1)),
    "LSTM": (nets.recurrent, (5, 2)),
    "LSTM, time first, states, lengths, dropout": (nets.time_first, (0,)),
    "embedding and attention": (nets.attending, (5, 4)),
    "dropout": (nets.dropping, (7, 4)),
    "dropout with a seed of its own": (lambda d: nets.dropping(d, seed=3), (7, 1)),
    "several losses": (nets.several_losses, (7, 2)),
    "stopped and frozen": (nets.steered, (0,)),
    "trained tensors": (nets.trained_tensors, (0,)),
    "YOLO": (nets.yolo, (5, 3, 1)),
    "plain gear": (lambda d: nets.perceptron(d, options=[mlc.MLCGraphCompilationOptions.disableLayerFusion]), (0,)),
}


def add_check(name: str) -> None:
    def run() -> None:
        make, sizes = SETTINGS[name]
        many = compare(make, sizes)
        gear = many.training.summary().gear
        assert gear == ("plain" if name == "plain gear" or ON_GPU else "planned"), gear

    run.__name__ = name
    check(run)


for setting in SETTINGS:
    add_check(setting)


@check
def batch_norm_step_by_step():
    """From the same state each time: statistics of a batch amplify rounding."""
    one, many, batches, _ = both(lambda d: nets.convolutional(d, norm=nets.batch_norm, optimizer=sgd))
    for n in range(STEPS):
        one.take_over(many)
        before = flat(many.numbers_now())
        batch = (0, 5, 1)[n % 3]
        losses = [net.step(batches[n % 4], batch)[1] for net in (one, many)]
        np.testing.assert_allclose(*losses, rtol=1e-5)
        assert_close(one, many, before, movement=1e-4)
        np.testing.assert_allclose(flat(many.statistics_now()), flat(one.statistics_now()), rtol=1e-5, atol=1e-6)
    assert_alike(many)


@check
def phases_one_by_one():
    for make in (nets.perceptron, lambda d: nets.convolutional(d, norm=nets.instance_norm), nets.several_losses):
        one, many, batches, before = both(make)
        for n in range(STEPS):
            batch = (0, 5)[n % 2]
            np.testing.assert_allclose(many.phases(batches[n % 4], batch), one.phases(batches[n % 4], batch), rtol=2e-5)
        assert_close(one, many, before)
        assert_alike(many)


@check
def every_loss_and_reduction():
    """Each sample's part of the loss, whatever divides or adds them up; a third of the pairs with fewer samples."""
    pairs = [(kind, reduction) for kind in nets.LOSS for reduction in (nets.MEAN, SUM, NONE)]
    for number, (kind, reduction) in enumerate(pairs):
        compare(lambda d, kind=kind, reduction=reduction: nets.of_loss(d, kind, reduction), (5, 5, 3)[number % 3 :], 3)


@check
def gradients_leave_in_several_messages():
    """Each as soon as the generated backward pass has filled it, and the next is computed meanwhile."""
    lines: list[int] = []

    def start(self, number, gradients):
        lines.append(sys._getframe(1).f_lineno)
        real(self, number, gradients)

    real = exchange.Exchange.start
    with (
        mock.patch.object(exchange, "grouped", lambda plan, limit: grouped(plan, 128)),
        mock.patch.object(exchange.Exchange, "start", start),
    ):
        for make in (lambda d: nets.perceptron(d, clip=True), nets.several_losses, nets.recurrent):
            lines.clear()
            many = compare(make, (0, 3))
            count = len(many.training._runs.shared.exchange.buckets)
            assert count > 2, count
            if not ON_GPU:
                apart = [b - a for a, b in itertools.pairwise(lines[:count])]
                assert min(apart) > 0 and max(apart) > 1, "work in between"
        _, many, batches, _ = both(nets.perceptron)
        assert not many.step(batches[0], 7 + RANK)[0], "sizes differ, and nobody is left waiting for a message"
        assert many.step(batches[0])[0]
        assert_alike(many)


if __name__ == "__main__":
    run_all()
