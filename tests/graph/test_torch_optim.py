"""How far torch.optim is: the same numbers while the learning rate stays, others where the formulas differ."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from mlc_torch import (
    MLCAdamOptimizer,
)
from tests.graph.optimizer_bench import (
    KINDS,
    STEPS,
    Bench,
    Kind,
    adam,
    descriptor,
    gradients,
    starts,
)
from tests.graph.reference_optimizers import Settings


def torch_weights(make, rates) -> list[np.ndarray]:
    params = [torch.nn.Parameter(torch.tensor(s, dtype=torch.float32)) for s in starts()]
    optimizer = make(params)
    for number in range(STEPS):
        for group in optimizer.param_groups:
            group["lr"] = rates(number)
        for p, g in zip(params, gradients(number), strict=True):
            p.grad = torch.from_numpy(g)
        optimizer.step()
    return [p.detach().numpy() for p in params]


def distance(kind: Kind, make, settings: Settings, rates=lambda number: 0.05) -> float:
    """The largest difference after 20 steps, relative to how far the weights have moved."""
    optimizer = kind.make(descriptor(settings))
    bench = Bench(optimizer).compile()
    for number in range(STEPS):
        optimizer.learningRate = rates(number)
        bench.step(number)
    pairs = zip(bench.weights(), torch_weights(make, rates), starts(), strict=True)
    return max(float(np.abs(a - b).max() / np.abs(a - s).max()) for a, b, s in pairs)


def dropping(number: int) -> float:
    return 0.05 / 10 ** (number // 7)


@pytest.mark.parametrize(
    ("kind", "make", "settings"),
    [
        (KINDS[0], lambda p: torch.optim.SGD(p, lr=0.05), Settings()),
        (KINDS[0], lambda p: torch.optim.SGD(p, lr=0.05, weight_decay=0.1), Settings(regularization="l2", scale=0.1)),
        (KINDS[1], lambda p: torch.optim.SGD(p, lr=0.05, momentum=0.9), Settings()),
        (KINDS[2], lambda p: torch.optim.SGD(p, lr=0.05, momentum=0.9, nesterov=True), Settings()),
        (KINDS[3], lambda p: torch.optim.Adam(p, lr=0.05, betas=(0.9, 0.99)), Settings()),
        (KINDS[6], lambda p: torch.optim.AdamW(p, betas=(0.9, 0.99), weight_decay=0.1), Settings(regularization="l2", scale=0.1)),
        (KINDS[8], lambda p: torch.optim.RMSprop(p, alpha=0.9, eps=1e-4), Settings()),
        (KINDS[11], lambda p: torch.optim.RMSprop(p, alpha=0.9, eps=1e-4, momentum=0.9, centered=True), Settings()),
    ],
    ids=["sgd", "sgd l2", "momentum", "nesterov", "adam", "adamw", "rmsprop", "rmsprop centered momentum"],
)  # fmt: skip
def test_torch_optim_is_the_same_while_the_rate_stays(kind, make, settings):
    assert distance(kind, make, settings) < 2e-5


def test_torch_optim_differs_where_the_formulas_differ():
    """The rate inside the accumulator, and Adam's ε outside of the bias correction (evidence.md F.2)."""
    momentum = distance(KINDS[1], lambda p: torch.optim.SGD(p, lr=0.05, momentum=0.9), Settings(), dropping)
    assert 0.01 < momentum < 1.0
    rms = distance(KINDS[10], lambda p: torch.optim.RMSprop(p, alpha=0.9, eps=1e-4, momentum=0.9), Settings(), dropping)
    assert 0.01 < rms < 1.0
    nesterov = distance(
        KINDS[2], lambda p: torch.optim.SGD(p, lr=0.05, momentum=0.9, nesterov=True), Settings(), dropping
    )
    assert nesterov < 2e-5
    large = Kind("adam", *adam(MLCAdamOptimizer, False, False, 0.1))
    assert (
        0.001 < distance(large, lambda p: torch.optim.Adam(p, lr=0.05, betas=(0.9, 0.99), eps=0.1), Settings()) < 10.0
    )
