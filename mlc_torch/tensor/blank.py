"""What stands behind a tensor made by Objective-C's ``new``: the ID 0, no label, no descriptor, no data (evidence.md A.3)."""

from __future__ import annotations

from typing import Any

from mlc_torch.refusals import refuse
from mlc_torch.tensor.state import TensorState


class BlankState(TensorState):
    """A tensor that nothing can be computed with: whoever asks for its shape is refused, with the reason."""

    __slots__ = ()

    def __init__(self) -> None:
        for name in TensorState.__slots__:
            if name not in vars(BlankState):
                setattr(self, name, None)
        self.tensor_id = self.version = 0
        self.optimizer_data, self.optimizer_device_data, self._views = [], [], []

    @property
    def descriptor(self) -> Any:  # type: ignore[override]
        refuse("the tensor was made by new() and has no descriptor; make it with a shape or a descriptor")

    shape = dtype = nbytes = descriptor
