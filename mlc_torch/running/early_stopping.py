"""When ``fit`` ends before its last epoch, by the losses alone."""

from __future__ import annotations

import math

from mlc_torch.running.history import Epoch


class EarlyStopping:
    """Counts the epochs since the watched loss fell by more than ``min_delta``; without ``patience`` it never ends training."""

    def __init__(self, patience: int | None, min_delta: float) -> None:
        self._patience, self._min_delta = patience, min_delta
        self._best, self._waited = math.inf, 0

    def why_after(self, epoch: Epoch) -> str:
        """Why training ends after this epoch; empty where it goes on."""
        if epoch.watched < self._best - self._min_delta:
            self._best, self._waited = epoch.watched, 0
        else:
            self._waited += 1
        ends = self._patience is not None and self._waited >= self._patience
        return f"no better loss for {self._patience} epochs" if ends else ""
