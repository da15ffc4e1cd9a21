"""How the compiled gear divides a traced step: what the forward pass hands over, and what is computed again."""

from __future__ import annotations

import pytest
import torch
from torch.fx.experimental.proxy_tensor import make_fx

from mlc_torch.engine.split_joint import split_joint


def traced(function, *given):
    with torch.enable_grad():
        return make_fx(function, tracing_mode="fake")(*given)


def run(joint, count, given, written=()):
    """Both halves one after the other: what was handed over, and all results."""
    forward, backward, needed = split_joint(joint, count, 0, written)
    made = forward(*given)
    return made[count:], [*made[:count], *backward(*(given[i] for i in needed), *made[count:])]


@pytest.mark.parametrize(("shape", "handed_over"), [((4, 4), 0), ((40, 40), 3)])
def test_small_values_are_computed_again(shape, handed_over):
    def step(x, weight):
        w = weight.detach().requires_grad_()
        y = x + w
        for _ in range(3):
            y = torch.tanh(y) * 1.5
        total = y.sum()
        return [total, *torch.autograd.grad(total, [w], torch.ones(()))]

    given = [torch.randn(shape, generator=torch.Generator().manual_seed(n)) for n in range(2)]
    saved, results = run(traced(step, *given), 1, given)
    assert len(saved) == handed_over
    for got, want in zip(results, step(*given), strict=True):
        torch.testing.assert_close(got, want)


def test_what_the_forward_pass_overwrites_is_not_read_again():
    def step(x, statistic):
        source = x.detach().requires_grad_()
        y = source * (statistic * 2)
        total = y.sum()
        return [total, statistic * 0.5, *torch.autograd.grad(total, [source], torch.ones(()))]

    given = [torch.ones(3), torch.full((3,), 7.0)]
    saved, results = run(traced(step, *given), 2, given, written=[1])
    assert len(saved) == 1
    torch.testing.assert_close(results[2], torch.full((3,), 14.0))


def test_a_part_is_handed_over_and_not_the_whole():
    def step(x, weight):
        w, wide = weight.detach().requires_grad_(), torch.sin(x) * 2
        total = (wide[:, :2] * w).sum() + wide.sum()
        return [total, *torch.autograd.grad(total, [w], torch.ones(()))]

    given = [torch.randn(shape, generator=torch.Generator().manual_seed(0)) for shape in ((20, 30), (20, 2))]
    saved, results = run(traced(step, *given), 1, given)
    assert [tuple(t.shape) for t in saved] == [(20, 2)]
    torch.testing.assert_close(results[1], step(*given)[1])


def test_a_small_operation_with_two_results_is_handed_over():
    def step(x):
        source = x.detach().requires_grad_()
        mantissa, _ = torch.frexp(x)
        total = (mantissa * source * source).sum()
        return [total, *torch.autograd.grad(total, [source], torch.ones(()))]

    given = [torch.tensor([1.5, -3.0, 40.0])]
    _, results = run(traced(step, *given), 1, given)
    torch.testing.assert_close(results[1], 2 * torch.tensor([0.75, -0.75, 0.625]) * given[0])
