"""Activations: one function applied to every element (evidence.md D.1)."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import nn
from torch.nn import functional as F

from mlc_torch.descriptors import MLCActivationDescriptor
from mlc_torch.enums import MLCActivationType
from mlc_torch.layers.base import FLOATS, MLCLayer, of_type, one_source
from mlc_torch.layers.sharing import aligned
from mlc_torch.refusals import refuse
from mlc_torch.spelling import declare, prop, static_prop

Kind = MLCActivationType

# The constants a ready-made GELU layer's descriptor carries (measured); the function itself ignores a and b (C1).
_GELU = {"a": 0.7978845608, "b": 0.044715}


class Activation(nn.Module):
    """An activation for which torch.nn has no class of its own."""

    def __init__(self, descriptor: MLCActivationDescriptor) -> None:
        super().__init__()
        self.a, self.b = descriptor.a, descriptor.b

    def extra_repr(self) -> str:
        return f"a={self.a}, b={self.b}"


class Linear(Activation):
    """a·x + b"""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.b == 0:
            return x * self.a
        return x + self.b if self.a == 1 else x * self.a + self.b


class HardSigmoid(Activation):
    """a·x + b, held between 0 and 1"""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return (x * self.a + self.b).clamp(0, 1)


class ScaledTanh(Activation):
    """a·tanh(b·x)"""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.tanh(x * self.b) * self.a


class Absolute(Activation):
    """|x|"""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.abs()


class ScaledSoftplus(Activation):
    """a·log(1 + e^(b·x))"""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return F.softplus(x * self.b) * self.a


class ELU(Activation):
    """x from 0 on, a·(e^x - 1) below; unlike nn.ELU also for a = 0 and below, where the gradient needs the source"""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.where(x >= 0, x, torch.expm1(x.clamp(max=0)) * self.a)


class ReLUN(Activation):
    """x from 0 on, a·x below, and at most b"""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return F.leaky_relu(x, self.a).clamp(max=self.b)


class HardShrink(Activation):
    """x where |x| > a, else 0"""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.where(x.abs() <= self.a, torch.zeros_like(x), x)


class SoftShrink(Activation):
    """x - a above a, x + a below -a, else 0"""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        inside = torch.zeros_like(x) * x
        return torch.where(x > self.a, x - self.a, torch.where(x < -self.a, x + self.a, inside))


class Clamp(Activation):
    """min(max(x, a), b)"""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.clamp(self.a, self.b)


def _plain(cls: type[nn.Module]) -> Callable[[MLCActivationDescriptor], nn.Module]:
    return lambda descriptor: cls()


def _relu_up_to(limit: float) -> nn.Module:
    """torch.nn's own classes, whose gradient is one kernel where that of a clamp is three, 13 times as slow on ARM."""
    return nn.ReLU6() if limit == 6 else nn.Hardtanh(0.0, limit)


MODULES: dict[MLCActivationType, Callable[[MLCActivationDescriptor], nn.Module]] = {
    Kind.none: _plain(nn.Identity),
    Kind.relu: lambda d: nn.ReLU() if d.a == 0 else nn.LeakyReLU(d.a),
    Kind.linear: Linear,
    Kind.sigmoid: _plain(nn.Sigmoid),
    Kind.hardSigmoid: HardSigmoid,
    Kind.tanh: lambda d: nn.Tanh() if d.a == d.b == 1 else ScaledTanh(d),
    Kind.absolute: Absolute,
    Kind.softPlus: lambda d: nn.Softplus(d.b) if d.b > 0 and d.a * d.b == 1 else ScaledSoftplus(d),
    Kind.softSign: _plain(nn.Softsign),
    Kind.elu: lambda d: nn.ELU(d.a) if d.a > 0 else ELU(d),
    Kind.relun: lambda d: _relu_up_to(d.b) if d.a == 0 and d.b > 0 else ReLUN(d),
    Kind.logSigmoid: _plain(nn.LogSigmoid),
    Kind.selu: _plain(nn.SELU),
    Kind.celu: lambda d: nn.CELU(d.a),
    Kind.hardShrink: lambda d: nn.Hardshrink(d.a) if d.a >= 0 else HardShrink(d),
    Kind.softShrink: lambda d: nn.Softshrink(d.a) if d.a >= 0 else SoftShrink(d),
    Kind.tanhShrink: _plain(nn.Tanhshrink),
    Kind.threshold: lambda d: nn.Threshold(d.a, d.b),
    Kind.gelu: lambda d: nn.GELU(approximate="tanh"),
    Kind.hardSwish: _plain(nn.Hardswish),
    Kind.clamp: Clamp,
}


def _ready(
    kind: MLCActivationType, selector: str, about: str, a: float | None = None, b: float | None = None
) -> static_prop:
    """A class property that makes a fresh layer at each access."""
    return static_prop("MLCActivationLayer", selector, about)(lambda cls: cls._of(kind, a, b))


class MLCActivationLayer(MLCLayer):
    """Applies a function to every element; the result has the source's shape and type."""

    descriptor = prop("MLCActivationDescriptor", "The function and its parameters.")
    _named = "Activation"

    relu = _ready(Kind.relu, "reluLayer", "max(x, 0).")
    relu6 = _ready(Kind.relun, "relu6Layer", "x between 0 and 6, and the nearer of the two beyond.", a=0.0, b=6.0)
    leakyReLU = _ready(Kind.relu, "leakyReLULayer", "x from 0 on, 0.01·x below.", a=0.01)
    sigmoid = _ready(Kind.sigmoid, "sigmoidLayer", "1 / (1 + e^-x).")
    hardSigmoid = _ready(Kind.hardSigmoid, "hardSigmoidLayer", "0.2·x + 0.5, held between 0 and 1.")
    tanh = _ready(Kind.tanh, "tanhLayer", "The hyperbolic tangent.")
    absolute = _ready(Kind.absolute, "absoluteLayer", "|x|.")
    softPlus = _ready(Kind.softPlus, "softPlusLayer", "log(1 + e^x).")
    softSign = _ready(Kind.softSign, "softSignLayer", "x / (1 + |x|).")
    elu = _ready(Kind.elu, "eluLayer", "x from 0 on, e^x - 1 below.")
    logSigmoid = _ready(Kind.logSigmoid, "logSigmoidLayer", "log(1 / (1 + e^-x)).")
    selu = _ready(Kind.selu, "seluLayer", "The scaled exponential linear unit, with its usual constants.")
    celu = _ready(Kind.celu, "celuLayer", "x from 0 on, a·(e^(x/a) - 1) below, with a = 1.")
    hardShrink = _ready(Kind.hardShrink, "hardShrinkLayer", "x where |x| > 0.5, else 0.")
    softShrink = _ready(Kind.softShrink, "softShrinkLayer", "x moved towards 0 by 0.5, and 0 where |x| is at most 0.5.")
    tanhShrink = _ready(Kind.tanhShrink, "tanhShrinkLayer", "x - tanh(x).")
    gelu = _ready(Kind.gelu, "geluLayer", "The Gaussian error linear unit, in its tanh approximation.", **_GELU)
    hardSwish = _ready(Kind.hardSwish, "hardSwishLayer", "x · min(max(x + 3, 0), 6) / 6.")

    def _infer(self, sources):
        return [of_type(one_source(sources), FLOATS)]

    def _samples(self, axes, sources, results):
        return aligned(axes, sources, len(results[0]._shape))

    def _build(self):
        return MODULES[self._descriptor.activationType](self._descriptor)

    @declare("init(descriptor: MLCActivationDescriptor)", "layerWithDescriptor:")
    def _create(cls, descriptor):
        """By descriptor."""
        if descriptor.activationType is Kind.celu and descriptor.a == 0:
            refuse("CELU divides by a, which must not be 0")
        return cls._layer(descriptor=descriptor)

    @declare(
        "static leakyReLU(negativeSlope a: Float) -> Self",
        "leakyReLULayerWithNegativeSlope:",
        about="x from 0 on, negativeSlope·x below.",
        type=Kind.relu,
    )
    @declare(
        "static linear(scale a: Float, bias b: Float) -> Self",
        "linearLayerWithScale:bias:",
        about="scale·x + bias.",
        type=Kind.linear,
    )
    @declare("static elu(a: Float) -> Self", "eluLayerWithA:", about="x from 0 on, a·(e^x - 1) below.", type=Kind.elu)
    @declare(
        "static relun(a: Float, b: Float) -> Self",
        "relunLayerWithA:b:",
        about="x from 0 on, a·x below, and at most b.",
        type=Kind.relun,
    )
    @declare(
        "static celu(a: Float) -> Self", "celuLayerWithA:", about="x from 0 on, a·(e^(x/a) - 1) below.", type=Kind.celu
    )
    @declare(
        "static hardShrink(a: Float) -> Self",
        "hardShrinkLayerWithA:",
        about="x where |x| > a, else 0.",
        type=Kind.hardShrink,
    )
    @declare(
        "static softShrink(a: Float) -> Self",
        "softShrinkLayerWithA:",
        about="x moved towards 0 by a, and 0 where |x| is at most a.",
        type=Kind.softShrink,
    )
    @declare(
        "static threshold(_ a: Float, replacement b: Float) -> Self",
        "thresholdLayerWithThreshold:replacement:",
        about="x above the threshold, ``replacement`` elsewhere.",
        type=Kind.threshold,
    )
    @declare(
        "static clamp(min a: Float, max b: Float) -> Self",
        "clampLayerWithMinValue:maxValue:",
        about="x held between ``min`` and ``max``.",
        type=Kind.clamp,
    )
    def _of(cls, type, a=None, b=None):
        return cls._create(MLCActivationDescriptor._create(type, a, b))

    @declare("static softPlus(beta: Float) -> Self", "softPlusLayerWithBeta:")
    def _softplus(cls, beta):
        """log(1 + e^(beta·x)) / beta."""
        if beta == 0:
            refuse("beta must not be 0: softplus divides by it")
        return cls._of(Kind.softPlus, 1 / beta, beta)

    def __call__(self, *args, **labels):
        """``MLCActivationLayer.celu(a=2)``: the labelled form of a ready-made layer's name."""
        labelled = self.__dict__.get("_labelled")
        if labelled is None:
            raise TypeError(f"{self!r} is a layer, not a function; add it to a graph with node(with:source:)")
        return labelled(*args, **labels)
