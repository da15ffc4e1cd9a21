"""What a program hooks to the gradient of a tensor: looked at when it is registered, and in each gradient phase."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from mlc_torch.engine.plan import Hook
from mlc_torch.spelling.arguments import describe
from mlc_torch.spelling.own import wrong_type
from mlc_torch.tensor import MLCTensor

_WHO = "MLCTrainingGraph.register_gradient_hook"


class GradientHook:
    """A hook that was registered; ``remove()`` takes it away."""

    def __init__(self, label: str, take_away: Callable[[], None]) -> None:
        self._label, self._take_away, self._is_there = label, take_away, True

    def remove(self) -> None:
        self._take_away()
        self._is_there = False

    def __repr__(self) -> str:
        return f"<gradient hook of the tensor {self._label!r}{'' if self._is_there else ', removed'}>"


def checked_hook(tensor: Any, hook: Any) -> Hook:
    """The hook, as a function that says what is wrong with what it gives: torch knows neither the tensor nor who asked for it."""
    if not isinstance(tensor, MLCTensor):
        raise wrong_type(_WHO, "tensor", "an MLCTensor", tensor)
    if not callable(hook):
        raise wrong_type(_WHO, "hook", "a function of the gradient", hook)
    label = tensor.label

    def call(gradient: torch.Tensor) -> torch.Tensor | None:
        made = hook(gradient)
        if made is not None and not isinstance(made, torch.Tensor):
            raise TypeError(
                f"{_WHO}: the hook of {label!r} must return a torch.Tensor or None, it gave {describe(made)}"
            )
        if made is not None and _form(made) != (expected := _form(gradient)):
            raise TypeError(
                f"{_WHO}: the hook of {label!r} must return what has the form of the gradient, {_said(*expected)}, it gave "
                f"{_said(*_form(made))}"
            )
        return made

    return call


Form = tuple[torch.Size, torch.dtype, torch.device]


def _form(tensor: torch.Tensor) -> Form:
    return tensor.shape, tensor.dtype, tensor.device


def _said(shape: torch.Size, dtype: torch.dtype, device: torch.device) -> str:
    return f"{list(shape)} {str(dtype).removeprefix('torch.')} on {device}"
