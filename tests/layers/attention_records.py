"""Multi-head attention with every option, against loops over samples, heads and queries."""

from __future__ import annotations

import numpy as np

from mlc_torch.descriptors import MLCMultiheadAttentionDescriptor
from mlc_torch.layers.attention import MLCMultiheadAttentionLayer, MultiheadAttention
from tests.layers.records import Record, Refusal, booleans, tensor, values

_DESCRIBED = (
    "descriptorWithModelDimension_keyDimension_valueDimension_headCount_dropout_hasBiases_hasAttentionBiases_"
    "addsZeroAttention_"
)


def attention(query, key, value, weights, biases, rows, zero, heads, key_mask=None, attention_mask=None):
    """Step by step for each sample, head and query; a query that may see nothing attends to zeros."""
    wq, wk, wv, wo = (w.astype(float) for w in weights)
    bq, bk, bv, bo = (b.astype(float) for b in biases)
    result = np.zeros((*query.shape[:2], wo.shape[0]))
    for n in range(query.shape[0]):
        q, k, v = query[n] @ wq.T + bq, key[n] @ wk.T + bk, value[n] @ wv.T + bv
        open_keys = len(k)
        for extra in ([rows] if rows is not None else []) + ([(0 * k[0], 0 * v[0])] if zero else []):
            k, v = np.vstack([k, extra[0]]), np.vstack([v, extra[1]])
        size, width = k.shape[1] // heads, v.shape[1] // heads
        joined = np.zeros((len(q), v.shape[1]))
        for head in range(heads):
            part, out = slice(head * size, (head + 1) * size), slice(head * width, (head + 1) * width)
            for i in range(len(q)):
                scores = [q[i, part] @ row / np.sqrt(size) for row in k[:, part]]
                for j in range(open_keys):
                    if key_mask is not None and key_mask[n, j]:
                        scores[j] = -np.inf
                    if attention_mask is not None:
                        entry = attention_mask[0 if len(attention_mask) == 1 else n * heads + head, i, j]
                        scores[j] += (-np.inf if entry else 0) if attention_mask.dtype == bool else entry
                if max(scores) > -np.inf:
                    powers = np.exp(np.array(scores) - max(scores))
                    joined[i, out] = powers / powers.sum() @ v[:, out]
        result[n] = joined @ wo.T + bo
    return result


def arrays(model, key, value, widths=None):
    """Weights, biases and attention biases; ``widths`` of the keys and values where they are not the model's."""
    key_width, value_width = widths or (model, model)
    sizes = [(key, model), (key, key_width), (value, value_width), (model, value)]
    weights = [values(*size, seed=n, low=-0.7, high=0.7) for n, size in enumerate(sizes)]
    biases = [values(size[0], seed=n + 4) for n, size in enumerate(sizes)]
    return weights, biases, [values(key, seed=9), values(value, seed=10)]


def documented(model, key, value, heads, widths=None):
    """The shapes of the documentation."""
    columns = (model, *(widths or (model, model)))
    inward = [(1, heads, width // heads, c) for width, c in zip((key, key, value), columns, strict=True)]
    return [*inward, (1, 1, model, value)]


def record(
    name,
    batch,
    queries,
    keys,
    model,
    heads,
    key=None,
    value=None,
    biased=True,
    attention_biases=False,
    zero=False,
    key_mask=None,
    attention_mask=None,
    shape="documented",
    dropout=0.0,
    widths=None,
    **kw,
) -> Record:
    key, value = key or model, value or model
    weights, biases, rows = arrays(model, key, value, widths)
    shapes = {
        "documented": documented(model, key, value, heads, widths),
        "matrix": [w.shape for w in weights],
        "flat": [(w.size,) for w in weights],
    }
    bias_terms = biases if biased else [0 * b for b in biases]

    def lists():
        return (
            [tensor(w, s) for w, s in zip(weights, shapes[shape], strict=True)],
            [tensor(b) for b in biases] if biased else None,
            [tensor(r) for r in rows] if attention_biases else None,
        )

    def swift():
        w, b, r = lists()
        d = MLCMultiheadAttentionDescriptor(
            modelDimension=model,
            keyDimension=key,
            valueDimension=value,
            headCount=heads,
            dropout=dropout,
            hasBiases=biased,
            hasAttentionBiases=attention_biases,
            addsZeroAttention=zero,
        )
        return MLCMultiheadAttentionLayer(descriptor=d, weights=w, biases=b, attentionBiases=r)

    def objc():
        d = getattr(MLCMultiheadAttentionDescriptor, _DESCRIBED)(
            model, key, value, heads, dropout, biased, attention_biases, zero
        )
        return MLCMultiheadAttentionLayer.layerWithDescriptor_weights_biases_attentionBiases_(d, *lists())

    def reference(q, k, v, *masks):
        given = {("key_mask" if mask.ndim == 2 else "attention_mask"): mask for mask in masks}
        return attention(q, k, v, weights, bias_terms, rows if attention_biases else None, zero, heads, **given)

    key_width, value_width = widths or (model, model)
    sources = [values(batch, queries, model), values(batch, keys, key_width, seed=1)]
    sources.append(values(batch, keys, value_width, seed=2))
    sources += [mask for mask in (key_mask, attention_mask) if mask is not None]
    return Record(name, swift, sources, (batch, queries, model), reference, objc=objc, rtol=1e-4, atol=1e-5, **kw)


def _causal(n):
    return np.triu(np.ones((1, n, n), bool), 1)


_SOME = np.array([[False, True, False, True], [True, True, False, False]])
_ALL_OF_ONE = np.array([[True, True, True, True], [False, True, False, False]])
_MINUS_INFINITY = np.where(_causal(3), -np.inf, 0).astype(np.float32)
_CLOSED_ROW = booleans(1, 3, 4, seed=3)
_CLOSED_ROW[0, 1] = True

RECORDS = [
    record("one head", 2, 3, 4, 4, 1, module=MultiheadAttention),
    record("two heads, matrices", 2, 3, 4, 4, 2, shape="matrix"),
    record("as many heads as columns, flat", 1, 2, 2, 3, 3, shape="flat"),
    record("one of everything", 1, 1, 1, 1, 1),
    record("no biases", 2, 3, 4, 6, 2, biased=False),
    record("narrow keys, wide values", 2, 3, 4, 4, 2, key=2, value=6),
    record("keys and values of their own widths", 2, 3, 4, 4, 2, key=2, value=6, widths=(2, 6)),
    record("keys of their own width", 2, 3, 4, 4, 2, key=6, value=2, widths=(6, 4), key_mask=_SOME),
    record("values of their own width, matrices", 2, 3, 4, 4, 1, key=2, value=3, widths=(4, 3), shape="matrix"),
    record("attention biases", 2, 3, 4, 4, 2, attention_biases=True),
    record("zero attention", 2, 3, 4, 4, 2, zero=True),
    record(
        "attention biases and zero attention, other widths",
        2,
        2,
        3,
        6,
        3,
        key=3,
        value=6,
        attention_biases=True,
        zero=True,
        biased=False,
    ),
    record("key mask", 2, 3, 4, 4, 2, key_mask=_SOME),
    record("key mask of a larger batch", 1, 3, 4, 4, 2, key_mask=_SOME),
    record("key mask over everything", 2, 3, 4, 4, 2, key_mask=_ALL_OF_ONE),
    record("key mask over everything, attention biases", 2, 3, 4, 4, 2, key_mask=_ALL_OF_ONE, attention_biases=True),
    record("attention mask for all", 2, 3, 3, 4, 2, attention_mask=_causal(3)),
    record("attention mask that closes a row", 2, 3, 4, 4, 2, attention_mask=_CLOSED_ROW),
    record("attention mask for each head", 2, 3, 4, 4, 2, attention_mask=booleans(4, 3, 4, seed=1)),
    record("attention mask for each head of a larger batch", 1, 3, 4, 4, 2, attention_mask=booleans(6, 3, 4, seed=2)),
    record("added attention mask", 2, 3, 4, 4, 2, attention_mask=values(1, 3, 4, seed=7)),
    record("added attention mask for each head", 2, 3, 4, 4, 2, attention_mask=values(4, 3, 4, seed=7)),
    record("added attention mask of minus infinity", 2, 3, 3, 4, 2, attention_mask=_MINUS_INFINITY, gradient=False),
    record("both masks", 2, 3, 4, 4, 2, key_mask=_SOME, attention_mask=booleans(4, 3, 4, seed=4)),
    record(
        "both masks, one added, all rows of our own",
        2,
        3,
        4,
        4,
        2,
        key_mask=_ALL_OF_ONE,
        attention_mask=values(1, 3, 4, seed=8),
        attention_biases=True,
        zero=True,
    ),
    record("dropout outside training", 2, 3, 4, 4, 2, dropout=0.5),
    record("training without dropout", 2, 3, 4, 4, 2, key_mask=_SOME, training=True),
]


def _layer(biased=True, attention_biases=False, **lists):
    """A layer of model width 4 and two heads; ``weights={2: array}`` replaces one tensor, a list replaces all."""
    d = MLCMultiheadAttentionDescriptor(
        modelDimension=4,
        keyDimension=4,
        valueDimension=4,
        headCount=2,
        dropout=0.0,
        hasBiases=biased,
        hasAttentionBiases=attention_biases,
        addsZeroAttention=False,
    )
    weights, biases, _ = arrays(4, 4, 4)
    given = {"weights": [*map(tensor, weights)], "biases": [*map(tensor, biases)], "attentionBiases": None}
    for name, change in lists.items():
        if isinstance(change, dict):
            for index, array in change.items():
                given[name][index] = tensor(array)
        else:
            given[name] = change if change is None else [*map(tensor, change)]
    return MLCMultiheadAttentionLayer(descriptor=d, **given)


def _short():
    return MLCMultiheadAttentionLayer(
        descriptor=MLCMultiheadAttentionDescriptor(modelDimension=4, headCount=2),
        weights=[tensor(values(16))] * 4,
        biases=[tensor(values(4))] * 4,
        attentionBiases=None,
    )


def _own_widths():
    """Model width 4, keys of width 2 and values of width 6, as the header has them."""
    d = MLCMultiheadAttentionDescriptor(
        modelDimension=4,
        keyDimension=2,
        valueDimension=6,
        headCount=2,
        dropout=0.0,
        hasBiases=False,
        hasAttentionBiases=False,
        addsZeroAttention=False,
    )
    weights, _, _ = arrays(4, 2, 6, (2, 6))
    return MLCMultiheadAttentionLayer(descriptor=d, weights=[*map(tensor, weights)], biases=None, attentionBiases=None)


_Q, _K = ((2, 3, 4), "float32"), ((2, 5, 4), "float32")

REFUSALS = [
    Refusal("three weights", lambda: _layer(weights=[values(16)] * 3), "weights must hold 4 tensors, got 3"),
    Refusal(
        "weight size",
        lambda: _layer(weights={2: values(1, 2, 2, 3)}),
        "weights[2] needs 16 elements, got shape [1, 2, 2, 3]",
    ),
    Refusal("integer weights", lambda: _layer(weights={0: np.zeros(16, np.int32)}), "weights[0]"),
    Refusal("bias size", lambda: _layer(biases={3: values(3)}), "biases[3] needs 4 elements"),
    Refusal("biases missing", lambda: _layer(biases=None), "biases must hold 4 tensors, got none"),
    Refusal("biases not wanted", lambda: _layer(biased=False), "hasBiases is False"),
    Refusal("attention biases missing", lambda: _layer(attention_biases=True), "attentionBiases must hold 2 tensors"),
    Refusal(
        "attention biases not wanted", lambda: _layer(attentionBiases=[values(4)] * 2), "hasAttentionBiases is False"
    ),
    Refusal(
        "attention bias size",
        lambda: _layer(attention_biases=True, attentionBiases=[values(4), values(5)]),
        "attentionBiases[1] needs 4 elements",
    ),
    Refusal(
        "heads do not divide the keys",
        lambda: MLCMultiheadAttentionDescriptor(modelDimension=4, headCount=3),
        "headCount",
    ),
    Refusal("two sources", _short, "got 2", [_Q, _K]),
    Refusal("six sources", _short, "got 6", [_Q, _K, _K, ((2, 5), "bool"), ((1, 3, 5), "bool"), ((1, 3, 5), "bool")]),
    Refusal("query width", _short, "query must have the shape [batch, length, 4]", [((2, 3, 5), "float32"), _K, _K]),
    Refusal("key width", _short, "the key", [_Q, ((2, 5, 3), "float32"), _K]),
    Refusal(
        "key width, its own",
        _own_widths,
        "the key must have the shape [batch, length, 2], since its weights have 2 columns, got [2, 5, 4]",
        [_Q, _K, ((2, 5, 6), "float32")],
    ),
    Refusal("value rank", _short, "the value", [_Q, _K, ((2, 5), "float32")]),
    Refusal("integer query", _short, "int32", [((2, 3, 4), "int32"), _K, _K]),
    Refusal("lengths of key and value", _short, "share their batch and length", [_Q, _K, ((2, 6, 4), "float32")]),
    Refusal("batches", _short, "share their batch and length", [((3, 3, 4), "float32"), _K, _K]),
    Refusal("types", _short, "one data type", [_Q, ((2, 5, 4), "float16"), _K]),
    Refusal("float key mask", _short, "key mask must be boolean", [_Q, _K, _K, ((2, 5), "float32")]),
    Refusal("key mask shape", _short, "[2, 5]", [_Q, _K, _K, ((2, 4), "bool")]),
    Refusal("key mask batch", _short, "[2, 5]", [_Q, _K, _K, ((1, 5), "bool")]),
    Refusal(
        "torch's attention mask, which would be taken for keys",
        _short,
        "the key mask must have the shape [2, 5], got [3, 5]; an attention mask has the shape [1, 3, 5]",
        [_Q, _K, _K, ((3, 5), "bool")],
    ),
    Refusal("two key masks", _short, "at most", [_Q, _K, _K, ((2, 5), "bool"), ((2, 5), "bool")]),
    Refusal("attention mask shape", _short, "[1, 3, 5] or [4, 3, 5]", [_Q, _K, _K, ((2, 3, 5), "bool")]),
    Refusal("attention mask type", _short, "the attention mask", [_Q, _K, _K, ((1, 3, 5), "int32")]),
    Refusal("mask of rank 4", _short, "[1, 3, 5]", [_Q, _K, _K, ((1, 1, 3, 5), "bool")]),
    Refusal(
        "source unlike the weights",
        _short,
        "the type of weights.0, float32, got float16",
        [((2, 3, 4), "float16")] * 3,
        at_compile=True,
    ),
]
