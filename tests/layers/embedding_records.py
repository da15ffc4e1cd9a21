"""Embeddings, against rows picked one by one. Renormalisation and gradients by frequency are in test_embedding.py."""

from __future__ import annotations

import numpy as np
from torch import nn

from mlc_torch.descriptors import MLCEmbeddingDescriptor
from mlc_torch.layers.embedding import MLCEmbeddingLayer, RenormalizedEmbedding
from tests.layers.records import Record, Refusal, integers, tensor, values


def shortened(row, most, p):
    """A row, scaled to the Lp norm ``most`` where it is longer."""
    norm = np.abs(row).max() if p == np.inf else (np.abs(row) ** p).sum() ** (1 / p)
    return row * (most / norm) if most is not None and norm > most else row


def embedding(
    name, indices, count, dimension, weights=None, padding=None, most=None, p=2.0, scaled=False, **kw
) -> Record:
    w = values(count, dimension, seed=1)
    rule = w.astype(float)
    if padding is not None:
        rule[padding] = 0

    def reference(indices):
        result = np.empty((*indices.shape, dimension))
        for place in np.ndindex(*indices.shape):
            result[place] = shortened(rule[indices[place]], most, p)
        return result

    def swift():
        descriptor = MLCEmbeddingDescriptor(
            embeddingCount=count,
            embeddingDimension=dimension,
            paddingIndex=padding,
            maximumNorm=most,
            pNorm=p,
            scalesGradientByFrequency=scaled,
        )
        return MLCEmbeddingLayer(descriptor=descriptor, weights=tensor(w, weights))

    def objc():
        make = MLCEmbeddingDescriptor.descriptorWithEmbeddingCount_embeddingDimension_paddingIndex_maximumNorm_pNorm_scalesGradientByFrequency_  # noqa: E501
        descriptor = make(count, dimension, padding, most, p, scaled)
        return MLCEmbeddingLayer.layerWithDescriptor_weights_(descriptor, tensor(w, weights))

    return Record(
        name,
        swift,
        [indices],
        (*indices.shape, dimension),
        reference,
        objc=objc,
        module=nn.Embedding if most is None else RenormalizedEmbedding,
        **kw,
    )


# What changes the dictionary during the pass, or on purpose withholds a gradient, has no finite difference.
_OWN = {"gradient": False}
RECORDS = [
    embedding("one dimension", integers(4, below=5), 5, 3),
    embedding("sentences", integers(2, 3, below=7), 7, 4),
    embedding("int64", integers(2, 3, below=7, dtype="int64"), 7, 4),
    embedding("three dimensions", integers(2, 2, 3, below=5), 5, 2),
    embedding("flat weights", integers(2, 3, below=4), 4, 3, weights=(12,)),
    embedding("weights of four dimensions", integers(2, 3, below=10), 10, 8, weights=(1, 10, 1, 8)),
    embedding("padding", integers(4, 5, below=4), 4, 3, padding=2, **_OWN),
    embedding("maximum norm", integers(3, 4, below=6), 6, 3, most=1.0, **_OWN),
    embedding("maximum norm, L1", integers(3, 4, below=6, dtype="int64"), 6, 3, most=2.0, p=1.0, **_OWN),
    embedding("maximum norm, largest element", integers(3, 4, below=6), 6, 3, most=1.0, p=np.inf, **_OWN),
    embedding("maximum norm that none reaches", integers(3, 4, below=6), 6, 3, most=100.0, **_OWN),
    embedding("maximum norm and padding", integers(3, 4, below=6), 6, 3, padding=0, most=0.5, p=3.0, **_OWN),
    embedding("by frequency", integers(2, 3, below=7), 7, 4, scaled=True, **_OWN),
]


def _layer(count=4, dimension=3, weights=(12,), dtype="float32"):
    descriptor = MLCEmbeddingDescriptor(embeddingCount=count, embeddingDimension=dimension)
    return MLCEmbeddingLayer(descriptor=descriptor, weights=tensor(values(*weights).astype(dtype)))


REFUSALS = [
    Refusal("weights", lambda: _layer(weights=(3, 5)), "weights needs 12 elements"),
    Refusal("weights of whole numbers", lambda: _layer(dtype="int32"), "weights must be"),
    Refusal("float indices", _layer, "indices must be", [((2, 3), "float32")]),
    Refusal("four dimensions", _layer, "three dimensions", [((1, 2, 3, 4), "int32")]),
    Refusal("two sources", _layer, "1 source", [((2, 3), "int32"), ((2, 3), "int32")]),
]
