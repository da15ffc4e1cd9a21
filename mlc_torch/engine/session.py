"""A plan in use: which gear runs it, and what the last phase left behind."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import torch

from mlc_torch.device import meet
from mlc_torch.engine.asked_late import gradients_again, values_again
from mlc_torch.engine.captured import Captured
from mlc_torch.engine.gear import Forward, Gear, Tensors
from mlc_torch.engine.geared import Geared
from mlc_torch.engine.mode import Mode, Phase
from mlc_torch.engine.neighbours import neighbours
from mlc_torch.engine.plan import Plan
from mlc_torch.engine.undo import Kept, NoiseStates, Shapes, Undo, first_of, inferences_kept, noise_states, shapes_of
from mlc_torch.engine.updater import Updater, UpdateRule
from mlc_torch.engine.watched import Watched
from mlc_torch.tensor.state import TensorState, changes

# Python 3.11 takes ten times as long for a member of an Enum as for a name.
_INFER, _TRAIN = Mode.infer, Mode.train
_IDLE, _FORWARD, _OUTDATED, _GRADIENT, _UPDATED = Phase


class Repeating(NamedTuple):
    """An inference that will do for the next ones, as long as the session has the same gear and kept the same of it, and no
    module is hooked. Who runs one gives the session its ``values``."""

    forward: Forward
    gear: Gear
    kept: Kept | None
    hooks: tuple[dict[Any, Any], ...]


class Session(Geared):
    """Runs the phases of one plan, and remembers which of them have been run."""

    def __init__(
        self,
        plan: Plan,
        result: TensorState,
        rests_on: Sequence[TensorState],
        unkept: Sequence[TensorState],
        rule: UpdateRule | None = None,
        always_plain: str | None = None,
        use_inductor: bool = False,
        standing: Sequence[torch.Tensor | None] = (),
    ) -> None:
        updater = Updater(rule, plan.trained, plan.device) if rule is not None else None
        super().__init__(plan, updater, always_plain, use_inductor)
        self.result = result
        """The tensor that a call gives back."""
        self.readable = [plan.cells[slot] for slot in plan.readable]
        """The tensors that ``values`` belong to."""
        self.differentiates = plan.differentiates
        self.losses = plan.losses
        self.given = plan.injected
        """The slots that a gradient from outside comes to, in the order in which ``gradient`` takes them."""
        self.ranks = ""
        """Which processes share each batch, in words, where there are several."""
        self._rests_on, self._versions = list(rests_on), [c.version for c in rests_on]
        self._unkept = list(unkept)
        read = (*rests_on, *plan.cells[: plan.fed_count + plan.constant_count], *plan.parameters)
        self.reads = frozenset(map(id, read))
        """What another session's update must not change between this one's phases, by identity."""
        self.watched = Watched(plan.given) if plan.given else None
        """The program's own modules, where there are any: another parameter in one of them makes this session out of date."""
        self.checked = changes.newest if self.watched is None else -1
        """The newest change that is known to have left everything as it was; none, where only ``watched`` can tell."""
        self.fitting: Gear | None = None
        """A gear of which is known that what it computes has the declared shapes."""
        self._has_constants = plan.constant_count > 0
        self._on_cpu, self._on_gpu = plan.device.type == "cpu", plan.device.type == "cuda"
        self._noises = [noise for step in plan.steps for noise in step.noises]
        self._inferred: dict[Shapes | None, Kept] = {}
        """What the last inference of these shapes was given, ``None`` for the declared ones: each is copied into the same memory.
        Of others, only those that repeat themselves."""
        size = sum(c.nbytes for c in plan.cells[: plan.fed_count])
        self._keeps_inferred = inferences_kept(size)
        """How many inferences are still to come whose inputs are kept."""
        self.standing = standing
        """For each feed the memory that little data is copied to before a pass: nobody else writes into it."""
        self._ours = frozenset(id(memory) for memory in standing if memory is not None)
        self.seconds = math.inf
        """What the last awaited inference took that was like the one before it."""
        self.separate = False
        """Whether the last forward pass was a call of its own."""
        self.samples = 0
        """How many samples it ran."""
        self.forward_number = 0
        """Its place in the order of all forward passes, of other graphs too."""
        self._undo = Undo(plan) if self._on_cpu and (plan.buffers or self._noises) else None
        self._forget()
        neighbours.enter(self)

    def fail(self) -> None:
        """A phase ended in the middle: running statistics and random streams go back to where the step began.

        A step whose update was made counts, whatever happened behind it. On a GPU, where errors show up late, statistics
        stay as they are. Interrupted, it can be repeated.
        """
        if self.updater is not None:
            self.updater.settle()
        if self._undo is not None and self._undo.step == self._step():
            self._undo.restore()
        self._forget()

    def _step(self) -> int:
        """Which update is next; it goes up with an update, at once."""
        return 0 if self.updater is None else self.updater.step

    def _forget(self) -> None:
        self.phase = _IDLE
        self.values: Tensors = ()
        self.gradients: Sequence[torch.Tensor | None] = ()
        self.wanted: Sequence[torch.Tensor | None] = ()
        self.kept: Kept | None = None
        self._injected: Tensors = ()

    def is_current(self) -> bool:
        """Whether the tensors still lie where they did, and nobody holds a result that is not kept."""
        newest = changes.newest
        if self._versions != [c.version for c in self._rests_on]:
            return False
        if any(c.handle() is not None for c in self._unkept):
            return False
        if self.watched is not None:
            return not self.watched.has_changed()
        self.checked = newest
        return True

    # The phases

    def run(self, feeds: Tensors, injected: Tensors, mode: Mode, whole: bool, by_layer: bool) -> None:
        """All phases in one call."""
        self.separate = False
        self.forward(feeds, mode, whole, by_layer, injected)
        if self.phase is _FORWARD or self.phase is _OUTDATED:  # by another thread, just now: nothing is left out for it
            self.gradient(injected)
            if self.updater is not None:
                try:
                    self.update()
                except Exception:  # of a torch optimizer that holds other parameters, for example
                    self.fail()
                    raise

    def forward(self, feeds: Tensors, mode: Mode, whole: bool, by_layer: bool, injected: Tensors | None = None) -> None:
        """``whole``: the feeds have the declared shapes. ``injected``: gradient and update follow at once, by these gradients
        from outside, so that a gear may do all of it now."""
        if self._undo is not None:
            self._undo.forget()
        constants = self._constants() if self._has_constants else ()
        gear = self._whole.get(mode) if whole and not by_layer else None
        if gear is None or self._never_fast or any(self._hooks) or (self.differentiates and self.is_hooked()):
            gear = self._gear(feeds, mode, whole, by_layer)
        if self.phase is not _IDLE:
            self._forget()
        self.gear, self.values, self.kept = gear, (), None
        if mode is _INFER:
            if self._keeps_inferred > 0:
                self._keeps_inferred -= 1
                own = self._inferred.get(None if whole else shapes_of(feeds)) if self._inferred else None
                if own is None:
                    copies = [f if id(f) in self._ours else f.clone() for f in feeds]
                    own = Kept(copies, constants, [], mode)
                    if whole and not constants:
                        self._inferred[None] = own
                else:
                    for copy, feed in zip(own.feeds, feeds):  # noqa: B905 - one for each, and strict takes its time
                        if copy is not feed:
                            copy.copy_(feed)
                self.kept = own
        elif self._undo is not None:
            self._undo.keep(self._noise_states(), self._step())
        if self.separate:
            self.kept = Kept(feeds, constants, self._noise_states(), mode)
        phase = _FORWARD if mode is _TRAIN else _IDLE
        try:
            if injected is not None and isinstance(gear, Captured) and gear.has_steps(self.updater):
                self.values = gear.step(feeds, constants, [g.contiguous() for g in injected])
                (self.gradients, self.wanted), phase = gear.gradients, _UPDATED
            else:
                if self._on_gpu:
                    meet(self.plan.device)
                self.values = gear.forward(feeds, constants)
        except Exception:  # a module of the program may refuse, when those before it have moved their statistics
            self.fail()
            raise
        if whole and self.fitting is not gear:
            self._look_at_shapes(gear)
        self.phase = phase

    def _constants(self) -> list[torch.Tensor]:
        """The constants as this pass reads them.

        If its gradient is a call of its own, the caller may write into his arrays before that reads them again.
        """
        values = self.constants()
        if self.separate and self._on_cpu:
            for number, cell in enumerate(self.plan.constants):
                if cell.host is not None:
                    values[number] = values[number].clone()
        return values

    def repeating(self, whole: bool) -> Repeating | None:
        """What another inference like the last one needs and finds; ``None`` if that will not repeat.

        One that still copies its inputs to new memory is not like the next ones. Of little data all are kept, from now on in
        the same memory: that which stands ready, of a short batch its first samples.
        """
        gear, kept = self.gear, self.kept
        is_fast = gear is self.fitting if whole else gear in self._fast.values() and not self._has_constants
        if gear is None or not is_fast or (kept is not None and self._keeps_inferred < math.inf):
            return None
        if kept is not None:
            feeds = [first_of(memory, feed) for memory, feed in zip(self.standing, kept.feeds, strict=True)]
            self.kept = self._inferred[None if whole else shapes_of(feeds)] = kept = kept._replace(feeds=feeds)
        return Repeating(gear.forward, gear, kept, self._hooks)

    def _look_at_shapes(self, gear: Gear) -> None:
        """A fast gear computes the same shapes each time, unless what linked graphs computed has another one."""
        made = zip(self.readable, self.values, strict=True)
        if gear in self._whole.values() and not self._has_constants and all(v.shape == c.shape for c, v in made):
            self.fitting = gear

    def gradient(self, injected: Tensors) -> None:
        assert self.gear is not None
        if injected:
            self._injected = injected = [g.contiguous() for g in injected]
        try:
            if self._on_gpu:
                meet(self.plan.device)
            self.gradients, self.wanted = self.gear.gradient(injected)
        except Exception:  # a hook of the program may refuse
            self.fail()
            raise
        self.phase = _GRADIENT

    def update(self) -> None:
        updater = self.updater
        assert updater is not None
        gear = self.gear
        step = updater.step
        try:
            if isinstance(gear, Captured) and updater.optimizer._replayable:
                gear.update(updater)
            else:
                updater.run(self.gradients)
        finally:
            if updater.step != step:
                self.phase = _UPDATED

    def use(self, rule: UpdateRule) -> None:
        """Update by ``rule`` from now on, beginning without what another one has counted."""
        self.updater = Updater(rule, self.plan.trained, self.plan.device)

    def retrain(self, updated: Sequence[bool]) -> None:
        """Update those of the trained tensors for which it is true, from now on."""
        if list(updated) == [t.updated for t in self.plan.trained]:
            return
        trained = tuple(replace(t, updated=now) for t, now in zip(self.plan.trained, updated, strict=True))
        self.plan = replace(self.plan, trained=trained)
        if self.updater is not None:
            self.updater = Updater(self.updater.optimizer, trained, self.plan.device)

    # What was asked for late

    def lose_weights(self) -> None:
        """The last pass cannot be run again, nor differentiated if that was to come. What it gave is right, gradients too.

        Another thread may be in the middle of a phase, which goes on.
        """
        self.kept = None
        if self.separate and self.phase is _FORWARD:
            self.phase = _OUTDATED

    def value_of(self, cell: TensorState) -> torch.Tensor | None:
        """The value of a tensor in the last forward pass, if it was kept."""
        slot = self.plan.slots.get(id(cell))
        return self.values[self.plan.readable.index(slot)] if slot in self.plan.readable and self.values else None

    def values_again(self, cells: Sequence[TensorState]) -> list[torch.Tensor | None]:
        """The values of tensors that nobody had asked for when the last forward pass ran; ``None`` where it is too late.

        After an update the weights of that pass are gone.
        """
        slots = [self.plan.slots.get(id(c)) for c in cells]
        there = [s for s in slots if s is not None]
        kept = self.kept
        if kept is None or self.phase is _UPDATED or not there:
            return [None] * len(cells)
        by_slot = values_again(self.plan, kept, there)
        return [None if s is None else by_slot[s] for s in slots]

    def gradient_of(self, slot: int) -> torch.Tensor | None:
        if not self.phase.has_gradients or slot not in self.plan.wanted:
            return None
        return self.wanted[self.plan.wanted.index(slot)]

    def gradients_again(self, slots: Sequence[int]) -> None:
        """Compute gradients that nobody had asked for when the gradient phase ran.

        After an update its weights are gone, and the gradients have to wait for the next gradient phase.
        """
        kept = self.kept
        if kept is None or self.phase is _UPDATED:
            return
        plan = replace(self.plan, wanted=tuple(dict.fromkeys([*self.plan.wanted, *slots])))
        self.wanted = gradients_again(plan, kept, self._injected)
        self.plan = plan

    def _noise_states(self) -> NoiseStates:
        return noise_states(self._noises, self.plan.device) if self._noises else []
