"""What optimizers share: their settings, and how a gradient is prepared before it is applied (evidence.md F.1)."""

from __future__ import annotations

import math
from functools import partial
from typing import Any, ClassVar

import torch

from mlc_torch.descriptors.base import zero_of
from mlc_torch.descriptors.optimizer import warn_unless_finite
from mlc_torch.enums import MLCGradientClippingType, MLCRegularizationType
from mlc_torch.optimizers.chunks import are_many, chunk_size, chunks
from mlc_torch.refusals import refuse
from mlc_torch.spelling import MLCObject, prop
from mlc_torch.torch_private.lists import Call, Tensors, at_once, copy_all, foreach

DESCRIPTOR = "descriptor optimizerDescriptor: MLCOptimizerDescriptor"
"""How every initializer begins."""

Numbers = dict[str, Any]
"""The numbers of a step, as floats or as tensors on the device."""

_LIVE = ("_learningRate", "_timeStep")
"""What may change between updates without a new recording, since it reaches the update through ``scalars``."""


class MLCOptimizer(MLCObject):
    """The base class of the optimizers. The learning rate and the clipping switch may change between updates."""

    @staticmethod
    def _meant_by(value: object) -> str:
        """The end of an error message: how an optimizer is made of torch's that was given in its place."""
        is_torch_s = isinstance(value, torch.optim.Optimizer)
        return " (mlc_torch.interop.TorchOptimizer(optimizer) makes one of torch's)" if is_torch_s else ""

    learningRate = prop("Float", "The size of a step.", settable=True)

    @learningRate.writes
    def _set_learning_rate(self, learningRate):
        warn_unless_finite(learningRate)
        self.__dict__["_learningRate"] = learningRate

    gradientRescale = prop("Float", "A number that gradients are multiplied by, after clipping.")
    appliesGradientClipping = prop("Bool", "Whether gradients are clipped.", settable=True)
    gradientClippingType = prop(
        "MLCGradientClippingType", "By value, by the norm of each gradient, or by the norm of all of them."
    )
    gradientClipMax = prop("Float", "The largest value a gradient keeps when clipped by value.")
    gradientClipMin = prop("Float", "The smallest value a gradient keeps when clipped by value.")
    maximumClippingNorm = prop("Float", "The norm that gradients are scaled down to when clipped by a norm.")
    customGlobalNorm = prop("Float", "A norm to use instead of the one of all gradients; 0 to compute it.")
    regularizationType = prop("MLCRegularizationType", "L1, L2 or none.")
    regularizationScale = prop("Float", "How strong the regularization is.")

    _replayable: ClassVar[bool] = True
    """Whether an update is the same work each time, so that a device may record and replay it."""
    _in_chunks: ClassVar[bool] = False
    """Whether it can be told to leave an update as calls, so that large ones are made chunk by chunk."""
    _spare: ClassVar[int] = 1
    """How many pieces of memory a chunk takes, of which the first is for the gradient."""
    _decouples_decay: ClassVar[bool] = False
    """Whether L2 regularization shrinks the weights directly instead of joining the gradient."""

    @classmethod
    def _with(cls, descriptor: Any, **own: Any) -> Any:
        """An optimizer with the settings of ``descriptor`` and what else its kind is told."""
        return cls._make(**{name: getattr(descriptor, name) for name in MLCOptimizer.__properties__}, **own)

    @classmethod
    def _bare(cls) -> Any:
        """What ``alloc().init()`` gives: everything zero."""
        return cls._make(**{name: zero_of(p.type) for name, p in cls.__properties__.items()})

    # What an optimizer writes

    def _state_names(self) -> list[str]:
        """The state tensors a parameter has, in the order ``optimizerData`` holds them (evidence.md F.2)."""
        raise NotImplementedError(f"{type(self).__name__} has no update rule")

    def _scalars(self, step: int) -> dict[str, float]:
        """The numbers of this step that change from step to step or may be set by the user."""
        return {"lr": self._learningRate}

    def _apply(
        self, params: Tensors, grads: Tensors, states: list[Tensors], numbers: Numbers, into: list[Call] | None = None
    ) -> None:
        """Update ``params`` and ``states`` in place. ``numbers`` are ``scalars``, as floats or as tensors on the device.

        Given ``into``, which it is only if it says so by ``_in_chunks``, it is left there as what is to be called.
        """
        raise NotImplementedError(f"{type(self).__name__} has no update rule")

    def _next_step(self) -> int:
        """The number of the step that comes next, for optimizers that count."""
        return 1

    def _step_taken(self, following: int) -> None:
        """A step was taken; ``following`` is the number of the next."""

    # What it gets

    def _configuration(self) -> tuple[Any, ...]:
        """What work recorded on a device depends on: anything here that changes makes the record stale."""
        return tuple([v for n, v in self.__dict__.items() if n not in _LIVE])  # a generator takes twice the time

    def _update(
        self,
        params: Tensors,
        grads: Tensors,
        states: list[Tensors],
        numbers: Numbers,
        cut: Any = None,
        in_chunks: bool = False,
    ) -> None:
        """One update of all parameters: clip, rescale, regularize, apply. The gradients given stay as they are.

        Clipping looks at whole gradients; the rest is done element by element, in pieces where ``cut`` makes them, or
        ``in_chunks`` where there is much to do. All of it is computed in 32 bits.
        """
        for p in params:
            if p.dtype is torch.float16:
                self._update_widened(params, grads, states, numbers, cut)
                return
        if in_chunks and are_many(self._chunks_from, params, grads, *states):
            self._update_in_chunks(params, grads, states, numbers)
            return
        if self._appliesGradientClipping or self._gradientRescale != 1 or self._regularizationScale:
            grads = self._prepared(params, grads)  # which would find that out, too, by a call in every step
        if cut is not None:
            params, grads, *states = cut(params, grads, *states)
        self._apply(params, grads, states, numbers)

    def _update_widened(
        self, params: Tensors, grads: Tensors, states: list[Tensors], numbers: Numbers, cut: Any
    ) -> None:
        """The same where some numbers have 16 bits: of copies with 32, rounded into place at the end by one operation.

        In 16 bits an ε of 1e-8 is 0, and a weight without a gradient would become 0/0; a small rate is 0, too, and the square of
        300 is infinite.
        """
        written = [params, *states]
        wide = [[t.to(torch.float32, copy=True) for t in kind] for kind in written]
        self._update(wide[0], [g.float() for g in grads], wide[1:], numbers, cut)
        copy_all([t for kind in written for t in kind], [t for kind in wide for t in kind])

    @property
    def _chunks_from(self) -> float:
        """Numbers from which on an update takes less time in chunks: where a gradient would be copied twice or more.

        (x86, two threads, 160,000 and 1.5 million numbers, milliseconds whole and in chunks: clipped by value .54 and .44, 3.8
        and 2.7; L1 .46 and 1.1, 5.6 and 4.1; only rescaled .22 and .69, 2.5 and 2.5.)
        """
        clips_by_value = self._appliesGradientClipping and not self._clips_by_norm
        return 2**19 if self._in_chunks and (clips_by_value or self._adds_signs) else math.inf

    @property
    def _adds_signs(self) -> bool:
        return self._regularizationType is MLCRegularizationType.l1 and bool(self._regularizationScale)

    def _update_in_chunks(self, params: Tensors, grads: Tensors, states: list[Tensors], numbers: Numbers) -> None:
        """The same; all of it is made ready, and then done at once."""
        size = chunk_size()
        calls: list[Call] = []
        # A program may have set torch's defaults.
        new = partial(torch.empty, size, dtype=torch.float32, device="cpu")
        spare = [new() for _ in range(max(self._spare, 1 + self._adds_signs))]
        scales = self._scales(grads) if self._clips_by_norm else [None] * len(grads)
        for scale, *whole in zip(scales, params, grads, *states, strict=True):
            for p, g, *own in chunks(whole, size):
                memory = spare if len(p) == size else [t[: len(p)] for t in spare]
                g = self._prepare_chunk(calls, p, g, scale, memory)
                self._apply_chunk(calls, p, g, own, numbers, memory)
        at_once(calls)

    def _prepare_chunk(
        self, calls: list[Call], param: torch.Tensor, grad: torch.Tensor, scale: Any, memory: Tensors
    ) -> torch.Tensor:
        """As ``_prepared``, of a chunk: into the first piece of ``memory``, if there is anything to do."""
        made = memory[0]
        if scale is not None:
            calls.append(partial(torch.mul, grad, scale, out=made))
            grad = made
        elif self._appliesGradientClipping:
            calls.append(partial(torch.clamp, grad, self._gradientClipMin, self._gradientClipMax, out=made))
            grad = made
        if self._gradientRescale != 1:
            calls.append(partial(torch.mul, grad, self._gradientRescale, out=made))
            grad = made
        if self._adds_signs:
            signs = memory[1]
            calls.append(partial(torch.sign, param, out=signs))
            calls.append(partial(torch.Tensor.mul_, signs, self._regularizationScale))
            calls.append(partial(torch.add, grad, signs, out=made))
            grad = made
        return grad

    def _apply_chunk(
        self, calls: list[Call], param: torch.Tensor, grad: torch.Tensor, states: Tensors, numbers: Any, memory: Tensors
    ) -> None:
        """What ``_apply`` does, of a chunk. All but the first piece of ``memory`` is free."""
        self._apply([param], [grad], [[s] for s in states], numbers, into=calls)

    def _before_update(self, params: Tensors) -> Any:
        """How often the first parameter has been written to."""
        return params[0]._version

    def _was_made(self, params: Tensors, before: Any) -> bool:
        """Whether the update that began ``before`` was made: it writes all parameters in one operation, or none."""
        return params[0]._version != before

    def _prepared(self, params: Tensors, grads: Tensors) -> Tensors:
        """The gradients clipped and rescaled, L1 regularization added; L2 is for ``apply`` (``weight_decay``)."""
        if self._appliesGradientClipping:
            grads = self._clipped(grads)
        if self._gradientRescale != 1:
            grads = foreach("mul", grads, self._gradientRescale)
        if self._adds_signs:
            grads = foreach("add", grads, foreach("mul", foreach("sign", params), self._regularizationScale))
        return grads

    @property
    def _weight_decay(self) -> float:
        """What L2 regularization adds to the gradient, as a multiple of the weights."""
        return self._regularizationScale if self._regularizationType is MLCRegularizationType.l2 else 0.0

    def _clipped(self, grads: Tensors) -> Tensors:
        if self._gradientClippingType is MLCGradientClippingType.byValue:
            return foreach("clamp_max", foreach("clamp_min", grads, self._gradientClipMin), self._gradientClipMax)
        scales = self._scales(grads)
        if self._gradientClippingType is MLCGradientClippingType.byNorm and self._maximumClippingNorm:
            return foreach("mul", grads, [s.expand_as(g) for s, g in zip(scales, grads, strict=True)])
        return foreach("mul", grads, scales[0])

    @property
    def _clips_by_norm(self) -> bool:
        return self._appliesGradientClipping and self._gradientClippingType is not MLCGradientClippingType.byValue

    def _scales(self, grads: Tensors) -> list[Any]:
        """What each gradient is multiplied by when it is clipped by a norm; to a norm of 0, all by the same 0."""
        if not self._maximumClippingNorm:
            return [0.0] * len(grads)  # a gradient of 0 would be multiplied by 0/0
        if self._gradientClippingType is not MLCGradientClippingType.byNorm and self._customGlobalNorm:
            return [min(1.0, self._maximumClippingNorm / self._customGlobalNorm)] * len(grads)
        norms = foreach("norm", grads)
        if self._gradientClippingType is MLCGradientClippingType.byNorm:
            return [(self._maximumClippingNorm / norm).clamp(max=1) for norm in norms]
        total = torch.linalg.vector_norm(torch.stack(norms))
        return [(self._maximumClippingNorm / total).clamp(max=1)] * len(grads)


def fraction(who: str, value: float) -> float:
    """A decay rate: from 0 up to, and without, 1."""
    if not 0 <= value < 1:
        refuse(f"{who} must lie in [0, 1), got {value}")
    return value


def check_rule(optimizer: MLCOptimizer) -> None:
    """Refuse one that cannot update anything."""
    if type(optimizer) is MLCOptimizer:
        refuse("MLCOptimizer itself has no update rule; use MLCSGDOptimizer, MLCAdamOptimizer or another of its kinds")
