"""Pooling in every form, against loops over windows."""

from __future__ import annotations

import itertools

import numpy as np
from torch import nn

from mlc_torch.descriptors import MLCPoolingDescriptor
from mlc_torch.enums import MLCPaddingPolicy as Padding
from mlc_torch.enums import MLCPoolingType as Kind
from mlc_torch.layers.pooling import AveragePool2d, L2NormPool2d, MaxPool2d, MLCPoolingLayer
from tests.layers.records import Record, Refusal, values


def starts(size, kernel, stride, dilation, policy, pad):
    """Where each window starts along one axis, counted from the first real pixel."""
    reach = (kernel - 1) * dilation + 1
    if policy == "same":
        count = int(np.ceil(size / stride))
        before = max((count - 1) * stride + reach - size, 0) // 2
    else:
        count, before = (size + 2 * pad - reach) // stride + 1, pad
    return [i * stride - before for i in range(count)]


def pool(x, kind, kernel, strides=(1, 1), dilation=(1, 1), padding=Padding.same):
    """For every window the list of its real elements, then what the pooling makes of it."""
    axes = [
        starts(*a, padding.name, p) for *a, p in zip(x.shape[2:], kernel, strides, dilation, padding.sizes, strict=True)
    ]
    y = np.zeros((*x.shape[:2], *map(len, axes)))
    for (i, top), (j, left) in itertools.product(*map(enumerate, axes)):
        rows = [r for r in range(top, top + kernel[0] * dilation[0], dilation[0]) if 0 <= r < x.shape[2]]
        columns = [c for c in range(left, left + kernel[1] * dilation[1], dilation[1]) if 0 <= c < x.shape[3]]
        real = x[:, :, rows][:, :, :, columns].reshape(*x.shape[:2], -1)
        if kind.name == "max":
            y[:, :, i, j] = real.max(-1)
        elif kind.name == "l2Norm":
            y[:, :, i, j] = np.sqrt((real**2).sum(-1))
        else:
            y[:, :, i, j] = real.sum(-1) / (kernel[0] * kernel[1] if kind.countIncludesPadding else real.shape[-1])
    return y


def pooling(name, x, kind, kernel, result, strides=(1, 1), dilation=(1, 1), padding=Padding.same, **kw) -> Record:
    source = x if isinstance(x, np.ndarray) else values(*x)
    counted = [kind.countIncludesPadding] if kind.name == "average" else []
    sizes = "KernelSizes_strides_dilationRates_paddingPolicy_paddingSizes_" + "countIncludesPadding_" * len(counted)
    make = getattr(MLCPoolingDescriptor, f"{kind.name}PoolingDescriptorWith{sizes}")
    return Record(
        f"{name}, {kind!r}",
        lambda: MLCPoolingLayer(
            descriptor=MLCPoolingDescriptor(
                type=kind, kernelSizes=kernel, strides=strides, dilationRates=dilation, paddingPolicy=padding
            )
        ),
        [source],
        result,
        lambda s: pool(s, kind, kernel, strides, dilation, padding),
        objc=None
        if np.isnan(source).any()
        else lambda: MLCPoolingLayer.layerWithDescriptor_(
            make(list(kernel), list(strides), list(dilation), padding.rawValue, list(padding.sizes), *counted)
        ),
        **kw,
    )


COUNTED = Kind.average(countIncludesPadding=True)
KINDS = [Kind.max, Kind.average, COUNTED, Kind.l2Norm]
OURS = {"max": MaxPool2d, "average": AveragePool2d, "l2Norm": L2NormPool2d}
TORCHS = {"max": nn.MaxPool2d, "average": nn.AvgPool2d, "l2Norm": L2NormPool2d}
PLAIN_OR_OURS = {**OURS, "max": nn.MaxPool2d}  # torch.nn's max pool knows dilation

AWKWARD = np.array([0, -0.5, 0.5, 1e10, -1e10, np.inf, -np.inf, np.nan, 3, 0, 0, 0], np.float32).reshape(1, 1, 3, 4)

RECORDS = (
    [
        record
        for kind in KINDS
        for record in (
            pooling("3x3 same", (2, 2, 5, 3), kind, (3, 3), (2, 2, 5, 3), module=TORCHS[kind.name]),
            pooling("2x2 same is lopsided", (1, 2, 4, 5), kind, (2, 2), (1, 2, 4, 5), module=OURS[kind.name]),
            pooling(
                "2x2 by 2 same, even sizes", (1, 2, 4, 6), kind, (2, 2), (1, 2, 2, 3), (2, 2), module=OURS[kind.name]
            ),
            pooling("same, uneven strides", (1, 2, 7, 5), kind, (3, 2), (1, 2, 4, 2), (2, 3)),
            pooling("same, kernel larger than image", (1, 1, 2, 3), kind, (5, 5), (1, 1, 2, 3)),
            pooling("same, stride larger than kernel", (1, 1, 7, 7), kind, (2, 2), (1, 1, 3, 3), (3, 3)),
            pooling("same, dilated", (1, 2, 6, 7), kind, (3, 3), (1, 2, 6, 7), dilation=(2, 1)),
            pooling(
                "same, dilated, strided",
                (1, 1, 7, 8),
                kind,
                (2, 3),
                (1, 1, 4, 3),
                (2, 3),
                (3, 2),
                module=OURS[kind.name],
            ),
            pooling("valid", (2, 2, 6, 5), kind, (3, 2), (2, 2, 4, 4), padding=Padding.valid, module=TORCHS[kind.name]),
            pooling(
                "valid, dilated",
                (1, 2, 9, 8),
                kind,
                (3, 2),
                (1, 2, 3, 2),
                (2, 3),
                (2, 3),
                Padding.valid,
                module=PLAIN_OR_OURS[kind.name],
            ),
            pooling(
                "sized",
                (1, 2, 4, 5),
                kind,
                (3, 4),
                (1, 2, 4, 6),
                padding=Padding.sized(y=1, x=2),
                module=TORCHS[kind.name],
            ),
            pooling(
                "sized, more than half a kernel",
                (1, 2, 4, 5),
                kind,
                (3, 2),
                (1, 2, 3, 3),
                (2, 2),
                padding=Padding.sized(y=2, x=1),
                module=OURS[kind.name],
            ),
            pooling(
                "sized, dilated", (1, 1, 4, 5), kind, (2, 2), (1, 1, 6, 5), (1, 1), (2, 2), Padding.sized(y=2, x=1)
            ),
            pooling("1x1", (1, 1, 2, 2), kind, (1, 1), (1, 1, 2, 2)),
            pooling("one pixel", (1, 1, 1, 1), kind, (3, 3), (1, 1, 1, 1)),
        )
    ]
    + [
        pooling("windows of padding alone", (1, 1, 2, 3), kind, (2, 2), (1, 1, 7, 4), padding=Padding.sized(y=3, x=1))
        for kind in (COUNTED, Kind.l2Norm)
    ]
    + [
        pooling(f"awkward values by {kernel}", AWKWARD, kind, kernel, (1, 1, 3, 4), gradient=False, half=False)
        for kind in KINDS
        for kernel in ((1, 2), (3, 1), (1, 1))
    ]
    + [
        Record(
            f"short descriptor, {kind!r}",
            lambda kind=kind: MLCPoolingLayer(
                descriptor=MLCPoolingDescriptor(type=kind, kernelSizes=(2, 2), strides=(2, 2))
            ),
            [np.arange(1, 5, dtype=np.float32).reshape(1, 1, 2, 2)],
            (1, 1, 1, 1),
            lambda x, answer=answer: np.reshape(answer, (1, 1, 1, 1)),
            objc=lambda kind=kind: MLCPoolingLayer.layerWithDescriptor_(
                MLCPoolingDescriptor.poolingDescriptorWithType_kernelSize_stride_(kind, 2, 2)
            ),
            rtol=2e-6,
        )
        for kind, answer in ((Kind.max, 4.0), (Kind.average, 2.5), (Kind.l2Norm, 5.477226))  # the last two measured
    ]
)


def _layer(kind=Kind.max, kernel=(2, 2), **kw):
    return MLCPoolingLayer(descriptor=MLCPoolingDescriptor(type=kind, kernelSizes=kernel, **kw))


REFUSALS = [
    Refusal("no type", lambda: MLCPoolingLayer(descriptor=MLCPoolingDescriptor._bare()), "no pooling type"),
    Refusal("rank", _layer, "[batch, channels, height, width]", [((2, 5, 5), "float32")]),
    Refusal("integers", _layer, "int32", [((1, 1, 2, 2), "int32")]),
    Refusal("two sources", _layer, "1 source", [((1, 1, 2, 2), "float32")] * 2),
    Refusal(
        "window does not fit",
        lambda: _layer(kernel=(3, 3), paddingPolicy=Padding.valid),
        "does not fit",
        [((1, 1, 2, 5), "float32")],
    ),
    Refusal(
        "max of padding alone",
        lambda: _layer(paddingPolicy=Padding.sized(y=0, x=2)),
        "width",
        [((1, 1, 2, 2), "float32")],
    ),
    Refusal(
        "average of padding alone",
        lambda: _layer(Kind.average, paddingPolicy=Padding.sized(y=5, x=0)),
        "height",
        [((1, 1, 2, 2), "float32")],
    ),
    Refusal(
        "dilation steps over the image",
        lambda: _layer(dilationRates=(3, 1)),
        "nothing but padding",
        [((1, 1, 1, 4), "float32")],
    ),
]
