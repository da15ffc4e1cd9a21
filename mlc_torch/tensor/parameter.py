"""``MLCTensorParameter``: a tensor that training may update."""

from __future__ import annotations

from mlc_torch.spelling import MLCObject, declare, prop


class MLCTensorParameter(MLCObject):
    """A tensor, and whether the optimizer updates it."""

    tensor = prop("MLCTensor")

    @prop("Bool", settable=True)
    def isUpdatable(self):
        return self._isUpdatable

    @isUpdatable.writes
    def _set_updatable(self, isUpdatable):
        self._isUpdatable = isUpdatable
        if self._tensor is not None:
            self._tensor._cell.changed()  # compiled graphs take it up at their next update

    @declare("init(tensor: MLCTensor)", "parameterWithTensor:")
    @declare("init(tensor: MLCTensor, optimizerData: [MLCTensorData]?)", "parameterWithTensor:optimizerData:")
    def _create(cls, tensor, optimizerData=None):
        if optimizerData is not None:
            tensor._bind_optimizer(optimizerData, None)
        return cls._make(tensor=tensor, isUpdatable=True)

    @classmethod
    def _bare(cls):
        return cls._make(tensor=None, isUpdatable=False)
