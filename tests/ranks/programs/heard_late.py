"""Calls that are over before anybody knows what the others said, as over nccl; here gloo passes for it, without a device."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest import mock

import nets
import numpy as np
from checking import RANK, check, run_all
from comparing import assert_alike, both, compare
from refusals import Heard, short

import mlc_torch as mlc
from mlc_torch import ranks


@contextmanager
def nobody_waits() -> Iterator[None]:
    with mock.patch.object(ranks.Ranks, "is_recordable", True):
        yield


@check
def late_calls_compute_the_same():
    with nobody_waits():
        compare(lambda d: nets.perceptron(d, clip=True), (0, 5, 1))
        compare(nets.several_losses, (7, 2))
        compare(lambda d: nets.convolutional(d, norm=nets.instance_norm), (0,))


@check
def an_update_that_a_rank_refused_is_left_out():
    """By the work itself, since nobody can be asked: weights, state and statistics stay, and all count the step."""
    with nobody_waits():
        _, many, batches, _ = both(lambda d: nets.convolutional(d, norm=nets.batch_norm, optimizer=nets.adam))

        def state() -> list[Any]:
            return many.numbers_now() + many.statistics_now()

        assert many.step(batches[0])[0]
        before = state()
        with Heard() as lines:
            answer, _, _ = many.step(short(batches[1]) if RANK else batches[1])
        assert answer is (RANK == 0), "only the rank that refused knows at once"
        assert ("needs" in lines[0]) if RANK else ("a rank refused a step" in lines[0]), lines
        assert all(np.array_equal(a, b) for a, b in zip(before, state(), strict=True))
        for n in range(3):
            assert many.step(batches[n])[0], mlc.last_refusal()
        assert not all(np.array_equal(a, b) for a, b in zip(before, state(), strict=True))
        assert_alike(many)
        assert ranks.joined().told(many.training.optimizer.timeStep) == [6, 6]


if __name__ == "__main__":
    run_all()
