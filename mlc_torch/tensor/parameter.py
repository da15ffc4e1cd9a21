"""``MLCTensorParameter``: a tensor that training may update."""

from __future__ import annotations

from mlc_torch.spelling import MLCObject, declare, prop


class MLCTensorParameter(MLCObject):
    """A tensor of a layer that an optimizer may update."""

    tensor = prop("MLCTensor", "The tensor.")

    @prop("Bool", settable=True)
    def isUpdatable(self):
        """Whether the optimizer updates it, from the next update on, without a compile; its gradient is computed in any case."""
        return self._isUpdatable

    @isUpdatable.writes
    def _set_updatable(self, isUpdatable):
        self._isUpdatable = isUpdatable
        if self._tensor is not None:
            self._tensor._cell.changed()  # compiled graphs take it up at their next update

    @declare("init(tensor: MLCTensor)", "parameterWithTensor:")
    @declare("init(tensor: MLCTensor, optimizerData: [MLCTensorData]?)", "parameterWithTensor:optimizerData:")
    def _create(cls, tensor, optimizerData=None):
        """A parameter over this tensor; optimizer data, where given, is bound to it."""
        if optimizerData is not None:
            tensor._bind_optimizer(optimizerData, None)
        tensor._cell.is_parameter = True
        return cls._make(tensor=tensor, isUpdatable=True)

    @classmethod
    def _bare(cls):
        return cls._make(tensor=None, isUpdatable=False)
