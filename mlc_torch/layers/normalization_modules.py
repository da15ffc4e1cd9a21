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

from mlc_torch.layers.sharing import Share, current_share


class RunningNorm(nn.Module):
    """A normalization with running statistics. ``weight`` is gamma, ``bias`` is beta; each may be missing."""

    weight: torch.Tensor | None
    bias: torch.Tensor | None
    running_mean: Any  # a tensor, or None, as the next is then; batch norm always has both
    running_var: Any

    adds_over_ranks = True
    """Where several processes share a batch, it looks at the samples of all."""

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
        if self.running_mean is None:
            return None, None
        return torch.zeros_like(self.running_mean), torch.zeros_like(self.running_var)

    @torch.no_grad()
    def remember(self, mean: torch.Tensor | None, variance: torch.Tensor | None) -> None:
        """Let the running statistics follow, where there are any."""
        if mean is None or variance is None:
            return
        self.running_mean.lerp_(mean, 1 - self.momentum)
        self.running_var.lerp_(variance, 1 - self.momentum)

    def remember_of_all(self, share: Share, mean: torch.Tensor | None, variance: torch.Tensor | None, n: int) -> None:
        """Let the running statistics follow those of ``n`` samples here and of those on the other ranks."""
        if mean is None or variance is None:
            return
        weight = 0 if share.is_idle else n
        total = share.total(torch.cat([mean.new_full((1,), weight), mean * weight, variance * weight]))
        of_all = total[1:] / total[0]
        self.remember(of_all[: self.channels], of_all[self.channels :])

    def extra_repr(self) -> str:
        return f"{self.channels}, epsilon={self.epsilon}, momentum={self.momentum}"


def misread(samples: int, x: torch.Tensor) -> bool:
    """Whether torch's CPU kernel may read so many images, or their gradient, in the wrong layout.

    Where a dimension is 1, channels that lie innermost (behind a transpose, say) look to it like pixels that do, and it
    gives wrong gradients without a word; seen with torch 2.11 and 2.13, for the image in that layout and for its gradient.
    With the pixels in one dimension there is no layout to mistake. (Where torch compiles or exports, the number of samples
    may be left open, and another kernel computes the gradient.)
    """
    if x.dim() < 4 or not torch.is_grad_enabled() or torch.compiler.is_compiling():
        return False
    return samples == 1 or 1 in x.shape[2:]


class BatchNorm(RunningNorm):
    """Statistics over all samples and pixels of a channel in training, the running ones otherwise."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if misread(x.shape[0], x):
            return self.forward(x.flatten(2)).reshape(x.shape)
        if not self.training:
            return self.by_running_statistics(x)
        share = current_share()
        if share is not None and not share.is_local:
            y, mean, variance = SharedNorm.apply(x, self.weight, self.bias, self.epsilon, share)
            self.remember(mean, variance)
            return y
        if share is not None and share.is_idle:
            return self.by_running_statistics(x)  # a sample that counts for nothing leaves no statistics either
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
            # Not times the rounded inverse: what the old value is multiplied with in all would be a little less than 1 each time.
            torch.div(variance, unbiased, out=self.running_var)
        return y


class SharedNorm(torch.autograd.Function):
    """Batch norm over the samples of all ranks: one sum each way."""

    @staticmethod
    def forward(ctx, x, gamma, beta, epsilon, share):
        channels, axes = x.shape[1], [0, *range(2, x.dim())]
        count = 0 if share.is_idle else x.numel() // channels
        variance, mean = torch.var_mean(x, axes, correction=0)
        # A table with a row for each rank: its sum shows every row to all, and nothing is lost to sums of squares.
        rank, world = share.ranks.rank, share.ranks.world
        own = torch.cat([x.new_full((1,), count), mean, variance])
        table = share.total(F.pad(own.unsqueeze(0), (0, 0, rank, world - 1 - rank)))
        counts, means, variances = table.split([1, channels, channels], 1)
        weights = counts / counts.sum()
        mean = (weights * means).sum(0)
        variance = (weights * (variances + (means - mean).square())).sum(0)
        y = affine(lambda g, b: F.batch_norm(x, mean, variance, g, b, eps=epsilon), gamma, beta)
        ctx.save_for_backward(x, gamma, mean, variance, counts)
        ctx.epsilon, ctx.share, ctx.has_beta = epsilon, share, beta is not None
        ctx.mark_non_differentiable(mean, variance)
        return y, mean, variance

    @staticmethod
    def backward(ctx, dy, *_):
        """dx = gamma/s·(dy - mean of dy - x̂·mean of dy·x̂), with means over all ranks; idle ranks are given zeros."""
        x, gamma, mean, variance, counts = ctx.saved_tensors
        axes = [0, *range(2, x.dim())]
        inverse = (variance + ctx.epsilon).rsqrt()
        centred = x - across(mean, x)
        d_beta, d_gamma = dy.sum(axes), (dy * centred).sum(axes) * inverse
        sums = ctx.share.total(torch.stack([d_beta, d_gamma]), backward=True) / counts.sum()
        scale = inverse if gamma is None else inverse * gamma
        dx = across(scale, x) * (dy - across(sums[0], x) - centred * across(inverse * sums[1], x))
        if ctx.share.is_idle:
            dx = torch.zeros_like(dx)  # its sample is none of the batch
        return dx, None if gamma is None else d_gamma, d_beta if ctx.has_beta else None, None, None


class LayerNormOfOne(nn.LayerNorm):
    """Of a single value, which has no spread, whatever it is: divided by the root of an epsilon of 0, torch's is no number."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = x - x
        if self.weight is not None:
            y = y * self.weight
        return y if self.bias is None else y + self.bias


class InstanceNorm(RunningNorm):
    """Statistics over the pixels of one sample's channel. Running ones, where kept, serve instead outside training."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if misread(1, x):  # of all samples' channels torch makes those of one image
            return self.forward(x.flatten(2)).reshape(x.shape)
        if self.running_mean is not None and not self.training:
            return self.by_running_statistics(x)
        mean, variance = self.scratch()
        count, share = math.prod(x.shape[2:]), current_share()

        def remember(mean: torch.Tensor | None, variance: torch.Tensor | None) -> None:
            if share is None or (share.is_local and not share.is_idle):
                self.remember(mean, variance)
            elif not share.is_local:
                with torch.no_grad():
                    self.remember_of_all(share, mean, variance, len(x))

        if count == 1:
            remember(x.detach().flatten(1).mean(0), variance)
            return without_spread(x, self.weight, self.bias)
        y = affine(
            lambda gamma, beta: F.instance_norm(x, mean, variance, gamma, beta, True, 1.0, self.epsilon),
            self.weight,
            self.bias,
        )
        remember(mean, None if variance is None else variance * ((count - 1) / count))
        return y


class GroupNorm(nn.GroupNorm):
    """nn.GroupNorm, also for groups of one value, and for images with channels last that need no gradient."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if math.prod(x.shape[1:]) == self.num_groups:
            return without_spread(x, self.weight, self.bias)
        x = safe_for_group_norm(x)
        return affine(
            lambda gamma, beta: F.group_norm(x, self.num_groups, gamma, beta, self.eps), self.weight, self.bias
        )


def safe_for_group_norm(x: torch.Tensor) -> torch.Tensor:
    """Contiguous, where torch's gradient would end the process: over an image with channels last that needs no gradient itself
    (seen with torch 2.13 on ARM; mask False, True, True). Of a single channel torch goes by strides that mean nothing there."""
    if x.requires_grad or not torch.is_grad_enabled() or x.stride(1) != 1:
        return x
    return x.flatten().view(x.shape)


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
