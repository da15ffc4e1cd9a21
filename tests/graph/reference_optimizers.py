"""The optimizers of evidence.md F.1 and F.2 in NumPy, float64, one line after the other. They know nothing of torch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

Array = np.ndarray


@dataclass
class Settings:
    """What MLCOptimizerDescriptor holds."""

    lr: float = 0.05
    rescale: float = 1.0
    clips: str | None = None
    """``value``, ``norm`` or ``global``."""
    clip_max: float = 1.0
    clip_min: float = -1.0
    max_norm: float = 1.0
    custom_norm: float = 1.0
    regularization: str = "none"
    scale: float = 0.0

    def scale_to_norm(self, norm: float) -> float:
        return 1.0 if norm <= self.max_norm else self.max_norm / norm

    def prepared(self, grads: Sequence[Array], params: Sequence[Array], decoupled: bool) -> list[Array]:
        """Clip, rescale, regularize."""
        if self.clips == "value":
            grads = [np.clip(g, self.clip_min, self.clip_max) for g in grads]
        elif self.clips == "norm":
            grads = [g * self.scale_to_norm(np.sqrt((g**2).sum())) for g in grads]
        elif self.clips == "global":
            norm = self.custom_norm or np.sqrt(sum((g**2).sum() for g in grads))
            grads = [g * self.scale_to_norm(norm) for g in grads]
        grads = [g * self.rescale for g in grads]
        if self.regularization == "l1":
            grads = [g + self.scale * np.sign(p) for g, p in zip(grads, params, strict=True)]
        elif self.regularization == "l2" and not decoupled:
            grads = [g + self.scale * p for g, p in zip(grads, params, strict=True)]
        return list(grads)


@dataclass
class Reference:
    """Parameters and their state, moved by ``step``."""

    params: list[Array]
    settings: Settings
    decoupled: bool = False
    states: dict[str, list[Array]] = field(default_factory=dict)

    def state(self, name: str) -> list[Array]:
        return self.states.setdefault(name, [np.zeros_like(p) for p in self.params])

    def step(self, grads: Sequence[Array]) -> None:
        grads = self.settings.prepared([g.astype(np.float64) for g in grads], self.params, self.decoupled)
        for number, gradient in enumerate(grads):
            self.move(number, gradient)
        self.after()

    def move(self, number: int, g: Array) -> None:
        raise NotImplementedError

    def after(self) -> None:
        """Once all parameters have moved."""


@dataclass
class SGD(Reference):
    momentum: float = 0.0
    nesterov: bool = False

    def move(self, number, g):
        lr, m = self.settings.lr, self.state("momentum")
        if not self.momentum:
            self.params[number] = self.params[number] - lr * g
        elif self.nesterov:
            m[number] = self.momentum * m[number] + g
            self.params[number] = self.params[number] - lr * (g + self.momentum * m[number])
        else:
            m[number] = self.momentum * m[number] + lr * g
            self.params[number] = self.params[number] - m[number]


@dataclass
class Adam(Reference):
    beta1: float = 0.9
    beta2: float = 0.999
    epsilon: float = 1e-8
    amsgrad: bool = False
    t: int = 1

    def move(self, number, g):
        m, v, largest = self.state("m"), self.state("v"), self.state("largest")
        lr, w = self.settings.lr, self.params[number]
        if self.decoupled and self.settings.regularization == "l2":
            w = w - lr * self.settings.scale * w
        m[number] = self.beta1 * m[number] + (1 - self.beta1) * g
        v[number] = self.beta2 * v[number] + (1 - self.beta2) * g**2
        largest[number] = np.maximum(largest[number], v[number])
        rate = lr * np.sqrt(1 - self.beta2**self.t) / (1 - self.beta1**self.t)
        second = largest[number] if self.amsgrad else v[number]
        self.params[number] = w - rate * m[number] / (np.sqrt(second) + self.epsilon)

    def after(self):
        self.t += 1


@dataclass
class RMSProp(Reference):
    momentum: float = 0.0
    alpha: float = 0.99
    epsilon: float = 1e-8
    centered: bool = False

    def move(self, number, g):
        n, a, delta = self.state("n"), self.state("a"), self.state("delta")
        n[number] = self.alpha * n[number] + (1 - self.alpha) * g**2
        spread = n[number]
        if self.centered:
            a[number] = self.alpha * a[number] + (1 - self.alpha) * g
            spread = spread - a[number] ** 2
        delta[number] = self.momentum * delta[number] - self.settings.lr * g / (np.sqrt(spread) + self.epsilon)
        self.params[number] = self.params[number] + delta[number]
