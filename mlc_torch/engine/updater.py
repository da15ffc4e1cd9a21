"""The update phase: one optimizer step over all parameters, their state kept beside the tensors they belong to."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from mlc_torch.engine.plan import Trained
from mlc_torch.optimizers import MLCOptimizer
from mlc_torch.refusals import refuse
from mlc_torch.tensor import MLCTensorData, MLCTensorOptimizerDeviceData, TensorState


class Updater:
    """Applies ``optimizer`` to the trained tensors that may be updated.

    ``begin`` runs on the host before each update: it reads the live learning rate and the step number. ``apply`` touches
    only tensors, so that it can be recorded once and replayed.
    """

    def __init__(self, optimizer: MLCOptimizer, trained: Sequence[Trained], device: torch.device) -> None:
        self.optimizer, self.device = optimizer, device
        self.indices = [i for i, t in enumerate(trained) if t.updated]
        self.cells = [trained[i].cell for i in self.indices]
        self.step = getattr(optimizer, "timeStep", 1)
        self._names = list(optimizer.scalars(self.step))
        self._memory: torch.Tensor | None = None
        self._known: list[float] | None = None
        self.numbers: dict[str, Any] = {}
        if device.type == "cuda":
            self.keep_numbers_in(torch.zeros(len(self._names), device=device))
        self.adopt()

    def adopt(self) -> None:
        """Take up the parameters' memory and the state bound to them, or start from zeros."""
        names = self.optimizer.state_names()
        states = [adopt_state(cell, len(names)) for cell in self.cells]
        self.params: list[Any] = [cell.value for cell in self.cells]
        self.states = [[of_cell[k] for of_cell in states] for k in range(len(names))]
        self.chosen: tuple[int, ...] | None = None
        self._versions = [c.version for c in self.cells]

    def touched(self) -> list[torch.Tensor]:
        """Every tensor that an update writes."""
        return [*self.params, *(t for state in self.states for t in state)]

    # The numbers of a step: floats on the host, or on CUDA a few elements of device memory that recorded work reads

    @property
    def number_count(self) -> int:
        return len(self._names)

    def keep_numbers_in(self, memory: torch.Tensor) -> None:
        """Let recorded work read the numbers from ``memory``."""
        self._memory, self._known = memory, None
        self.numbers = {name: memory[i] for i, name in enumerate(self._names)}

    def upcoming(self) -> list[float]:
        """The numbers of the next update, as things stand."""
        self._announced = list(self.optimizer.scalars(self.step).values())
        return self._announced

    def numbers_are_there(self) -> None:
        """What ``upcoming`` gave has been copied to the device."""
        self._known = self._announced

    def begin(self, advance: bool = True) -> None:
        """See to the numbers of this step; ``advance`` counts it."""
        if [c.version for c in self.cells] != self._versions:
            self.adopt()
        numbers = self.optimizer.scalars(self.step)
        if self._memory is None:
            self.numbers = numbers
        elif (values := list(numbers.values())) != self._known:
            for i, value in enumerate(values):
                self._memory[i].fill_(value)
            self._known = values
        if not advance:
            return
        self.step += 1
        if hasattr(self.optimizer, "timeStep"):
            self.optimizer._timeStep = self.step

    def apply(self, gradients: Sequence[torch.Tensor | None]) -> None:
        """Update every parameter that has a gradient. Does nothing to torch's grad mode: no tensor here records."""
        params, given, states, numbers = self.chosen_for(gradients)
        if params:
            self.optimizer.update(params, given, states, numbers)

    def chosen_for(
        self, gradients: Sequence[torch.Tensor | None]
    ) -> tuple[list[Any], list[Any], list[list[torch.Tensor]], dict[str, Any]]:
        """What the optimizer is given: parameters that have a gradient, those, their state, the numbers of the step."""
        given: list[Any] = [gradients[i] for i in self.indices]
        chosen = tuple(k for k, g in enumerate(given) if g is not None)
        if chosen != self.chosen:
            self.chosen = chosen
            self._params = [self.params[k] for k in chosen]
            self._states = [[state[k] for k in chosen] for state in self.states]
        return self._params, [given[k] for k in chosen], self._states, self.numbers

    def state_bytes(self) -> int:
        return sum(t.nbytes for state in self.states for t in state)


def adopt_state(cell: TensorState, count: int) -> list[torch.Tensor]:
    """The optimizer state of one parameter on its device: what was bound, what is there already, or zeros."""
    value = cell.value
    assert value is not None
    bound = cell.optimizer_data
    if bound and len(bound) != count:
        refuse(f"the optimizer keeps {count} tensors for {cell.label!r}, {len(bound)} are bound as optimizer data")
    there = [d._state for d in cell.optimizer_device_data]
    if len(there) == count and all(t is not None and t.device == value.device for t in there):
        return there
    if len(there) == count and all(t is not None for t in there):
        states = [t.to(value.device) for t in there]
    elif bound:
        states = [_bound_state(data, cell) for data in bound]
    else:
        states = [torch.zeros_like(value) for _ in range(count)]
    cell.optimizer_device_data = [MLCTensorOptimizerDeviceData._over(t) for t in states]
    return states


def _bound_state(data: MLCTensorData, cell: TensorState) -> torch.Tensor:
    assert cell.value is not None
    view = data.view(cell.dtype, cell.shape)
    if data.readonly:
        view = view.clone()
    return view if cell.value.device.type == "cpu" else view.to(cell.value.device)
