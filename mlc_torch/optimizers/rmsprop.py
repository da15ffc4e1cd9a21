"""RMSProp, plain, centered and with momentum (evidence.md F.2)."""

from __future__ import annotations

from typing import Any

from mlc_torch.optimizers.base import DESCRIPTOR, MLCOptimizer, fraction
from mlc_torch.spelling import declare, prop
from mlc_torch.torch_private import Tensors, copy_all, foreach, fused_adam_


class MLCRMSPropOptimizer(MLCOptimizer):
    """The RMSProp optimizer, with momentum and centering if wanted.

    n = α·n + (1-α)·g²; centered: a = α·a + (1-α)·g, n̂ = n - a²; Δ = μ·Δ - lr·g/(√n̂ + ε); w += Δ.
    """

    momentumScale = prop("Float", "How much of the last step joins the next.")
    alpha = prop("Float", "How much of the old mean of the squared gradients an update keeps.")
    epsilon = prop("Float", "What is added to the root before dividing by it.")
    isCentered = prop("Bool", "Whether the mean of the gradients is subtracted from the mean of their squares.")

    @declare(f"init({DESCRIPTOR})", "optimizerWithDescriptor:")
    @declare(
        f"init({DESCRIPTOR}, momentumScale: Float, alpha: Float, epsilon: Float, isCentered: Bool)",
        "optimizerWithDescriptor:momentumScale:alpha:epsilon:isCentered:",
    )
    def _create(cls, optimizerDescriptor, momentumScale=0.0, alpha=0.99, epsilon=1e-8, isCentered=False):
        """Momentum is 0, alpha 0.99 and epsilon 1e-8, without centering, unless given."""
        return cls._with(
            optimizerDescriptor,
            momentumScale=momentumScale,
            alpha=fraction("alpha", alpha),
            epsilon=epsilon,
            isCentered=isCentered,
        )

    def _state_names(self) -> list[str]:
        return ["square", *(["average"] if self._isCentered else []), *(["step"] if self._momentumScale else [])]

    def _apply(self, params: Tensors, grads: Tensors, states: list[Tensors], numbers: dict[str, Any]) -> None:
        alpha, lr, decay = self._alpha, numbers["lr"], self._weight_decay
        if not self._isCentered and not self._momentumScale:
            # Adam's step, with a mean of the gradients that is the gradient itself: what its memory holds before has no
            # weight, as long as it is finite where the gradient is.
            means = foreach("mul", grads, 0.0)
            fused_adam_(
                params,
                grads,
                means,
                states[0],
                [],
                lr=lr,
                beta1=0.0,
                beta2=alpha,
                eps=self._epsilon,
                weight_decay=decay,
            )
            return
        if decay:
            grads = foreach("add", grads, params, alpha=decay)
        # New values first, then all of them into place by one operation: whatever stops this, nothing is half updated.
        square = foreach("addcmul", foreach("mul", states[0], alpha), grads, grads, value=1 - alpha)
        spread, made = square, [square]
        if self._isCentered:
            average = foreach("lerp", states[1], grads, 1 - alpha)
            # Rounding can take n - a² below zero, where the root does not exist. (Both are rounded: equal ones leave 0.)
            spread = foreach("clamp_min", foreach("sub", square, foreach("mul", average, average)), 0.0)
            made.append(average)
        steps = foreach("div", grads, foreach("add", foreach("sqrt", spread), self._epsilon))
        steps = foreach("mul", steps, lr)
        if self._momentumScale:
            steps = foreach("sub", steps, foreach("mul", states[-1], self._momentumScale))
            made.append(foreach("neg", steps))
        made.append(foreach("sub", params, steps))
        copy_all([t for kind in (*states, params) for t in kind], [t for kind in made for t in kind])
