"""The modules behind the normalization layers (evidence.md D.15).

y = gamma·(x - mean)/sqrt(variance + epsilon) + beta, with the biased variance. Running statistics follow

    running = momentum·running + (1 - momentum)·batch

so that ``momentum`` is the weight of the old value, and their variance is the biased one too; torch's is neither.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F


class RunningNorm(nn.Module):
    """A normalization with running statistics. ``weight`` is gamma, ``bias`` is beta; each may be missing."""

    weight: torch.Tensor | None
    bias: torch.Tensor | None
    running_mean: Any  # a tensor or None; batch norm always has both
    running_var: Any

    def __init__(self, channels: int, epsilon: float, momentum: float) -> None:
        super().__init__()
        self.channels, self.momentum = channels, momentum
        # Some releases of torch refuse an epsilon of 0; next to any variance this one is 0 too.
        self.epsilon = max(epsilon, torch.finfo(torch.float32).tiny)

    def by_running_statistics(self, x: torch.Tensor) -> torch.Tensor:
        return affine(
            lambda gamma, beta: F.batch_norm(x, self.running_mean, self.running_var, gamma, beta, eps=self.epsilon),
            self.weight,
            self.bias,
        )

    def scratch(self) -> tuple[torch.Tensor | None, torch.Tensor | None]:
        """Where torch leaves the statistics of one pass, which it would mix into the running ones its own way."""
        if self.running_mean is None or self.running_var is None:
            return None, None
        return torch.zeros_like(self.running_mean), torch.zeros_like(self.running_var)

    @torch.no_grad()
    def remember(self, mean: torch.Tensor | None, variance: torch.Tensor | None, factor: float = 1.0) -> None:
        """Let the running statistics follow; ``factor`` turns torch's unbiased variance into the biased one."""
        if self.running_mean is None or self.running_var is None or mean is None or variance is None:
            return
        self.running_mean.lerp_(mean, 1 - self.momentum)
        self.running_var.lerp_(variance * factor, 1 - self.momentum)

    def extra_repr(self) -> str:
        return f"{self.channels}, epsilon={self.epsilon}, momentum={self.momentum}"


class BatchNorm(RunningNorm):
    """Statistics over all samples and pixels of a channel in training, the running ones otherwise."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if not self.training:
            return self.by_running_statistics(x)
        count = x.numel() // self.channels
        if count == 1:
            self.remember(x.detach().flatten(), torch.zeros_like(self.running_var))
            return without_spread(x, self.weight, self.bias)
        # torch mixes in the unbiased variance, n/(n-1) of the biased one: scaled by that before, and back after, it is right.
        unbiased = count / (count - 1)
        with torch.no_grad():
            variance = self.running_var * unbiased
        y = affine(
            lambda gamma, beta: F.batch_norm(
                x, self.running_mean, variance, gamma, beta, True, 1 - self.momentum, self.epsilon
            ),
            self.weight,
            self.bias,
        )
        with torch.no_grad():
            torch.mul(variance, 1 / unbiased, out=self.running_var)
        return y


class InstanceNorm(RunningNorm):
    """Statistics over the pixels of one sample's channel. Running ones, where kept, serve instead outside training."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.running_mean is not None and not self.training:
            return self.by_running_statistics(x)
        mean, variance = self.scratch()
        count = math.prod(x.shape[2:])
        if count == 1:
            self.remember(x.detach().flatten(1).mean(0), variance)
            return without_spread(x, self.weight, self.bias)
        y = affine(
            lambda gamma, beta: F.instance_norm(x, mean, variance, gamma, beta, True, 1.0, self.epsilon),
            self.weight,
            self.bias,
        )
        self.remember(mean, variance, (count - 1) / count)
        return y


class GroupNorm(nn.GroupNorm):
    """nn.GroupNorm, also for groups of one value."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if math.prod(x.shape[1:]) == self.num_groups:
            return without_spread(x, self.weight, self.bias)
        return affine(
            lambda gamma, beta: F.group_norm(x, self.num_groups, gamma, beta, self.eps), self.weight, self.bias
        )


Numbers = torch.Tensor | None


def affine(normalize: Callable[[Numbers, Numbers], torch.Tensor], gamma: Numbers, beta: Numbers) -> torch.Tensor:
    """``normalize`` with gamma and beta. torch fails to compute the gradient of a beta without a gamma; it comes after."""
    if gamma is None and beta is not None:
        y = normalize(None, None)
        return y + across(beta, y)
    return normalize(gamma, beta)


def without_spread(x: torch.Tensor, gamma: Numbers, beta: Numbers) -> torch.Tensor:
    """Values that are each their own mean, normalized: beta everywhere. torch refuses these, or rounds badly."""
    y = x - x
    if gamma is not None:
        y = y * across(gamma, x)
    return y if beta is None else y + across(beta, x)


def across(channels: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    """One number for each channel, in a shape that meets x."""
    return channels.view(1, -1, *[1] * (x.dim() - 2))
