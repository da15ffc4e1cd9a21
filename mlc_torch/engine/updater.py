"""The update phase: one optimizer step over all parameters, their state kept beside the tensors they belong to."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

import torch

from mlc_torch.engine.neighbours import Reference, neighbours
from mlc_torch.engine.pieces import in_pieces
from mlc_torch.engine.plan import Trained
from mlc_torch.engine.processor import has_avx
from mlc_torch.tensor.optimizer_state import adopt_state, begins_anew, shared_count, warn_of_others_state
from mlc_torch.tensor.state_owners import was_updated

Numbers = dict[str, Any]
Update = Callable[[Sequence[torch.Tensor | None]], None]
"""One step by these gradients."""


class UpdateRule(Protocol):
    """What the engine knows of an optimizer."""

    @property
    def _replayable(self) -> bool:
        """Whether an update is the same work each time, so that a device may record and replay it."""

    def _state_names(self) -> list[str]:
        """The state tensors of a parameter."""

    def _scalars(self, step: int) -> dict[str, float]:
        """The numbers of a step that may differ from step to step."""

    def _configuration(self) -> tuple[Any, ...]:
        """What recorded work depends on besides these numbers."""

    def _update(
        self, params: Any, grads: Any, states: Any, numbers: Numbers, cut: Any = None, in_chunks: bool = False
    ) -> None:
        """One step for all parameters, in place. ``cut`` gives what is computed element by element in smaller pieces; large
        ones may be made ``in_chunks``."""

    def _before_update(self, params: Any) -> Any:
        """Called before each update: by what it gives, ``_was_made`` can tell."""

    def _was_made(self, params: Any, before: Any) -> bool:
        """Whether an update that broke off was made; one that was half made is undone. Can be repeated."""

    def _next_step(self) -> int:
        """The number of the step that comes next; the first is 1."""

    def _step_taken(self, following: int) -> None:
        """A step was taken; ``following`` is the number of the next."""


class Updater:
    """Applies an update rule to the trained tensors that may be updated.

    ``prepare`` runs on the host before each update: it reads the live learning rate and the step number. ``apply`` touches
    only tensors, so that it can be recorded once and replayed. ``count`` follows when the tensors have changed.
    """

    def __init__(self, optimizer: UpdateRule, trained: Sequence[Trained], device: torch.device) -> None:
        self.optimizer, self.device = optimizer, device
        self.indices = [i for i, t in enumerate(trained) if t.updated]
        self.cells = [trained[i].cell for i in self.indices]
        self._changed = frozenset(id(t) for i in self.indices for t in (trained[i].cell, *trained[i].uses))
        self._others: list[Reference] = []
        """The sessions that read what this one changes."""
        self._asked = -1
        """The newest session when they were looked for."""
        self._count = shared_count(self.cells, optimizer, optimizer._next_step())
        self._names = list(optimizer._scalars(self.step))
        self._memory: torch.Tensor | None = None
        self._known: list[float] | None = None
        self._begun: tuple[int, list[Any], Any] | None = None
        """The update that is being made: its step, its parameters, and by what the rule tells whether it was made."""
        self.when_idle: Callable[[], object] | None = None
        """Told of an update for which none of the parameters has a gradient."""
        self.numbers: Numbers = {}
        if device.type == "cuda":
            self.keeps_numbers_in(torch.zeros(len(self._names), dtype=torch.float32, device=device))
        self.adopt()

    def adopt(self) -> None:
        """Take up the parameters' memory and the state bound to them, or start from zeros."""
        names = self.optimizer._state_names()
        anew = [cell for cell in self.cells if begins_anew(cell, len(names), self.optimizer)]
        states = [adopt_state(cell, len(names), self.optimizer) for cell in self.cells]
        self.params: list[Any] = [cell.value for cell in self.cells]
        self.states = [[of_cell[k] for of_cell in states] for k in range(len(names))]
        self._chosen: tuple[list[bool], list[Any], list[list[torch.Tensor]]] | None = None
        """Which gradients were missing, and parameters and state of the others: in one piece, since a Ctrl-C may strike."""
        self._versions = [c.version for c in self.cells]
        self._ready = [c for c in self.cells if c.waiting_state is not None]
        warn_of_others_state(anew)

    @property
    def step(self) -> int:
        """The number of the next update."""
        return self._count.next

    def touched(self) -> list[torch.Tensor]:
        """Every tensor that an update writes."""
        return [*self.params, *(t for state in self.states for t in state)]

    # The numbers of a step: floats on the host, or on CUDA a few elements of device memory that recorded work reads

    @property
    def number_count(self) -> int:
        return len(self._names)

    def keeps_numbers_in(self, memory: torch.Tensor) -> bool:
        """Let recorded work read the numbers from ``memory``, if there is room for just so many."""
        if memory is not self._memory:
            if len(memory) != len(self._names):
                return False
            self._memory, self._known = memory, None
            self.numbers = {name: memory[i] for i, name in enumerate(self._names)}
        return True

    def upcoming(self) -> list[float]:
        """The numbers of the next update, as things stand."""
        self._announced = list(self.optimizer._scalars(self.step).values())
        return self._announced

    def numbers_are_there(self) -> None:
        """What ``upcoming`` gave has been copied to the device."""
        self._known = self._announced

    def prepare(self) -> None:
        """Look up the numbers of this step, and bring them to where the update reads them."""
        versions = self._versions
        for number, cell in enumerate(self.cells):
            if cell.version != versions[number]:
                self.adopt()
                break
        numbers = self.optimizer._scalars(self.step)
        if self._memory is None:
            self.numbers = numbers
        elif (values := list(numbers.values())) != self._known:
            for i, value in enumerate(values):
                self._memory[i].fill_(value)
            self._known = values

    def run(self, gradients: Sequence[torch.Tensor | None]) -> None:
        """One update. Whatever stops it, it was made and counts, or it was not made."""
        self.prepare()
        params, given, states, numbers = self.chosen_for(gradients)
        if not params:
            self._next_is(self.step + 1)
            return
        self._begun = (self.step, params, self.optimizer._before_update(params))
        try:
            self.optimizer._update(params, given, states, numbers, in_chunks=has_avx())  # tried there alone
            self._next_is(self._begun[0] + 1)
        except BaseException:
            self.settle()
            raise
        self._begun = None

    def settle(self) -> None:
        """An update that broke off is counted if it was made. Interrupted, this can be repeated."""
        if self._begun is None:
            return
        step, params, before = self._begun
        if self.optimizer._was_made(params, before):
            self._next_is(step + 1)
        self._begun = None

    def count(self) -> None:
        """A step was taken."""
        self._next_is(self.step + 1)

    def _next_is(self, step: int) -> None:
        """An update was made: it counts, and who else reads the weights is told. Can be repeated."""
        self._count.next = step
        self.optimizer._step_taken(step)
        while self._ready:
            was_updated(self._ready[-1], self.optimizer)
            self._ready.pop()
        if self._asked != neighbours.newest:
            newest = neighbours.newest
            self._others = neighbours.reading(self._changed, self)
            self._asked = newest
        for reference in self._others:
            session = reference()
            if session is not None:
                session.lose_weights()

    def apply(self, gradients: Sequence[torch.Tensor | None]) -> None:
        """Update every parameter that has a gradient. torch's grad mode may be on: no tensor here requires a gradient."""
        params, given, states, numbers = self.chosen_for(gradients)
        if params:
            self.optimizer._update(params, given, states, numbers, cut=in_pieces)

    def chosen_for(
        self, gradients: Sequence[torch.Tensor | None]
    ) -> tuple[list[Any], list[Any], list[list[torch.Tensor]], Numbers]:
        """What the optimizer is given: the parameters that have a gradient, these gradients, their state, the step's numbers."""
        given: list[Any] = []
        missing: list[bool] = []
        for i in self.indices:
            gradient = gradients[i]
            missing.append(gradient is None)
            if gradient is not None:
                given.append(gradient)
        if self._chosen is None or missing != self._chosen[0]:
            params = [p for p, without in zip(self.params, missing, strict=True) if not without]
            states = [[t for t, without in zip(s, missing, strict=True) if not without] for s in self.states]
            self._chosen = missing, params, states
            if self.indices and not params and self.when_idle is not None:
                self.when_idle()
        _, params, states = self._chosen
        return params, given, states, self.numbers

    def state_bytes(self) -> int:
        return sum(t.nbytes for state in self.states for t in state)
