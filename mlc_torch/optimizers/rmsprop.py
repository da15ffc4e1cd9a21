"""RMSProp, plain, centered and with momentum (evidence.md F.2)."""

from __future__ import annotations

from functools import partial
from typing import Any

import torch

from mlc_torch.descriptors.base import finite
from mlc_torch.optimizers.base import DESCRIPTOR, MLCOptimizer, Numbers, fraction
from mlc_torch.spelling import declare, prop
from mlc_torch.torch_private.lists import Call, Tensors, copy_all, foreach
from mlc_torch.torch_private.updates import fused_adam_


class MLCRMSPropOptimizer(MLCOptimizer):
    """The RMSProp optimizer, with momentum and centering if wanted.

    n = α·n + (1-α)·g²; centered: a = α·a + (1-α)·g, n̂ = n - a²; Δ = μ·Δ - lr·g/(√n̂ + ε); w += Δ.
    """

    _in_chunks, _spare = True, 3

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
            momentumScale=finite("momentumScale", momentumScale),
            alpha=fraction("alpha", alpha),
            epsilon=finite("epsilon", epsilon),
            isCentered=isCentered,
        )

    def _state_names(self) -> list[str]:
        return ["square", *(["average"] if self._isCentered else []), *(["step"] if self._momentumScale else [])]

    def _apply(
        self, params: Tensors, grads: Tensors, states: list[Tensors], numbers: Numbers, into: list[Call] | None = None
    ) -> None:
        alpha, lr, decay = self._alpha, numbers["lr"], self._weight_decay
        if self._is_plain:
            self._apply_plain(params, grads, foreach("mul", grads, 0.0), states, lr, into)
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

    @property
    def _chunks_from(self) -> float:
        """Sooner where it makes as many numbers again on the way.

        (As in ``MLCOptimizer._chunks_from``, milliseconds whole and in chunks: centered 2.4 and 1.8 for 160,000 numbers, 40
        and 8.6 for 1.5 million; with momentum 2.7 and 1.3, 52 and 11.)
        """
        return super()._chunks_from if self._is_plain else 2**17

    @property
    def _is_plain(self) -> bool:
        return not self._isCentered and not self._momentumScale

    def _apply_plain(
        self, params: Tensors, grads: Tensors, means: Tensors, states: list[Tensors], lr: Any, into: list[Call] | None
    ) -> None:
        """Adam's step, with a mean of the gradients that is the gradient itself: what its memory holds before has no weight, as
        long as it is finite where the gradient is."""
        how = {"beta1": 0.0, "beta2": self._alpha, "eps": self._epsilon, "weight_decay": self._weight_decay}
        fused_adam_(params, grads, means, states[0], [], lr=lr, into=into, **how)

    def _apply_chunk(
        self, calls: list[Call], param: torch.Tensor, grad: torch.Tensor, states: Tensors, numbers: Any, memory: Tensors
    ) -> None:
        alpha, lr, (_, added, work) = self._alpha, numbers["lr"], memory
        if self._is_plain:
            calls.append(partial(torch.mul, grad, 0.0, out=work))
            self._apply_plain([param], [grad], [work], [[s] for s in states], lr, calls)
            return
        if self._weight_decay:
            calls.append(partial(torch.add, grad, param, alpha=self._weight_decay, out=added))
            grad = added
        square = states[0]
        calls += [
            partial(torch.Tensor.mul_, square, alpha),
            partial(torch.Tensor.addcmul_, square, grad, grad, value=1 - alpha),
        ]
        if self._isCentered:
            average = states[1]
            calls += [
                partial(torch.Tensor.lerp_, average, grad, 1 - alpha),
                partial(torch.mul, average, average, out=work),
                partial(torch.sub, square, work, out=work),
                partial(torch.Tensor.clamp_min_, work, 0.0),
                partial(torch.Tensor.sqrt_, work),
            ]
        else:
            calls.append(partial(torch.sqrt, square, out=work))
        calls.append(partial(torch.Tensor.add_, work, self._epsilon))
        moved = param
        if self._momentumScale:
            moved = states[-1]
            calls.append(partial(torch.Tensor.mul_, moved, self._momentumScale))
        calls.append(partial(torch.Tensor.addcdiv_, moved, grad, work, value=-lr))
        if moved is not param:
            calls.append(partial(torch.Tensor.add_, param, moved))
