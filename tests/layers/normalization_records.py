"""All normalizations, in training and in inference, against sums written out."""

from __future__ import annotations

import numpy as np
from torch import nn

from mlc_torch.layers.normalization import (
    MLCBatchNormalizationLayer,
    MLCGroupNormalizationLayer,
    MLCInstanceNormalizationLayer,
    MLCLayerNormalizationLayer,
)
from mlc_torch.layers.normalization_modules import BatchNorm, GroupNorm, InstanceNorm
from tests.layers.records import Record, Refusal, tensor, values

Batch, Instance = MLCBatchNormalizationLayer, MLCInstanceNormalizationLayer
Group, Layer = MLCGroupNormalizationLayer, MLCLayerNormalizationLayer
EPSILON = 1e-3


def by_channel(v, x, missing):
    return missing if v is None else np.reshape(v.astype(float), (1, -1, *[1] * (x.ndim - 2)))


def normalized(x, axes, epsilon=EPSILON):
    mean = x.sum(axes, keepdims=True) / np.prod([x.shape[a] for a in axes])
    variance = ((x - mean) ** 2).sum(axes, keepdims=True) / np.prod([x.shape[a] for a in axes])
    return (x - mean) / np.sqrt(variance + epsilon)


def batch_norm(x, mean, variance, beta, gamma, training):
    if training:
        y = normalized(x, (0, *range(2, x.ndim)))
    else:
        y = (x - by_channel(mean, x, 0)) / np.sqrt(by_channel(variance, x, 0) + EPSILON)
    return y * by_channel(gamma, x, 1) + by_channel(beta, x, 0)


def instance_norm(x, mean, variance, beta, gamma, training):
    if mean is not None and not training:
        return batch_norm(x, mean, variance, beta, gamma, False)
    return normalized(x, tuple(range(2, x.ndim))) * by_channel(gamma, x, 1) + by_channel(beta, x, 0)


def group_norm(x, groups, beta, gamma):
    grouped = x.reshape(x.shape[0], groups, -1)
    return normalized(grouped, (2,)).reshape(x.shape) * by_channel(gamma, x, 1) + by_channel(beta, x, 0)


def layer_norm(x, shape, beta, gamma):
    y = normalized(x, tuple(range(x.ndim - len(shape), x.ndim)))
    return y * (1 if gamma is None else gamma.astype(float)) + (0 if beta is None else beta.astype(float))


def held(v):
    """A fresh tensor of shape [1, C, 1, 1]."""
    return None if v is None else tensor(v, (1, v.size, 1, 1))


class Numbers:
    """Parameters for so many channels; ``affine`` says which of gamma (g) and beta (b) there are."""

    def __init__(self, channels, affine="gb"):
        self.mean, self.variance = values(channels, seed=1), values(channels, seed=2, low=0.3, high=3)
        self.beta = values(channels, seed=3) if "b" in affine else None
        self.gamma = values(channels, seed=4, low=0.5) if "g" in affine else None


def batch(name, shape, training, affine="gb", momentum=None, **kw) -> Record:
    p = Numbers(shape[1], affine)
    short = "layerWithFeatureChannelCount_mean_variance_beta_gamma_varianceEpsilon_"
    more = {} if momentum is None else {"momentum": momentum}

    def objc():
        make = getattr(Batch, short + "momentum_" * bool(more))
        return make(shape[1], *map(held, (p.mean, p.variance, p.beta, p.gamma)), EPSILON, *more.values())

    return Record(
        f"batch, {name}, {'training' if training else 'inference'}",
        lambda: Batch(
            featureChannelCount=shape[1],
            mean=held(p.mean),
            variance=held(p.variance),
            beta=held(p.beta),
            gamma=held(p.gamma),
            varianceEpsilon=EPSILON,
            **more,
        ),
        [values(*shape)],
        shape,
        lambda x: batch_norm(x, p.mean, p.variance, p.beta, p.gamma, training),
        objc=objc,
        training=training,
        module=BatchNorm,
        **{"atol": 1e-5, **kw},
    )


def instance(name, shape, training, affine="gb", momentum=None, running=False, **kw) -> Record:
    p = Numbers(shape[1], affine)
    if not running:
        p.mean = p.variance = None
    more = {} if momentum is None else {"momentum": momentum}
    statistics = {"mean": p.mean, "variance": p.variance} if running else {}

    def objc():
        make = getattr(
            Instance,
            "layerWithFeatureChannelCount_"
            + "mean_variance_" * running
            + "beta_gamma_varianceEpsilon_"
            + "momentum_" * bool(more),
        )
        return make(shape[1], *map(held, statistics.values()), held(p.beta), held(p.gamma), EPSILON, *more.values())

    return Record(
        f"instance, {name}, {'training' if training else 'inference'}",
        lambda: Instance(
            featureChannelCount=shape[1],
            beta=held(p.beta),
            gamma=held(p.gamma),
            varianceEpsilon=EPSILON,
            **{n: held(v) for n, v in statistics.items()},
            **more,
        ),
        [values(*shape)],
        shape,
        lambda x: instance_norm(x, p.mean, p.variance, p.beta, p.gamma, training),
        objc=objc,
        training=training,
        module=InstanceNorm,
        **{"atol": 1e-5, **kw},
    )


def group(name, shape, groups, affine="gb", **kw) -> Record:
    p = Numbers(shape[1], affine)
    return Record(
        f"group, {name}",
        lambda: Group(
            featureChannelCount=shape[1],
            groupCount=groups,
            beta=held(p.beta),
            gamma=held(p.gamma),
            varianceEpsilon=EPSILON,
        ),
        [values(*shape)],
        shape,
        lambda x: group_norm(x, groups, p.beta, p.gamma),
        objc=lambda: Group.layerWithFeatureChannelCount_groupCount_beta_gamma_varianceEpsilon_(
            shape[1], groups, held(p.beta), held(p.gamma), EPSILON
        ),
        module=GroupNorm,
        **{"atol": 1e-5, **kw},
    )


def layer(name, shape, over, affine="gb", **kw) -> Record:
    beta = values(*over, seed=3) if "b" in affine else None
    gamma = values(*over, seed=4) if "g" in affine else None

    def fresh(v):
        return None if v is None else tensor(v)

    return Record(
        f"layer, {name}",
        lambda: Layer(normalizedShape=list(over), beta=fresh(beta), gamma=fresh(gamma), varianceEpsilon=EPSILON),
        [values(*shape)],
        shape,
        lambda x: layer_norm(x, over, beta, gamma),
        objc=lambda: Layer.layerWithNormalizedShape_beta_gamma_varianceEpsilon_(
            list(over), fresh(beta), fresh(gamma), EPSILON
        ),
        module=nn.LayerNorm,
        **{"atol": 1e-5, **kw},
    )


ONE_TO_FOUR = np.arange(1, 5, dtype=np.float32).reshape(1, 1, 2, 2)


def one(value):
    return tensor(np.full((1, 1, 1, 1), value, np.float32))


def measured(name, make, answer) -> Record:
    return Record(
        f"{name}, as measured",
        make,
        [ONE_TO_FOUR],
        (1, 1, 2, 2),
        lambda x: np.reshape(answer, (1, 1, 2, 2)),
        rtol=2e-6,
        gradient=False,
    )


AFFINE = [("gamma and beta", "gb"), ("gamma alone", "g"), ("beta alone", "b"), ("neither", "")]

RECORDS = [
    record
    for training in (True, False)
    for record in (
        *(batch(name, (2, 3, 2, 3), training, affine) for name, affine in AFFINE),
        batch("momentum given", (2, 3, 2, 2), training, momentum=0.5),
        batch("one sample", (1, 3, 2, 3), training),
        batch("one value a channel", (1, 3, 1, 1), training),
        batch("one value a channel, neither", (1, 2, 1, 1), training, ""),
        batch("rank 2", (6, 4), training),
        batch("rank 3", (2, 3, 4), training),
        *(instance(name, (2, 3, 2, 3), training, affine) for name, affine in AFFINE),
        *(instance(f"{name}, running", (2, 3, 2, 2), training, affine, 0.9, True) for name, affine in AFFINE),
        instance("momentum given", (2, 3, 2, 2), training, momentum=0.5),
        instance("one pixel", (2, 3, 1, 1), training),
        instance("one pixel, running", (2, 3, 1, 1), training, momentum=0.9, running=True),
        instance("rank 3", (2, 3, 4), training),
    )
] + [
    *(group(name, (2, 6, 3, 2), 3, affine) for name, affine in AFFINE),
    group("one group", (2, 4, 2, 2), 1),
    group("each channel a group", (2, 4, 2, 2), 4),
    group("a single value in each", (1, 3, 1, 1), 3),
    group("rank 2", (3, 6), 2),
    group("rank 3", (2, 4, 5), 2),
    *(layer(name, (2, 2, 2, 5), (5,), affine) for name, affine in AFFINE),
    layer("height and width", (2, 1, 4, 3), (4, 3)),
    layer("channels, height and width", (2, 3, 2, 2), (3, 2, 2)),
    layer("channels, height and width, beta alone", (2, 3, 2, 2), (3, 2, 2), "b"),
    layer("rank 2", (3, 6), (6,)),
    layer("rank 3", (2, 3, 4), (4,)),
    measured(
        "batch",
        lambda: Batch(
            featureChannelCount=1, mean=one(1), variance=one(4), beta=one(0.5), gamma=one(2), varianceEpsilon=1e-5
        ),
        [0.5, 1.499999, 2.499998, 3.499996],
    ),
    measured(
        "instance",
        lambda: Instance(featureChannelCount=1, beta=one(0), gamma=one(1), varianceEpsilon=1e-5),
        [-1.341635, -0.4472118, 0.4472118, 1.341635],
    ),
]


def _batch(channels=3, **kw):
    given = {n: tensor(values(1, 3, 1, 1)) for n in ("mean", "variance", "beta", "gamma")} | {"varianceEpsilon": 1e-5}
    return Batch(featureChannelCount=channels, **given | kw)


def _instance(**kw):
    return Instance(featureChannelCount=3, **{"beta": None, "gamma": None, "varianceEpsilon": 1e-5} | kw)


def _group(channels=6, groups=2, **kw):
    return Group(
        featureChannelCount=channels, groupCount=groups, **{"beta": None, "gamma": None, "varianceEpsilon": 0.1} | kw
    )


def _layer(shape, **kw):
    return Layer(normalizedShape=shape, **{"beta": None, "gamma": None, "varianceEpsilon": 1e-5} | kw)


flat, whole = tensor(values(3)), tensor(np.ones((1, 3, 1, 1), np.int32))
REFUSALS = [
    Refusal("batch: no channels", lambda: _batch(0), "featureChannelCount"),
    Refusal("batch: mean", lambda: _batch(mean=flat), "mean must have the shape [1, 3, 1, 1]"),
    Refusal("batch: variance", lambda: _batch(4, mean=tensor(values(1, 4, 1, 1))), "variance"),
    Refusal("batch: beta", lambda: _batch(beta=flat), "beta"),
    Refusal("batch: gamma", lambda: _batch(gamma=flat), "gamma"),
    Refusal("batch: integers for gamma", lambda: _batch(gamma=whole), "gamma must be float32"),
    Refusal("batch: epsilon", lambda: _batch(varianceEpsilon=-1), "finite and not negative, got -1"),
    Refusal("batch: epsilon of NaN", lambda: _batch(varianceEpsilon=float("nan")), "finite and not negative, got nan"),
    Refusal("batch: momentum", lambda: _batch(momentum=1.5), "momentum"),
    Refusal("batch: channels", _batch, "4 channels", [((1, 4, 2, 2), "float32")]),
    Refusal("batch: rank", _batch, "at least 2", [((3,), "float32")]),
    Refusal("batch: integers", _batch, "int32", [((1, 3, 2, 2), "int32")]),
    Refusal(
        "batch: another type than its tensors",
        _batch,
        "the type of mean, float32, got float16",
        [((1, 3, 2, 2), "float16")],
    ),
    Refusal("batch: two sources", _batch, "1 source", [((1, 3, 2, 2), "float32")] * 2),
    Refusal("instance: gamma", lambda: _instance(gamma=flat), "gamma"),
    Refusal("instance: mean", lambda: _instance(mean=flat, variance=flat, momentum=0.5), "mean"),
    Refusal("instance: momentum", lambda: _instance(momentum=float("nan")), "momentum"),
    Refusal("instance: epsilon", lambda: _instance(varianceEpsilon=float("inf")), "finite and not negative, got inf"),
    Refusal("instance: rank", _instance, "at least 3", [((2, 3), "float32")]),
    Refusal("instance: channels", _instance, "2 channels", [((1, 2, 2, 2), "float32")]),
    Refusal("group: does not divide", lambda: _group(groups=4), "groupCount"),
    Refusal("group: none", lambda: _group(groups=0), "groupCount"),
    Refusal("group: epsilon", lambda: _group(varianceEpsilon=float("inf")), "finite and not negative, got inf"),
    Refusal("group: beta", lambda: _group(beta=flat), "beta"),
    Refusal("group: channels", _group, "4 channels", [((1, 4, 2, 2), "float32")]),
    Refusal("layer: no shape", lambda: _layer([]), "normalizedShape"),
    Refusal("layer: four dimensions", lambda: _layer([1, 2, 3, 4]), "normalizedShape"),
    Refusal("layer: zero", lambda: _layer([0]), "normalizedShape"),
    Refusal("layer: gamma", lambda: _layer([2, 3], gamma=flat), "gamma must have the shape [2, 3]"),
    Refusal("layer: epsilon", lambda: _layer([3], varianceEpsilon=float("inf")), "finite and not negative, got inf"),
    Refusal("layer: other sizes", lambda: _layer([4]), "end with the dimensions [4]", [((1, 1, 2, 2), "float32")]),
    Refusal("layer: the batch too", lambda: _layer([2, 3]), "after the batch", [((2, 3), "float32")]),
    Refusal(
        "layer: another type than its tensors",
        lambda: _layer([3], beta=flat),
        "the type of beta, float32",
        [((2, 3), "float16")],
    ),
]
