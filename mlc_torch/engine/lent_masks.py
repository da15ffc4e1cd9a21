"""Dropout masks for recorded work: it cannot draw, so it reads memory that is filled anew before each replay."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager

import torch

from mlc_torch.engine.plan import Plan
from mlc_torch.layers.noise import Noise


class LentMasks:
    """The masks of one pass, in the order in which the modules ask for them."""

    def __init__(self, plan: Plan) -> None:
        self._noises = list({id(n): n for step in plan.steps for n in step.noises}.values())
        self._masks: list[tuple[Noise, torch.Tensor]] = []

    def __bool__(self) -> bool:
        return bool(self._masks)

    def find(self, run: Callable[[], object]) -> None:
        """Learn from a pass which masks it wants."""
        if not self._noises:
            return

        def intercept(noise: Noise, shape: tuple[int, ...], dtype: torch.dtype, device: torch.device) -> torch.Tensor:
            mask = torch.ones(shape, dtype=dtype, device=device)
            self._masks.append((noise, mask))
            return mask

        with ExitStack() as listening:
            for noise in self._noises:
                listening.enter_context(noise.intercepted(intercept))
            run()

    @contextmanager
    def lent(self) -> Iterator[None]:
        """Within this block modules are handed their masks, over and over, and nothing is drawn."""
        with ExitStack() as stack:
            for noise in self._noises:
                if own := [mask for n, mask in self._masks if n is noise]:
                    stack.enter_context(noise.intercepted(_one_after_another(own)))
            yield

    def redraw(self) -> None:
        for noise, mask in self._masks:
            noise.redraw(mask)


def _one_after_another(masks: list[torch.Tensor]) -> Callable[..., torch.Tensor]:
    """Hands out the masks one after the other, over and over."""
    number = 0

    def give(noise: Noise, shape: tuple[int, ...], dtype: torch.dtype, device: torch.device) -> torch.Tensor:
        nonlocal number
        mask = masks[number % len(masks)]
        number += 1
        return mask

    return give
