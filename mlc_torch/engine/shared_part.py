"""One rank's part of a shared plan: which rows of each tensor are its own, and how much of each loss they make up."""

from __future__ import annotations

import zlib
from collections.abc import Sequence

import torch

from mlc_torch.engine.captured import Captured
from mlc_torch.engine.gear import Gear, Tensors
from mlc_torch.engine.plan import Plan
from mlc_torch.engine.shared_plan import Sharing
from mlc_torch.layers.sharing import PART, Share
from mlc_torch.torch_private.lists import copy_all

_LOOKED_AT = 64
"""Elements of each tensor that are compared with those of other ranks, at most."""


class OwnPart:
    """``losses`` and ``given`` are slots of the plan that the program compiled, where each loss still starts by itself."""

    def __init__(self, plan: Plan, shared: Sharing, losses: Sequence[int], given: Sequence[int]) -> None:
        self._plan, self._shared = plan, shared
        self._losses, self._given = frozenset(losses), given
        # On a device that is not waited for it has a place of its own, which recordings read.
        recordable = shared.ranks.is_recordable
        self._own_part: float | torch.Tensor = (
            torch.ones((), dtype=torch.float32, device=plan.device) if recordable else 1.0
        )
        """Of the samples of all ranks, the part that this one was given, where each is given its own."""
        self._total: torch.Tensor | None = None
        self._upstream: dict[Share | None, dict[int, torch.Tensor]] = {}
        self._there: tuple[Gear, dict[int, torch.Tensor]] | None = None
        """Which of those lie in the memory that a recording reads, and whose."""

    def is_sent(self, slot: int) -> bool:
        """Whether the ranks put the gradient of a slot together. Where each feeds its own samples, theirs are its own."""
        axis = self._shared.axes[slot]
        return axis is None or (axis != PART and not self._shared.is_own)

    def shape(self, slot: int, share: Share) -> tuple[int, ...]:
        """The shape of a slot's tensor where it holds this rank's samples."""
        axis, shape = self._shared.axes[slot], self._plan.cells[slot].shape
        return shape if axis is None or axis == PART else (*shape[:axis], share.count, *shape[axis + 1 :])

    def cut(self, value: torch.Tensor, slot: int, share: Share) -> torch.Tensor:
        """This rank's rows of a value that holds the whole batch."""
        axis = self._shared.axes[slot]
        if axis is None or axis == PART or share.count == share.batch == value.shape[axis]:
            return value
        return share.of(value, axis).contiguous()

    def batch_of(self, feeds: Tensors) -> int:
        for slot, feed in enumerate(feeds):
            axis = self._shared.axes[slot]
            if axis is not None:
                # States of a recurrent layer, and masks, may hold more than the batch.
                return min(feed.shape[axis], self._shared.batch)
        return self._shared.batch

    def looked_at(self, feeds: Tensors) -> tuple[float, float]:
        """Stand for what a call is given, and for weights and constants, where all ranks have the same."""
        given = () if self._shared.is_own else [f for f, own in zip(feeds, self._shared.given, strict=True) if own]
        cells = [*(t.cell for t in self._plan.trained), *self._plan.constants]
        return _number(given), _number([c.value for c in cells if c.value is not None])

    # Weights at the roots

    def count(self, share: Share) -> None:
        """Where each rank is given its own samples, they have to tell each other how many."""
        if not share.is_own:
            return
        own = torch.full((1,), float(share.count), dtype=torch.float32, device=self._plan.device)
        self._total = total = share.total(own).reshape(())
        if isinstance(self._own_part, torch.Tensor):
            torch.div(share.count, total, out=self._own_part)
        else:
            self._own_part = share.count / float(total)

    def samples_of_all(self) -> int | None:
        """How many samples the ranks were given together in the last pass, where each is given its own; else ``None``."""
        return None if self._total is None else int(self._total)

    def weight(self, slot: int, share: Share) -> float | torch.Tensor:
        """How much of the whole this rank's value of a slot is."""
        if share.is_idle:
            return 0.0
        if self._shared.axes[slot] is None:  # all ranks compute it alike, and one counts
            return 1.0 if share.ranks.rank == share.ranks.world - 1 else 0.0
        if slot not in self._shared.means:
            return 1.0
        return self._own_part if share.is_own else share.count / share.batch

    def upstream(self, share: Share, given: Tensors, gear: Gear | None) -> Tensors:
        """What this rank's backward pass starts with: its share of each loss, and of each gradient from outside."""
        key = None if share.is_own else share
        known = self._upstream.get(key)
        if known is None or key is None:
            known = self._upstream[key] = {slot: self._ones(slot, share) for slot in self._plan.injected}
        if not given:
            return self._placed(known, gear) if isinstance(gear, Captured) else list(known.values())
        self._there = None  # what is given is copied over them
        from_outside = dict(zip(self._given, given, strict=True))
        upstream = []
        for slot, own in known.items():
            if slot in from_outside:
                added = self.cut(from_outside[slot], slot, share).reshape(own.shape) * self.weight(slot, share)
                own = own + added if slot in self._losses else added
            upstream.append(own)
        return upstream

    def _placed(self, known: dict[int, torch.Tensor], gear: Captured) -> Tensors:
        """Once in the memory that a recording reads, they need not be copied there again."""
        there = self._there
        if there is None or there[0] is not gear or there[1] is not known:
            self._there = None  # a Ctrl-C may strike
            copy_all(gear.injected, list(known.values()))
            self._there = gear, known
        return gear.injected

    def _ones(self, slot: int, share: Share) -> torch.Tensor:
        cell = self._plan.cells[slot]
        ones = torch.ones(self.shape(slot, share), dtype=cell.dtype, device=self._plan.device)
        return ones * self.weight(slot, share)


def _number(tensors: Sequence[torch.Tensor]) -> float:
    """Some elements of each tensor in one number, of those that a float32 holds. Nobody waits for a GPU for it."""
    found = 0
    for tensor in tensors:
        if tensor.is_cpu and tensor.numel():
            flat = tensor.detach().reshape(-1)
            some = flat[:: -(-flat.numel() // _LOOKED_AT)].contiguous()
            found = zlib.crc32(some.view(torch.uint8).numpy().tobytes(), found)  # NumPy does not know all types
    return float(found >> 8)
