"""RMSProp, plain, centered and with momentum (evidence.md F.2)."""

from __future__ import annotations

from typing import Any

from mlc_torch.optimizers.base import DESCRIPTOR, MLCOptimizer, fraction
from mlc_torch.spelling import declare, prop
from mlc_torch.torch_private import Tensors, copy_all, foreach


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
        if self._weight_decay:
            grads = foreach("add", grads, params, alpha=self._weight_decay)
        # New values first, then all of them into place by one operation: whatever stops this, nothing is half updated.
        square = foreach(
            "add", foreach("mul", states[0], self._alpha), foreach("mul", grads, grads), alpha=1 - self._alpha
        )
        spread, made = square, [square]
        if self._isCentered:
            average = foreach("add", foreach("mul", states[1], self._alpha), grads, alpha=1 - self._alpha)
            # Rounding can take n - a² below zero, where the root does not exist.
            spread = foreach("clamp_min", foreach("sub", square, foreach("mul", average, average)), 0.0)
            made.append(average)
        steps = foreach("div", grads, foreach("add", foreach("sqrt", spread), self._epsilon))
        steps = foreach("mul", steps, numbers["lr"])
        if self._momentumScale:
            steps = foreach("sub", steps, foreach("mul", states[-1], self._momentumScale))
            made.append(foreach("neg", steps))
        made.append(foreach("sub", params, steps))
        copy_all([t for kind in (*states, params) for t in kind], [t for kind in made for t in kind])
