"""One step of a torch optimizer, which is made as a whole or not at all."""

from __future__ import annotations

import copy
from typing import Any

import torch

from mlc_torch.engine.standing_results import lasting
from mlc_torch.torch_private.lists import Tensors, copy_all


class Step:
    """What a step of a torch optimizer may change, as it was before: parameters, state, settings of the groups.

    A torch optimizer goes from parameter to parameter, so an exception or a Ctrl-C can leave some of them updated and
    others not. The way back is a copy, made before every step into the same memory. Only on the CPU: a device seldom has
    room for its parameters twice, so there a step that broke off counts if it wrote anything.
    """

    def __init__(self, optimizer: torch.optim.Optimizer) -> None:
        self._optimizer = optimizer
        self._originals: Tensors = []
        self._copies: Tensors = []
        self._states: list[tuple[Any, dict[str, Any]]] = []
        self._groups: list[dict[str, Any]] = []
        self._gradients: list[tuple[torch.Tensor, torch.Tensor | None]] = []
        self._written: list[tuple[torch.Tensor, int]] = []
        self._is_made = True

    def begin(self) -> None:
        """Keep everything as it is now."""
        groups, states = self._optimizer.param_groups, self._optimizer.state
        params = [p for group in groups for p in group["params"]]
        self._states = [(key, _kept(state)) for key, state in states.items()]
        self._groups = [_kept(group) for group in groups]
        self._gradients = []
        self._written = [(p, p._version) for p in params]
        held = [v for kept in (*(s for _, s in self._states), *self._groups) for v in kept.values()]
        originals = [t for t in (*params, *held) if isinstance(t, torch.Tensor) and t.is_cpu]
        if [*map(id, originals)] != [*map(id, self._originals)]:
            self._originals, self._copies = [], [torch.empty_like(t, requires_grad=False) for t in originals]
            self._originals = originals
        copy_all(self._copies, self._originals)
        self._is_made = False

    def make(self, pairs: list[tuple[torch.Tensor, torch.Tensor]]) -> None:
        """Hand each parameter its gradient, and let torch step. The gradients that it held come back."""
        self._gradients = [(p, p.grad) for p, _ in pairs]
        for p, gradient in pairs:
            p.grad = lasting(gradient).reshape(p.shape)  # a hook, or an optimizer of the program's, may keep it
        self._optimizer.step()
        self._is_made = True
        self._give_back_gradients()

    def end(self) -> bool:
        """The step broke off: undo it, if it was not made. Whether it was. Interrupted, this can be repeated."""
        if not self._is_made:
            if any(not p.is_cpu and p._version != version for p, version in self._written):
                self._is_made = True
            else:
                self._restore()
        self._give_back_gradients()
        return self._is_made

    def _restore(self) -> None:
        copy_all(self._originals, self._copies)
        states = self._optimizer.state
        _fill(states, {key: _kept(state) for key, state in self._states})
        for group, kept in zip(self._optimizer.param_groups, self._groups, strict=True):
            _fill(group, _kept(kept))

    def _give_back_gradients(self) -> None:
        for p, gradient in self._gradients:
            p.grad = gradient


def _kept(numbers: dict[str, Any]) -> dict[str, Any]:
    """A copy in which tensors stand for themselves, since their values are kept apart."""
    return {
        key: copy.deepcopy(value) if isinstance(value, (list, tuple, dict, set)) and key != "params" else value
        for key, value in numbers.items()
    }


def _fill(target: dict[Any, Any], kept: dict[Any, Any]) -> None:
    """Let a dictionary that others know hold this and nothing else."""
    for new in target.keys() - kept.keys():
        del target[new]
    target.update(kept)
