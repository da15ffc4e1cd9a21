"""The state of one tensor that an optimizer keeps, or that waits for one. ``state_owners`` says whose it is."""

from __future__ import annotations

import weakref
from typing import Any

from mlc_torch.tensor.data import MLCTensorData


class Kept:
    """Memory that the program has bound for it, if it has, and the state on the device."""

    __slots__ = ("data", "device_data", "not_for", "ready")

    def __init__(self, data: list[MLCTensorData], device_data: list[Any]) -> None:
        self.data, self.device_data = data, device_data
        self.ready: weakref.WeakSet[Any] = weakref.WeakSet()
        """The optimizers that would begin with it, while it waits."""
        self.not_for: weakref.WeakSet[Any] = weakref.WeakSet()
        """The optimizers that state was bound for since."""
