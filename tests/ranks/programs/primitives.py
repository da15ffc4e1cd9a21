"""The room that talks to other processes, and the layers that look at all samples, against one process."""

from __future__ import annotations

import numpy as np
import torch
from checking import RANK, WORLD, check, run_all

import mlc_torch as mlc
from mlc_torch import ranks
from mlc_torch.layers.noise import Dropout
from mlc_torch.layers.normalization_modules import BatchNorm, InstanceNorm
from mlc_torch.layers.sharing import Share, sharing

device = mlc.MLCDevice(type=mlc.MLCDeviceType.any, selectsMultipleComputeDevices=True)
together = ranks.joined()


def share_of(batch: int) -> Share:
    first, count = together.rows(batch)
    return Share(together, batch, first, count) if count else Share(together, batch, 0, 1, is_idle=True)


def refusal_of(call) -> str:
    try:
        call()
    except mlc.MLCRefusal as why:
        return str(why)
    raise AssertionError("nothing was refused")


@check
def a_device_joins():
    assert (device.rank, device.rank_count) == (RANK, WORLD) == (together.rank, together.world)
    assert mlc.MLCDevice(type=mlc.MLCDeviceType.cpu, selectsMultipleComputeDevices=True).rank_count == WORLD
    assert mlc.MLCDevice.cpu().rank_count == 1 and mlc.MLCDevice(type=mlc.MLCDeviceType.cpu).rank_count == 1
    assert not device.feeds_own_share and device.synchronizes_batch_norm


@check
def rows_cover_a_batch_once():
    said = together.told([together.rows(batch) for batch in range(1, 12)])
    for number, batch in enumerate(range(1, 12)):
        rows = [n for of_rank in said for n in range(of_rank[number][0], sum(of_rank[number]))]
        assert rows == list(range(batch))
        assert said[-1][number][1] > 0, "the last rank always has samples"


@check
def sums_and_values_of_the_first():
    flat = torch.full((5,), float(RANK + 1))
    together.wait(together.start_sum(flat))
    assert flat.tolist() == [3.0] * 5
    x = torch.tensor([1.0, 10.0]) * (RANK + 1)
    assert ranks.sum_over_ranks(x, False).tolist() == [3.0, 30.0] and x.tolist() == [RANK + 1.0, 10.0 * (RANK + 1)]
    values = [torch.arange(3) + RANK, torch.tensor([RANK == 0])]
    together.from_first(values)
    assert values[0].tolist() == [0, 1, 2] and values[1].item()


@check
def silence_reaches_nobody():
    if RANK == 0:  # alone: a sum would wait for the other
        with ranks.silently() as sums:
            assert ranks.sum_over_ranks(torch.ones(3), True).tolist() == [1.0] * 3
        assert sums == ([], [torch.Size([3])])


@check
def agreement_names_the_first_difference():
    together.agree(["the same", "on both"])
    told = refusal_of(lambda: together.agree(["the same", f"from {RANK}"]))
    assert "rank 0 has 'from 0', rank 1 has 'from 1'" in told
    told = refusal_of(lambda: together.agree(["one"] if RANK else ["one", "two"]))
    assert "'2 lines'" in told and "'1 lines'" in told
    if RANK:
        together.agree(None)
    else:
        assert "rank 1 refused" in refusal_of(lambda: together.agree(["fine"]))


def numbers(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.from_numpy(np.random.default_rng(seed).standard_normal(shape, np.float32)) * 3 + 5


def normalized(kind, x: torch.Tensor, dy: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """Values, gradients and statistics of one training pass."""
    module = kind(x.shape[1], 1e-3, 0.9)
    module.weight = torch.nn.Parameter(torch.linspace(0.5, 2, x.shape[1]))
    module.bias = torch.nn.Parameter(torch.linspace(-1, 1, x.shape[1]))
    module.register_buffer("running_mean", torch.zeros(x.shape[1]))
    module.register_buffer("running_var", torch.ones(x.shape[1]))
    x = x.clone().requires_grad_()
    y = module.train()(x)
    dx, dgamma, dbeta = torch.autograd.grad(y, (x, module.weight, module.bias), dy)
    return y.detach(), dx, dgamma, dbeta, module.running_mean, module.running_var


def close(a: torch.Tensor, b: torch.Tensor) -> None:
    torch.testing.assert_close(a, b, rtol=2e-5, atol=2e-5)


@check
def norms_see_all_samples():
    for kind in (BatchNorm, InstanceNorm):
        for batch in (8, 5, 2, 1):
            for shape in ((batch, 3, 4, 4), (batch, 3, 1, 1)):
                if batch == 1 and kind is BatchNorm and shape[2] == 1:
                    continue  # nothing spreads, and torch's own rounds differently
                x, dy = numbers(*shape), numbers(*shape, seed=1)
                share = share_of(batch)
                y, dx, dgamma, dbeta, mean, variance = normalized(kind, x, dy)
                with sharing(share):
                    own = normalized(kind, share.of(x, 0), share.of(dy, 0) * (0 if share.is_idle else 1))
                if not share.is_idle:
                    close(own[0], share.of(y, 0))
                    close(own[1], share.of(dx, 0))
                else:
                    assert not own[1].any()
                close(ranks.sum_over_ranks(own[2], True), dgamma)
                close(ranks.sum_over_ranks(own[3], True), dbeta)
                close(own[4], mean)
                close(own[5], variance)


@check
def local_batch_norm_keeps_to_its_own():
    x, dy = numbers(8, 3, 2, 2), numbers(8, 3, 2, 2, seed=1)
    first, count = together.rows(8)
    share = Share(together, 8, first, count, is_local=True)
    with sharing(share):
        own = normalized(BatchNorm, share.of(x, 0), share.of(dy, 0))
    for a, b in zip(own, normalized(BatchNorm, share.of(x, 0), share.of(dy, 0)), strict=True):
        assert torch.equal(a, b)


@check
def dropout_draws_what_one_process_would():
    for axis in (0, 1):
        for seed in (0, 7):
            for batch in (6, 5, 1):
                shape = [4, 4]
                shape[axis] = batch
                mlc.MLCPlatform.setRNGSeedTo(11)
                alone, shared = Dropout(0.5, seed).train(), Dropout(0.5, seed).train()
                shared.noise.sample_axis = axis
                expected = [alone(torch.ones(shape)) for _ in range(2)]
                mlc.MLCPlatform.setRNGSeedTo(11)
                share = share_of(batch)
                with sharing(share):
                    for want in expected:
                        own = share.of(want, axis)
                        assert torch.equal(shared(torch.ones(own.shape)), own)


@check
def own_shares_are_dropped_differently():
    mlc.MLCPlatform.setRNGSeedTo(11)
    count = 60 + RANK  # of different sizes, and yet they go on from the same place
    with sharing(Share(together, count, 0, count, is_own=True)):
        dropout = Dropout(0.5).train()
        masks = together.told([dropout(torch.ones(count)).tolist()[:60] for _ in range(2)])
    assert len({tuple(mask) for own in masks for mask in own}) == 4
    streams = together.told(dropout.noise.stream(torch.device("cpu")).get_state().tolist())
    assert streams[0] == streams[1]


if __name__ == "__main__":
    run_all()
