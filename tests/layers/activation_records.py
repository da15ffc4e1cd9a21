"""All 21 activations over awkward values, with their formulas in NumPy."""

from __future__ import annotations

import numpy as np
from torch import nn

from mlc_torch.descriptors import MLCActivationDescriptor
from mlc_torch.enums import MLCActivationType as Kind
from mlc_torch.layers import MLCActivationLayer
from mlc_torch.layers import activation as ours
from tests.layers.records import Record, Refusal, values


def _softplus(x):
    return np.logaddexp(0, x)


def _sigmoid(x):
    return np.where(x >= 0, 1 / (1 + np.exp(-np.abs(x))), np.exp(-np.abs(x)) / (1 + np.exp(-np.abs(x))))


def _gelu(x):
    return 0.5 * x * (1 + np.tanh(0.7978845608 * (x + 0.044715 * x**3)))


_ALPHA, _SCALE = 1.6732632423543772848, 1.0507009873554804934

FORMULAS = {
    Kind.none: lambda x, a, b: x,
    Kind.relu: lambda x, a, b: np.where(x >= 0, x, a * x),
    Kind.linear: lambda x, a, b: a * x + b,
    Kind.sigmoid: lambda x, a, b: _sigmoid(x),
    Kind.hardSigmoid: lambda x, a, b: np.clip(a * x + b, 0, 1),
    Kind.tanh: lambda x, a, b: a * np.tanh(b * x),
    Kind.absolute: lambda x, a, b: np.abs(x),
    Kind.softPlus: lambda x, a, b: a * _softplus(b * x),
    Kind.softSign: lambda x, a, b: x / (1 + np.abs(x)),
    Kind.elu: lambda x, a, b: np.where(x >= 0, x, a * np.expm1(np.minimum(x, 0))),
    Kind.relun: lambda x, a, b: np.minimum(np.where(x >= 0, x, a * x), b),
    Kind.logSigmoid: lambda x, a, b: -_softplus(-x),
    Kind.selu: lambda x, a, b: _SCALE * (np.maximum(0, x) + np.minimum(0, _ALPHA * np.expm1(np.minimum(x, 0)))),
    Kind.celu: lambda x, a, b: np.maximum(0, x) + np.minimum(0, a * np.expm1(np.minimum(x, 0) / a)),
    Kind.hardShrink: lambda x, a, b: np.where(np.abs(x) > a, x, 0),
    Kind.softShrink: lambda x, a, b: np.where(x > a, x - a, np.where(x < -a, x + a, 0)),
    Kind.tanhShrink: lambda x, a, b: x - np.tanh(x),
    Kind.threshold: lambda x, a, b: np.where(x > a, x, b),
    Kind.gelu: lambda x, a, b: _gelu(x),
    Kind.hardSwish: lambda x, a, b: np.where(x <= -3, 0, np.where(x >= 3, x, x * (x + 3) / 6)),
    Kind.clamp: lambda x, a, b: np.minimum(np.maximum(x, a), b),
}

# Kept away from the kinks, where a finite difference would average two slopes.
_X = np.array([[-7.5, -3.2, -1.3, -0.45], [-0.15, 0.1, 0.35, 0.6], [0.9, 1.7, 3.3, 8.25]], np.float32)

_NUMBERS = {
    Kind.relu: [(0.0, 1.0), (0.3, 1.0), (-0.5, 1.0)],
    Kind.linear: [(3.0, 4.0), (-0.5, 0.0)],
    Kind.hardSigmoid: [(0.2, 0.5), (-1.0, 0.25)],
    Kind.tanh: [(1.0, 1.0), (2.0, 0.5), (-1.0, 3.0)],
    Kind.softPlus: [(1.0, 1.0), (0.5, 2.0), (3.0, -1.0)],
    Kind.elu: [(1.0, 1.0), (0.25, 1.0), (-1.0, 1.0), (0.0, 1.0)],
    Kind.relun: [(0.0, 6.0), (0.0, 1.5), (0.1, 1.0), (1.0, -0.2)],
    Kind.celu: [(1.0, 1.0), (2.0, 1.0), (0.5, 1.0)],
    Kind.hardShrink: [(0.5, 1.0), (2.0, 1.0), (0.0, 1.0)],
    Kind.softShrink: [(0.5, 1.0), (2.0, 1.0), (0.0, 1.0)],
    Kind.threshold: [(0.5, -1.0), (1.0, 1.0), (-2.0, 7.0)],
    Kind.clamp: [(-1.0, 2.0), (0.0, 6.0)],
}

_OWN = {
    Kind.linear: ours.Linear,
    Kind.hardSigmoid: ours.HardSigmoid,
    Kind.absolute: ours.Absolute,
    Kind.relun: ours.ReLUN,
    Kind.clamp: ours.Clamp,
}


def _record(kind: Kind, a: float, b: float) -> Record:
    return Record(
        f"{kind.name}({a}, {b})",
        lambda: MLCActivationLayer(descriptor=MLCActivationDescriptor(type=kind, a=a, b=b)),
        [_X],
        _X.shape,
        lambda x: FORMULAS[kind](x, a, b),
        objc=lambda: MLCActivationLayer.layerWithDescriptor_(
            MLCActivationDescriptor.descriptorWithType_a_b_(kind, a, b)
        ),
        atol=1e-6,
    )


def _factory(name, make, objc, kind, a=1.0, b=1.0, module=None) -> Record:
    x = values(2, 3, 4, 5, low=-4, high=4)
    return Record(
        f"factory {name}",
        make,
        [x],
        x.shape,
        lambda x: FORMULAS[kind](x, a, b),
        objc=objc,
        module=module,
        gradient=False,
    )


L = MLCActivationLayer
RECORDS = [_record(kind, a, b) for kind in Kind for a, b in _NUMBERS.get(kind, [(1.0, 1.0)])] + [
    _factory("relu", lambda: L.relu, lambda: L.reluLayer(), Kind.relu, 0, module=nn.ReLU),
    _factory("relu6", lambda: L.relu6, lambda: L.relu6Layer(), Kind.relun, 0, 6, module=nn.ReLU6),
    _factory("leakyReLU", lambda: L.leakyReLU, lambda: L.leakyReLULayer(), Kind.relu, 0.01, module=nn.LeakyReLU),
    _factory(
        "leakyReLU(negativeSlope)",
        lambda: L.leakyReLU(negativeSlope=0.2),
        lambda: L.leakyReLULayerWithNegativeSlope_(0.2),
        Kind.relu,
        0.2,
    ),
    _factory(
        "linear", lambda: L.linear(scale=2, bias=-1), lambda: L.linearLayerWithScale_bias_(2, -1), Kind.linear, 2, -1
    ),
    _factory("sigmoid", lambda: L.sigmoid, lambda: L.sigmoidLayer(), Kind.sigmoid, module=nn.Sigmoid),
    _factory("hardSigmoid", lambda: L.hardSigmoid, lambda: L.hardSigmoidLayer(), Kind.hardSigmoid, 0.2, 0.5),
    _factory("tanh", lambda: L.tanh, lambda: L.tanhLayer(), Kind.tanh, module=nn.Tanh),
    _factory("absolute", lambda: L.absolute, lambda: L.absoluteLayer(), Kind.absolute),
    _factory("softPlus", lambda: L.softPlus, lambda: L.softPlusLayer(), Kind.softPlus, module=nn.Softplus),
    _factory("softPlus(beta)", lambda: L.softPlus(beta=2), lambda: L.softPlusLayerWithBeta_(2), Kind.softPlus, 0.5, 2),
    _factory("softSign", lambda: L.softSign, lambda: L.softSignLayer(), Kind.softSign, module=nn.Softsign),
    _factory("elu", lambda: L.elu, lambda: L.eluLayer(), Kind.elu, module=nn.ELU),
    _factory("elu(a)", lambda: L.elu(a=0.3), lambda: L.eluLayerWithA_(0.3), Kind.elu, 0.3),
    _factory(
        "relun",
        lambda: L.relun(a=0.1, b=2),
        lambda: L.relunLayerWithA_b_(0.1, 2),
        Kind.relun,
        0.1,
        2,
        module=ours.ReLUN,
    ),
    _factory("logSigmoid", lambda: L.logSigmoid, lambda: L.logSigmoidLayer(), Kind.logSigmoid, module=nn.LogSigmoid),
    _factory("selu", lambda: L.selu, lambda: L.seluLayer(), Kind.selu, module=nn.SELU),
    _factory("celu", lambda: L.celu, lambda: L.celuLayer(), Kind.celu, module=nn.CELU),
    _factory("celu(a)", lambda: L.celu(a=2), lambda: L.celuLayerWithA_(2), Kind.celu, 2),
    _factory(
        "hardShrink", lambda: L.hardShrink, lambda: L.hardShrinkLayer(), Kind.hardShrink, 0.5, module=nn.Hardshrink
    ),
    _factory("hardShrink(a)", lambda: L.hardShrink(a=1), lambda: L.hardShrinkLayerWithA_(1), Kind.hardShrink, 1),
    _factory(
        "softShrink", lambda: L.softShrink, lambda: L.softShrinkLayer(), Kind.softShrink, 0.5, module=nn.Softshrink
    ),
    _factory("softShrink(a)", lambda: L.softShrink(a=1), lambda: L.softShrinkLayerWithA_(1), Kind.softShrink, 1),
    _factory("tanhShrink", lambda: L.tanhShrink, lambda: L.tanhShrinkLayer(), Kind.tanhShrink, module=nn.Tanhshrink),
    _factory(
        "threshold",
        lambda: L.threshold(0.6, replacement=-1),
        lambda: L.thresholdLayerWithThreshold_replacement_(0.6, -1),
        Kind.threshold,
        0.6,
        -1,
        module=nn.Threshold,
    ),
    _factory("gelu", lambda: L.gelu, lambda: L.geluLayer(), Kind.gelu, module=nn.GELU),
    _factory("hardSwish", lambda: L.hardSwish, lambda: L.hardSwishLayer(), Kind.hardSwish, module=nn.Hardswish),
    _factory(
        "clamp", lambda: L.clamp(min=-1, max=2), lambda: L.clampLayerWithMinValue_maxValue_(-1, 2), Kind.clamp, -1, 2
    ),
]

REFUSALS = [
    Refusal("unknown type", lambda: MLCActivationDescriptor(type=99), "MLCActivationType"),
    Refusal("celu by zero", lambda: L.celu(a=0), "must not be 0"),
    Refusal("softplus by zero", lambda: L.softPlus(beta=0), "beta"),
    Refusal("two sources", lambda: L.relu, "1 source", [((2, 3), "float32"), ((2, 3), "float32")]),
    Refusal("integers", lambda: L.relu, "int32", [((2, 3), "int32")]),
]
