"""Hearing the others where the host does not wait for the device, which knows by itself what to do about a refused step."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch

from mlc_torch.engine.exchange_table import FIELDS
from mlc_torch.refusals import log


class LateVerdict:
    """What the device sees in the table. ``is_alone``: there is nobody else who could refuse."""

    def __init__(self, is_alone: bool, losses: int, device: torch.device) -> None:
        self._is_alone = is_alone
        self._flag = torch.zeros((), dtype=torch.bool, device=device)
        """Whether the last step must not be taken."""
        self._refused = torch.zeros((), dtype=torch.int64, device=device)
        """How many were not; ``_known`` were told of."""
        self._known = 0
        self._heard: tuple[torch.Tensor, torch.cuda.Event] | None = None
        self.totals = torch.zeros(losses, dtype=torch.float32, device=device)
        """The whole of each loss of the last step, on the device."""

    def see(self, table: torch.Tensor, own: torch.Tensor) -> None:
        """Whether all went well, that is, as in this rank's ``own`` row. A recording may hold this."""
        torch.sum(table[:, FIELDS:], 0, out=self.totals)
        if not self._is_alone:
            torch.any(table[:, :FIELDS] != own, out=self._flag)
            self._refused.add_(self._flag)

    def unless_refused(self, tensors: Sequence[torch.Tensor], work: Callable[[], None]) -> None:
        """Do ``work``, which writes ``tensors``, so that they are as before where the step must not be taken."""
        if self._is_alone:
            work()
            return
        kept = [t.clone() for t in tensors]
        work()
        self.put_back(tensors, kept)

    def put_back(self, tensors: Sequence[torch.Tensor], kept: Sequence[torch.Tensor]) -> None:
        """Where the last step must not be taken, give tensors the values they had."""
        for tensor, old in zip(tensors, kept, strict=True):
            tensor.copy_(torch.where(self._flag, old, tensor))

    def tell(self) -> None:
        """Say what came of steps before this one, as far as that is known without waiting."""
        if self._is_alone:
            return
        if self._refused.is_cpu:
            self._tell_of(int(self._refused))
            return
        if self._heard is None:
            self._heard = torch.zeros((), dtype=torch.int64, pin_memory=True), torch.cuda.Event()
        elif not self._heard[1].query():
            return
        self._tell_of(int(self._heard[0]))
        self._heard[0].copy_(self._refused, non_blocking=True)
        self._heard[1].record()

    def _tell_of(self, refused: int) -> None:
        if refused > self._known:
            log.warning("a rank refused a step, so no rank took it; its own log says why")
            self._known = refused
