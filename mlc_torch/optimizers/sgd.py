"""Gradient descent, plain, with momentum, and Nesterov's (evidence.md F.2)."""

from __future__ import annotations

from functools import partial
from typing import Any

import torch

from mlc_torch.descriptors.base import finite
from mlc_torch.optimizers.base import DESCRIPTOR, MLCOptimizer, Numbers
from mlc_torch.spelling import declare, prop
from mlc_torch.torch_private.lists import Call, Tensors, foreach
from mlc_torch.torch_private.updates import fused_sgd_


def _is_lost(lr: float) -> bool:
    """Whether 1 - (1 - lr), in 64 bits, is further from ``lr`` than its rounding to 32 bits: below 2^-29.

    Numbers around 1 lie up to 2^-52 apart, so 1 - lr is wrong by up to 2^-53, and that is 2^-24 of 2^-29. (Of 1e-12 it is up to
    1e-4, and nothing is left of 1e-17.)
    """
    return abs(lr) < 2**-29


class MLCSGDOptimizer(MLCOptimizer):
    """Stochastic gradient descent, with momentum or Nesterov momentum if wanted.

    w -= lr·g; with momentum m = μ·m + lr·g, w -= m; Nesterov: m = μ·m + g, w -= lr·(g + μ·m).
    """

    _in_chunks = True

    momentumScale = prop("Float", "How much of the last step joins the next.")
    usesNesterovMomentum = prop("Bool", "Whether the momentum is Nesterov's.")

    @declare(f"init({DESCRIPTOR})", "optimizerWithDescriptor:")
    @declare(
        f"init({DESCRIPTOR}, momentumScale: Float, usesNesterovMomentum: Bool)",
        "optimizerWithDescriptor:momentumScale:usesNesterovMomentum:",
    )
    @declare(  # of the first SDKs, spelling mistake included
        f"init({DESCRIPTOR}, momentumScale: Float, usesNestrovMomentum usesNesterovMomentum: Bool)",
        "optimizerWithDescriptor:momentumScale:usesNestrovMomentum:",
    )
    def _create(cls, optimizerDescriptor, momentumScale=0.0, usesNesterovMomentum=False):
        """Without momentum unless given."""
        momentum = finite("momentumScale", momentumScale)
        return cls._with(optimizerDescriptor, momentumScale=momentum, usesNesterovMomentum=usesNesterovMomentum)

    def _state_names(self) -> list[str]:
        return ["momentum"] if self._momentumScale else []

    def _apply(
        self, params: Tensors, grads: Tensors, states: list[Tensors], numbers: Numbers, into: list[Call] | None = None
    ) -> None:
        lr, momentum, decay = numbers["lr"], self._momentumScale, self._weight_decay
        common: dict[str, Any] = {"momentum": momentum, "weight_decay": decay, "into": into}
        if not momentum or self._usesNesterovMomentum:
            momenta = states[0] if momentum else []
            fused_sgd_(params, grads, momenta, lr=lr, dampening=0.0, nesterov=bool(momentum), **common)
        elif isinstance(lr, float) and not _is_lost(lr):
            # torch's kernel keeps lr outside: a dampening of 1 - lr puts it inside.
            fused_sgd_(params, grads, states[0], lr=1.0, dampening=1.0 - lr, nesterov=False, **common)
        else:
            # Recorded work reads lr from the device; the kernel takes no tensor for its dampening, and no small rate by it.
            if decay:
                grads = foreach("add", grads, params, alpha=decay)
            steps = foreach("mul", grads, lr)
            fused_sgd_(
                params, steps, states[0], lr=1.0, momentum=momentum, dampening=0.0, nesterov=False, weight_decay=0.0
            )

    def _apply_chunk(
        self, calls: list[Call], param: torch.Tensor, grad: torch.Tensor, states: Tensors, numbers: Any, memory: Tensors
    ) -> None:
        lr, decay, made = numbers["lr"], self._weight_decay, memory[0]
        if not self._momentumScale or self._usesNesterovMomentum or not _is_lost(lr):
            super()._apply_chunk(calls, param, grad, states, numbers, memory)
            return
        # As above, in the memory of the chunk: the gradient is there only when the calls before have been made.
        if decay:
            calls.append(partial(torch.add, grad, param, alpha=decay, out=made))
            grad = made
        calls.append(partial(torch.mul, grad, lr, out=made))
        how: dict[str, Any] = {"momentum": self._momentumScale, "weight_decay": 0.0, "into": calls}
        fused_sgd_([param], [made], [states[0]], lr=1.0, dampening=0.0, nesterov=False, **how)
