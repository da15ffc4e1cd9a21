"""Which loss, how it is reduced, and the numbers that some losses take."""

from __future__ import annotations

from mlc_torch.descriptors.base import Descriptor
from mlc_torch.spelling import declare, prop

_TYPE = "type lossType: MLCLossType, reductionType: MLCReductionType"
_CLASSES = f"{_TYPE}, weight: Float, labelSmoothing: Float, classCount: Int"


class MLCLossDescriptor(Descriptor):
    """Which loss to compute, how to reduce it, and its parameters."""

    lossType = prop("MLCLossType", "The loss.")
    reductionType = prop(
        "MLCReductionType", "``none`` keeps one value per sample or element; ``sum`` and ``mean`` give one value."
    )
    weight = prop("Float", "A number that the loss is multiplied by.")
    labelSmoothing = prop("Float", "How much of the labels is spread over all classes; for the cross-entropies.")
    classCount = prop("Int", "The number of classes that label smoothing divides by.")
    epsilon = prop("Float", "What is added inside the logarithm of the log loss.")
    delta = prop("Float", "Where the Huber loss turns from quadratic to linear.")

    @declare(f"init({_TYPE})", "descriptorWithType:reductionType:")
    @declare(f"init({_TYPE}, weight: Float)", "descriptorWithType:reductionType:weight:")
    @declare(f"init({_CLASSES})", "descriptorWithType:reductionType:weight:labelSmoothing:classCount:")
    @declare(
        f"init({_CLASSES}, epsilon: Float, delta: Float)",
        "descriptorWithType:reductionType:weight:labelSmoothing:classCount:epsilon:delta:",
    )
    def _create(cls, lossType, reductionType, weight=1.0, labelSmoothing=0.0, classCount=1, epsilon=1e-7, delta=1.0):
        """Parameters that are left out take the framework's defaults."""
        return cls._make(
            lossType=lossType,
            reductionType=reductionType,
            weight=weight,
            labelSmoothing=labelSmoothing,
            classCount=classCount,
            epsilon=epsilon,
            delta=delta,
        )
