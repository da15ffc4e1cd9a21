"""One call, three phases and plain PyTorch written by hand walk the same way for 20 steps, parameter by parameter."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import pytest
import torch

from mlc_torch import MLCAdamOptimizer, MLCGraphCompilationOptions, MLCSGDOptimizer, MLCTensor
from tests.graph.networks import NETWORKS, Network, made
from tests.graph.programs import Program, array, hyper, on

STEPS = 20
RTOL = 1e-5


class Momentum:
    """m = μ·m + lr·g; w -= m"""

    def __init__(self, lr: float = 0.05, mu: float = 0.9) -> None:
        self.lr, self.mu = lr, mu
        self.m: list[torch.Tensor] | None = None

    def step(self, params: Sequence[torch.Tensor], grads: Sequence[torch.Tensor]) -> None:
        self.m = self.m or [torch.zeros_like(p) for p in params]
        for p, g, m in zip(params, grads, self.m, strict=True):
            m.mul_(self.mu).add_(self.lr * g)
            p.sub_(m)


class Adam:
    """m, v; lr_t = lr·√(1-β2^t)/(1-β1^t); w -= lr_t·m/(√v + ε)"""

    def __init__(self, lr: float = 0.01, betas: tuple[float, float] = (0.9, 0.999), eps: float = 1e-3) -> None:
        self.lr, self.betas, self.eps, self.t = lr, betas, eps, 1
        self.m: list[torch.Tensor] | None = None
        self.v: list[torch.Tensor] = []

    def step(self, params: Sequence[torch.Tensor], grads: Sequence[torch.Tensor]) -> None:
        if self.m is None:
            self.m, self.v = ([torch.zeros_like(p) for p in params] for _ in range(2))
        b1, b2 = self.betas
        rate = self.lr * (1 - b2**self.t) ** 0.5 / (1 - b1**self.t)
        for p, g, m, v in zip(params, grads, self.m, self.v, strict=True):
            m.mul_(b1).add_((1 - b1) * g)
            v.mul_(b2).add_((1 - b2) * g * g)
            p.sub_(rate * m / (v.sqrt() + self.eps))
        self.t += 1


OPTIMIZERS = {
    "momentum": (
        lambda: MLCSGDOptimizer(descriptor=hyper(0.05), momentumScale=0.9, usesNesterovMomentum=False),
        Momentum,
    ),
    "adam": (
        lambda: MLCAdamOptimizer(descriptor=hyper(0.01), beta1=0.9, beta2=0.999, epsilon=1e-3, timeStep=1),
        Adam,
    ),
}


def one_call(program: Program) -> float:
    return program.step()


def three_phases(program: Program) -> float:
    answers: list[float] = []
    assert program.bind()
    assert program.forward(options=2, completionHandler=lambda *g: answers.append(float(array(g[0])[0])))
    assert program.gradient(options=2) and program.update(options=2)
    return answers[0]


class ByHand:
    """The loop that everybody writes."""

    def __init__(self, network: Network, program: Program, params: Sequence[MLCTensor], optimizer) -> None:
        self.network, self.optimizer = network, optimizer
        self.given = {n: torch.from_numpy(a).double() for n, a in program.given.items()}
        self.params = [self.view(p, shape) for p, shape in zip(params, network.views, strict=True)]
        self.sizes = [p.abs().max().item() for p in self.params]
        """How large each parameter is at the start: on its way one may come near zero."""

    @staticmethod
    def view(parameter: MLCTensor, shape: tuple[int, ...]) -> torch.Tensor:
        return torch.from_numpy(array(parameter)).double().reshape(shape)

    def take_over(self, params: Sequence[MLCTensor]) -> None:
        """Go on from where the program is now."""
        for mine, theirs, shape in zip(self.params, params, self.network.views, strict=True):
            mine.copy_(self.view(theirs, shape))

    def step(self) -> float:
        leaves = [p.clone().requires_grad_() for p in self.params]
        loss = self.network.formula(leaves, self.given)
        self.optimizer.step(self.params, torch.autograd.grad(loss, leaves))
        return loss.item()


def assert_same(params: Sequence[MLCTensor], hand: ByHand, number: int, tolerance: float = RTOL) -> None:
    for index, (got, want, size) in enumerate(zip(params, hand.params, hand.sizes, strict=True)):
        error = np.abs(array(got).ravel() - want.numpy().ravel()).max()
        scale = max(size, want.abs().max().item())
        assert error <= tolerance * scale, f"parameter {index} after step {number}: {error} of {scale}"


@pytest.mark.parametrize("options", [[], [MLCGraphCompilationOptions.disableLayerFusion]], ids=["fast", "plain"])
@pytest.mark.parametrize("walk", [one_call, three_phases], ids=["one call", "three phases"])
@pytest.mark.parametrize("optimizer", OPTIMIZERS)
@pytest.mark.parametrize("network", NETWORKS, ids=lambda n: n.name)
def test_twenty_steps(network: Network, optimizer: str, walk: Callable[[Program], float], options, torch_device):
    ours, by_hand = OPTIMIZERS[optimizer]
    program, params = made(network, ours(), on(torch_device))
    hand = ByHand(network, program, params, by_hand())
    step_by_step = network.step_by_step or torch_device.type != "cpu"
    assert program.compile(options)
    losses = []
    for number in range(STEPS):
        if step_by_step:
            program.training.synchronizeUpdates()
            hand.take_over(params)
        got, want = walk(program), hand.step()
        losses.append(want)
        if len(program.labels) == 1:
            assert got == pytest.approx(want, rel=1e-4, abs=1e-6)
        program.training.synchronizeUpdates()
        assert_same(params, hand, number)
    assert losses[-1] < losses[0]


@pytest.mark.parametrize("network", NETWORKS, ids=lambda n: n.name)
def test_one_call_and_three_phases_agree_to_the_last_bit(network: Network):
    programs = [made(network, OPTIMIZERS["adam"][0]()) for _ in range(2)]
    for program, _ in programs:
        assert program.compile()
    (once, first), (split, second) = programs
    for _ in range(STEPS):
        assert one_call(once) == three_phases(split)
    for a, b in zip(first, second, strict=True):
        np.testing.assert_array_equal(array(a), array(b))
