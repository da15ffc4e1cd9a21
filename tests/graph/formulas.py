"""The layers with parameters once more, as sums and products of torch tensors that autograd differentiates.

Nothing here knows the library. Each formula is the one that the documentation gives, written out.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor


def dense(x: Tensor, w: Tensor, b: Tensor | None = None) -> Tensor:
    """y[..., o] = Σ x[..., i]·w[o, i] + b[o]"""
    y = torch.einsum("...i,oi->...o", x, w)
    return y if b is None else y + b


def padded(x: Tensor, margin: int) -> Tensor:
    n, c, h, w = x.shape
    wide = x.new_zeros(n, c, h + 2 * margin, w + 2 * margin)
    wide[:, :, margin : margin + h, margin : margin + w] = x
    return wide


def conv(x: Tensor, w: Tensor, b: Tensor | None = None) -> Tensor:
    """A convolution of odd kernel and stride 1 that keeps the size: w is [out, in, k, k]."""
    k, (h, width) = w.shape[2], x.shape[2:]
    wide = padded(x, k // 2)
    y = 0
    for i in range(k):
        for j in range(k):
            y = y + torch.einsum("ncyx,oc->noyx", wide[:, :, i : i + h, j : j + width], w[:, :, i, j])
    return y if b is None else y + b.reshape(1, -1, 1, 1)


def transposed_conv(x: Tensor, w: Tensor, b: Tensor) -> Tensor:
    """Each input pixel paints w, [out, in, k, k], around itself; the margin is cut off."""
    k, (n, _, h, width) = w.shape[2], x.shape
    total = x.new_zeros(n, w.shape[0], h + k - 1, width + k - 1)
    for i in range(k):
        for j in range(k):
            painted = x.new_zeros(total.shape)
            painted[:, :, i : i + h, j : j + width] = torch.einsum("ncyx,oc->noyx", x, w[:, :, i, j])
            total = total + painted
    edge = k // 2
    return total[:, :, edge : edge + h, edge : edge + width] + b.reshape(1, -1, 1, 1)


def depthwise_conv(x: Tensor, w: Tensor, b: Tensor, multiplier: int) -> Tensor:
    """Output channel o reads input channel o // multiplier: w is [in·multiplier, k, k]."""
    sources = [x[:, o // multiplier : o // multiplier + 1] for o in range(w.shape[0])]
    return torch.cat([conv(s, w[o][None, None]) for o, s in enumerate(sources)], 1) + b.reshape(1, -1, 1, 1)


def normalized(x: Tensor, dims: Sequence[int], epsilon: float) -> Tensor:
    """(x - mean)/√(variance + ε) with the biased variance."""
    centered = x - x.mean(tuple(dims), keepdim=True)
    return centered / ((centered**2).mean(tuple(dims), keepdim=True) + epsilon).sqrt()


def batch_norm(x: Tensor, gamma: Tensor, beta: Tensor, epsilon: float) -> Tensor:
    return normalized(x, (0, 2, 3), epsilon) * gamma.reshape(1, -1, 1, 1) + beta.reshape(1, -1, 1, 1)


def instance_norm(x: Tensor, gamma: Tensor, beta: Tensor, epsilon: float) -> Tensor:
    return normalized(x, (2, 3), epsilon) * gamma.reshape(1, -1, 1, 1) + beta.reshape(1, -1, 1, 1)


def group_norm(x: Tensor, gamma: Tensor, beta: Tensor, epsilon: float, groups: int) -> Tensor:
    n, c, h, w = x.shape
    grouped = normalized(x.reshape(n, groups, c // groups, h, w), (2, 3, 4), epsilon).reshape(x.shape)
    return grouped * gamma.reshape(1, -1, 1, 1) + beta.reshape(1, -1, 1, 1)


def layer_norm(x: Tensor, gamma: Tensor, beta: Tensor, epsilon: float) -> Tensor:
    dims = range(x.dim() - gamma.dim(), x.dim())
    return normalized(x, dims, epsilon) * gamma + beta


def embedding(indices: Tensor, table: Tensor) -> Tensor:
    chosen = (indices[..., None] == torch.arange(table.shape[0])).to(table.dtype)
    return chosen @ table


def lstm(x: Tensor, wi: Sequence[Tensor], wh: Sequence[Tensor], b: Sequence[Tensor]) -> Tensor:
    """x is [batch, time, features]; the gates are i, f, g, o."""
    h = c = x.new_zeros(x.shape[0], wh[0].shape[0])
    out = []
    for step in range(x.shape[1]):
        gates = [x[:, step] @ wi[k].T + h @ wh[k].T + b[k] for k in range(4)]
        i, f, o = (1 / (1 + torch.exp(-gates[k])) for k in (0, 1, 3))
        c = f * c + i * torch.tanh(gates[2])
        h = o * torch.tanh(c)
        out.append(h)
    return torch.stack(out, 1)


def attention(q: Tensor, k: Tensor, v: Tensor, w: Sequence[Tensor], b: Sequence[Tensor], heads: int) -> Tensor:
    """w and b are those of query, key, value and output."""
    q, k, v = (dense(x, w[i], b[i]) for i, x in enumerate((q, k, v)))
    width = q.shape[2] // heads
    out = []
    for head in range(heads):
        part = slice(head * width, (head + 1) * width)
        scores = torch.einsum("nqe,nke->nqk", q[..., part], k[..., part]) / width**0.5
        weights = torch.exp(scores - scores.amax(2, keepdim=True))
        out.append((weights / weights.sum(2, keepdim=True)) @ v[..., part])
    return dense(torch.cat(out, 2), w[3], b[3])


def squared_error(y: Tensor, t: Tensor) -> Tensor:
    return ((y - t.reshape(y.shape)) ** 2).mean()


def softmax_cross_entropy(y: Tensor, t: Tensor) -> Tensor:
    shifted = y - y.amax(1, keepdim=True)
    log_softmax = shifted - torch.exp(shifted).sum(1, keepdim=True).log()
    return -(t.reshape(y.shape) * log_softmax).sum(1).mean()
