"""All nine losses, every reduction and every shape, against loops over samples, positions and classes."""

from __future__ import annotations

import itertools
import math

import numpy as np

from mlc_torch.descriptors import MLCLossDescriptor
from mlc_torch.enums import MLCLossType as Kind
from mlc_torch.enums import MLCReductionType as Reduction
from mlc_torch.layers.loss import MLCLossLayer
from mlc_torch.layers.loss_formulas import FORMULAS
from mlc_torch.tensor import MLCTensor
from tests.layers.records import Record, Refusal, integers, tensor, values

CLASS_LOSSES = (Kind.softmaxCrossEntropy, Kind.categoricalCrossEntropy, Kind.cosineDistance)
SMOOTHED = (Kind.softmaxCrossEntropy, Kind.categoricalCrossEntropy, Kind.sigmoidCrossEntropy)
REDUCTIONS = (Reduction.none, Reduction.sum, Reduction.mean)


def _t_log(t, p):
    return 0.0 if t == 0 and p == 0 else t * np.log(p)


def _row(kind, y, t, epsilon, delta):
    """The loss of each class at one position of one sample."""
    classes = len(y)
    e = y - t
    if kind is Kind.meanAbsoluteError:
        return [abs(x) for x in e]
    if kind is Kind.meanSquaredError:
        return [x * x for x in e]
    if kind is Kind.softmaxCrossEntropy:
        total = sum(np.exp(x - max(y)) for x in y)
        return [-t[c] * (y[c] - max(y) - np.log(total)) for c in range(classes)]
    if kind is Kind.sigmoidCrossEntropy:
        return [max(y[c], 0) - y[c] * t[c] + np.log(1 + np.exp(-abs(y[c]))) for c in range(classes)]
    if kind is Kind.categoricalCrossEntropy:
        return [-_t_log(t[c], y[c]) for c in range(classes)]
    if kind is Kind.hinge:
        return [np.maximum(1 - (2 * t[c] - 1) * y[c], 0) for c in range(classes)]
    if kind is Kind.huber:
        return [0.5 * x * x if abs(x) <= delta else delta * abs(x) - 0.5 * delta * delta for x in e]
    if kind is Kind.cosineDistance:
        return [1 / classes - y[c] * t[c] for c in range(classes)]
    return [-_t_log(t[c], y[c] + epsilon) - _t_log(1 - t[c], 1 - y[c] + epsilon) for c in range(classes)]


def _smoothed(kind, t, smoothing, class_count):
    if kind is Kind.sigmoidCrossEntropy:
        return t * (1 - smoothing) + smoothing / 2
    if kind in SMOOTHED:
        return t * (1 - smoothing) + smoothing / (len(t) if class_count == 1 else class_count)
    return t


def loss(kind, reduction, y, t, w=None, weight=1.0, labelSmoothing=0.0, classCount=1, epsilon=1e-7, delta=1.0):
    """The whole loss layer, one row of classes after the other. ``w`` has a shape that broadcasts to y's."""
    t = np.asarray(t, float).reshape(y.shape)
    w = np.broadcast_to(1.0 if w is None else w, y.shape)
    axis = {1: 0, 2: 1, 3: 2, 4: 1}[y.ndim]
    losses = np.zeros(y.shape)
    for place in itertools.product(*(range(n) for i, n in enumerate(y.shape) if i != axis)):
        row = (*place[:axis], slice(None), *place[axis:])
        target = _smoothed(kind, t[row], labelSmoothing, classCount)
        for c, value in enumerate(_row(kind, y[row], target, epsilon, delta)):
            losses[(*place[:axis], c, *place[axis:])] = weight * w[row][c] * value
    if reduction is Reduction.sum:
        return losses.sum().reshape(1)
    if kind in CLASS_LOSSES:
        rows = y.size // y.shape[axis]
        return (losses.sum() / rows).reshape(1) if reduction is Reduction.mean else losses.sum(tuple(range(1, y.ndim)))
    return (losses.sum() / losses.size).reshape(1) if reduction is Reduction.mean else losses


def result(kind, reduction, shape):
    if reduction is not Reduction.none:
        return (1,)
    return shape[:1] if kind in CLASS_LOSSES else shape


def one_hot(*shape, axis, seed=0):
    """Class labels as the framework takes them."""
    chosen = np.random.default_rng([seed, *shape]).integers(
        0, shape[axis], [n for i, n in enumerate(shape) if i != axis]
    )
    return np.moveaxis(np.eye(shape[axis], dtype=np.float32)[chosen], -1, axis)


def sources_for(kind, shape, label_shape):
    axis = {2: 1, 3: 2, 4: 1}[len(shape)]
    if kind in (Kind.categoricalCrossEntropy, Kind.log):
        return [values(*shape, low=0.05, high=0.95), one_hot(*shape, axis=axis).reshape(label_shape)]
    if kind in (Kind.softmaxCrossEntropy, Kind.sigmoidCrossEntropy, Kind.hinge):
        return [values(*shape), one_hot(*shape, axis=axis).reshape(label_shape)]
    return [values(*shape), values(*label_shape, seed=1)]


SHAPES = {
    "[N, C]": ((3, 4), (3, 4)),
    "[N, C, 1, 1] with labels [N, C]": ((3, 4, 1, 1), (3, 4)),
    "[N, T, C]": ((2, 3, 4), (2, 3, 4)),
    "[N, C, H, W]": ((2, 3, 2, 3), (2, 3, 2, 3)),
}


def _plain(kind, reduction, name) -> Record:
    shape, label_shape = SHAPES[name]
    return Record(
        f"{kind.name}, {reduction.name}, {name}",
        lambda: MLCLossLayer(descriptor=MLCLossDescriptor(type=kind, reductionType=reduction)),
        sources_for(kind, shape, label_shape),
        result(kind, reduction, shape),
        lambda y, t: loss(kind, reduction, y, t),
        objc=lambda: MLCLossLayer.layerWithDescriptor_(
            MLCLossDescriptor.descriptorWithType_reductionType_(kind, reduction)
        ),
        module=FORMULAS[kind],
    )


# Every number of the descriptor, away from its default.
_NUMBERS = {
    Kind.meanAbsoluteError: [{"weight": 0.5}],
    Kind.meanSquaredError: [{"weight": -2.0}],
    Kind.softmaxCrossEntropy: [
        {"labelSmoothing": 0.1},
        {"labelSmoothing": 0.1, "classCount": 7, "weight": 3.0},
        {"labelSmoothing": 1.0},
    ],
    Kind.sigmoidCrossEntropy: [{"labelSmoothing": 0.1}, {"labelSmoothing": 0.3, "classCount": 7, "weight": 0.25}],
    Kind.categoricalCrossEntropy: [{"labelSmoothing": 0.2}, {"labelSmoothing": 0.2, "classCount": 9, "weight": 2.0}],
    Kind.hinge: [{"weight": 1.5}],
    Kind.huber: [{"delta": 0.3}, {"delta": 2.5, "weight": 0.5}],
    Kind.cosineDistance: [{"weight": 4.0}],
    Kind.log: [{"epsilon": 0.1}, {"epsilon": 0.01, "weight": 2.0}],
}
# Fields that a loss does not use change nothing.
_UNUSED = {"labelSmoothing": 0.5, "classCount": 5, "epsilon": 0.5, "delta": 0.5}
_USED = {
    Kind.softmaxCrossEntropy: ("labelSmoothing", "classCount"),
    Kind.sigmoidCrossEntropy: ("labelSmoothing",),
    Kind.categoricalCrossEntropy: ("labelSmoothing", "classCount"),
    Kind.huber: ("delta",),
    Kind.log: ("epsilon",),
}


def _described(kind, reduction, given, name, extra=None) -> Record:
    shape, label_shape = SHAPES[name]
    numbers = {"weight": 1.0, "labelSmoothing": 0.0, "classCount": 1, "epsilon": 1e-7, "delta": 1.0} | given
    shown = numbers | (extra or {})
    return Record(
        f"{kind.name}, {reduction.name}, {', '.join(f'{k} {v}' for k, v in given.items()) or 'unused fields'}",
        lambda: MLCLossLayer(descriptor=MLCLossDescriptor(type=kind, reductionType=reduction, **shown)),
        sources_for(kind, shape, label_shape),
        result(kind, reduction, shape),
        lambda y, t: loss(kind, reduction, y, t, **numbers),
    )


_FACTORIES = {
    "hingeLoss": (Kind.hinge, {}),
    "huberLoss": (Kind.huber, {"delta": 0.7}),
    "log": (Kind.log, {"epsilon": 0.01}),
    "meanAbsoluteError": (Kind.meanAbsoluteError, {}),
    "meanSquaredError": (Kind.meanSquaredError, {}),
    "cosineDistance": (Kind.cosineDistance, {}),
    "sigmoidCrossEntropy": (Kind.sigmoidCrossEntropy, {"labelSmoothing": 0.1}),
    "softmaxCrossEntropy": (Kind.softmaxCrossEntropy, {"labelSmoothing": 0.1, "classCount": 4}),
    "categoricalCrossEntropy": (Kind.categoricalCrossEntropy, {"labelSmoothing": 0.1, "classCount": 4}),
}


def _factory(name, reduction, label, given) -> Record:
    """``given`` is a number for weight:, an array or None for weights:."""
    kind, numbers = _FACTORIES[name]
    selector = name if name.endswith("Loss") else f"{name}Loss"
    selector = f"{selector}WithReductionType_{''.join(f'{k}_' for k in numbers)}{label}_"

    def argument():
        return tensor(given) if isinstance(given, np.ndarray) else given

    return Record(
        f"factory {name}, {reduction.name}, {label} {'[3, 4]' if isinstance(given, np.ndarray) else given}",
        lambda: getattr(MLCLossLayer, name)(reductionType=reduction, **numbers, **{label: argument()}),
        sources_for(kind, (3, 4), (3, 4)),
        result(kind, reduction, (3, 4)),
        lambda y, t: loss(
            kind, reduction, y, t, given if label == "weights" else None, given if label == "weight" else 1.0, **numbers
        ),
        objc=lambda: getattr(MLCLossLayer, selector)(reduction, *numbers.values(), argument()),
        gradient=not isinstance(given, np.ndarray),  # a buffer's: see test_loss.py
    )


def _weighted(kind, reduction, name, weights, why, own=False) -> Record:
    """Weights as the third source, or as the layer's own."""
    shape, label_shape = SHAPES[name]
    sources = sources_for(kind, shape, label_shape)

    def spread(w):
        return w.reshape(shape if w.size == math.prod(shape) else (*w.shape, *[1] * (len(shape) - w.ndim)))

    def descriptor():
        return MLCLossDescriptor(type=kind, reductionType=reduction, weight=0.5)

    return Record(
        f"{kind.name}, {reduction.name}, {name}, {'own ' if own else ''}weights {why}",
        lambda: (
            MLCLossLayer(descriptor=descriptor(), weights=tensor(weights))
            if own
            else MLCLossLayer(descriptor=descriptor())
        ),
        sources if own else [*sources, weights],
        result(kind, reduction, shape),
        lambda y, t, w=weights: loss(kind, reduction, y, t, spread(w), 0.5),
        objc=(lambda: MLCLossLayer.layerWithDescriptor_weights_(descriptor(), tensor(weights))) if own else None,
        gradient=not own,  # see test_loss.py
    )


_AWKWARD = np.array(
    [[0, 0, 1], [1, 1, 0], [0.5, -0.5, -1], [1e18, -1e18, 3], [np.nan, 2, -2], [-0.0, 1e-30, 1]], np.float32
)
_AWKWARD_LABELS = np.array([[0, 1, 0], [1, 0, 0], [0, 0.5, 1], [0, 0, 1], [0, 1, 0], [0, 1, 0]], np.float32)
_INFINITE = np.array([[np.inf, -np.inf, 1], [-np.inf, 0.5, np.inf]], np.float32)
_INFINITE_LABELS = np.array([[0.25, 0.5, 0], [1, 0, 0.5]], np.float32)


def _awkward(kind, y, t, name) -> Record:
    return Record(
        f"{kind.name}, {name}",
        lambda: MLCLossLayer(descriptor=MLCLossDescriptor(type=kind, reductionType=Reduction.none)),
        [y, t],
        result(kind, Reduction.none, y.shape),
        lambda y, t: loss(kind, Reduction.none, y, t),
        gradient=False,
        half=False,
    )


_ELEMENTS = values(3, 4, seed=5, low=0, high=2)

RECORDS = [
    *(_plain(kind, reduction, name) for kind in Kind for reduction in REDUCTIONS for name in SHAPES),
    *(
        _described(kind, reduction, given, "[N, T, C]")
        for kind in Kind
        for given in _NUMBERS[kind]
        for reduction in (Reduction.none, Reduction.mean)
    ),
    *(
        _described(
            kind, Reduction.mean, {}, "[N, C]", {k: v for k, v in _UNUSED.items() if k not in _USED.get(kind, ())}
        )
        for kind in Kind
    ),
    *(_factory(name, Reduction.sum, "weight", 0.75) for name in _FACTORIES),
    *(_factory(name, Reduction.mean, "weights", _ELEMENTS) for name in _FACTORIES),
    *(_factory(name, Reduction.none, "weights", None) for name in _FACTORIES),
    *(
        _weighted(kind, reduction, "[N, C, 1, 1] with labels [N, C]", weights, why, own)
        for kind in (Kind.softmaxCrossEntropy, Kind.cosineDistance, Kind.huber)
        for reduction in (Reduction.none, Reduction.mean)
        for own in (False, True)
        for weights, why in [
            (_ELEMENTS, "in the labels' shape"),
            (values(3, seed=6, low=0, high=2), "one a sample"),
        ]
    ),
    *(
        _weighted(kind, Reduction.none, "[N, C, H, W]", weights, why)
        for kind in (Kind.categoricalCrossEntropy, Kind.meanSquaredError)
        for weights, why in [
            (values(2, 3, 2, 3, seed=7), "one an element"),
            (values(2, 1, seed=7), "[N, 1]"),
            (values(2, 1, 1, 1, seed=7), "[N, 1, 1, 1]"),
            (values(1, seed=7), "[1]"),
            (values(1, 3, 1, 1, seed=7), "one a class"),
            (values(2, 1, 2, 3, seed=7), "one a position"),
            (integers(2, below=5, seed=7), "of integers"),
        ]
    ),
    *(_awkward(kind, _AWKWARD, _AWKWARD_LABELS, "awkward values") for kind in Kind),
    *(
        _awkward(kind, _INFINITE, _INFINITE_LABELS, "infinities")
        for kind in Kind
        # An infinite logit is infinity minus infinity in this formula, and torch's order of terms is another.
        if kind is not Kind.sigmoidCrossEntropy
    ),
    Record(
        "meanSquaredError of a vector, from the documentation of BNNS",
        lambda: MLCLossLayer.meanSquaredError(reductionType=Reduction.sum, weight=1),
        [np.array([9, 1, 6, 3, 4, 5, 6, 7, 8, 9], np.float32), np.arange(10, dtype=np.float32)],
        (1,),
        lambda y, t: np.array([97.0]),
    ),
    *(
        Record(
            f"{kind.name} with labels of {dtype}",
            lambda kind=kind: MLCLossLayer(descriptor=MLCLossDescriptor(type=kind, reductionType=Reduction.mean)),
            [sources_for(kind, (3, 4), (3, 4))[0], one_hot(3, 4, axis=1).astype(dtype)],
            (1,),
            lambda y, t, kind=kind: loss(kind, Reduction.mean, y, t),
        )
        for kind in (Kind.softmaxCrossEntropy, Kind.meanSquaredError)
        for dtype in ("int32", "int64", "bool", "uint8")
    ),
]


def _loss(kind=Kind.meanSquaredError, reduction=Reduction.mean, weights=None, **numbers):
    numbers = {"weight": 1.0, "labelSmoothing": 0.0, "classCount": 1, "epsilon": 1e-7, "delta": 1.0} | numbers
    descriptor = MLCLossDescriptor(type=kind, reductionType=reduction, **numbers)
    if weights is None:
        return MLCLossLayer(descriptor=descriptor)
    return MLCLossLayer(descriptor=descriptor, weights=tensor(values(*weights)))


_PAIR = [((3, 4), "float32"), ((3, 4), "float32")]

REFUSALS = [
    *(
        Refusal(f"reduction {r.name}", lambda r=r: _loss(reduction=r), f"none, sum or mean, got {r.name}")
        for r in Reduction
        if r not in REDUCTIONS
    ),
    Refusal("factory, reduction", lambda: MLCLossLayer.hingeLoss(reductionType=Reduction.max, weight=1), "got max"),
    Refusal("Huber delta of 0", lambda: _loss(Kind.huber, delta=0), "delta"),
    Refusal("weight of NaN", lambda: _loss(Kind.hinge, weight=math.nan), "weight of a loss must be finite, got nan"),
    Refusal("infinite weight", lambda: _loss(Kind.meanSquaredError, weight=math.inf), "must be finite, got inf"),
    Refusal("epsilon of NaN", lambda: _loss(Kind.log, epsilon=math.nan), "epsilon of the log loss must be finite"),
    Refusal("Huber delta of NaN", lambda: _loss(Kind.huber, delta=math.nan), "delta"),
    Refusal("smoothing above 1", lambda: _loss(Kind.softmaxCrossEntropy, labelSmoothing=1.1), "labelSmoothing"),
    Refusal("smoothing below 0", lambda: _loss(Kind.sigmoidCrossEntropy, labelSmoothing=-0.1), "labelSmoothing"),
    Refusal("no classes", lambda: _loss(Kind.categoricalCrossEntropy, labelSmoothing=0.1, classCount=0), "classCount"),
    Refusal("one source", _loss, "predictions and labels", _PAIR[:1]),
    Refusal("four sources", _loss, "got 4 sources", _PAIR * 2),
    Refusal("integer predictions", _loss, "predictions must be", [((3, 4), "int32"), ((3, 4), "float32")]),
    Refusal("labels of another size", _loss, "got [3, 1]", [((3, 4), "float32"), ((3, 1), "float32")]),
    Refusal("no class axis", lambda: _loss(Kind.softmaxCrossEntropy), "[batch, classes", [((4,), "float32")] * 2),
    Refusal("weights source", _loss, "weights must have", [*_PAIR, ((4,), "float32")]),
    Refusal("weights of another batch", _loss, "got [2, 4]", [*_PAIR, ((2, 4), "float32")]),
    Refusal("weights in one row", _loss, "got [1, 12]", [*_PAIR, ((1, 12), "float32")]),
    Refusal(
        "weights in another order", _loss, "got [1, 3, 2]", [*[((1, 2, 3), "float32")] * 2, ((1, 3, 2), "float32")]
    ),
    Refusal("weights of fewer dimensions", _loss, "as many dimensions", [*_PAIR, ((4,), "float32")]),
    Refusal("own weights", lambda: _loss(weights=(4, 3)), "weights must have", _PAIR),
    Refusal(
        "own weights in another order",
        lambda: _loss(weights=(1, 3, 2)),
        "got [1, 3, 2]",
        [((1, 2, 3), "float32")] * 2,
    ),
    Refusal(
        "own weights without data",
        lambda: MLCLossLayer.meanSquaredError(reductionType=Reduction.mean, weights=MLCTensor(shape=[3, 4])),
        "hold no data",
        _PAIR,
        at_compile=True,
    ),
]
