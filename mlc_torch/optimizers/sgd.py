"""Gradient descent, plain, with momentum, and Nesterov's (behaviour.md F.2)."""

from __future__ import annotations

from mlc_torch.optimizers.base import MLCOptimizer
from mlc_torch.spelling import declare, prop
from mlc_torch.torch_private import foreach, fused_sgd_

_DESCRIPTOR = "descriptor optimizerDescriptor: MLCOptimizerDescriptor"


class MLCSGDOptimizer(MLCOptimizer):
    """w -= lr·g; with momentum m = μ·m + lr·g, w -= m; Nesterov: m = μ·m + g, w -= lr·(g + μ·m).

    The learning rate stands inside the accumulator, so that steps already accumulated keep the rate they were made with.
    """

    momentumScale = prop("Float")
    usesNesterovMomentum = prop("Bool")

    @declare(f"init({_DESCRIPTOR})", "optimizerWithDescriptor:")
    @declare(
        f"init({_DESCRIPTOR}, momentumScale: Float, usesNesterovMomentum: Bool)",
        "optimizerWithDescriptor:momentumScale:usesNesterovMomentum:",
    )
    @declare(  # of the first SDKs, spelling mistake included
        f"init({_DESCRIPTOR}, momentumScale: Float, usesNestrovMomentum usesNesterovMomentum: Bool)",
        "optimizerWithDescriptor:momentumScale:usesNestrovMomentum:",
    )
    def _create(cls, optimizerDescriptor, momentumScale=0.0, usesNesterovMomentum=False):
        return cls._with(optimizerDescriptor, momentumScale=momentumScale, usesNesterovMomentum=usesNesterovMomentum)

    def state_names(self):
        return ["momentum"] if self._momentumScale else []

    def apply(self, params, grads, states, numbers):
        lr, momentum, decay = numbers["lr"], self._momentumScale, self.weight_decay
        common = {"momentum": momentum, "weight_decay": decay}
        if not momentum or self._usesNesterovMomentum:
            momenta = states[0] if momentum else []
            fused_sgd_(params, grads, momenta, lr=lr, dampening=0.0, nesterov=bool(momentum), **common)
        elif isinstance(lr, float):
            # torch's kernel keeps lr outside: a dampening of 1 - lr puts it inside.
            fused_sgd_(params, grads, states[0], lr=1.0, dampening=1.0 - lr, nesterov=False, **common)
        else:
            if decay:
                grads = foreach("add", grads, params, alpha=decay)
            foreach("mul_", states[0], momentum)
            foreach("add_", states[0], foreach("mul", grads, lr))
            foreach("sub_", params, states[0])
