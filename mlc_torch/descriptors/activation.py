"""Which activation, and its up to three numbers."""

from __future__ import annotations

from mlc_torch.descriptors.base import Descriptor
from mlc_torch.enums import MLCActivationType
from mlc_torch.spelling import declare, prop

# Measured (evidence.md C.1): what the framework fills in for numbers that were not given; 1 everywhere else.
_DEFAULTS: dict[MLCActivationType, dict[str, float]] = {
    MLCActivationType.relu: {"a": 0.0},
    MLCActivationType.linear: {"b": 0.0},
    MLCActivationType.hardSigmoid: {"a": 0.2, "b": 0.5},
    MLCActivationType.hardShrink: {"a": 0.5},
    MLCActivationType.softShrink: {"a": 0.5},
}


class MLCActivationDescriptor(Descriptor):
    """Which activation function f(x) to apply, with its parameters a, b and c."""

    activationType = prop("MLCActivationType", "The function.")
    a = prop("Float", "The first parameter; what it means depends on the function.")
    b = prop("Float", "The second parameter.")
    c = prop("Float", "The third parameter, which no function here uses.")

    @declare("init?(type activationType: MLCActivationType)", "descriptorWithType:")
    @declare("init?(type activationType: MLCActivationType, a: Float)", "descriptorWithType:a:")
    @declare("init?(type activationType: MLCActivationType, a: Float, b: Float)", "descriptorWithType:a:b:")
    @declare("init?(type activationType: MLCActivationType, a: Float, b: Float, c: Float)", "descriptorWithType:a:b:c:")
    def _create(cls, activationType, a=None, b=None, c=None):
        """Parameters that are left out take the framework's defaults for the type."""
        default = {"a": 1.0, "b": 1.0, "c": 1.0} | _DEFAULTS.get(activationType, {})
        given = {name: value for name, value in (("a", a), ("b", b), ("c", c)) if value is not None}
        return cls._make(activationType=activationType, **(default | given))
