"""Random numbers for dropout, drawn apart from torch's own generators.

A :class:`Noise` is a module, so that whoever runs a network can find every place that draws, in order, and hand it
numbers drawn beforehand. That is how all ways of running a graph drop the same elements.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch
from torch import nn

from mlc_torch.device import randomness, start
from mlc_torch.layers.sharing import Axis, current_share

Listener = Callable[["Noise", tuple[int, ...], torch.dtype, torch.device], torch.Tensor]


class Noise(nn.Module):
    """Draws dropout masks: each element is kept with probability 1 - rate and then scaled by 1/(1 - rate).

    Seed 0 draws from the platform's running stream; any other seed gives this place a stream of its own.
    """

    def __init__(self, rate: float, seed: int = 0) -> None:
        super().__init__()
        self.rate, self.seed = rate, seed
        self.sample_axis: Axis = 0
        """The dimension of a mask that counts samples."""
        self.streams: dict[torch.device, torch.Generator] = {}
        self._fed: Iterator[torch.Tensor] | None = None
        self._listener: Listener | None = None

    def forward(self, shape: torch.Size | tuple[int, ...], like: torch.Tensor) -> torch.Tensor:
        return self.mask(tuple(shape), like.dtype, like.device)

    def mask(self, shape: tuple[int, ...], dtype: torch.dtype, device: torch.device) -> torch.Tensor:
        """A new mask, or the one that was provided for this place."""
        if self._fed is not None:
            return next(self._fed)
        if self._listener is not None:
            return self._listener(self, shape, dtype, device)
        return self.redraw(torch.empty(shape, dtype=dtype, device=device))

    def redraw(self, mask: torch.Tensor) -> torch.Tensor:
        """Fill ``mask`` anew."""
        keep, share, axis, stream = 1 - self.rate, current_share(), self.sample_axis, self.stream(mask.device)
        if share is not None and share.is_own:
            stream = _of_rank(stream, share.ranks.rank)
        elif share is not None and axis is not None and share.count != share.batch:
            # Every process draws for all samples and keeps its own, so that all draw what one process would.
            whole = mask.new_empty([share.batch if d == axis else size for d, size in enumerate(mask.shape)])
            return mask.copy_(share.of(whole.bernoulli_(keep, generator=stream).div_(keep), axis))
        return mask.bernoulli_(keep, generator=stream).div_(keep)

    def stream(self, device: torch.device) -> torch.Generator:
        if self.seed == 0:
            return randomness.stream(device)
        if device not in self.streams:
            self.streams[device] = start(torch.Generator(device), self.seed)
        return self.streams[device]

    @contextmanager
    def fed(self, masks: list[torch.Tensor]) -> Iterator[None]:
        """Within this block the masks come from ``masks``, in order."""
        given = self._fed = iter(masks)
        try:
            yield
        finally:
            # The end of a block that Ctrl-C struck comes when its traceback goes, maybe in the middle of a later block.
            if self._fed is given:
                self._fed = None

    @contextmanager
    def intercepted(self, listener: Listener) -> Iterator[None]:
        """Within this block nothing is drawn; ``listener`` learns which mask is needed and gives it."""
        self._listener = listener
        try:
            yield
        finally:
            if self._listener is listener:  # as above
                self._listener = None

    def release(self) -> None:
        """Draw again, from now on."""
        self._fed = self._listener = None

    def extra_repr(self) -> str:
        return f"rate={self.rate}, seed={self.seed}"


def _of_rank(stream: torch.Generator, rank: int) -> torch.Generator:
    """Where each process feeds its own samples, they must not all be dropped alike.

    The stream that all have in common moves on by one number, whatever the sizes of their shares, so that it stays the
    same; what is drawn comes from where it stands, and from the rank.
    """
    place = zlib.crc32(stream.get_state().numpy().tobytes())
    torch.empty(1, device=stream.device).uniform_(generator=stream)
    # torch's generator on the CPU reads 32 bits of a seed.
    return torch.Generator(stream.device).manual_seed(place ^ (0x9E3779B9 * (rank + 1) & 0xFFFFFFFF))


class Dropout(nn.Module):
    """x·mask in training, x otherwise."""

    def __init__(self, rate: float, seed: int = 0) -> None:
        super().__init__()
        self.noise = Noise(rate, seed)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if not self.training or self.noise.rate == 0:
            return x
        return x * self.noise(x.shape, x)
