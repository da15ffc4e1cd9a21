"""Which loss, how it is reduced, and the numbers that some losses take."""

from __future__ import annotations

from mlc_torch.descriptors.base import Descriptor
from mlc_torch.spelling import declare, prop

_TYPE = "type lossType: MLCLossType, reductionType: MLCReductionType"
_CLASSES = f"{_TYPE}, weight: Float, labelSmoothing: Float, classCount: Int"


class MLCLossDescriptor(Descriptor):
    """A loss. Smoothing and class count serve the cross-entropies, epsilon the log loss, delta the Huber loss."""

    lossType = prop("MLCLossType")
    reductionType = prop("MLCReductionType")
    weight = prop("Float")
    labelSmoothing = prop("Float")
    classCount = prop("Int")
    epsilon = prop("Float")
    delta = prop("Float")

    @declare(f"init({_TYPE})", "descriptorWithType:reductionType:")
    @declare(f"init({_TYPE}, weight: Float)", "descriptorWithType:reductionType:weight:")
    @declare(f"init({_CLASSES})", "descriptorWithType:reductionType:weight:labelSmoothing:classCount:")
    @declare(
        f"init({_CLASSES}, epsilon: Float, delta: Float)",
        "descriptorWithType:reductionType:weight:labelSmoothing:classCount:epsilon:delta:",
    )
    def _create(cls, lossType, reductionType, weight=1.0, labelSmoothing=0.0, classCount=1, epsilon=1e-7, delta=1.0):
        return cls._make(
            lossType=lossType,
            reductionType=reductionType,
            weight=weight,
            labelSmoothing=labelSmoothing,
            classCount=classCount,
            epsilon=epsilon,
            delta=delta,
        )
