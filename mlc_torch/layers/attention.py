"""Multi-head attention: softmax(Q·Kᵀ/√d + mask)·V for several heads side by side (evidence.md D.18)."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import nn
from torch.nn import functional as F

from mlc_torch.descriptors import MLCMultiheadAttentionDescriptor
from mlc_torch.layers.base import BOOLEAN, FLOATS, MLCLayer, described, of_type, same_type
from mlc_torch.layers.noise import Noise
from mlc_torch.layers.sharing import Samples, along_first, mixes
from mlc_torch.layers.tensor_lists import fitting, fitting_if, list_prop, parameters, same_type_as_source
from mlc_torch.refusals import refuse
from mlc_torch.spelling import declare, prop
from mlc_torch.tensor import MLCTensor, MLCTensorDescriptor

_PROJECTIONS = ("query", "key", "value", "output")
_FEW_ROWS = 256
"""For so few, an inference on the CPU has three products: joining the weights, which a program may change between any two
calls, takes longer than two more. Neoverse-N1, one thread, joined and apart, microseconds: 8 rows of 128 111 and 83, 64 rows
311 and 265, of 512 3679 and 3482, 256 rows of 128 901 and 885; 1024 rows of 128 3185 and 3259. A gradient gains from one.
"""


def _are_few(rows: int | torch.SymInt) -> bool:
    """Whether there are few rows. An export leaves their number open, and asking for it would fix it: three products, then."""
    return isinstance(rows, torch.SymInt) or rows <= _FEW_ROWS


class MultiheadAttention(nn.Module):
    """(query, key, value), each [batch, length, width], and up to two masks to [batch, query length, model].

    A key mask [batch, keys] is true where a key is ignored. An attention mask [1 or batch·heads, queries, keys] is true
    where a query does not attend to a key, or a number that is added to their score. A query that may attend to nothing
    gets zeros before the output projection.
    """

    query_weight: torch.Tensor
    key_weight: torch.Tensor
    value_weight: torch.Tensor
    output_weight: torch.Tensor
    query_bias: torch.Tensor | None
    key_bias: torch.Tensor | None
    value_bias: torch.Tensor | None
    output_bias: torch.Tensor | None
    key_row: torch.Tensor | None
    value_row: torch.Tensor | None

    def __init__(self, descriptor: MLCMultiheadAttentionDescriptor) -> None:
        super().__init__()
        self.sizes, self.heads = descriptor, descriptor.headCount
        self.noise = Noise(descriptor.dropout) if descriptor.dropout else None

    def forward(
        self, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, *masks: torch.Tensor
    ) -> torch.Tensor:
        q, k, v = self.projected(query, key, value)
        mask = self.added(masks, query)
        k, v = self.extended(k, self.key_row), self.extended(v, self.value_row)
        if mask is not None:
            mask = F.pad(mask, (0, k.shape[1] - key.shape[1]))  # the rows of our own are open to everyone
        q, k, v = (rows.unflatten(2, (self.heads, -1)).transpose(1, 2) for rows in (q, k, v))
        attended = self.attend(q, k, v, mask)
        return F.linear(attended.transpose(1, 2).flatten(2), self.output_weight, self.output_bias)

    def projected(self, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor) -> Sequence[torch.Tensor]:
        """Queries, keys and values. Attention of a tensor to itself is one product, forward and backward, not three."""
        weights = self.query_weight, self.key_weight, self.value_weight
        biases = self.query_bias, self.key_bias, self.value_bias
        if query is not key or key is not value:
            return [F.linear(*given) for given in zip((query, key, value), weights, biases, strict=True)]
        batch, length, _ = query.shape
        if query.is_cpu and not torch.is_grad_enabled() and _are_few(batch * length):
            rows = query.flatten(0, 1)
            return [F.linear(rows, *own).view(batch, length, -1) for own in zip(weights, biases, strict=True)]
        bias = torch.cat([b for b in biases if b is not None]) if self.query_bias is not None else None
        return F.linear(query, torch.cat(weights), bias).split([len(w) for w in weights], 2)

    def extended(self, rows: torch.Tensor, bias: torch.Tensor | None) -> torch.Tensor:
        """Projected keys or values, and after them the attention bias and the row of zeros."""
        batch, _, width = rows.shape
        if bias is not None:
            rows = torch.cat([rows, bias.expand(batch, 1, width)], 1)
        return F.pad(rows, (0, 0, 0, 1)) if self.sizes.addsZeroAttention else rows

    def added(self, masks: Sequence[torch.Tensor], query: torch.Tensor) -> torch.Tensor | None:
        """Both masks as what is added to the scores, of a shape that broadcasts to [batch, heads, queries, keys]."""
        total, batch = None, query.shape[0]
        for mask in masks:
            # Of a short last batch only the query, key and value may be short.
            if mask.dim() == 2:
                mask = mask[:batch, None, None, :]
            elif mask.shape[0] == 1:
                mask = mask.unsqueeze(0)
            else:
                mask = mask[: batch * self.heads].unflatten(0, (batch, self.heads))
            if mask.dtype == torch.bool:
                mask = torch.zeros_like(mask, dtype=query.dtype).masked_fill(mask, -math.inf)
            total = mask if total is None else total + mask
        return total

    def attend(self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, mask: torch.Tensor | None) -> torch.Tensor:
        """The attention proper, on [batch, heads, length, width]."""
        closed = None
        if mask is not None:
            # A softmax over nothing would be NaN, and so would its gradient.
            closed = (mask == -math.inf).all(-1, keepdim=True)
            mask = mask.masked_fill(closed, 0)
        if self.noise is not None and self.training:
            scores = q @ k.transpose(2, 3) / math.sqrt(q.shape[3])
            weights = torch.softmax(scores if mask is None else scores + mask, 3)
            attended = (weights * self.noise(weights.shape, weights)) @ v
        else:
            attended = F.scaled_dot_product_attention(q, k, v, mask)
        return attended if closed is None else attended.masked_fill(closed, 0)

    def extra_repr(self) -> str:
        d = self.sizes
        return (
            f"model={d.modelDimension}, heads={d.headCount}, keys={d.keyDimension}, values={d.valueDimension}, "
            f"zero_attention={d.addsZeroAttention}"
        )


class MLCMultiheadAttentionLayer(MLCLayer):
    """Multi-head attention of queries to keys and values, each projected with weights of its own."""

    descriptor = prop("MLCMultiheadAttentionDescriptor", "Sizes and switches.")
    weights = list_prop("[MLCTensor]", "The projections of queries, keys, values and the output.")
    biases = list_prop("[MLCTensor]?", "Their biases, or ``None``.")
    attentionBiases = list_prop("[MLCTensor]?", "The key and the value appended to the sequence, or ``None``.")
    weightsParameters = list_prop("[MLCTensorParameter]", "The projections as parameters.")
    biasesParameters = list_prop("[MLCTensorParameter]?", "The biases as parameters.")
    _named = "MultiheadAttention"

    @declare(
        "init?(descriptor: MLCMultiheadAttentionDescriptor, weights: [MLCTensor], biases: [MLCTensor]?, "
        "attentionBiases: [MLCTensor]?)",
        "layerWithDescriptor:weights:biases:attentionBiases:",
    )
    def _create(cls, descriptor, weights, biases, attentionBiases):
        """Weights are four tensors: for queries, keys, values and the output; biases likewise."""
        rows, columns = _rows(descriptor), _columns(descriptor, weights)
        weights = fitting("weights", weights, [r * c for r, c in zip(rows, columns, strict=True)])
        biases = fitting_if(descriptor.hasBiases, "hasBiases", "biases", biases, rows)
        attentionBiases = fitting_if(
            descriptor.hasAttentionBiases, "hasAttentionBiases", "attentionBiases", attentionBiases, rows[1:3]
        )
        return cls._layer(
            descriptor=descriptor,
            columns=columns,
            weights=weights,
            biases=biases,
            attentionBiases=attentionBiases,
            weightsParameters=parameters(weights),
            biasesParameters=parameters(biases),
            attentionBiasesParameters=parameters(attentionBiases),
        )

    def _infer(self, sources):
        d = self._descriptor
        if not 3 <= len(sources) <= 5:
            refuse(f"takes query, key, value and up to two masks, got {len(sources)} sources")
        for name, source, width in zip(_PROJECTIONS, sources[:3], self._columns, strict=False):
            of_type(source, FLOATS, f"the {name}")
            if len(source._shape) != 3 or source._shape[2] != width:
                why = f", since its weights have {width} columns" if width != d.modelDimension else ""
                refuse(f"the {name} must have the shape [batch, length, {width}]{why}, got {source.shape}")
        query, key, value, *masks = sources
        same_type([query, key, value])
        if key._shape[:2] != value._shape[:2] or key._shape[0] != query._shape[0]:
            shapes = f"{query.shape}, {key.shape}, {value.shape}"
            refuse(f"key and value must share their batch and length, and the query their batch; got {shapes}")
        batch, queries = query._shape[:2]
        self._mask_rules(masks, batch, queries, key._shape[1], query)
        return [described(query._shape, query._dataType)]

    def _mask_rules(
        self, masks: Sequence[MLCTensorDescriptor], batch: int, queries: int, keys: int, query: MLCTensorDescriptor
    ) -> None:
        if len({len(mask._shape) for mask in masks}) != len(masks):
            refuse(f"one key mask and one attention mask at most, got {' and '.join(str(m.shape) for m in masks)}")
        for mask in masks:
            first, *rest = mask._shape
            if len(rest) == 1:
                of_type(mask, BOOLEAN, "the key mask")
                # Of a larger batch it may be; but that which has the shape of torch's attention mask is one, which would be cut.
                is_of_queries = [first, *rest] == [queries, keys] and first != batch
                if first < batch or rest != [keys] or is_of_queries:
                    out = f"; an attention mask has the shape {[1, queries, keys]}" if is_of_queries else ""
                    refuse(f"the key mask must have the shape {[batch, keys]}, got {mask.shape}{out}")
                continue
            of_type(mask, BOOLEAN | {query._dataType}, "the attention mask")
            heads = self._descriptor.headCount
            every = batch * heads
            if rest != [queries, keys] or not (first == 1 or (first >= every and first % heads == 0)):
                refuse(
                    f"the attention mask must have the shape {[1, queries, keys]} or {[every, queries, keys]}, "
                    f"got {mask.shape}"
                )

    def _batch_axis(self, position, sources):
        """A mask for each head is narrowed by the module, to the batch that the query has."""
        return 0 if position < 3 or len(sources[position]._shape) == 2 else None

    def _check(self, sources):
        same_type_as_source(self, sources[0])

    def _samples(self, axes, sources, results):
        found = along_first(axes[:3], 1)
        masks = []
        for axis, mask in zip(axes[3:], sources[3:], strict=True):
            if len(mask._shape) == 3 and mask._shape[0] != 1:
                mixes("its attention mask has a matrix for each sample and head; use one for all, or a key mask", [0])
            masks.append(0 if len(mask._shape) == 2 else axis)
        return Samples([*(0 for _ in axes[:3]), *masks], found.results)

    def _build(self):
        d = self._descriptor
        module = MultiheadAttention(d)
        for index, (name, rows, columns) in enumerate(zip(_PROJECTIONS, _rows(d), self._columns, strict=True)):
            self._show(module, f"{name}_weight", (rows, columns), self._weightsParameters[index], f"weights.{index}")
            bias = self._biasesParameters[index] if self._biasesParameters else None
            self._show(module, f"{name}_bias", (rows,), bias, f"biases.{index}")
        for index, (name, rows) in enumerate((("key_row", d.keyDimension), ("value_row", d.valueDimension))):
            row = self._attentionBiasesParameters[index] if self._attentionBiasesParameters else None
            self._show(module, name, (rows,), row, f"attentionBiases.{index}")
        return module

    def _shown(self):
        return ["descriptor"]


def _rows(descriptor: MLCMultiheadAttentionDescriptor) -> list[int]:
    """Rows of the four projections, as the documentation's 4-D shapes flatten (evidence.md D.18)."""
    return [descriptor.keyDimension, descriptor.keyDimension, descriptor.valueDimension, descriptor.modelDimension]


def _columns(descriptor: MLCMultiheadAttentionDescriptor, weights: Sequence[MLCTensor]) -> list[int]:
    """Columns of the four projections: what they read.

    The documentation's weights read the model's width from query, key and value; the header's keys and values have widths
    of their own, keyDimension and valueDimension. The size of their weights says which it is; where that is neither, the
    documentation's is demanded.
    """
    model, rows = descriptor.modelDimension, _rows(descriptor)
    columns = [model, model, model, descriptor.valueDimension]
    for index, tensor in list(enumerate(weights))[1:3]:
        if math.prod(tensor._cell.shape) == rows[index] ** 2:
            columns[index] = rows[index]
    return columns
