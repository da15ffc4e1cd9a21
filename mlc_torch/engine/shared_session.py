"""A session of a plan whose batches several processes share. The ordinary one knows nothing of it."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Sequence
from functools import partial
from typing import Any

import torch

from mlc_torch.engine.captured import Captured
from mlc_torch.engine.choice import fast_gear
from mlc_torch.engine.exchange import Exchange
from mlc_torch.engine.exchange_table import Call
from mlc_torch.engine.gear import Gear, Tensors
from mlc_torch.engine.geared import Geared
from mlc_torch.engine.mode import Mode
from mlc_torch.engine.plain import Plain
from mlc_torch.engine.plan import Plan
from mlc_torch.engine.session import Session
from mlc_torch.engine.shared_part import OwnPart
from mlc_torch.engine.shared_plan import Sharing, plan_lines, rule_lines, shared_plan, without_addresses
from mlc_torch.engine.undo import Undo, leaving_no_trace
from mlc_torch.engine.updater import UpdateRule
from mlc_torch.layers.sharing import PART, Share, sharing
from mlc_torch.ranks import Sums, count_sums, silently
from mlc_torch.refusals import refuse
from mlc_torch.tensor import TensorState

_FIRST_CALLS, _CALLS_BETWEEN = 4, 32
"""In which calls the ranks look whether they have the same data and weights."""


class SharedSession(Session):
    """Runs this rank's share of each batch, and joins it with those of the others.

    Only a forward pass that a gradient follows is shared. What infers never talks to another rank, so that one alone may.
    """

    def __init__(
        self,
        plan: Plan,
        result: TensorState,
        rests_on: Sequence[TensorState],
        unkept: Sequence[TensorState],
        shared: Sharing,
        rule: UpdateRule | None = None,
        always_plain: str | None = None,
        use_inductor: bool = False,
        standing: Sequence[torch.Tensor] = (),
    ) -> None:
        losses, given = plan.losses, plan.injected
        self._losses = frozenset(losses)
        plan, self.shared = shared_plan(plan, shared)
        self._share: Share | None = None
        super().__init__(plan, result, rests_on, unkept, rule, always_plain, use_inductor, standing)
        self.losses, self.given = losses, given
        which = "feeds its own share of" if shared.is_own else "shares"
        self.ranks = f"rank {shared.ranks.rank} of {shared.ranks.world} {which} each batch, over {shared.ranks.backend}"
        alone = shared.ranks.world == 1
        if (plan.buffers or self._noises) and not (alone and shared.ranks.is_recordable):
            self._undo = Undo(plan)  # on a GPU too: ranks that go on with different statistics are no longer one
        self._shares: dict[int, Share] = {}
        self._settings: tuple[tuple[Any, ...], int] | None = None
        """The optimizer's, and the number that stands for them."""
        self._calls = 0
        self._parts = [s for s in plan.injected if s in self._losses and self.shared.axes[s] == PART]
        self._own = OwnPart(plan, self.shared, losses, given)
        self.exchange = Exchange(
            shared.ranks,
            shared.number,
            plan,
            self.shared.axes,
            () if shared.is_own else self.shared.outputs,
            [s for s in plan.wanted if self._own.is_sent(s)],
            self._parts,
            plan_lines(plan, self.shared, self._losses, self.updater),
            self._sums(),
        )

    def lines(self) -> list[str]:
        """Plan and optimizer in words that must be the same on every rank when they compile."""
        return [*plan_lines(self.plan, self.shared, self._losses, self.updater), *rule_lines(self.updater)]

    def start_alike(self) -> None:
        """Give every rank the numbers of rank 0: parameters, statistics, optimizer state, and what dropout draws from."""
        tensors = [c.value for c in self._rests_on if c.value is not None]
        tensors += self.updater.touched() if self.updater is not None else []
        self.shared.ranks.from_first(list({t.data_ptr(): t for t in tensors}.values()))
        if self._noises:
            streams = {id(s): s for noise in self._noises for s in [noise.stream(self.plan.device)]}
            (states, *_) = self.shared.ranks.told([s.get_state().tolist() for s in streams.values()])
            for stream, state in zip(streams.values(), states, strict=True):
                stream.set_state(torch.tensor(state, dtype=torch.uint8))

    def _sums(self) -> Sums:
        """The sums that the layers themselves take, found by a pass over zeros of which nobody hears."""
        counts = [torch.Size([1])] if self.shared.is_own else []
        if not any(getattr(m, "adds_over_ranks", False) for root in self.plan.modules for m in root.modules()):
            return counts, []
        plan, share = self.plan, self.shared.share(self.shared.batch)
        device = plan.device
        fed, constant = (
            [
                self._own.cut(torch.zeros(c.shape, dtype=c.dtype, device=device), first + n, share)
                for n, c in enumerate(cells)
            ]
            for first, cells in ((0, plan.cells[: plan.fed_count]), (plan.fed_count, plan.constants))
        )
        gear = Plain(plan, Mode.train)
        injected = [
            torch.zeros(self._own.shape(s, share), dtype=plan.cells[s].dtype, device=device) for s in plan.injected
        ]

        def run() -> None:
            gear.forward(fed, constant)
            gear.gradient(injected)

        with sharing(share), silently() as sums:
            leaving_no_trace(plan, self._noise_states(), run)
        return counts + sums[0], sums[1]

    def constants(self) -> list[torch.Tensor]:
        values, share = super().constants(), self._share
        if share is None:
            return values
        return [self._own.cut(value, self.plan.fed_count + n, share) for n, value in enumerate(values)]

    def prepare(self, mode: Mode) -> None:
        if mode is not Mode.train:
            super().prepare(mode)
            return
        if any(c.value is None for c in self.plan.constants):
            return  # linked graphs have not run yet
        self._share = share = self.shared.share(self.shared.batch)
        cells = self.plan.cells[: self.plan.fed_count]
        feeds = [
            self._own.cut(torch.zeros(c.shape, dtype=c.dtype, device="cpu"), n, share) for n, c in enumerate(cells)
        ]
        with sharing(share):
            self.gear = self.prepared = self._gear(feeds, mode, whole=True, by_layer=False)

    def _gear(self, feeds: Tensors, mode: Mode, whole: bool, by_layer: bool) -> Gear:
        share = self._share
        if share is None or mode is not Mode.train or by_layer or self.why_plain() is not None:
            return super()._gear(feeds, mode, whole, by_layer)
        # Generated code knows where the rows begin, and whether they count.
        key = (mode, (share.batch, share.first, share.count))
        gear = self._known(key, whole)
        if gear is not None:
            return gear
        device = self.plan.device
        injected = [
            torch.zeros(self._own.shape(s, share), dtype=self.plan.cells[s].dtype, device=device)
            for s in self.plan.injected
        ]
        self.exchange.opening = partial(self._begin, share)
        with silently():  # one rank may record by itself
            gear = fast_gear(
                self.plan, feeds, self.constants(), mode, self.updater, self._use_inductor, injected, self.exchange
            )
        self._make_room()
        self._fast[key] = gear
        return gear

    def take_over(self, earlier: Geared) -> None:
        super().take_over(earlier)
        if isinstance(earlier, SharedSession):
            # The ranks look at their data in the same calls, also where one of them has a new session.
            self._calls = earlier._calls

    # The phases

    def forward(self, feeds: Tensors, mode: Mode, whole: bool, by_layer: bool, injected: Tensors | None = None) -> None:
        if mode is not Mode.train:
            self._share = None
            super().forward(feeds, mode, whole, by_layer)
            return
        self._look(feeds)
        self.exchange.expect(Call.FORWARD if self.separate else Call.EXECUTE)
        batch = self._own.batch_of(feeds)
        share = self._shares.get(batch)
        if share is None:
            share = self._shares[batch] = self.shared.share(batch)
        self._share = share
        own = [self._own.cut(feed, slot, share) for slot, feed in enumerate(feeds)]
        with sharing(share):
            self._own.count(share)
            super().forward(own, mode, whole, by_layer)
            if isinstance(self.gear, Captured):
                count_sums(len(self.exchange.sums[0]), 0)
            if self.separate:
                self._begin(share, self.values)
                self.exchange.send_forward()
                self._join(self.exchange.finish(self.fail), share)

    def _look(self, feeds: Tensors) -> None:
        """Now and then: ranks that shuffle differently, or change weights for themselves, train, but not as one would."""
        looks = self._calls < _FIRST_CALLS or not self._calls % _CALLS_BETWEEN
        self.exchange.looked_at, self._calls = self._own.looked_at(feeds) if looks else (0.0, 0.0), self._calls + 1

    def gradient(self, injected: Tensors) -> None:
        share = self._share
        assert share is not None
        if self.separate:
            self.exchange.expect(Call.GRADIENT)
            self.exchange.looked_at = (0.0, 0.0)
        upstream, exchange = self._own.upstream(share, injected, self.gear), self.exchange
        with sharing(share):
            self._begin(share, self.values)
            super().gradient(upstream)
            if isinstance(self.gear, Captured):
                exchange.was_replayed()
            elif not getattr(self.gear, "sends", False):
                exchange.start_all(self.gradients)
            totals = self._hear_late() if exchange.is_judged_late else exchange.finish(self.fail, self.wanted)
        found = zip(self.plan.wanted, self.wanted, strict=True)
        self.wanted = [None if g is None else self._whole_gradient(slot, g, share) for slot, g in found]
        self.gradients = exchange.reduced(self.gradients)
        if not self.separate:
            self._join(totals, share)

    def _hear_late(self) -> torch.Tensor:
        """Do not wait for the device, which knows by itself what to do about a step that a rank refused."""
        if not isinstance(self.gear, Captured):
            self.exchange.conclude()
        if self._undo is not None:
            self.exchange.late.put_back(*self._undo.buffers())
        self.exchange.judge_late()
        return self.exchange.late.totals

    def update(self) -> None:
        updater = self.updater
        assert updater is not None
        is_recorded = isinstance(self.gear, Captured) and updater.optimizer._replayable
        if self.exchange.is_judged_late and not is_recorded:
            self.exchange.late.unless_refused(updater.touched(), super().update)
        else:
            super().update()

    def _begin(self, share: Share, values: Tensors) -> None:
        """Say what is known before the backward pass."""
        if not values:
            return  # a forward pass is being recorded
        by_slot = dict(zip(self.plan.readable, values, strict=True))
        parts = [(by_slot[s].reshape(()), self._own.weight(s, share)) for s in self._parts]
        self.exchange.begin(share, self._rule(), [by_slot[s] for s in self.exchange.outputs], parts)

    def _rule(self) -> tuple[float, int]:
        """A number that stands for the optimizer's settings as they are now, and the step."""
        if self.updater is None:
            return 0.0, 0
        rule, settings = self.updater.optimizer, self.updater.optimizer._configuration()
        if self._settings is None or settings != self._settings[0]:
            self._settings = settings, zlib.crc32(without_addresses(repr(settings)).encode())
        # Those of the first step, whichever is next: ranks that are at different steps are told that, and nothing else.
        numbers = rule._scalars(1).values()
        number = zlib.crc32(struct.pack(f"{len(numbers)}d", *numbers), self._settings[1])
        return float(number >> 8), self.updater.step  # what a float32 holds

    def stand_in(self, call: Call) -> bool:
        """This rank failed in a call that all make: take part in the rest of it, so that nobody waits, and say so.

        Gives whether rank 0 failed too.
        """
        first_too = self.exchange.stand_in(call)
        if self.exchange.is_judged_late and self.updater is not None:
            self.updater.count()  # the others have counted it before they could know
        return first_too

    # The whole

    def samples_of_all(self, given: int) -> int:
        """How many samples the last training pass ran on all ranks, of which this one was ``given`` so many."""
        total = self._own.samples_of_all()
        return given if total is None else total

    def _join(self, totals: Sequence[float] | torch.Tensor, share: Share) -> None:
        """What the pass is read for: losses and declared outputs of the whole batch; of the rest the own samples."""
        whole = {slot: totals[number] for number, slot in enumerate(self._parts)}
        values: list[torch.Tensor] = []
        for slot, value in zip(self.plan.readable, self.values, strict=True):
            axis = self.shared.axes[slot]
            total = whole.get(slot)
            if isinstance(total, torch.Tensor):
                value = total.reshape(value.shape).to(value.dtype)
            elif total is not None:
                value = torch.full_like(value, total)
            elif slot in self.exchange.outputs:
                value = self.exchange.whole("output", slot)
                value = value if axis is None else value.narrow(axis, 0, share.batch)
            elif axis is not None and axis != PART and share.count != share.batch:
                own, value = value, value.new_zeros([*value.shape[:axis], share.batch, *value.shape[axis + 1 :]])
                if not share.is_idle:
                    share.of(value, axis).copy_(own)
            values.append(value)
        self.values = values

    def _whole_gradient(self, slot: int, own: torch.Tensor, share: Share) -> torch.Tensor:
        axis = self.shared.axes[slot]
        if axis == PART:
            # Each rank started with its share of a mean; whoever asks for the gradient of the whole gets it undivided.
            return torch.ones_like(own) if slot not in self.given else own / self._own.weight(slot, share)
        if slot not in self.exchange.wanted:
            return own
        whole = self.exchange.whole("wanted", slot)
        return whole if axis is None else whole.narrow(axis, 0, share.batch)

    def gradients_again(self, slots: Sequence[int]) -> None:
        refuse(
            "a gradient that several ranks share is computed by all of them together; ask for it before the gradient "
            "phase, on every rank"
        )
