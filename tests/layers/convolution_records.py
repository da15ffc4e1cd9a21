"""Convolutions in every form, against loops over pixels."""

from __future__ import annotations

import itertools

import numpy as np
from torch import nn

from mlc_torch.descriptors import MLCConvolutionDescriptor
from mlc_torch.enums import MLCConvolutionType as Kind
from mlc_torch.enums import MLCPaddingPolicy as Padding
from mlc_torch.layers import MLCConvolutionLayer
from mlc_torch.layers.convolution import SameConv2d, TransposedConv2d
from tests.layers.records import Record, Refusal, tensor, values


def pads_of(size, kernel, stride, dilation, policy, pad):
    """(before, after) as TensorFlow's documentation defines SAME."""
    reach = (kernel - 1) * dilation + 1
    if policy == "valid":
        return 0, 0
    if policy == "sized":
        return pad, pad
    needed = max((int(np.ceil(size / stride)) - 1) * stride + reach - size, 0)
    return needed // 2, needed - needed // 2


def correlate(x, w, b, strides, dilation, groups, pads):
    """A convolution written out: for every output pixel the sum over the kernel."""
    x = np.pad(x, ((0, 0), (0, 0), *pads))
    outs, per, kh, kw = w.shape
    reach = (kh - 1) * dilation[0] + 1, (kw - 1) * dilation[1] + 1
    high = (x.shape[2] - reach[0]) // strides[0] + 1
    wide = (x.shape[3] - reach[1]) // strides[1] + 1
    y = np.zeros((x.shape[0], outs, high, wide))
    for o, i, j in itertools.product(range(outs), range(high), range(wide)):
        first = (o // (outs // groups)) * per
        top, left = i * strides[0], j * strides[1]
        patch = x[:, first : first + per, top : top + reach[0] : dilation[0], left : left + reach[1] : dilation[1]]
        y[:, o, i, j] = (patch * w[o]).sum((1, 2, 3)) + (0 if b is None else b[o])
    return y


def spread(x, w, b, strides, dilation, groups, policy, pad):
    """A transposed convolution written out: every input pixel adds a scaled kernel to the output."""
    outs, per, kh, kw = w.shape
    reach = (kh - 1) * dilation[0] + 1, (kw - 1) * dilation[1] + 1
    n, ins, h, wd = x.shape
    full = np.zeros((n, outs, (h - 1) * strides[0] + reach[0], (wd - 1) * strides[1] + reach[1]))
    for o, i, j in itertools.product(range(outs), range(h), range(wd)):
        group = o // (outs // groups)
        piece = np.einsum("nc,ckl->nkl", x[:, group * per : (group + 1) * per, i, j], w[o])
        top, left = i * strides[0], j * strides[1]
        full[:, o, top : top + reach[0] : dilation[0], left : left + reach[1] : dilation[1]] += piece
    cut = []
    for axis, size in ((0, h), (1, wd)):
        if policy == "same":
            surplus = reach[axis] - strides[axis]
            cut.append((max(surplus, 0) // 2, size * strides[axis]))
        else:
            p = pad[axis] if policy == "sized" else 0
            cut.append((p, full.shape[2 + axis] - 2 * p))
    (top, high), (left, wide) = cut
    y = np.zeros((n, outs, high, wide))
    part = full[:, :, top : top + high, left : left + wide]
    y[:, :, : part.shape[2], : part.shape[3]] = part
    return y + (0 if b is None else np.reshape(b, (1, -1, 1, 1)))


def convolution(
    name,
    x,
    out,
    kernel,
    result,
    strides=(1, 1),
    dilation=(1, 1),
    groups=1,
    padding=Padding.same,
    kind=Kind.standard,
    biased=True,
    **kw,
) -> Record:
    ins = x[1]
    per = 1 if kind is Kind.depthwise else ins // groups
    w, b = values(out, per, *kernel, seed=1), values(out, seed=2) if biased else None

    def reference(source):
        real = ins if kind is Kind.depthwise else groups
        if kind is Kind.transposed:
            return spread(source, w.astype(float), b, strides, dilation, real, padding.name, padding.sizes)
        pads = [
            pads_of(*a, padding.name, p) for *a, p in zip(x[2:], kernel, strides, dilation, padding.sizes, strict=True)
        ]
        return correlate(source, w.astype(float), b, strides, dilation, real, pads)

    def layer(made):
        weights = tensor(w, (1, out * per, *kernel))
        return MLCConvolutionLayer(
            weights=weights, biases=None if b is None else tensor(b, (1, out, 1, 1)), descriptor=made
        )

    return Record(
        name,
        lambda: layer(
            MLCConvolutionDescriptor(
                type=kind,
                kernelSizes=kernel,
                inputFeatureChannelCount=ins,
                outputFeatureChannelCount=out,
                groupCount=groups,
                strides=strides,
                dilationRates=dilation,
                paddingPolicy=padding,
            )
        ),
        [values(*x)],
        result,
        reference,
        objc=lambda: MLCConvolutionLayer.layerWithWeights_biases_descriptor_(
            tensor(w, (1, out * per, *kernel)),
            None if b is None else tensor(b, (1, out, 1, 1)),
            MLCConvolutionDescriptor.descriptorWithType_kernelSizes_inputFeatureChannelCount_outputFeatureChannelCount_groupCount_strides_dilationRates_paddingPolicy_paddingSizes_(
                kind, kernel, ins, out, groups, strides, dilation, padding.rawValue, list(padding.sizes)
            ),
        ),
        rtol=1e-4,
        atol=1e-5,
        **kw,
    )


RECORDS = [
    convolution("3x3 same", (2, 3, 5, 4), 4, (3, 3), (2, 4, 5, 4), module=nn.Conv2d),
    convolution("1x1, no biases", (1, 3, 2, 2), 2, (1, 1), (1, 2, 2, 2), biased=False),
    convolution("2x2 same is lopsided", (1, 2, 5, 5), 3, (2, 2), (1, 3, 5, 5), module=SameConv2d),
    convolution("same, uneven strides", (1, 2, 7, 5), 3, (3, 2), (1, 3, 4, 2), strides=(2, 3), module=SameConv2d),
    convolution("same, stride larger than kernel", (1, 1, 7, 7), 1, (2, 2), (1, 1, 3, 3), strides=(3, 3)),
    convolution("same, dilated", (1, 2, 6, 7), 2, (3, 2), (1, 2, 6, 7), dilation=(2, 3)),
    convolution("same, kernel larger than image", (1, 1, 2, 3), 2, (5, 5), (1, 2, 2, 3)),
    convolution("valid", (2, 2, 6, 5), 3, (3, 2), (2, 3, 4, 4), padding=Padding.valid, module=nn.Conv2d),
    convolution(
        "valid, strided, dilated", (1, 2, 9, 8), 2, (3, 3), (1, 2, 3, 2), (2, 3), (2, 2), padding=Padding.valid
    ),
    convolution("sized", (1, 2, 4, 5), 2, (3, 3), (1, 2, 4, 9), padding=Padding.sized(y=1, x=3), module=nn.Conv2d),
    convolution("sized, strided", (1, 3, 5, 6), 2, (2, 4), (1, 2, 4, 3), (2, 3), padding=Padding.sized(y=2, x=2)),
    convolution("grouped", (2, 4, 5, 5), 6, (3, 3), (2, 6, 5, 5), groups=2),
    convolution("grouped, strided same", (1, 6, 5, 4), 3, (2, 2), (1, 3, 3, 2), (2, 2), groups=3),
    convolution("depthwise", (2, 3, 5, 4), 3, (3, 3), (2, 3, 5, 4), kind=Kind.depthwise),
    convolution("depthwise, multiplier 2", (1, 3, 5, 4), 6, (3, 2), (1, 6, 3, 2), (2, 2), kind=Kind.depthwise),
    convolution(
        "transposed same", (1, 3, 3, 4), 2, (3, 3), (1, 2, 6, 8), (2, 2), kind=Kind.transposed, module=TransposedConv2d
    ),
    convolution("transposed same, even", (2, 2, 3, 3), 4, (4, 4), (2, 4, 6, 6), (2, 2), kind=Kind.transposed),
    convolution(
        "transposed same, kernel below stride", (1, 2, 3, 3), 2, (2, 1), (1, 2, 9, 9), (3, 3), kind=Kind.transposed
    ),
    convolution(
        "transposed valid", (1, 2, 3, 4), 3, (3, 2), (1, 3, 7, 8), (2, 2), kind=Kind.transposed, padding=Padding.valid
    ),
    convolution(
        "transposed sized, dilated",
        (1, 2, 4, 3),
        2,
        (3, 3),
        (1, 2, 6, 5),
        (1, 1),
        (2, 2),
        kind=Kind.transposed,
        padding=Padding.sized(y=1, x=1),
    ),
    convolution("transposed grouped", (1, 4, 3, 3), 6, (3, 3), (1, 6, 6, 6), (2, 2), groups=2, kind=Kind.transposed),
]


def _plain(**kw):
    return MLCConvolutionDescriptor(
        **{"kernelSizes": (3, 3), "inputFeatureChannelCount": 2, "outputFeatureChannelCount": 4} | kw
    )


def _layer(descriptor=None, weights=(1, 8, 3, 3), biases=(1, 4, 1, 1), dtype="float32", bias_type=None):
    held = tensor(values(*weights).astype(dtype))
    added = tensor(values(*biases).astype(bias_type or dtype))
    return MLCConvolutionLayer(weights=held, biases=added, descriptor=descriptor or _plain())


REFUSALS = [
    Refusal("weights shape", lambda: _layer(weights=(4, 2, 3, 3)), "[1, 8, 3, 3]"),
    Refusal("biases", lambda: _layer(biases=(1, 3, 1, 1)), "biases"),
    Refusal("weights of whole numbers", lambda: _layer(dtype="int32"), "weights must be float32, float16, got int32"),
    Refusal("type of the source", _layer, "the type of the weights, float32, got float16", [((1, 2, 5, 5), "float16")]),
    Refusal("whole numbers", _layer, "the type of the weights, float32, got int32", [((1, 2, 5, 5), "int32")]),
    Refusal("two types of parameters", lambda: _layer(bias_type="float16"), "type of the weights"),
    Refusal("kernel of zero", lambda: _plain(kernelSizes=(0, 3)), "kernelSizes"),
    Refusal("stride of zero", lambda: _plain(strides=(1, 0)), "strides"),
    Refusal("negative padding", lambda: _plain(paddingPolicy=Padding.sized(y=-1, x=0)), "paddingSizes"),
    Refusal("groups", lambda: _plain(groupCount=3), "groupCount"),
    Refusal("depthwise multiple", lambda: _plain(type=Kind.depthwise, outputFeatureChannelCount=3), "multiple"),
    Refusal("channels", _layer, "3 channels", [((1, 3, 5, 5), "float32")]),
    Refusal("rank", _layer, "[batch, channels, height, width]", [((2, 5, 5), "float32")]),
    Refusal(
        "window does not fit",
        lambda: _layer(_plain(paddingPolicy=Padding.valid)),
        "does not fit",
        [((1, 2, 2, 2), "float32")],
    ),
    Refusal(
        "padding beyond memory",
        lambda: _layer(_plain(dilationRates=(1, 2**62), paddingPolicy=Padding.same)),
        f"dilation {2**62} are too large for a width of 5 pixels: the window needs an image of shape [1, 2, 7, {2**63 + 5}]",
        [((1, 2, 5, 5), "float32")],
    ),
    Refusal(
        "transposed, beyond 32 bits",
        lambda: _layer(_plain(type=Kind.transposed, dilationRates=(2**31, 1), paddingPolicy=Padding.same)),
        f"dilation {2**31} of the height is too large: a transposed convolution counts pixels up to {2**31 - 1}",
        [((1, 2, 5, 5), "float32")],
    ),
]
