"""Adam, AMSGrad and AdamW (evidence.md F.2)."""

from __future__ import annotations

import math

from mlc_torch.descriptors.base import finite
from mlc_torch.optimizers.base import DESCRIPTOR, MLCOptimizer, Numbers, fraction
from mlc_torch.refusals import refuse
from mlc_torch.spelling import declare, prop
from mlc_torch.torch_private.lists import Call, Tensors
from mlc_torch.torch_private.updates import fused_adam_

_LAST = 2**63 - 1
_BETAS = "beta1: Float, beta2: Float, epsilon: Float"


class _Adam(MLCOptimizer):
    """m = β1·m + (1-β1)·g;  v = β2·v + (1-β2)·g²;  w -= lr·√(1-β2^t)/(1-β1^t) · m/(√v + ε)."""

    _in_chunks = True

    beta1 = prop("Float", "How much of the old mean of the gradients an update keeps.")
    beta2 = prop("Float", "How much of the old mean of the squared gradients an update keeps.")
    epsilon = prop("Float", "What is added to the root before dividing by it.")
    usesAMSGrad = prop("Bool", "Whether the largest mean of the squares so far is used, as AMSGrad does.")
    timeStep = prop("Int", "The number of the next update, which the bias correction depends on; the first is 1.")

    @classmethod
    def _new(cls, descriptor, beta1, beta2, epsilon, usesAMSGrad, timeStep):
        if timeStep < 0:
            refuse(f"timeStep counts updates from 1, got {timeStep}")
        return cls._with(
            descriptor,
            beta1=fraction("beta1", beta1),
            beta2=fraction("beta2", beta2),
            epsilon=finite("epsilon", epsilon),
            usesAMSGrad=usesAMSGrad,
            timeStep=max(timeStep, 1),  # 0, as Metal Performance Shaders count, is the first update too
        )

    def _state_names(self) -> list[str]:
        return ["momentum", "velocity", *(["maximum"] if self._usesAMSGrad else [])]

    def _scalars(self, step: int) -> dict[str, float]:
        rate = self._learningRate * math.sqrt(1 - self._beta2**step) / (1 - self._beta1**step)
        if not self._decouples_decay or not self._weight_decay:
            return {"lr": rate}
        return {"lr": rate, "decay": 1 - self._learningRate * self._weight_decay}

    def _next_step(self) -> int:
        return self._timeStep

    def _step_taken(self, following: int) -> None:
        # The largest Int stays: the bias correction has long been 1 there, and no file or buffer holds a larger one. (Past the
        # look at the name: one is made in every step.)
        self.__dict__["_timeStep"] = min(_LAST, following)

    def _apply(
        self, params: Tensors, grads: Tensors, states: list[Tensors], numbers: Numbers, into: list[Call] | None = None
    ) -> None:
        fused_adam_(
            params,
            grads,
            states[0],
            states[1],
            states[2] if self._usesAMSGrad else [],
            lr=numbers["lr"],
            beta1=self._beta1,
            beta2=self._beta2,
            eps=self._epsilon,
            # The scale is looked at before the decay that follows from it: that takes a call, in every step.
            weight_decay=0.0 if self._decouples_decay or not self._regularizationScale else self._weight_decay,
            decay=numbers.get("decay"),
            into=into,
        )


class MLCAdamOptimizer(_Adam):
    """The Adam optimizer; L2 regularization is added to the gradient."""

    @declare(f"init({DESCRIPTOR})", "optimizerWithDescriptor:")
    @declare(f"init({DESCRIPTOR}, {_BETAS}, timeStep: Int)", "optimizerWithDescriptor:beta1:beta2:epsilon:timeStep:")
    @declare(
        f"init({DESCRIPTOR}, {_BETAS}, usesAMSGrad: Bool, timeStep: Int)",
        "optimizerWithDescriptor:beta1:beta2:epsilon:usesAMSGrad:timeStep:",
    )
    def _create(cls, optimizerDescriptor, beta1=0.9, beta2=0.999, epsilon=1e-8, usesAMSGrad=False, timeStep=1):
        """The betas are 0.9 and 0.999, epsilon is 1e-8 and updates count from 1, unless given."""
        return cls._new(optimizerDescriptor, beta1, beta2, epsilon, usesAMSGrad, timeStep)


class MLCAdamWOptimizer(_Adam):
    """The AdamW optimizer: L2 regularization shrinks the weights, w -= lr·scale·w, before the step."""

    _decouples_decay = True

    @declare(f"init({DESCRIPTOR})", "optimizerWithDescriptor:")
    @declare(
        f"init({DESCRIPTOR}, {_BETAS}, usesAMSGrad: Bool, timeStep: Int)",
        "optimizerWithDescriptor:beta1:beta2:epsilon:usesAMSGrad:timeStep:",
    )
    def _create(cls, optimizerDescriptor, beta1=0.9, beta2=0.999, epsilon=1e-8, usesAMSGrad=False, timeStep=1):
        """The betas are 0.9 and 0.999, epsilon is 1e-8 and updates count from 1, unless given."""
        return cls._new(optimizerDescriptor, beta1, beta2, epsilon, usesAMSGrad, timeStep)
