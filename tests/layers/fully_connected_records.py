"""Fully connected layers in the forms that programs use, against loops over the outputs."""

from __future__ import annotations

import numpy as np

from mlc_torch.descriptors import MLCConvolutionDescriptor
from mlc_torch.layers.fully_connected import FullyConnected, MLCFullyConnectedLayer
from tests.layers.records import Record, Refusal, tensor, values


def weigh(x, w, b):
    """For every output the sum over the inputs; channels are last."""
    result = np.zeros((*x.shape[:-1], len(w)))
    for o, row in enumerate(w):
        for i, weight in enumerate(row):
            result[..., o] += weight * x[..., i]
        result[..., o] += 0 if b is None else b[o]
    return result


def connected(name, x, inputs, outputs, result, weights=None, biases=None, biased=True, kernel=(1, 1), **kw) -> Record:
    w = values(outputs, inputs, seed=1)
    b = values(outputs, seed=2) if biased else None
    second = len(x) == 4 and x[1:] == (inputs, 1, 1)

    def reference(source):
        source = source[:, :, 0, 0] if second else source
        y = weigh(source, w.astype(float), b)
        return y[:, :, None, None] if second else y

    def parts():
        shape = weights or (1, inputs * outputs, 1, 1)
        return tensor(w, shape), None if b is None else tensor(b, biases or (1, outputs, 1, 1))

    def described():
        return MLCConvolutionDescriptor(
            kernelSizes=kernel, inputFeatureChannelCount=inputs, outputFeatureChannelCount=outputs
        )

    def make():
        made, added = parts()
        return MLCFullyConnectedLayer(weights=made, biases=added, descriptor=described())

    return Record(
        name,
        make,
        [values(*x)],
        result,
        reference,
        objc=lambda: MLCFullyConnectedLayer.layerWithWeights_biases_descriptor_(*parts(), described()),
        module=FullyConnected,
        **kw,
    )


RECORDS = [
    connected("[N, C]", (3, 4), 4, 2, (3, 2)),
    connected("[N, T, C]", (2, 5, 4), 4, 3, (2, 5, 3)),
    connected("[N, H, W, C]", (2, 3, 2, 4), 4, 3, (2, 3, 2, 3)),
    connected("[N, C, 1, 1]", (3, 4, 1, 1), 4, 2, (3, 2, 1, 1)),
    connected("[N, 1, 1, 1]", (4, 1, 1, 1), 1, 1, (4, 1, 1, 1), weights=(1, 1, 1, 1)),
    connected("[N, 1, 1, 1] to several", (4, 1, 1, 1), 1, 3, (4, 3, 1, 1)),
    connected("[N, C, 1, 1] with one channel last", (2, 5, 1, 1), 1, 3, (2, 5, 1, 3)),
    connected("[N, C, H, C']", (2, 4, 1, 4), 4, 2, (2, 4, 1, 2)),
    connected("weights [1, in*out]", (3, 4), 4, 2, (3, 2), weights=(1, 8), biases=(1, 2)),
    connected("weights [1, out, in]", (3, 4), 4, 2, (3, 2), weights=(1, 2, 4), biases=(2,)),
    connected("weights [out, in]", (3, 4), 4, 2, (3, 2), weights=(2, 4)),
    connected("weights [in*out]", (3, 4), 4, 2, (3, 2), weights=(8,)),
    connected("no biases", (3, 4), 4, 2, (3, 2), biased=False),
    connected("no biases, [N, C, 1, 1]", (3, 4, 1, 1), 4, 2, (3, 2, 1, 1), biased=False),
    connected("kernel of in and out", (3, 4), 4, 2, (3, 2), kernel=(4, 2)),
    connected("kernel of out and in", (3, 4), 4, 2, (3, 2), kernel=(2, 4)),
]


def _layer(weights=(8,), biases=(2,), dtype="float32", bias_type="float32"):
    made = tensor(values(*weights).astype(dtype))
    added = None if biases is None else tensor(values(*biases).astype(bias_type))
    plain = MLCConvolutionDescriptor(kernelSizes=(1, 1), inputFeatureChannelCount=4, outputFeatureChannelCount=2)
    return MLCFullyConnectedLayer(weights=made, biases=added, descriptor=plain)


REFUSALS = [
    Refusal("weights", lambda: _layer(weights=(2, 5)), "weights needs 8 elements"),
    Refusal("biases", lambda: _layer(biases=(1, 3, 1, 1)), "biases needs 2 elements"),
    Refusal("weights of whole numbers", lambda: _layer(dtype="int32"), "weights must be"),
    Refusal("two types of parameters", lambda: _layer(bias_type="float16"), "type of the weights"),
    Refusal("type of the source", _layer, "type of the weights", [((3, 4), "float16")]),
    Refusal("whole numbers", _layer, "int32", [((3, 4), "int32")]),
    Refusal("channels", _layer, "[..., 4]", [((3, 5), "float32")]),
    Refusal("channels second", _layer, "[batch, 4, 1, 1]", [((3, 4, 2, 2), "float32")]),
    Refusal("one dimension", _layer, "2 to 4 dimensions", [((4,), "float32")]),
    Refusal("two sources", _layer, "1 source", [((3, 4), "float32"), ((3, 4), "float32")]),
]
