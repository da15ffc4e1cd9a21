"""Dropout in training: how much is dropped, what becomes of the rest, and where the random numbers come from."""

from __future__ import annotations

import copy

import pytest
import torch

from mlc_torch.device import MLCPlatform, randomness
from mlc_torch.layers.dropout import MLCDropoutLayer


@pytest.fixture
def platform_seed():
    before = randomness.seed
    yield MLCPlatform.setRNGSeedTo
    randomness.reseed(before)


def module_of(rate, seed=0):
    return MLCDropoutLayer(rate=rate, seed=seed).module.train()


@pytest.mark.parametrize("rate", [0.1, 0.5, 0.9])
def test_elements_are_dropped_or_scaled(rate, torch_device):
    x = torch.full((100_000,), 3.0, device=torch_device)
    y = module_of(rate, seed=5)(x)
    kept = y != 0
    # Five standard deviations of a binomial count.
    assert abs(kept.float().mean().item() - (1 - rate)) < 5 * (rate * (1 - rate) / x.numel()) ** 0.5
    torch.testing.assert_close(y[kept], torch.full_like(y[kept], 3 / (1 - rate)))


def test_the_gradient_goes_through_the_same_mask(torch_device):
    x = torch.ones(1000, device=torch_device, requires_grad=True)
    y = module_of(0.3, seed=2)(x)
    y.sum().backward()
    assert torch.equal(x.grad, y.detach())


def test_in_inference_nothing_happens():
    x = torch.randn(10)
    assert module_of(0.9).eval()(x) is x


def test_a_seed_of_its_own_repeats_the_stream_and_moves_on():
    x = torch.ones(200)
    first, second = module_of(0.5, seed=11), module_of(0.5, seed=11)
    a, b = first(x), first(x)
    assert not torch.equal(a, b)
    assert torch.equal(second(x), a) and torch.equal(second(x), b)
    assert not torch.equal(module_of(0.5, seed=12)(x), a)


def test_seed_0_follows_the_platform(platform_seed):
    x, module = torch.ones(200), module_of(0.5)
    platform_seed(7)
    a, b = module(x), module(x)
    platform_seed(7)
    assert torch.equal(module(x), a) and torch.equal(module(x), b)
    assert not torch.equal(a, b)


def test_torchs_own_generator_is_left_alone():
    before = torch.get_rng_state()
    module_of(0.5)(torch.ones(50))
    module_of(0.5, seed=3)(torch.ones(50))
    assert torch.equal(torch.get_rng_state(), before)


def test_masks_drawn_beforehand():
    module = module_of(0.5)
    mask = torch.tensor([0.0, 2.0, 2.0])
    with module.noise.fed([mask]):
        assert torch.equal(module(torch.tensor([1.0, 2.0, 3.0])), torch.tensor([0.0, 4.0, 6.0]))


@pytest.mark.parametrize("dtype", [torch.float16, torch.float32, torch.float64])
def test_every_type_and_a_short_batch(dtype):
    module = copy.deepcopy(module_of(0.5, seed=1)).to(dtype)
    y = module(torch.ones(2, 3, dtype=dtype))
    assert y.dtype is dtype and y.shape == (2, 3)


def test_properties():
    layer = MLCDropoutLayer(rate=0.25, seed=-3)
    assert (layer.rate, layer.seed, layer.label) == (0.25, -3, "Dropout")
    assert "rate=0.25, seed=-3" in repr(layer.module)
