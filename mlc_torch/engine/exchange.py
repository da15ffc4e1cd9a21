"""What processes that share a batch send each other: gradients in buckets, and with the last a table of who says what.

What is sent, and in which order, follows from the plan alone, never from the gear that runs it: one rank may run another
gear than the others, or only stand in for itself.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch

from mlc_torch.engine.exchange_late import LateVerdict
from mlc_torch.engine.exchange_message import BUCKET, Message, Pieces, grouped
from mlc_torch.engine.exchange_table import CALLS, CODE, DATA, FIELDS, FINE, REFUSED, WEIGHTS, Call, totals, why_refused
from mlc_torch.engine.plan import Plan
from mlc_torch.layers.sharing import PART, Axis, Share
from mlc_torch.ranks import Ranks, Sums, begin_sums, recorded, refuse_all, sums_taken
from mlc_torch.torch_private.lists import copy_all

Values = Sequence[torch.Tensor | None]
Part = tuple[torch.Tensor, float | torch.Tensor]
"""A loss of this rank's samples, and how much of the whole it is."""


class Exchange:
    """The messages of one plan.

    The table goes with the last bucket: a rank that fails on its way there can still say so. Up to then a call sends what
    the compile laid out, on all ranks alike. What programs may ask for afterwards, declared outputs and gradients inside
    the graph, follows in a message of its own once all are known to ask for the same: each rank puts its part of a tensor
    with samples into zeros of the whole tensor's shape, so that the sum joins them; what all hold alike is sent by one.
    """

    def __init__(
        self,
        ranks: Ranks,
        number: int,
        plan: Plan,
        axes: Sequence[Axis],
        outputs: Sequence[int],
        wanted: Sequence[int],
        parts: Sequence[int],
        lines: Sequence[str],
        sums: Sums,
    ) -> None:
        self.ranks, self.plan, self.axes, self.sums = ranks, plan, axes, sums
        self._number = number
        self.outputs, self.wanted = [s for s in outputs if axes[s] != PART], list(wanted)
        self.parts = list(parts)
        digest = hashlib.sha256("\n".join(lines).encode()).digest()
        self.mark = float(int.from_bytes(digest[:3], "big"))  # what a float32 holds exactly
        *early, self._late = grouped(plan, BUCKET)
        self.buckets = [*early, self._late]
        """The trained tensors whose gradients travel together, by index."""
        self._early = [Message(self._gradients(own), 0, 0, plan.device) for own in early]
        self._last: dict[bool, Message] = {}
        self._asked: dict[Call, Message | None] = {}
        self._views: list[torch.Tensor] = []
        self._works: list[Any] = []
        self._call, self._sent, self._row = Call.EXECUTE, 0, (0.0,) * FIELDS
        self.is_open = False
        """Whether the others still wait for this rank's part."""
        self.looked_at = (0.0, 0.0)
        """Stand for the data and the weights of the call under way; 0 where nobody looked."""
        self.unlike: set[int] = set()
        """Those of the two in which the ranks were seen to differ."""
        self._share: Share | None = None
        self._outputs: Values = ()
        self._of_losses: Sequence[Part] = ()
        self._rows: dict[tuple[float, ...], torch.Tensor] = {}
        """Of each batch size that which its recording reads."""
        self._placed = torch.empty(0, dtype=torch.float32)
        """The row of the call under way, where the device or a recording reads it."""
        self.late = LateVerdict(ranks.world == 1, len(self.parts), plan.device)
        self.opening: Callable[[Sequence[torch.Tensor]], None] = _nothing
        """What says, with the values of a forward pass, what is known before the backward pass."""

    # Layout

    def _gradients(self, indices: Sequence[int]) -> Pieces:
        cells = {("trained", i): self.plan.trained[i].cell for i in indices}
        return {key: (cell.shape, cell.dtype) for key, cell in cells.items()}

    def last(self, call: Call) -> Message:
        """What ends a call: the table and, where there are gradients, their last bucket."""
        has_gradients = call is not Call.FORWARD
        if has_gradients not in self._last:
            pieces = self._gradients(self._late) if has_gradients else {}
            self._last[has_gradients] = Message(pieces, self.ranks.world, FIELDS + len(self.parts), self.plan.device)
        return self._last[has_gradients]

    def asked(self, call: Call) -> Message | None:
        """What programs asked for beside the losses: gradients inside the graph, declared outputs."""
        if call not in self._asked:
            kinds = [("wanted", s) for s in self.wanted if call is not Call.FORWARD]
            kinds += [("output", s) for s in self.outputs if call is not Call.GRADIENT]
            cells = [self.plan.cells[slot] for _, slot in kinds]
            pieces: Pieces = {key: (c.shape, c.dtype) for key, c in zip(kinds, cells, strict=True)}
            self._asked[call] = Message(pieces, self.ranks.world, 1, self.plan.device) if pieces else None
        return self._asked[call]

    # One call

    def expect(self, call: Call) -> None:
        """A call begins; from here on this rank owes the others its part."""
        begin_sums()
        self.ranks.enter(self._number, call.value)
        self._call, self._sent, self._works, self.is_open = call, 0, [], True

    def begin(self, share: Share, rule: tuple[float, int], outputs: Values, of_losses: Sequence[Part]) -> None:
        """What is known before the backward pass: values of the outputs, and this rank's part of each loss.

        ``rule`` stands for the optimizer's settings, and says how many steps it has taken.
        """
        self._share, self._outputs, self._of_losses = share, outputs, of_losses
        batch = 0 if share.is_own else share.batch
        self._row = (self.mark, *self._now(batch, rule), FINE)
        device = self.plan.device
        if self.ranks.is_recordable or device.type != "cpu":
            row = torch.tensor(self._row, dtype=torch.float32, device=device)
            self._placed = self._rows.setdefault(self._row, row) if self.ranks.is_recordable else row

    def _now(self, batch: int, rule: tuple[float, int]) -> tuple[float, ...]:
        """What is called, how many samples, which data, weights and settings, and which step, as the table says it."""
        if self.ranks.is_recordable:
            # A recording says the same in every call, and whoever looks late cannot know which updates were taken.
            return 0.0, float(batch), 0.0, 0.0, 0.0, 0.0
        return float(CALLS.index(self._call)), float(batch), *self.looked_at, rule[0], float(rule[1])

    def start(self, number: int, gradients: Values) -> None:
        """Send one bucket on its way."""
        own, is_last = self.buckets[number], number == len(self.buckets) - 1
        message = self.last(self._call) if is_last else self._early[number]
        views, given = [], []
        for index, gradient in zip(own, gradients, strict=True):
            view = message.views["trained", index]
            if gradient is None:
                view.zero_()
            else:
                views.append(view)
                given.append(gradient)
        if views:
            copy_all(views, given)
        if is_last:
            self._fill_in(message)
        self._send(message)

    def start_all(self, gradients: Values) -> None:
        for number, own in enumerate(self.buckets):
            self.start(number, [gradients[i] for i in own])

    def send_forward(self) -> None:
        """What a forward pass by itself has to say."""
        message = self.last(Call.FORWARD)
        self._fill_in(message)
        self._send(message)

    def _fill_in(self, message: Message) -> None:
        """This rank's row of the table; the others' are theirs."""
        message.table.zero_()
        own = message.table[self.ranks.rank]
        if message.table.is_cpu:
            # What counts for nothing is left out: of an infinite loss the product would be no number.
            parts = [float(value) * float(weight) if weight else 0.0 for value, weight in self._of_losses]
            own.numpy()[:] = (*self._row, *parts)
            return
        own[:FIELDS].copy_(self._placed)
        for number, (value, weight) in enumerate(self._of_losses, FIELDS):
            if isinstance(weight, torch.Tensor) or weight:
                torch.mul(value.reshape(()), weight, out=own[number])

    def _send_asked(self, message: Message, wanted: Values) -> None:
        message.table.zero_()
        if self._call is not Call.FORWARD:
            for slot, value in zip(self.plan.wanted, wanted, strict=True):
                if slot in self.wanted:
                    self._put(message.views["wanted", slot], slot, value, adds=True)
        if self._call is not Call.GRADIENT:
            for slot, value in zip(self.outputs, self._outputs, strict=True):
                self._put(message.views["output", slot], slot, value)
        self._send(message)

    def _put(self, view: torch.Tensor, slot: int, value: torch.Tensor | None, adds: bool = False) -> None:
        """A tensor's part of this rank into the whole tensor's place; ``adds`` where each rank has a part of the sum."""
        share, axis = self._share, self.axes[slot]
        assert share is not None
        view.zero_()
        if value is None or share.is_idle:
            return
        if axis is None:
            # Of what all have alike, one sends it. The last rank always has samples.
            if adds or self.ranks.rank == self.ranks.world - 1:
                view.copy_(value.reshape(view.shape))
        else:
            view.narrow(axis, share.first, share.count).copy_(value)

    def _send(self, message: Message) -> None:
        self._sent += 1
        self._works += [self.ranks.start_sum(flat, self._call is Call.FORWARD) for flat in message.flats]

    def wait(self) -> None:
        for work in self._works:
            self.ranks.wait(work)
        self._works = []

    def finish(self, fail: Callable[[], None], wanted: Values = ()) -> list[float]:
        """Wait for everything, and look at what the others said. Gives the whole of each loss.

        A step that one of them refused is taken by none: then all ranks ``fail`` alike.
        """
        self.wait()
        table = self.last(self._call).table.tolist()
        why = why_refused(table, self._row)
        if why is None and self.looked_at != (0.0, 0.0):
            # Of those that looked: a rank whose graph was planned anew may look in other calls than the rest.
            self.unlike |= {field for field in (DATA, WEIGHTS) if len({row[field] for row in table} - {0.0}) > 1}
        asked = self.asked(self._call) if why is None else None
        if asked is not None:
            self._send_asked(asked, wanted)
            self.wait()
        self._close()  # as all ranks do now
        if asked is not None and asked.table.any():
            why = "a rank failed while results were put together, so no rank took the step; its own log says why"
        if why is not None:
            fail()
            refuse_all(why)
        return totals(table)

    # Where the host does not wait for the device

    @property
    def is_judged_late(self) -> bool:
        """Whether a call is over before anybody knows what the others said. Then the device itself lets an update be."""
        return self.ranks.is_recordable and self._call is Call.EXECUTE and self.asked(Call.EXECUTE) is None

    def conclude(self) -> None:
        """Wait, in the order of the device's work, and see there whether all went well. A recording may hold this."""
        self.wait()
        self.late.see(self.last(Call.EXECUTE).table, self._placed)

    def judge_late(self) -> None:
        """Say what came of steps before this one, as far as that is known without waiting."""
        self._close()
        self.late.tell()

    @contextmanager
    def recording(self) -> Iterator[None]:
        """Within this block what is sent is written into a recording; the call under way, if any, is not touched."""
        names = ("_call", "_sent", "_works", "_row", "_placed", "_share", "_outputs", "_of_losses", "is_open")
        before = {name: getattr(self, name) for name in names}
        self._call, self._works = Call.EXECUTE, []
        try:
            with recorded():
                yield
        finally:
            for name, value in before.items():
                setattr(self, name, value)

    def was_replayed(self) -> None:
        """A recording has sent all buckets."""
        self._sent = len(self.buckets)

    def _close(self) -> None:
        self.is_open, self.ranks.owed = False, None

    def stand_in(self, call: Call) -> bool:
        """Take part in what is left of the call without having computed it, and say so. The others must not wait.

        Gives whether rank 0 refused it too.
        """
        if not self.is_open:
            self.expect(call)
        forward, backward = sums_taken()
        self._row = (self.mark, *self._now(0, (0.0, 0)), REFUSED)
        if self._call is not Call.GRADIENT:
            self._sum_nothing(self.sums[0][forward:], backward=False)
        if self._call is not Call.FORWARD:
            self._sum_nothing(self.sums[1][backward:], backward=True)
        messages = [*(self._early if self._call is not Call.FORWARD else []), self.last(self._call)]
        asked = self.asked(self._call)
        if self._sent == len(messages) and asked is not None:
            messages.append(asked)  # the table said that all was well, and the others went on
        for message in messages[self._sent :]:
            message.silence()
            if message is asked:
                message.table.fill_(REFUSED)
            elif message.table.numel():
                message.table[self.ranks.rank, :FIELDS] = torch.tensor(self._row, dtype=torch.float32)
            self._send(message)
        self.wait()
        self._close()
        return bool(self.last(call).table[0, CODE] != FINE)

    def _sum_nothing(self, shapes: Sequence[torch.Size], backward: bool) -> None:
        for shape in shapes:
            self.ranks.sum_inside(torch.zeros(shape, dtype=torch.float32, device=self.plan.device), backward)

    # What came back

    def reduced(self, gradients: Values) -> list[torch.Tensor | None]:
        """The gradients of all ranks together, where this rank had one: whether there is one is the same for all."""
        if not self._views:
            by_key = {key: view for m in (*self._early, self.last(Call.EXECUTE)) for key, view in m.views.items()}
            self._views = [by_key["trained", i] for i in range(len(self.plan.trained))]
        return [None if g is None else self._views[i] for i, g in enumerate(gradients)]

    def whole(self, kind: str, slot: int) -> torch.Tensor:
        """A gradient that was ``wanted``, or an ``output``, with the samples of all ranks. It is the caller's to keep."""
        asked = self.asked(self._call)
        assert asked is not None
        return asked.views[kind, slot].clone()


def _nothing(values: Sequence[torch.Tensor]) -> None:
    pass
